"""What the last looks of a validation need to be evidence: time for devices to return, logs that are whole, and to be the
last ones."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from fleet.core.clock import Deadline
from fleet.core.model import Fence, Machine, Slot, SlotKind, SshTarget, TestVm, Trigger
from fleet.core.states import State
from fleet.engine.worker import Worker
from fleet.remote.base import Output, Shell
from fleet.store import machines, validations
from fleet.store.audit import By
from fleet.store.database import Database, db_now
from fleet.store.tables import MeasurementRow, RunRow, ValidationRow
from fleet.workflows import begin, revalidation
from fleet.workflows.playbook import Playbook
from fleet.workflows.world import Policy
from tests.unit.workflows.hosts import KEYS, WALL, Hosts, tenant, vm_of, world

BY = By("test")
GPU = Slot("gpu3", SlotKind.GPU, "0000:1b:00.0", guest_pci="0000:00:0b.0")
LIMIT = 100
HOUR = 3600.0


@dataclass
class Leaving(Hosts):
    """A host from which the test VM has gone already."""

    log: bytes = b""

    def tear_down(self, vm: TestVm, fence: Fence, deadline: Deadline) -> None:
        """Nothing is there."""

    def forget(self, vm: TestVm, deadline: Deadline) -> None:
        """Nothing is there."""

    def kernel_log(self, machine: Machine, since: float, limit_bytes: int, deadline: Deadline) -> bytes:
        return self.log

    def console(self, vm: TestVm, limit_bytes: int, deadline: Deadline) -> bytes:
        return self.log

    def guest(self, vm: TestVm) -> Shell:
        return self

    def run(self, command: str, deadline: Deadline, *, stdin: bytes = b"", limit_bytes: int = 1 << 20) -> Output:
        return Output(0, self.log, b"")

    def close(self) -> None:
        """Nothing is open."""


class Case:
    """A validation of m1 that has been in `phase` for an hour, and a worker that is turned by hand."""

    def __init__(self, db: Database, folder: Path, phase: str, **data: object) -> None:
        self.db, self.hosts = db, Leaving()
        outside = world(db, self.hosts, folder, Policy(log_limit_bytes=LIMIT, device_return_s=60.0))
        self.worker = Worker(db, [revalidation.workflow(outside)], threads=1)
        ssh = SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")
        with db.begin() as session:
            machines.add(session, Machine("m1", "sim-a100x8", State.VACATED, 1, 0.0, "imported", ssh, (GPU,)), BY)
            playbook = Playbook.load(outside.library, "quick", "sim-a100x8")
            seen = machines.get(session, "m1")
            begin.start_validation(session, seen, playbook, Trigger.VACATED, BY, image={"digest": "d"})
            values = {
                "phase": phase,
                "phase_since": db_now() - HOUR,
                "data": {"boot_id": "boot-1", "placed": True, **data},
            }
            session.execute(sa.update(RunRow).values(**values))
            if phase != "preflight":
                session.execute(sa.update(ValidationRow).values(secrets=KEYS))

    def turn(self) -> RunRow:
        with self.db.begin() as session:
            session.execute(sa.update(RunRow).where(RunRow.ended_at.is_(None)).values(due_at=0.0))
        assert self.worker.step()
        return self.run

    def age(self, seconds: float) -> None:
        """Let time pass for the devices' silence."""
        with self.db.begin() as session:
            (run,) = session.scalars(sa.select(RunRow).where(RunRow.kind == begin.KIND))
            run.data = {**run.data, "silent_devices_since": run.data["silent_devices_since"] - seconds}

    @property
    def run(self) -> RunRow:
        with self.db.read() as session:
            return session.scalars(sa.select(RunRow).where(RunRow.kind == begin.KIND)).one()

    def stored(self) -> dict[str, MeasurementRow]:
        with self.db.read() as session:
            return {row.name: row for row in validations.measurements(session, self.run.ref or "")}


@pytest.mark.parametrize("phase", ["preflight", "teardown"])
def test_devices_have_their_time_however_long_the_phase_took_before(db: Database, tmp_path: Path, phase: str) -> None:
    """A VM that took minutes to go, or a host that was away: the first look must not condemn what is still in its reset."""
    case = Case(db, tmp_path, phase, torn_down=True)
    case.hosts.lost.add(GPU.pci)
    run = case.turn()
    assert (run.phase, run.ended_at) == (phase, None)
    assert "devices" in run.why
    case.age(61.0)
    run = case.turn()
    assert run.ended_at is not None
    assert "gpu3" in run.why


def test_a_test_vm_that_comes_back_each_time_ends_at_a_person(db: Database, tmp_path: Path) -> None:
    case = Case(db, tmp_path, "teardown", torn_down=True)
    case.hosts.domains["m1"] = [vm_of(case.run.ref or "")]
    for _ in range(Policy().host_patience):
        case.turn()
    assert case.run.ended_at is not None
    with db.read() as session:
        assert machines.get(session, "m1").state is State.VACATED
        assert "is still on m1" in session.scalars(sa.select(ValidationRow.reason)).one()


def test_a_verdict_that_was_held_up_is_made_with_a_new_look(db: Database, tmp_path: Path) -> None:
    """The service was down between the last look and the verdict: a tenant may be there by now."""
    case = Case(db, tmp_path, "settle", torn_down=True, vm_gone=True, devices_back=True)
    case.hosts.domains["m1"] = [replace(tenant(), uuid="6f0c4e0e-1c5c-4f0e-9a0f-0123456789ff")]
    assert case.turn().ended_at is not None
    with db.read() as session:
        assert machines.get(session, "m1").state is State.ALLOCATED


@pytest.mark.parametrize("set_by_s", [-HOUR, HOUR])
def test_a_hosts_clock_that_was_set_meanwhile_dates_no_line(db: Database, tmp_path: Path, set_by_s: float) -> None:
    """Its log is told from what came before by its stamps: a line of this run may look old, an old one new."""
    began = db.now() - 100.0
    since = WALL - 100.0 - set_by_s
    case = Case(db, tmp_path, "teardown", torn_down=True, since=since, since_by_us=began)
    run = case.turn()
    assert run.ended_at is not None
    assert "the host's clock was set by" in run.why


@pytest.mark.parametrize(("size", "truncated"), [(LIMIT - 1, False), (LIMIT, True)])
def test_a_log_that_fills_its_limit_is_the_end_of_a_longer_one(
    db: Database, tmp_path: Path, size: int, truncated: bool
) -> None:
    case = Case(db, tmp_path, "collect")
    case.hosts.log = b"x" * size
    case.turn()
    logs = {name: row.truncated for name, row in case.stored().items() if name.startswith("kernel_log")}
    assert logs == dict.fromkeys(("kernel_log.guest", "kernel_log.host", "kernel_log.console"), truncated)
