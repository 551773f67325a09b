"""The service's own parts on a simulated rack, inside the test's process: a validation can be stopped directly before or
directly after any phase's act, while the world or the record is changed under it."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from fleet.app import parts, rack
from fleet.core.clock import Deadline
from fleet.core.errors import FleetError
from fleet.engine.claim import Budgets
from fleet.engine.worker import Worker
from fleet.engine.workflow import Next, Phase, Work, Workflow
from fleet.lab.client import LabClient
from fleet.service import validations as use_cases
from fleet.service.access import Actor, Role
from fleet.settings import load
from fleet.store import validations
from fleet.store.database import Database
from fleet.store.tables import ValidationRow
from fleet.webhook.receiver import Receiver
from fleet.workflows import delivery, revalidation, sweep, vacancy
from fleet.workflows.world import World
from tests.integration.rack import records
from tests.integration.rack.crashing import PLAYBOOKS, RULES

When = Literal["before", "after"]
_FROZEN_S = 600.0  # a lease longer than any stop


@dataclass
class Stop:
    """One validation's stop at one phase, where `once` is true. After that the phase goes through."""

    once: Callable[[], bool]
    reached: threading.Event = field(default_factory=threading.Event)
    on: threading.Event = field(default_factory=threading.Event)

    def wait(self, timeout_s: float = 90.0) -> None:
        assert self.reached.wait(timeout_s), "the phase was never come to"

    def go_on(self) -> None:
        self.on.set()


class Stage:
    def __init__(self, db: Database, world: World, lab: LabClient) -> None:
        self.db, self.world, self.lab = db, world, lab
        self._stops: dict[tuple[str, str, When], Stop] = {}

    def stop(self, machine: str, phase: str, when: When, once: Callable[[], bool] = lambda: True) -> Stop:
        """Only a validation that is not past the point yet can be stopped there."""
        self._stops[machine, phase, when] = Stop(once)
        return self._stops[machine, phase, when]

    def workflow(self) -> Workflow:
        flow = revalidation.workflow(self.world)
        return replace(flow, phases={name: self._stoppable(name, phase) for name, phase in flow.phases.items()})

    def _stoppable(self, name: str, phase: Phase) -> Phase:
        def handler(work: Work) -> Next:
            self._come_to(work.run.subject, name, "before")
            try:
                return phase.handler(work)
            finally:
                self._come_to(work.run.subject, name, "after")

        return replace(phase, handler=handler)

    def _come_to(self, machine: str, phase: str, when: When) -> None:
        stop = self._stops.get((machine, phase, when))
        if stop is not None and not stop.reached.is_set() and stop.once():
            stop.reached.set()
            assert stop.on.wait(_FROZEN_S)

    def validate(self, machine: str, plan: str = "short") -> str:
        return records.begun(self.db, self.world.library, self.world.image, machine, plan)

    def abort(self, validation: str, reason: str) -> str | None:
        """None, or the sentence of the refusal."""
        with self.db.begin() as session:
            row = validations.get(session, validation)
            try:
                use_cases.request_end(session, row, reason, Actor("test", Role.OPERATOR, "tok-test", None))
            except FleetError as exc:
                return str(exc)
        return None

    def settled(self, validation: str, timeout_s: float = 120.0) -> records.Settled:
        """The validation's end, once it has come."""
        until(lambda: records.settled(self.db, validation), timeout_s, lambda: str(self._row(validation).phases[-1]))
        found = records.settled(self.db, validation)
        assert found is not None
        return found

    def _row(self, validation: str) -> ValidationRow:
        with self.db.read() as session:
            return validations.get(session, validation)

    def progress(self, validation: str) -> dict[str, Any]:
        return dict(self._row(validation).progress)

    def test_vms(self) -> dict[str, list[str]]:
        """By machine, what the rack itself says: domains that are nobody's instance."""
        found = {r["name"]: [d["name"] for d in r["domains"] if d["instance"] is None] for r in self.lab.machines()}
        return {name: domains for name, domains in found.items() if domains}


def until(reached: Callable[[], Any], timeout_s: float, otherwise: Callable[[], str]) -> None:
    for _ in Deadline.after(timeout_s).poll(0.1):
        if reached():
            return
    raise AssertionError(otherwise())


@contextmanager
def staged(
    root: Path,
    count: int,
    rules: Mapping[str, Any] = MappingProxyType({}),
    hooks: Sequence[Mapping[str, Any]] = (),
    scheduler: Receiver | None = None,
    **policy: Any,
) -> Iterator[Stage]:
    """A rack of `count` machines and a worker on it. `rules` are settings of validations, `hooks` those of the site's hooks,
    `scheduler` hears of the machines, `policy` is what is no setting."""
    with ExitStack() as stack:
        validation = {**RULES["validation"], **rules}
        flags = {"data_dir": root / "home", "playbooks": {"directories": [PLAYBOOKS]}, "hooks": list(hooks)}
        settings = load(None, flags, {**RULES, "validation": validation})
        manifest = stack.enter_context(rack.running(root / "lab", count))
        hypervisor = rack.hypervisor(settings.hypervisor, manifest)
        db = stack.enter_context(parts.database(settings, alone=True))
        image = dict(records.ready(db, settings, manifest))
        world = stack.enter_context(parts.world(settings, db, hypervisor, image))
        world = replace(world, policy=replace(world.policy, **policy), scheduler=scheduler)
        stage = Stage(db, world, rack.client(manifest))
        flows = [stage.workflow(), vacancy.workflow(world), sweep.workflow(world), delivery.workflow(world)]
        with db.begin() as session:
            sweep.ensure(session)
            delivery.ensure(session)
        budgets = Budgets(total=count, per_rack=count, per_power_feed=count)
        worker = Worker(db, flows, threads=count + 2, lease_s=_FROZEN_S, budgets=budgets)
        worker.start()
        stack.callback(worker.stop)
        yield stage
