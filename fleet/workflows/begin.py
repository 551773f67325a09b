"""Starting a validation: one transaction takes the machine out of whatever it was in and opens the run."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import Refused
from fleet.core.ids import new_id
from fleet.core.model import Machine, Trigger
from fleet.core.states import Move, State
from fleet.engine.workflow import open_run
from fleet.store import machines, site, validations
from fleet.store.audit import By
from fleet.store.database import db_now
from fleet.store.tables import RunRow, ValidationRow
from fleet.workflows.playbook import Playbook

KIND = "validation"
VACANCY = "vacancy"
FIRST = "queued"
PAUSED_LOOK_S = 60.0
"""Between two looks of what waits for the end of a pause; the end wakes it (`wake`)."""
ABORTABLE = ("queued", "withdrawal", "preflight", "hooks", "place", "boot", "start", "checks")
"""Phases that an abort ends at once. The later ones only collect, clean up and settle; they are the way out anyhow."""


def start_validation(
    session: Session,
    machine: Machine,
    playbook: Playbook,
    trigger: Trigger,
    by: By,
    *,
    image: Mapping[str, Any],
    attempt: int = 1,
) -> str:
    """Open a validation; returns its id. Raises Refused with who, since when and why; Conflict when the machine changed
    since it was read."""
    refuse_unless_free(session, machine, automatic=trigger is not Trigger.MANUAL)
    id_ = new_id("val")
    why = f"validation {id_} ({trigger}) by {by.actor}"
    if trigger is Trigger.MANUAL:
        _end_vacancy(session, machine.name, why)
    machines.move(session, machine, Move.START_VALIDATION, why, by, detail={"validation": id_})
    run = open_run(
        session,
        KIND,
        FIRST,
        machine.name,
        ref=id_,
        why="waits for its turn",
        data={"attempt": attempt},
        rack=machine.rack,
        power_feed=machine.power_feed,
    )
    session.add(
        ValidationRow(
            id=id_,
            run=run,
            machine=machine.name,
            plan=playbook.plan.plan,
            trigger=trigger,
            requested_by=by.actor,
            prior_state=machine.state,
            site_mode=site.get(session).mode,
            created_at=machines.now(session),
            playbook=playbook.dump(),
            image=dict(image),
            phases=[],
            progress={},
            inventory={"slots": [asdict(slot) for slot in machine.slots]},
        )
    )
    session.flush()
    validations.set_phase(session, id_, FIRST, "waits for its turn")
    return id_


def _end_vacancy(session: Session, machine: str, why: str) -> None:
    """A person was faster than the automatic retry: what comes after this run is decided anew. The run's row is written
    before the machine's, in the order in which every worker locks them."""
    waiting = (RunRow.kind == VACANCY, RunRow.subject == machine, RunRow.ended_at.is_(None))
    session.execute(sa.update(RunRow).where(*waiting).values(ended_at=db_now(), why=why))


def return_to_gate(session: Session, run: int) -> None:
    """A run that may not begin yet holds no place in the budgets. Within the transaction that saves the run."""
    session.get_one(RunRow, run).holds_budget = False


def wake(session: Session) -> None:
    """What waited for the end of a pause looks now, and not at its next turn."""
    waits = sa.or_(sa.and_(RunRow.kind == KIND, RunRow.phase == FIRST), RunRow.kind == VACANCY)
    session.execute(sa.update(RunRow).where(waits, RunRow.ended_at.is_(None)).values(due_at=db_now()))


def refuse_unless_free(session: Session, machine: Machine, *, automatic: bool) -> None:
    """Raises Refused, saying who has the machine, since when and why."""
    name = machine.name
    if machine.hold is not None:
        hold = machine.hold
        raise Refused(f"{name} is held by {hold.owner} since {site.at(hold.since)}: {hold.reason}")
    if automatic and (pause := site.get(session).paused):
        raise Refused(f"the fleet is paused by {pause['by']} since {site.at(pause['since'])}: {pause['reason']}")
    if machine.state is State.ALLOCATED:
        who = ", ".join(f"{i.id} since {site.at(i.since)}" for i in machine.instances) or "a tenant"
        raise Refused(f"{name} is allocated to {who} ({machine.state_why}); a validation needs it vacated")
    if machine.state is State.VALIDATING:
        row = validations.open_on(session, name)
        who = f"validation {row.id} by {row.requested_by}" if row is not None else machine.state_why
        raise Refused(f"{name} is validating since {site.at(machine.state_since)}: {who}")
    if machine.state is State.RETIRED:
        raise Refused(f"{name} is retired since {site.at(machine.state_since)}: {machine.state_why}")
