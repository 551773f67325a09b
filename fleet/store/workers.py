"""Which worker processes are up: each says so every few seconds, and takes its word back when it ends in order."""

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.store.database import db_now
from fleet.store.tables import WorkerRow

BEAT_S = 5.0
GONE_S = 30.0
"""Silence after which a worker counts as gone: killed, frozen, or cut off from the database."""
_FORGOTTEN_S = 3600.0


def beat(session: Session, name: str, threads: int) -> None:
    """`name` is up. Also drops the rows of those that were killed long ago."""
    now = session.scalar(sa.select(db_now())) or 0.0
    row = session.get(WorkerRow, name)
    if row is None:
        session.execute(sa.delete(WorkerRow).where(WorkerRow.seen_at < now - _FORGOTTEN_S))
        session.add(WorkerRow(name=name, threads=threads, started_at=now, seen_at=now))
    else:
        row.seen_at = now


def leave(session: Session, name: str) -> None:
    session.execute(sa.delete(WorkerRow).where(WorkerRow.name == name))


def up(session: Session) -> int:
    """How many have been heard of within GONE_S."""
    seen = sa.select(sa.func.count()).where(WorkerRow.seen_at > db_now() - GONE_S)
    return session.scalar(seen) or 0
