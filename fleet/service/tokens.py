"""API tokens: made, listed and revoked by admins; the first one by the service itself."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import model_validator
from sqlalchemy.orm import Session

from fleet.service.access import Permit, Role
from fleet.service.body import Body, MachineName, Seconds, Word
from fleet.service.listing import Json, Window, listing
from fleet.service.times import stamp, stamp_or_none
from fleet.service.writing import Answer
from fleet.store import audit, machines, tokens
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import TokenRow


class NewToken(Body):
    """`machine` is the one that an agent speaks for; nobody else has one."""

    name: Word
    role: Literal["viewer", "operator", "hardware", "control-plane", "agent", "admin"]
    machine: MachineName | None = None
    expires_in_s: Seconds | None = None

    @model_validator(mode="after")
    def _agents_have_a_machine(self) -> Self:
        if (Role(self.role) is Role.AGENT) != (self.machine is not None):
            raise ValueError("role agent needs the machine that it speaks for (`machine`), and no other role has one")
        return self


def create(session: Session, permit: Permit, order: NewToken) -> Answer:
    """Raises NotFound for a machine that there is not."""
    if order.machine is not None:
        machines.get(session, order.machine)
    by = permit.actor
    row, token = tokens.create(session, order.name, order.role, order.expires_in_s, machine=order.machine, by=by.name)
    detail = {
        "name": row.name,
        "role": row.role,
        "machine": row.machine,
        "expires_at": stamp_or_none(row.expires_at),
    }
    audit.write(session, by.by, "token.created", machine=row.machine, object_=row.id, detail=detail)
    return Answer.created(_view(row), secret={"token": token})


def revoke(session: Session, permit: Permit, id_: str) -> Answer:
    row = tokens.revoke(session, id_)
    audit.write(session, permit.actor.by, "token.revoked", object_=row.id, detail={"name": row.name, "role": row.role})
    return Answer.done(_view(row))


def listed(session: Session, window: Window) -> Json:
    page = tokens.listed(session, after=window.after("token", float, str), limit=window.limit)
    return listing("token", page, _view)


def ensure_first_token(db: Database) -> str | None:
    """An admin token where no valid one is left, None where there is one. For the composition root, which writes it to the
    profile of the user who started the service."""
    with db.begin() as session:
        if tokens.any_valid_admin(session):
            return None
        row, token = tokens.create(session, "first-admin", Role.ADMIN, by="service:start")
        audit.write(session, By("service:start"), "token.created", object_=row.id, detail={"role": row.role})
        return token


def _view(row: TokenRow) -> Mapping[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "role": row.role,
        "machine": row.machine,
        "created_at": stamp(row.created_at),
        "created_by": row.created_by,
        "expires_at": stamp_or_none(row.expires_at),
        "revoked_at": stamp_or_none(row.revoked_at),
        "last_used_at": stamp_or_none(row.last_used_at),
        "last_used_from": row.last_used_from,
    }
