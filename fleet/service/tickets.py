"""Hardware tickets: reading the queue, and saying that a machine was fixed."""

from typing import Literal

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import Refused
from fleet.service.access import Permit
from fleet.service.body import Body, Sentence
from fleet.service.listing import Json, Window, listing
from fleet.service.times import stamp, stamp_or_none
from fleet.service.writing import Answer
from fleet.store import audit, machines, tickets
from fleet.store.page import page
from fleet.store.site import at
from fleet.store.tables import TicketRow
from fleet.workflows import vacancy

TicketState = Literal["open", "taken", "fixed", "closed", "reopened"]


class Fix(Body):
    note: Sentence | None = None


def listed(session: Session, window: Window, machine: str | None = None, state: TicketState | None = None) -> Json:
    """Oldest first."""
    wanted = sa.select(TicketRow)
    if machine is not None:
        wanted = wanted.where(TicketRow.machine == machine)
    if state is not None:
        wanted = wanted.where(TicketRow.state == state)
    after = window.after("ticket", float, str)
    return listing("ticket", page(session, wanted, (TicketRow.created_at, TicketRow.id), after, window.limit), _view)


def show(session: Session, id_: str) -> Json:
    return _view(tickets.get(session, id_))


def fixed(session: Session, permit: Permit, id_: str, order: Fix) -> Answer:
    """The work is done, says a person; only a pass says so for the pool. When it was the last open ticket of a failed
    machine, that one is on its way to a validation; one that runs now is followed by another."""
    row = tickets.get(session, id_, lock=True)
    if row.state in ("fixed", "closed"):
        raise Refused(f"ticket {id_} is {row.state} already, since {at(row.updated_at)}")
    by = permit.actor.by
    tickets.mark_fixed(session, row, by.actor, order.note or "")
    audit.write(session, by, "ticket.fixed", machine=row.machine, object_=id_, detail={"note": order.note})
    session.flush()
    machine = machines.get(session, row.machine)
    vacancy.vacate_fixed(session, machine, by, f"ticket {id_} was marked fixed by {by.actor}")
    return Answer.done(_view(row))


def _view(row: TicketRow) -> Json:
    return {
        "id": row.id,
        "machine": row.machine,
        "state": row.state,
        "cause": row.cause,
        "title": row.title,
        "body": row.body,
        "checks": row.checks,
        "validation": row.validation,
        "history": [{**entry, "at": stamp(entry["at"])} for entry in row.history],
        "created_at": stamp(row.created_at),
        "updated_at": stamp(row.updated_at),
        "closed_at": stamp_or_none(row.closed_at),
    }
