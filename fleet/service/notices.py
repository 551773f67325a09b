"""What is told to the outside, and how far that is."""

from typing import Literal

from sqlalchemy.orm import Session

from fleet.core.errors import NotFound
from fleet.service.access import Permit
from fleet.service.listing import Json, Window, listing
from fleet.service.times import stamp, stamp_or_none
from fleet.service.writing import Answer
from fleet.store import audit, notices
from fleet.store.notices import Standing as Standing
from fleet.store.tables import NoticeRow

Destination = Literal["scheduler", "attention"]


def listed(
    session: Session,
    window: Window,
    machine: str | None = None,
    destination: Destination | None = None,
    state: Standing | None = None,
) -> Json:
    """Newest first."""
    after = window.after("notice", int)
    page = notices.listed(
        session, machine=machine, destination=destination, standing=state, after=after, limit=window.limit
    )
    return listing("notice", page, _view)


def show(session: Session, id_: str) -> Json:
    return _view(notices.get(session, _number(id_)))


def acknowledge(session: Session, permit: Permit, id_: str) -> Answer:
    """The receiver goes by this notice, and all before it of the same machine. To say so twice changes nothing."""
    by = permit.actor
    known = notices.get(session, _number(id_)).acknowledged_at is not None
    row = notices.acknowledge(session, _number(id_), by.name)
    if not known:
        detail = {"destination": row.destination, "kind": row.kind, "subject": row.subject, "version": row.version}
        audit.write(session, by.by, "notice.acknowledged", machine=row.machine, object_=id_, detail=detail)
    return Answer.done(_view(row))


def _number(id_: str) -> int:
    """Raises NotFound for what is no notice's id."""
    number = id_.removeprefix("ntc-")
    if not id_.startswith("ntc-") or not number.isdecimal() or len(number) > 18:
        raise NotFound(f"there is no notice {id_!r}; `fleet notice list` shows them")
    return int(number)


def _view(row: NoticeRow) -> Json:
    return {
        "id": f"ntc-{row.id}",
        "destination": row.destination,
        "kind": row.kind,
        "state": notices.standing(row),
        "machine": row.machine,
        "subject": row.subject,
        "version": row.version,
        "why": row.body.get("why"),
        "created_at": stamp(row.created_at),
        "attempts": row.attempts,
        "last_error": row.last_error,
        "delivered_at": stamp_or_none(row.delivered_at),
        "acknowledged_at": stamp_or_none(row.acknowledged_at),
        "acknowledged_by": row.acknowledged_by,
    }
