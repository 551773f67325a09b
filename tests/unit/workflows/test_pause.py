"""A pause stops everything that would start by itself: each start is shown not to happen while it lasts, and to happen when
it ends. What a person starts goes through it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.model import Hold, Machine, Trigger
from fleet.core.states import State
from fleet.engine.claim import Budgets
from fleet.engine.worker import Worker
from fleet.service import machines as use_cases
from fleet.service import site as switches
from fleet.service.access import Action, Actor, Permit, Role
from fleet.store import machines, site, tickets
from fleet.store.database import Database
from fleet.store.tables import RunRow
from fleet.workflows import begin, revalidation, sweep, vacancy
from fleet.workflows.events import Event, EventKind, apply
from fleet.workflows.playbook import Playbook
from fleet.workflows.world import World
from tests.unit.workflows.all_workflows import all_workflows
from tests.unit.workflows.case import ALL, SSH
from tests.unit.workflows.hosts import Hosts, vm_of, world
from tests.unit.workflows.lateness import BY, add_run, add_validation

PEOPLE = Permit(Actor("ben", Role.OPERATOR, "tok-1", "192.0.2.7"), Action.SITE_RESUME, "POST /v1/resume")


@dataclass
class Fleet:
    """One machine, its host in memory, and a worker that is turned by hand."""

    db: Database
    folder: Path
    hosts: Hosts = field(default_factory=Hosts)

    @property
    def world(self) -> World:
        return world(self.db, self.hosts, self.folder)

    def add(self, session: Session, state: State) -> Machine:
        machines.add(session, Machine("m1", "sim-a100x8", state, 1, 0.0, "imported", SSH, ALL, rack="r1"), BY)
        return machines.get(session, "m1")

    def turn(self, *flows: str) -> None:
        """Everything that is due now or by a clock, once."""
        all_ = {part.KIND: part.workflow(self.world) for part in (vacancy, sweep)}
        all_[begin.KIND] = revalidation.workflow(self.world)
        with self.db.begin() as session:
            sweep.ensure(session)
            session.execute(sa.update(RunRow).values(due_at=0.0))
        worker = Worker(self.db, [all_[kind] for kind in flows], threads=1, budgets=Budgets(total=1))
        while worker.step():
            pass

    def begin(self, session: Session, trigger: Trigger) -> None:
        playbook = Playbook.load(self.world.library, "quick", "sim-a100x8")
        begin.start_validation(session, machines.get(session, "m1"), playbook, trigger, BY, image={})

    def run(self) -> RunRow:
        with self.db.read() as session:
            return session.scalars(sa.select(RunRow).where(RunRow.kind == begin.KIND)).one()


def departure(fleet: Fleet, session: Session) -> None:
    fleet.add(session, State.AVAILABLE)
    for kind in (EventKind.PLACED, EventKind.MIGRATED):
        apply(session, Event(f"e-{kind}", kind, "m1", "vm-1"), BY)


def retry(fleet: Fleet, session: Session) -> None:
    fleet.add(session, State.VACATED)
    vacancy.open_vacancy(session, "m1", why="attempt 1 was aborted", attempt=2)


def fixed_ticket(fleet: Fleet, session: Session) -> None:
    machine = fleet.add(session, State.FAILED)
    add_validation(session, add_run(session, "earlier", "settle", ended_at=1.0))
    ticket = tickets.file(
        session, machine="m1", cause="nccl", title="slow", body="", checks=["nccl"], validation="val-1", by="test"
    )
    tickets.mark_fixed(session, ticket, "tech", "replaced")
    vacancy.vacate_fixed(session, machine, BY, "fixed")


def lifted_hold(fleet: Fleet, session: Session) -> None:
    machines.set_hold(session, fleet.add(session, State.VACATED), Hold("anna", "hands in", 1.0), BY)
    use_cases.unhold(session, PEOPLE, "m1")


def rolled_back_migration_never_seen(fleet: Fleet, session: Session) -> None:
    fleet.add(session, State.VACATED)
    vacancy.look_now(session, "m1")


VACANCIES: Mapping[str, Callable[[Fleet, Session], None]] = {
    made.__name__: made for made in (departure, retry, fixed_ticket, lifted_hold, rolled_back_migration_never_seen)
}
"""Every way to a validation that nobody asks for."""

KINDS = {
    "vacancy": "waits: VACANCIES",
    "validation": "waits for its turn where nobody asked for it: `test_a_queued_one_waits...`",
    "sweep": "removes nothing: `test_the_reaper_only_looks`",
    "watchdog": "acts on no machine, and people must hear of what a pause lets wait",
    "inspection": "a person asks for each",
    "delivery": "acts on no machine; a pause must not keep the scheduler from hearing the truth",
    "retention": "acts on no machine",
}
"""What a pause does to each kind of work."""


def pause(session: Session) -> None:
    site.pause(session, "maintenance of the fabric", BY)


def resume(session: Session) -> None:
    switches.resume(session, PEOPLE, switches.Resume())


@pytest.fixture
def fleet(db: Database, tmp_path: Path) -> Fleet:
    return Fleet(db, tmp_path)


def test_every_kind_of_work_has_its_answer_to_a_pause(db: Database, tmp_path: Path) -> None:
    assert {flow.kind for flow in all_workflows(db, tmp_path)} <= KINDS.keys()


@pytest.mark.parametrize("how", VACANCIES)
def test_no_validation_starts_by_itself(fleet: Fleet, how: str) -> None:
    with fleet.db.begin() as session:
        pause(session)
        VACANCIES[how](fleet, session)
    fleet.turn(vacancy.KIND)
    with fleet.db.begin() as session:
        waiting = session.scalars(sa.select(RunRow).where(RunRow.kind == vacancy.KIND)).one()
        assert (waiting.why, waiting.ended_at) == ("the fleet is paused by test", None)
        assert machines.get(session, "m1").state is State.VACATED
        resume(session)
    fleet.turn(vacancy.KIND)
    with fleet.db.read() as session:
        assert machines.get(session, "m1").state is State.VALIDATING


@pytest.mark.parametrize("trigger", [each for each in Trigger if each is not Trigger.MANUAL])
def test_a_queued_one_waits_and_leaves_its_place_to_others(fleet: Fleet, trigger: Trigger) -> None:
    with fleet.db.begin() as session:
        fleet.add(session, State.VACATED)
        fleet.begin(session, trigger)
        pause(session)
    fleet.turn(begin.KIND)
    run = fleet.run()
    assert (run.phase, run.why, run.holds_budget) == ("queued", "the fleet is paused by test", False)
    assert run.due_at > fleet.db.now() + 30
    with fleet.db.begin() as session:
        resume(session)
    run = fleet.run()
    assert run.due_at <= fleet.db.now()
    fleet.turn(begin.KIND)
    assert fleet.run().phase != "queued"


def test_what_a_person_starts_goes_through(fleet: Fleet) -> None:
    with fleet.db.begin() as session:
        pause(session)
        fleet.add(session, State.VACATED)
        fleet.begin(session, Trigger.MANUAL)
    fleet.turn(begin.KIND)
    assert fleet.run().phase != "queued"


def test_the_reaper_only_looks(fleet: Fleet) -> None:
    with fleet.db.begin() as session:
        pause(session)
        fleet.add(session, State.AVAILABLE)
    fleet.hosts.domains["m1"] = [vm_of("val-gone")]
    fleet.turn(sweep.KIND)
    assert fleet.hosts.removed == []
    with fleet.db.begin() as session:
        resume(session)
    fleet.turn(sweep.KIND)
    assert fleet.hosts.removed == [("m1", "val-gone")]
