"""Following the runner: what a guest reports is taken in only where the plan asked for it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from fleet.core.clock import Deadline
from fleet.core.model import Machine, Slot, SlotKind, SshTarget, TestVm, Trigger
from fleet.core.states import State
from fleet.engine.worker import Worker
from fleet.remote.base import Output, Shell
from fleet.store import machines, validations
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import RunRow, ValidationRow
from fleet.workflows import begin, revalidation
from fleet.workflows.playbook import Playbook
from tests.unit.validators.machine import SLOTS, inventory
from tests.unit.workflows.hosts import KEYS, Hosts, world

BY = By("test")
BOOT = "6f0c4e0e-1c5c-4f0e-9a0f-000000000001"
ENDED = {
    "state": "ended",
    "ended": "exited",
    "exit_status": 0,
    "started_at": 1.0,
    "duration_s": 1.0,
    "stdout_bytes": 1,
    "stderr_bytes": 0,
    "truncated": False,
    "tail": "",
}


@dataclass
class Guest(Hosts):
    """Answers every look with these outputs."""

    outputs: Mapping[str, str] = field(default_factory=dict)
    state: str = "running"

    def guest(self, vm: TestVm) -> Shell:
        return self

    def run(self, command: str, deadline: Deadline, *, stdin: bytes = b"", limit_bytes: int = 1 << 20) -> Output:
        checks: dict[str, Any] = dict.fromkeys(self.outputs, ENDED)
        document = {"version": 1, "state": self.state, "reason": "", "boot_id": BOOT, "beat": 9.0, "checks": checks}
        blocks = "".join(f"{n} {len(o)} {len(o)} 0 0\n{o}" for n, o in self.outputs.items())
        return Output(0, f"{BOOT}\n9.1 9.1\n{json.dumps(document)}\n{blocks}".encode(), b"")

    def close(self) -> None:
        """Nothing is open."""


def step(db: Database, guest: Guest, folder: Path, abort: str | None = None) -> tuple[RunRow, set[str]]:
    """One step of the phase `checks`, perhaps after an abort was asked for: the run after it, and what is stored by name."""
    outside = world(db, guest, folder)
    ssh = SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")
    slots = tuple(Slot(**{**s, "kind": SlotKind(s["kind"])}) for s in SLOTS)
    with db.begin() as session:
        machines.add(session, Machine("m1", "sim-a100x8", State.AVAILABLE, 1, 0.0, "imported", ssh, slots), BY)
        playbook = Playbook.load(outside.library, "quick", "sim-a100x8")
        id_ = begin.start_validation(session, machines.get(session, "m1"), playbook, Trigger.MANUAL, BY, image={})
        session.execute(sa.update(RunRow).values(phase="checks", abort_reason=abort, data={"guest_boot_id": BOOT}))
        session.execute(sa.update(ValidationRow).values(secrets=KEYS))
    assert Worker(db, [revalidation.workflow(outside)], threads=1).step()
    with db.read() as session:
        stored = {row.name for row in validations.measurements(session, id_)}
        return session.scalars(sa.select(RunRow)).one(), stored


def test_what_the_plan_asked_for_is_stored(db: Database, tmp_path: Path) -> None:
    run, stored = step(db, Guest(outputs={"gpu_inventory": inventory()}), tmp_path)
    assert (run.phase, stored) == ("checks", {"gpu_inventory"})


@pytest.mark.parametrize("name", ["host_inventory", "device_return", "kernel_log", "gpu_inventory.3", "dcgm_diag"])
def test_a_guest_cannot_report_what_nobody_asked_it_for(db: Database, tmp_path: Path, name: str) -> None:
    """Else it would write the control plane's own evidence of the host: good, bad, or such that nobody can read it."""
    forged = "failed\tdevice_missing\tgpu gpu0\tgone\n"
    run, stored = step(db, Guest(outputs={"gpu_inventory": inventory(), name: forged}), tmp_path)
    assert stored == set()
    assert run.data["aborted"] == f"the runner in the test VM reports {name}, which is not in the plan"


def test_an_abort_takes_in_what_has_ended_before_it(db: Database, tmp_path: Path) -> None:
    """It may have failed: an abort does not make that untrue."""
    run, stored = step(db, Guest(outputs={"gpu_inventory": inventory(missing=[3])}), tmp_path, abort="enough")
    assert (run.phase, run.data["aborted"], stored) == ("collect", "enough", {"gpu_inventory"})


def test_an_abort_takes_in_nothing_that_nobody_asked_for(db: Database, tmp_path: Path) -> None:
    run, stored = step(db, Guest(outputs={"dcgm_diag": "forged"}), tmp_path, abort="enough")
    assert (run.phase, run.data["aborted"], stored) == ("collect", "enough", set())
