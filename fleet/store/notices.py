"""The outbox: that something is to be told, and how far the telling is. What is told is rebuilt from the present state when
it is sent, so one notice stands for all before it of the same subject: whoever acknowledges it has acknowledged those."""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import NotFound
from fleet.store.database import db_now
from fleet.store.page import Page, page
from fleet.store.tables import NoticeRow

SCHEDULER, ATTENTION = "scheduler", "attention"
DESTINATIONS = (SCHEDULER, ATTENTION)

RETURNED, WITHDRAWN, HELD, UNHELD = "pool.returned", "pool.withdrawn", "pool.held", "pool.unheld"
ALLOCATED, CONDEMNED = "pool.allocated", "pool.condemned"
OPENED, RESOLVED = "attention.opened", "attention.resolved"

ALONE_AFTER = 3
"""A notice that was in as many messages that were answered with an error goes alone from then on: it may be what the
receiver chokes on, and must not keep the others back."""


class Standing(StrEnum):
    PENDING = "pending"  # not known to have arrived
    DELIVERED = "delivered"  # has arrived; whether the receiver goes by it is not known
    ACKNOWLEDGED = "acknowledged"


def put(
    session: Session, destination: str, kind: str, subject: str, version: int, *, machine: str | None, why: str
) -> None:
    """Promise, in the transaction of what is to be told."""
    at = session.scalar(sa.select(db_now())) or 0.0
    session.add(
        NoticeRow(
            destination=destination,
            kind=kind,
            subject=subject,
            version=version,
            machine=machine,
            body={"why": why},
            created_at=at,
            due_at=at,
        )
    )


def is_due(destination: str | sa.SQLColumnExpression[str]) -> sa.ColumnElement[bool]:
    """Is there something to send now?"""
    return sa.exists().where(*_open(destination), NoticeRow.due_at <= db_now())


def batch(session: Session, destination: str, limit: int) -> Sequence[NoticeRow]:
    """What to send next: the newest notice of each subject that has one due, the least tried and longest waiting first."""
    tries = sa.func.max(NoticeRow.attempts)
    due = (
        sa.select(NoticeRow.subject)
        .where(*_open(destination), NoticeRow.due_at <= db_now())
        .group_by(NoticeRow.subject)
        .order_by(tries, sa.func.min(NoticeRow.due_at), NoticeRow.subject)
    )
    together = session.scalars(due.having(tries < ALONE_AFTER).limit(limit)).all()
    subjects = together or session.scalars(due.limit(1)).all()
    newest = (
        sa.select(sa.func.max(NoticeRow.id))
        .where(*_open(destination), NoticeRow.subject.in_(subjects))
        .group_by(NoticeRow.subject)
    )
    return session.scalars(sa.select(NoticeRow).where(NoticeRow.id.in_(newest)).order_by(NoticeRow.id)).all()


def delivered(
    session: Session, destination: str, told: Mapping[str, int], acknowledged: Collection[str], again_s: float
) -> None:
    """The receiver has had `told`: subjects, with the version that each was told in. What it did not acknowledge is sent
    again in `again_s` seconds: a word that it lost meanwhile would be lost for good."""
    for subject, version in told.items():
        covered = (*_open(destination), NoticeRow.subject == subject, NoticeRow.version <= version)
        values: dict[str, Any] = {
            "delivered_at": sa.func.coalesce(NoticeRow.delivered_at, db_now()),
            "last_error": None,
        }
        if subject in acknowledged:
            values |= {"acknowledged_at": db_now(), "acknowledged_by": destination}
        session.execute(sa.update(NoticeRow).where(*covered).values(due_at=db_now() + again_s, **values))


def failed(session: Session, destination: str, subjects: Collection[str], error: str, *, counts: bool) -> None:
    """Sending these brought `error`. `counts`: it may be for what they say."""
    session.execute(
        sa.update(NoticeRow)
        .where(*_open(destination), NoticeRow.subject.in_(subjects))
        .values(last_error=error[:1000], attempts=NoticeRow.attempts + int(counts))
    )


def postpone(session: Session, destination: str, until: float, subjects: Collection[str] | None = None) -> None:
    """Nothing for this destination, or nothing of these subjects, is due before `until`, by the database's clock."""
    wanted = [*_open(destination), NoticeRow.due_at < until]
    if subjects is not None:
        wanted.append(NoticeRow.subject.in_(subjects))
    session.execute(sa.update(NoticeRow).where(*wanted).values(due_at=until))


def acknowledge(session: Session, id_: int, by: str) -> NoticeRow:
    """The receiver goes by this notice, and so by all before it of its subject. Nothing happens when that was said before.
    Raises NotFound."""
    row = get(session, id_)
    close(session, row.destination, by, subject=row.subject, up_to=row.version)
    session.refresh(row)
    return row


def close(session: Session, destination: str, by: str, *, subject: str | None = None, up_to: int | None = None) -> None:
    """Whatever is open, or only that of one subject up to a version, need not be told any more; `by` says who knows it."""
    wanted = [*_open(destination)]
    if subject is not None:
        wanted.append(NoticeRow.subject == subject)
    if up_to is not None:
        wanted.append(NoticeRow.version <= up_to)
    session.execute(sa.update(NoticeRow).where(*wanted).values(acknowledged_at=db_now(), acknowledged_by=by))


def withdrawal_open(session: Session, machine: str) -> NoticeRow | None:
    """The newest word that this machine is out of the pool which the scheduler has not acknowledged: as long as there is
    one, the scheduler may believe that it can still place a tenant there."""
    return session.scalar(
        sa.select(NoticeRow)
        .where(*_open(SCHEDULER), NoticeRow.subject == machine, NoticeRow.kind.in_((WITHDRAWN, HELD)))
        .order_by(NoticeRow.id.desc())
        .limit(1)
    )


def was_told(session: Session, destination: str, subject: str) -> bool:
    """Has the receiver ever had a notice of this subject?"""
    told = sa.select(NoticeRow.id).where(
        NoticeRow.destination == destination, NoticeRow.subject == subject, NoticeRow.delivered_at.is_not(None)
    )
    return session.scalar(told.limit(1)) is not None


def forget(session: Session, destination: str, older_than_s: float) -> None:
    """Drop what was acknowledged so long ago that it explains nothing any more."""
    session.execute(
        sa.delete(NoticeRow).where(
            NoticeRow.destination == destination, NoticeRow.acknowledged_at < db_now() - older_than_s
        )
    )


def get(session: Session, id_: int) -> NoticeRow:
    """Raises NotFound."""
    row = session.get(NoticeRow, id_)
    if row is None:
        raise NotFound(f"there is no notice ntc-{id_}; `fleet notice list` shows them")
    return row


def listed(
    session: Session,
    *,
    machine: str | None = None,
    destination: str | None = None,
    standing: Standing | None = None,
    after: list[Any] | None = None,
    limit: int = 100,
) -> Page[NoticeRow]:
    """Newest first."""
    wanted = sa.select(NoticeRow)
    if machine is not None:
        wanted = wanted.where(NoticeRow.machine == machine)
    if destination is not None:
        wanted = wanted.where(NoticeRow.destination == destination)
    if standing is not None:
        acknowledged = NoticeRow.acknowledged_at.is_not(None)
        arrived = NoticeRow.delivered_at.is_not(None)
        wanted = wanted.where(
            {
                Standing.PENDING: sa.and_(~acknowledged, ~arrived),
                Standing.DELIVERED: sa.and_(~acknowledged, arrived),
                Standing.ACKNOWLEDGED: acknowledged,
            }[standing]
        )
    return page(session, wanted, (NoticeRow.id,), after, limit, newest_first=True)


def standing(row: NoticeRow) -> Standing:
    if row.acknowledged_at is not None:
        return Standing.ACKNOWLEDGED
    return Standing.PENDING if row.delivered_at is None else Standing.DELIVERED


def _open(destination: str | sa.SQLColumnExpression[str]) -> tuple[sa.ColumnElement[bool], ...]:
    return NoticeRow.destination == destination, NoticeRow.acknowledged_at.is_(None)
