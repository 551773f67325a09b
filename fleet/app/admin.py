"""The token of the user who started the service: whoever can open its database may as well have one."""

import getpass

from fleet.service.access import Role
from fleet.service.tokens import ensure_first_token
from fleet.store import audit, tokens
from fleet.store.audit import By
from fleet.store.database import Database

BY = By("service:start")


def token(db: Database, known: str | None) -> str:
    """`known` while it is a valid admin token of this database; else a new one, with its audit entry."""
    if known is not None:
        with db.read() as session:
            row, valid = tokens.find(session, known)
        if row is not None and valid and row.role == Role.ADMIN:
            return known
    if (first := ensure_first_token(db)) is not None:
        return first
    with db.begin() as session:
        row, made = tokens.create(session, f"admin-{_login()}", Role.ADMIN, by=BY.actor)
        audit.write(session, BY, "token.created", object_=row.id, detail={"role": row.role})
        return made


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return "unknown"
