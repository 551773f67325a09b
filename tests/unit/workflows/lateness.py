"""Rows that have waited for longer than they may, one maker for each rule, and what the watchdog says of them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.model import Hold, Machine, SshTarget
from fleet.core.states import State
from fleet.engine.workflow import open_run
from fleet.store import machines, notices, site, tickets
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import AttentionRow, EventRow, MachineRow, NoticeRow, RunRow, TicketRow, ValidationRow
from fleet.workflows import watchdog
from fleet.workflows.deadlines import RULES
from tests.unit.workflows.hosts import Hosts, world

BY = By("test")
SSH = SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")
LONG_AGO_S = 30 * 86400.0


def add_machine(session: Session, state: State, name: str = "m1") -> Machine:
    """One that was added long ago."""
    machines.add(session, Machine(name, "sim-a100x8", state, 1, 0.0, "as it was left", SSH), BY)
    session.execute(sa.update(MachineRow).where(MachineRow.name == name).values(created_at=ago(session)))
    return machines.get(session, name)


def add_run(session: Session, kind: str, phase: str, subject: str = "m1", **columns: Any) -> int:
    """Not due: nothing but its columns says that it is late."""
    id_ = open_run(session, kind, phase, subject, why="left there", after_s=1e6)
    if columns:
        session.execute(sa.update(RunRow).where(RunRow.id == id_).values(**columns))
    return id_


def ago(session: Session, seconds: float = LONG_AGO_S) -> float:
    return machines.now(session) - seconds


def stuck(session: Session) -> None:
    add_machine(session, State.VACATED)


def never_validated(session: Session) -> None:
    for name in ("m1", "m2"):
        add_machine(session, State.VACATED, name)
    session.execute(sa.update(MachineRow).values(state_since=MachineRow.created_at))


def overdue(session: Session) -> None:
    add_machine(session, State.VALIDATING)
    add_run(session, "validation", "place", phase_since=ago(session))


def untaken(session: Session) -> None:
    add_run(session, "sweep", "reap", "fleet", due_at=ago(session))


def failing(session: Session) -> None:
    add_machine(session, State.VACATED)
    add_run(session, "vacancy", "await_clear", attempts=50, last_error="KeyError: 'cause'")


def event_waiting(session: Session) -> None:
    add_machine(session, State.ALLOCATED)
    session.add(
        EventRow(
            id="e1",
            body_sha256="0",
            kind="instance.placed",
            machine="m1",
            instance="vm-2",
            signals=[],
            state="waiting",
            received_at=ago(session),
        )
    )


def fixed(session: Session) -> None:
    add_machine(session, State.FAILED)
    run = add_run(session, "validation", "settle", ended_at=1.0)
    add_validation(session, run)
    row = tickets.file(
        session, machine="m1", cause="nccl", title="slow", body="", checks=["nccl"], validation="val-1", by="test"
    )
    session.flush()
    old = {"state": "fixed", "updated_at": ago(session)}
    session.execute(sa.update(TicketRow).where(TicketRow.id == row.id).values(**old))


def hold(session: Session) -> None:
    machine = add_machine(session, State.AVAILABLE)
    machines.set_hold(session, machine, Hold("anna", "new riser", ago(session)), BY)


def pause(session: Session) -> None:
    site.pause(session, "power work", BY)
    row = site.get(session)
    row.paused = {**(row.paused or {}), "since": ago(session)}


def untold(session: Session) -> None:
    notices.put(session, notices.SCHEDULER, notices.WITHDRAWN, "m1", 2, machine="m1", why="because")
    session.flush()
    session.execute(sa.update(NoticeRow).values(created_at=ago(session)))


LATE: Mapping[str, Callable[[Session], None]] = {
    "stuck": stuck,
    "never validated": never_validated,
    "overdue": overdue,
    "untaken": untaken,
    "failing": failing,
    "event waiting": event_waiting,
    "fixed": fixed,
    "hold": hold,
    "pause": pause,
    "notices": untold,
}


def add_validation(session: Session, run: int, id_: str = "val-1", machine: str = "m1") -> None:
    session.add(
        ValidationRow(
            id=id_,
            run=run,
            machine=machine,
            plan="standard",
            trigger="manual",
            requested_by="test",
            prior_state="vacated",
            site_mode="enforce",
            created_at=1.0,
            playbook={},
            image={},
            phases=[],
            progress={},
            inventory={},
        )
    )
    session.flush()


def told(db: Database, folder: Path) -> list[tuple[str, str]]:
    """Kind and subject of what is open after one round of all rules."""
    outside = world(db, Hosts(), folder)
    for rule in RULES:
        with db.begin() as session:
            watchdog.apply(session, outside, rule)
    with db.read() as session:
        open_ = sa.select(AttentionRow.kind, AttentionRow.subject).where(AttentionRow.resolved_at.is_(None))
        return [(kind, subject) for kind, subject in session.execute(open_.order_by(AttentionRow.kind))]


def forget_all(session: Session) -> None:
    """What was late is over."""
    now = machines.now(session)
    session.execute(sa.update(RunRow).values(ended_at=now))
    session.execute(sa.update(TicketRow).values(closed_at=now, state="closed"))
    session.execute(sa.update(EventRow).values(state="applied", applied_at=now))
    session.execute(sa.update(MachineRow).values(state="available", hold=sa.null()))
    session.execute(sa.update(NoticeRow).values(acknowledged_at=now))
    site.get(session).paused = None
