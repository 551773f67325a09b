"""What waits for a person."""

from typing import Literal

from sqlalchemy.orm import Session

from fleet.service.access import Permit
from fleet.service.body import Body, Sentence
from fleet.service.listing import Json, Window, listing
from fleet.service.times import stamp
from fleet.service.writing import Answer
from fleet.store import attention, audit
from fleet.store.tables import AttentionRow


class Resolution(Body):
    note: Sentence | None = None


Standing = Literal["open", "resolved"]


def listed(
    session: Session,
    window: Window,
    machine: str | None = None,
    kind: str | None = None,
    state: Standing = "open",
) -> Json:
    """Open records unless the resolved ones are asked for, the longest waiting first."""
    after, resolved = window.after("attention", float, str), state == "resolved"
    page = attention.listed(session, machine=machine, kind=kind, resolved=resolved, after=after, limit=window.limit)
    return listing("attention", page, _view)


def show(session: Session, id_: str) -> Json:
    return _view(attention.get(session, id_))


def resolve(session: Session, permit: Permit, id_: str, order: Resolution) -> Answer:
    row = attention.resolve(session, id_, permit.actor.name)
    detail = {"kind": row.kind, "subject": row.subject, "note": order.note}
    audit.write(session, permit.actor.by, "attention.resolved", machine=row.machine, object_=row.id, detail=detail)
    return Answer.done(_view(row))


def _view(row: AttentionRow) -> Json:
    return {
        "id": row.id,
        "kind": row.kind,
        "state": "open" if row.resolved_at is None else "resolved",
        "machine": row.machine,
        "subject": row.subject,
        "reason": row.reason,
        "next_step": row.next_step,
        "since": stamp(row.since),
        "resolved_at": None if row.resolved_at is None else stamp(row.resolved_at),
        "resolved_by": row.resolved_by,
    }
