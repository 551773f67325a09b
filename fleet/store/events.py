"""Events that were accepted, for ever: the same id is never applied twice."""

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.store.machines import now
from fleet.store.tables import EventRow

APPLIED = "applied"
WAITING = "waiting"  # a `placed` whose machine is still taken, a `kept` whose domain must be seen first
DROPPED = "dropped"  # a waiting one that was overtaken by a later fact


def get(session: Session, id_: str) -> EventRow | None:
    return session.get(EventRow, id_)


def waiting(session: Session, machine: str, kind: str) -> EventRow | None:
    """The one of this kind that has waited longest for the machine."""
    return session.scalar(
        sa.select(EventRow)
        .where(EventRow.machine == machine, EventRow.kind == kind, EventRow.state == WAITING)
        .order_by(EventRow.received_at)
        .limit(1)
    )


def finish(session: Session, row: EventRow, state: str) -> None:
    row.state = state
    row.applied_at = now(session) if state == APPLIED else None


def drop_waiting(session: Session, machine: str, kind: str, instance: str | None = None) -> bool:
    """Overtake the machine's waiting events of a kind (of one instance, or of any); False when there is none."""
    wanted = [EventRow.machine == machine, EventRow.kind == kind, EventRow.state == WAITING]
    if instance is not None:
        wanted.append(EventRow.instance == instance)
    dropped = session.execute(sa.update(EventRow).where(*wanted).values(state=DROPPED))
    return bool(dropped.rowcount)  # type: ignore[attr-defined]
