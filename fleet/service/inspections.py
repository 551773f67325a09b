"""Inspections: asking a worker to look at a host, and what it found."""

from typing import Literal

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import Refused
from fleet.service.access import Permit
from fleet.service.body import Body, MachineName
from fleet.service.listing import Json, Window, listing
from fleet.service.times import stamp, stamp_or_none
from fleet.service.writing import Answer
from fleet.store import inspections, machines
from fleet.store.page import page
from fleet.store.tables import InspectionRow, RunRow
from fleet.workflows.inspection import Inspection, open_inspection


class NewInspection(Body):
    machine: MachineName
    kind: Literal["check", "discover"] = "check"


def start(session: Session, permit: Permit, order: NewInspection) -> Answer:
    """On a machine in any state, with a tenant on it too. Where one of the kind is at work, that one is the answer; raises
    Refused where one of another kind is."""
    machine = machines.get(session, order.machine)
    if (row := inspections.open_on(session, machine.name)) is not None:
        if row.kind != order.kind:
            raise Refused(
                f"{machine.name} is being looked at by {row.id} ({row.kind}) of {row.requested_by}: try again when that has ended"
            )
        return Answer.accepted(show(session, row.id))
    id_ = open_inspection(session, machine, Inspection(order.kind), permit.actor.by)
    return Answer.accepted(show(session, id_))


def listed(session: Session, window: Window, machine: str | None = None) -> Json:
    """Newest first, without the results."""
    wanted = sa.select(InspectionRow)
    if machine is not None:
        wanted = wanted.where(InspectionRow.machine == machine)
    after = window.after("inspection", float, str)
    found = page(session, wanted, (InspectionRow.created_at, InspectionRow.id), after, window.limit, newest_first=True)
    return listing("inspection", found, _summary)


def show(session: Session, id_: str) -> Json:
    row = inspections.get(session, id_)
    run = session.get(RunRow, row.run)
    assert run is not None  # the foreign key holds it
    return {**_summary(row), "taken_up": run.epoch > 0, "why": run.why, "result": row.result}


def _summary(row: InspectionRow) -> Json:
    return {
        "id": row.id,
        "machine": row.machine,
        "kind": row.kind,
        "requested_by": row.requested_by,
        "outcome": row.outcome,
        "created_at": stamp(row.created_at),
        "ended_at": stamp_or_none(row.ended_at),
    }
