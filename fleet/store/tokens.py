"""API tokens. Only the SHA-256 of a token is kept: whoever reads the database cannot act as its owner."""

import hashlib
import secrets
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import NotFound, Refused
from fleet.core.ids import new_id
from fleet.store.database import db_now
from fleet.store.page import Page, page
from fleet.store.tables import TokenRow

PREFIX = "flt_"  # lets secret scanners find a token that was committed or pasted somewhere


_USED_EVERY_S = 60.0
"""How exact `last_used_at` is: only after this long a use is written down again, since most requests only read."""


def create(
    session: Session,
    name: str,
    role: str,
    expires_in_s: float | None = None,
    *,
    machine: str | None = None,
    by: str | None = None,
) -> tuple[TokenRow, str]:
    """A new row and its token, which is shown this once and never again."""
    token = PREFIX + secrets.token_urlsafe(32)
    now = session.scalar(sa.select(db_now())) or 0.0
    row = TokenRow(
        id=new_id("tok"),
        name=name,
        role=role,
        machine=machine,
        created_by=by,
        secret_sha256=_digest(token),
        created_at=now,
        expires_at=None if expires_in_s is None else now + expires_in_s,
    )
    session.add(row)
    session.flush()
    return row, token


def find(session: Session, token: str) -> tuple[TokenRow | None, bool]:
    """The row of a token, and whether it is valid now. Found by its hash: comparing hashes in an index tells an attacker
    nothing about the token."""
    row = session.scalar(sa.select(TokenRow).where(TokenRow.secret_sha256 == _digest(token)))
    if row is None:
        return None, False
    return row, is_valid(session, row)


def get(session: Session, id_: str) -> TokenRow:
    """Raises NotFound."""
    row = session.get(TokenRow, id_)
    if row is None:
        raise NotFound(f"there is no token {id_!r}; `fleet token list` shows all")
    return row


def is_valid(session: Session, row: TokenRow) -> bool:
    now = session.scalar(sa.select(db_now())) or 0.0
    return row.revoked_at is None and (row.expires_at is None or now < row.expires_at)


def is_use_due(session: Session, row: TokenRow) -> bool:
    """Is what the row says of its last use too old to be left as it is? Only reads."""
    now = session.scalar(sa.select(db_now())) or 0.0
    return row.last_used_at is None or now - row.last_used_at >= _USED_EVERY_S


def used(session: Session, id_: str, source: str | None) -> None:
    session.execute(sa.update(TokenRow).where(TokenRow.id == id_).values(last_used_at=db_now(), last_used_from=source))


def any_valid_admin(session: Session) -> bool:
    now = db_now()
    alive = (TokenRow.revoked_at.is_(None), sa.or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > now))
    return session.scalar(sa.select(TokenRow.id).where(TokenRow.role == "admin", *alive).limit(1)) is not None


def revoke(session: Session, id_: str) -> TokenRow:
    """Raises NotFound, Refused."""
    row = session.get(TokenRow, id_, with_for_update=True)
    if row is None:
        raise NotFound(f"there is no token {id_!r}; `fleet token list` shows all")
    if row.revoked_at is not None:
        raise Refused(f"token {id_} ({row.name}) is already revoked")
    row.revoked_at = session.scalar(sa.select(db_now()))
    return row


def listed(session: Session, *, after: list[Any] | None, limit: int) -> Page[TokenRow]:
    return page(session, sa.select(TokenRow), (TokenRow.created_at, TokenRow.id), after, limit)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
