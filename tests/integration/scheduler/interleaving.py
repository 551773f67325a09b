"""One machine, one scheduler, operators, a service whose process is killed now and then: random acts in a random order, some
of them while the service is in the midst of a call, and after each of them a look for harm on the host."""

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.clock import Deadline
from fleet.core.errors import Conflict, FleetError, Refused, Unreachable
from fleet.core.model import Domain, EventKind, Fence, Hold, Machine, SshTarget, TestVm, Trigger
from fleet.core.states import Move, State
from fleet.engine.claim import request_abort
from fleet.engine.worker import Worker
from fleet.engine.workflow import Next, Work, ensure_run
from fleet.hypervisor.base import Placement, PlacementView
from fleet.remote.base import Shell
from fleet.store import machines, notices, site, validations
from fleet.store.audit import By
from fleet.store.database import Database, db_now
from fleet.store.tables import NoticeRow, RunRow, ValidationRow
from fleet.workflows import begin, delivery, events, revalidation, vacancy
from fleet.workflows.playbook import Playbook
from fleet.workflows.world import Policy, World
from playbooks.loader import Library
from tests.integration.scheduler.providers import Killed, Scheduler
from tests.unit.workflows.case import ALL
from tests.unit.workflows.hosts import Hosts, world

BY = By("test")
SSH = SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")
STEPS = 40


_TURN = "UPDATE run SET due_at = 0, lease_until = CASE id WHEN :run THEN 0 ELSE 1e12 END WHERE ended_at IS NULL"
_NO_BACKOFF = """UPDATE run SET data = '{"tries": 0, "not_before": 0.0}' WHERE kind = 'delivery'"""
_ALL_DUE = "UPDATE notice SET due_at = 0 WHERE acknowledged_at IS NULL"
"""As text: they are said twenty thousand times."""


class Harm(AssertionError):
    """What must never be seen."""


@dataclass
class Host(Hosts):
    """Test VMs come and go at once; they never answer, so that a validation lasts until somebody or a deadline ends it."""

    meanwhile: Callable[[], None] = lambda: None

    def place(self, vm: TestVm, fence: Fence, deadline: Deadline) -> None:
        self.meanwhile()
        self.domains.setdefault(vm.machine.name, []).append(Domain(vm.uuid, vm.name, "running", vm.validation))
        self.meanwhile()

    def placement(self, vm: TestVm, deadline: Deadline) -> PlacementView:
        there = any(domain.uuid == vm.uuid for domain in self.domains.get(vm.machine.name, ()))
        return PlacementView(Placement.RUNNING if there else Placement.ABSENT)

    def tear_down(self, vm: TestVm, fence: Fence, deadline: Deadline) -> None:
        self.meanwhile()
        left = [domain for domain in self.domains.get(vm.machine.name, ()) if domain.uuid != vm.uuid]
        self.domains[vm.machine.name] = left

    def forget(self, vm: TestVm, deadline: Deadline) -> None:
        """There is no console to forget."""

    def guest(self, vm: TestVm) -> Shell:
        raise Unreachable("the test VM does not answer")


def play(db: Database, folder: Path, seeds: Iterable[int], *, waits: bool = True, gate: bool = True) -> list[str]:
    """The harm that was seen, at most one of each seed. Odd seeds have a scheduler that asks before it places."""
    seen = []
    for seed in seeds:
        try:
            Interleaving(db, folder, seed, waits=waits, gate=gate).run()
        except Harm as harm:
            seen.append(str(harm))
    return seen


@cache
def _playbook() -> Playbook:
    return Playbook.load(Library(), "quick", "sim-a100x8")


def _to_teardown(_work: Work) -> Next:
    """There are no logs here to collect."""
    return Next("teardown", "nothing to collect")


class Interleaving:
    """`waits`: validations wait for acknowledgements. `gate`: a claim is asked, and its refusal heard."""

    def __init__(self, db: Database, folder: Path, seed: int, *, waits: bool, gate: bool) -> None:
        self.db, self.gate, self.chance = db, gate, random.Random(seed)
        self.name = f"m{seed}"
        self.scheduler = Scheduler(self.chance, asks=seed % 2 == 1, meanwhile=self._meanwhile)
        self.host = Host(meanwhile=self._meanwhile)
        outside = world(db, self.host, folder, Policy(host_patience=2, abort_retries_s=(1.0,)))
        self.world = replace(outside, scheduler=self.scheduler)
        self.workers = Worker(db, _flows(self.world, waits=waits), threads=1)
        self._begin()

    def _begin(self) -> None:
        """What was about other machines is over."""
        with self.db.begin() as session:
            site.set_mode(session, "enforce", BY)
            session.execute(sa.delete(NoticeRow))
            for row in (RunRow, ValidationRow):
                session.execute(sa.update(row).where(row.ended_at.is_(None)).values(ended_at=db_now()))
            ensure_run(session, delivery.KIND, delivery.SEND, notices.SCHEDULER, why="first round")
            self.read_before = Machine(self.name, "sim-a100x8", State.AVAILABLE, 1, 0.0, "imported", SSH, ALL)
            machines.add(session, self.read_before, BY)

    def run(self, steps: int = STEPS) -> None:
        """Raises Harm."""
        for number in range(steps):
            act = self._work if self.chance.random() < 0.35 else self._act()
            self._do(act)
            self._look_for_harm(f"seed {self.name[1:]}, act {number}: {act.__name__.strip('_')}")

    def _act(self) -> Callable[[], None]:
        """Somebody's, not the workers'."""
        weights = {
            self._validate: 2,
            self._end: 1,
            self._deadline_passes: 1,
            self._withdraw: 1,
            self._hold_or_unhold: 2,
            self.scheduler.decide: 5,
            self._place: 5,
            self._report: 2,
            self._leave: 2,
            self._late_message: 4,
            self._acknowledge_late: 3,
        }
        return self.chance.choices(list(weights), list(weights.values()))[0]

    def _do(self, act: Callable[[], None]) -> None:
        with suppress(Refused, Conflict):
            act()

    # the service

    def _work(self) -> None:
        """A worker does the next thing of any one run, if it is not killed at it. All waits are over, all leases too."""
        with self.db.begin() as session:
            connection = session.connection()
            runs = connection.exec_driver_sql("SELECT id FROM run WHERE ended_at IS NULL ORDER BY id").scalars().all()
            connection.exec_driver_sql(_TURN, {"run": self.chance.choice(runs)})
            connection.exec_driver_sql(_NO_BACKOFF)
            connection.exec_driver_sql(_ALL_DUE)
        with suppress(Killed):
            self.workers.step()

    def _meanwhile(self) -> None:
        """While the service calls somebody: others act, or its process ends."""
        if self.chance.random() < 0.3:
            self._do(self._act())
        if self.chance.random() < 0.1:
            raise Killed

    def _read(self, session: Session) -> Machine:
        """Now and then as it was when it was last read: somebody else has written since. Who writes by that must be told."""
        if self.chance.random() < 0.8:
            self.read_before = machines.get(session, self.name)
        return self.read_before

    # operators

    def _validate(self) -> None:
        with self.db.begin() as session:
            begin.start_validation(session, self._read(session), _playbook(), Trigger.MANUAL, BY, image={})

    def _end(self) -> None:
        with self.db.begin() as session:
            row = validations.open_on(session, self.name)
            if row is not None:
                request_abort(session, row.run, "enough", "anna", list(begin.ABORTABLE))

    def _deadline_passes(self) -> None:
        long_ago = {"phase_since": RunRow.phase_since - 10_000.0}
        with self.db.begin() as session:
            open_ = (RunRow.kind == begin.KIND, RunRow.ended_at.is_(None), RunRow.subject == self.name)
            session.execute(sa.update(RunRow).where(*open_).values(**long_ago))

    def _withdraw(self) -> None:
        with self.db.begin() as session:
            machines.move(session, self._read(session), Move.WITHDRAW, "odd noise", BY)

    def _hold_or_unhold(self) -> None:
        with self.db.begin() as session:
            machine = self._read(session)
            hold = Hold("anna", "hands", 1.0) if machine.hold is None else None
            machine = machines.set_hold(session, machine, hold, BY)
            if machine.hold is None and machine.state is State.VACATED:
                vacancy.open_vacancy(session, self.name, why="the hold was lifted")

    # the scheduler

    def _place(self) -> None:
        """What was decided, on a word that may be old by now."""
        if not self.scheduler.placing:
            return
        instance = self.chance.choice(self.scheduler.placing)
        if self.scheduler.asks and self.gate and not self._claimed(instance):
            return
        self.scheduler.placed(instance)
        self.host.domains.setdefault(self.name, []).append(Domain(instance, instance, "running"))

    def _claimed(self, instance: str) -> bool:
        """An answer that was lost is asked for once more, later."""
        try:
            with self.db.begin() as session:
                machine = events.allocate(session, self._read(session), instance, BY, "claimed")
        except Refused:
            self.scheduler.placing.remove(instance)
            raise
        if self.chance.random() < 0.1:
            return False
        self.scheduler.believe(machine.version, machine.claimable)
        return True

    def _report(self) -> None:
        """Late, and for one that has asked a second time."""
        for instance in self.scheduler.tenants:
            self._send(EventKind.PLACED, instance)

    def _leave(self) -> None:
        if self.scheduler.tenants:
            instance = self.scheduler.tenants.pop()
            self.host.domains[self.name] = [d for d in self.host.domains[self.name] if d.uuid != instance]
            self._send(EventKind.REMOVED, instance)

    def _send(self, kind: EventKind, instance: str) -> None:
        with self.db.begin() as session:
            events.apply(session, events.Event(f"{self.name}-{instance}-{kind}", kind, self.name, instance), BY)

    def _late_message(self) -> None:
        """One that was held up, in any order."""
        if self.scheduler.late:
            self.scheduler.hear(self.scheduler.late.pop(self.chance.randrange(len(self.scheduler.late))))

    def _acknowledge_late(self) -> None:
        for notice in [notice for notice in self.scheduler.owed if self.scheduler.may_acknowledge(notice)]:
            self.scheduler.owed.remove(notice)
            with suppress(FleetError), self.db.begin() as session:
                notices.acknowledge(session, int(notice["id"].removeprefix("ntc-")), "scheduler")

    # the look

    def _look_for_harm(self, when: str) -> None:
        domains = self.host.domains.get(self.name, [])
        tenants = [domain.name for domain in domains if domain.validation is None]
        tests = [domain.name for domain in domains if domain.validation is not None]
        if tenants and tests:
            raise Harm(f"{when}: tenant {tenants} and test VM {tests} on one machine")
        if tenants and self.scheduler.asks:
            with self.db.read() as session:
                state = machines.get(session, self.name).state
            if state is not State.ALLOCATED:
                raise Harm(f"{when}: tenant {tenants} on a machine that is {state}")


def _flows(world: World, *, waits: bool) -> list[Any]:
    """Without `waits` the scheduler is told all the same, and nobody waits for it."""
    main = revalidation.workflow(world if waits else replace(world, scheduler=None))
    short = {**main.phases, "collect": replace(main.phases["collect"], handler=_to_teardown)}
    return [replace(main, phases=short), vacancy.workflow(world), delivery.workflow(world)]
