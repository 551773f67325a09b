"""Answers already given, by the key that the caller chose for the request.

The answer is written in the transaction of the effect itself. So a row exists exactly if the effect does: a request whose
process died left nothing that could block its repetition, and of two at the same time the second waits for the first one's
transaction (SQLite: for the write lock, PostgreSQL: on the primary key) and then finds its answer.
"""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from fleet.core.errors import Refused
from fleet.store.database import db_now
from fleet.store.tables import IdempotencyRow

KEPT_S = 24 * 3600.0
"""How long an answer is kept: longer than any client keeps trying."""


@dataclass(frozen=True)
class Key:
    """`actor` is the token's id, so that two callers never meet on one key; `request_sha256` covers method, path, body."""

    actor: str
    key: str
    request_sha256: str


@dataclass(frozen=True)
class Answered:
    status: int
    response: str


def claim(session: Session, key: Key) -> Answered | None:
    """Take the key in the caller's transaction: None means go on and `answer`, else the answer that was given before.
    Raises KeyReused when the key came with another request."""
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    now = session.scalar(sa.select(db_now())) or 0.0
    session.execute(sa.delete(IdempotencyRow).where(IdempotencyRow.at < now - KEPT_S))
    taken = session.scalar(
        insert(IdempotencyRow)
        .values(actor=key.actor, key=key.key, request_sha256=key.request_sha256, status=0, response="", at=now)
        .on_conflict_do_nothing()
        .returning(IdempotencyRow.key)
    )
    if taken is not None:
        return None
    row = session.get_one(IdempotencyRow, (key.actor, key.key))
    if row.request_sha256 != key.request_sha256:
        raise KeyReused(f"the idempotency key {key.key} was used for another request; choose a new one")
    return Answered(row.status, row.response)


def answer(session: Session, key: Key, answered: Answered) -> None:
    session.execute(
        sa.update(IdempotencyRow)
        .where(IdempotencyRow.actor == key.actor, IdempotencyRow.key == key.key)
        .values(status=answered.status, response=answered.response)
    )


class KeyReused(Refused):
    code = "idempotency-key-reused"
