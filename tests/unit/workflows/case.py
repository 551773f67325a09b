"""One validation of one machine in memory, turned step by step."""

from dataclasses import replace
from pathlib import Path

import sqlalchemy as sa

from fleet.core.model import Machine, Slot, SlotKind, SshTarget, Trigger
from fleet.core.states import State
from fleet.engine.claim import request_abort
from fleet.engine.worker import Worker
from fleet.hooks.base import Hook
from fleet.store import machines, site
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import AttentionRow, RunRow, ValidationRow
from fleet.webhook.receiver import Receiver
from fleet.workflows import begin, revalidation
from fleet.workflows.playbook import Playbook
from fleet.workflows.world import Policy
from tests.unit.validators.machine import SLOTS
from tests.unit.workflows.hosts import Hosts, world

BY = By("test")
SSH = SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")
PATIENT = Policy(host_patience=2)
ALL = tuple(Slot(**{**s, "kind": SlotKind(s["kind"])}) for s in SLOTS)


class Case:
    """A validation of the available machine m1, and a worker that is turned by hand."""

    def __init__(
        self,
        db: Database,
        folder: Path,
        slots: tuple[Slot, ...] = ALL,
        policy: Policy = PATIENT,
        hooks: tuple[Hook, ...] = (),
        hosts: Hosts | None = None,
        scheduler: Receiver | None = None,
    ) -> None:
        self.db, self.hosts = db, hosts or Hosts()
        outside = replace(world(db, self.hosts, folder, policy), hooks=hooks, scheduler=scheduler)
        self.worker = Worker(db, [revalidation.workflow(outside)], threads=1)
        with db.begin() as session:
            site.set_mode(session, "enforce", BY)
            machines.add(session, Machine("m1", "sim-a100x8", State.AVAILABLE, 1, 0.0, "imported", SSH, slots), BY)
            playbook = Playbook.load(outside.library, "quick", "sim-a100x8")
            begin.start_validation(session, machines.get(session, "m1"), playbook, Trigger.MANUAL, BY, image={})

    def to_preflight(self) -> None:
        with self.db.begin() as session:
            session.execute(sa.update(RunRow).values(phase="preflight"))

    def abort(self) -> None:
        with self.db.begin() as session:
            run = session.scalars(sa.select(RunRow)).one()
            assert request_abort(session, run.id, "enough", "anna", list(begin.ABORTABLE))

    def turn(self) -> None:
        with self.db.begin() as session:
            session.execute(sa.update(RunRow).values(due_at=0.0))
        assert self.worker.step()

    def until(self, phase: str | None, turns: int = 20) -> None:
        """Turn until the run is in `phase`; None: until it has ended."""
        for _ in range(turns):
            if (self.run.phase if self.run.ended_at is None else None) == phase:
                return
            self.turn()
        raise AssertionError(f"the run is still in {self.run.phase}: {self.run.why}")

    @property
    def run(self) -> RunRow:
        with self.db.read() as session:
            return session.scalars(sa.select(RunRow)).one()

    @property
    def state(self) -> State:
        with self.db.read() as session:
            return machines.get(session, "m1").state

    @property
    def verdict(self) -> tuple[str | None, str]:
        with self.db.read() as session:
            row = session.scalars(sa.select(ValidationRow)).one()
            return row.verdict, row.reason or ""

    def told(self) -> list[str]:
        with self.db.read() as session:
            return list(session.scalars(sa.select(AttentionRow.kind)))
