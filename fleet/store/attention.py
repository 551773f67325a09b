"""What waits for a person: one open record per kind and subject, with the reason and what to do next."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import NotFound, Refused
from fleet.core.ids import new_id
from fleet.store import notices
from fleet.store.database import db_now
from fleet.store.page import Page, page
from fleet.store.tables import AttentionRow

OPEN, CLOSED = 1, 2
"""The versions of a record, as notices have them: what is resolved is never open again, a new record is another one."""


def need(session: Session, kind: str, subject: str, *, machine: str | None, reason: str, next_step: str) -> None:
    """Open a record, or bring the open one of this kind and subject up to date (its `since` stays)."""
    row = session.scalar(
        sa.select(AttentionRow).where(
            AttentionRow.kind == kind, AttentionRow.subject == subject, AttentionRow.resolved_at.is_(None)
        )
    )
    if row is not None:
        row.machine, row.reason, row.next_step = machine, reason, next_step
        return
    since = session.scalar(sa.select(db_now())) or 0.0
    new = {"kind": kind, "subject": subject, "machine": machine, "reason": reason, "next_step": next_step}
    row = AttentionRow(id=new_id("att"), since=since, **new)
    session.add(row)
    notices.put(session, notices.ATTENTION, notices.OPENED, row.id, OPEN, machine=machine, why=reason)


def settle(
    session: Session, by: str, *, machine: str | None = None, kind: str | None = None, subject: str | None = None
) -> None:
    """Close open records that have come to their end by themselves, such as a machine's when it passed."""
    wanted: list[sa.ColumnElement[bool]] = [AttentionRow.resolved_at.is_(None)]
    if machine is not None:
        wanted.append(AttentionRow.machine == machine)
    if kind is not None:
        wanted.append(AttentionRow.kind == kind)
    if subject is not None:
        wanted.append(AttentionRow.subject == subject)
    closed = sa.update(AttentionRow).where(*wanted).values(resolved_at=db_now(), resolved_by=by)
    for id_, of in session.execute(closed.returning(AttentionRow.id, AttentionRow.machine)).all():
        _tell_resolved(session, id_, of, by)


def open_subjects(session: Session, kind: str) -> Sequence[str]:
    """Of which subjects there is an open record of this kind."""
    return session.scalars(
        sa.select(AttentionRow.subject).where(AttentionRow.kind == kind, AttentionRow.resolved_at.is_(None))
    ).all()


def resolve(session: Session, id_: str, by: str) -> AttentionRow:
    """A person has seen to it. Raises NotFound, Refused."""
    row = session.get(AttentionRow, id_, with_for_update=True)
    if row is None:
        raise NotFound(f"there is no attention record {id_!r}; `fleet attention list` shows the open ones")
    if row.resolved_at is not None:
        raise Refused(f"attention record {id_} was already resolved by {row.resolved_by}")
    row.resolved_at, row.resolved_by = session.scalar(sa.select(db_now())), by
    _tell_resolved(session, row.id, row.machine, by)
    return row


def some(session: Session, ids: Sequence[str]) -> dict[str, AttentionRow]:
    """Those of these ids that there are."""
    return {row.id: row for row in session.scalars(sa.select(AttentionRow).where(AttentionRow.id.in_(ids)))}


def _tell_resolved(session: Session, id_: str, machine: str | None, by: str) -> None:
    notices.put(session, notices.ATTENTION, notices.RESOLVED, id_, CLOSED, machine=machine, why=f"resolved by {by}")


def get(session: Session, id_: str) -> AttentionRow:
    """Raises NotFound."""
    row = session.get(AttentionRow, id_)
    if row is None:
        raise NotFound(f"there is no attention record {id_!r}; `fleet attention list` shows the open ones")
    return row


def listed(
    session: Session,
    *,
    machine: str | None = None,
    kind: str | None = None,
    resolved: bool = False,
    after: list[Any] | None = None,
    limit: int = 100,
) -> Page[AttentionRow]:
    """Open records, or the resolved ones, those that began first before the others."""
    ended = AttentionRow.resolved_at
    wanted = sa.select(AttentionRow).where(ended.is_not(None) if resolved else ended.is_(None))
    if machine is not None:
        wanted = wanted.where(AttentionRow.machine == machine)
    if kind is not None:
        wanted = wanted.where(AttentionRow.kind == kind)
    return page(session, wanted, (AttentionRow.since, AttentionRow.id), after, limit)
