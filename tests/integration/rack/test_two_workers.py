"""Three worker processes on one PostgreSQL and one rack. Each is frozen in the middle of what it does for longer than its
leases last, so that the others take its validations over, and then goes on: every validation ends once, and right; every
test VM was created once and destroyed once."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from fleet.app import parts, rack
from fleet.lab.process import LabProcess
from fleet.store.database import Database
from fleet.store.tables import AuditRow, MeasurementRow, ValidationRow
from tests.integration.rack import records
from tests.integration.rack.records import Settled
from tests.integration.rack.stage import until
from tests.integration.rack.working import settings

pytestmark = pytest.mark.real

WORKERS, LEASE_S, FROZEN_S = 3, 4.0, 6.0
FREEZES = [
    ("preflight", "after"),
    ("place", "before"),
    ("place", "after"),
    ("start", "before"),
    ("checks", "after"),
    ("collect", "after"),
    ("teardown", "before"),
    ("settle", "before"),
]
MACHINES = {case: f"lab-{number:02}" for number, case in enumerate(FREEZES, 2)}  # lab-01 has a tenant


@dataclass
class Done:
    settled: dict[str, Settled]  # by machine
    measured: Counter[tuple[str, str]]
    moves: Counter[tuple[str, str]]
    kernel_logs: dict[str, str]  # of the hosts
    frozen: set[str]
    left: list[str]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, postgres_url: str, postgres_template: str) -> Iterator[Done]:
    root = tmp_path_factory.mktemp("workers")
    home = root / "home"
    lab = LabProcess(root / "lab", machines=len(MACHINES) + 1)
    manifest = lab.start()
    try:
        with database(postgres_url, postgres_template) as url:
            chosen = settings(home, url)
            parts.data_directory(chosen)
            db = Database(url)
            image = records.ready(db, chosen, manifest)
            library = parts.library(chosen)
            asked = {machine: records.begun(db, library, image, machine, "short") for machine in MACHINES.values()}
            with workers(root / "lab", home, url) as pids:
                frozen_since = dict.fromkeys(pids, 0.0)
                until(lambda: _all_settled(db, asked, frozen_since), 150.0, lambda: _standing(db))
            left = [d["name"] for row in rack.client(manifest).machines() for d in row["domains"] if not d["instance"]]
            with db.read() as session:
                measured = session.execute(sa.select(MeasurementRow.validation, MeasurementRow.name))
                moves = session.execute(sa.select(AuditRow.machine, AuditRow.action))
                yield Done(
                    {machine: _settled(db, id_) for machine, id_ in asked.items()},
                    Counter((v, n) for v, n in measured),
                    Counter((str(m), a) for m, a in moves),
                    {m: (root / f"lab/machines/{m}/root/var/log/kmsg").read_text() for m in asked},
                    {path.name.removeprefix("frozen-") for path in home.glob("frozen-*")},
                    left,
                )
            db.close()
    finally:
        lab.stop()


@contextmanager
def database(postgres_url: str, template: str) -> Iterator[str]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE workers TEMPLATE {template}")
        yield postgres_url.replace("/postgres?", "/workers?")
        connection.execute("DROP DATABASE workers WITH (FORCE)")


@contextmanager
def workers(lab: Path, home: Path, url: str) -> Iterator[list[int]]:
    words = [word for (phase, when), machine in MACHINES.items() for word in (machine, phase, when)]
    command = [sys.executable, "-m", "tests.integration.rack.working", str(lab), str(home), url, str(LEASE_S), *words]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(WORKERS)]
    try:
        yield [process.pid for process in running]
    finally:
        for process in running:
            process.send_signal(signal.SIGCONT)
            assert process.stdin is not None
            process.stdin.close()
        for process in running:
            process.wait(60)


def _thaw(since: dict[int, float]) -> None:
    """Let workers go on that have been frozen for long enough. `since`: by process, 0.0 while it runs."""
    for pid, at in since.items():
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        since[pid] = 0.0 if state != "T" else at or time.monotonic()
        if since[pid] and time.monotonic() - since[pid] > FROZEN_S:
            os.kill(pid, signal.SIGCONT)


def _all_settled(db: Database, asked: dict[str, str], frozen_since: dict[int, float]) -> bool:
    _thaw(frozen_since)
    return all(records.settled(db, id_) for id_ in asked.values()) and not any(frozen_since.values())


def _settled(db: Database, validation: str) -> Settled:
    found = records.settled(db, validation)
    assert found is not None
    return found


def _standing(db: Database) -> str:
    with db.read() as session:
        return str([(row.machine, row.verdict, row.phases[-1]) for row in session.scalars(sa.select(ValidationRow))])


@pytest.mark.parametrize("case", FREEZES, ids="-".join)
def test_every_validation_passes_once(done: Done, case: tuple[str, str]) -> None:
    machine = MACHINES[case]
    settled = done.settled[machine]
    assert (settled.verdict, settled.state, settled.tickets, settled.told) == ("passed", "available", (), ())
    assert settled.phases.count("settled") == 1
    assert done.moves[machine, "machine.passed"] == 1


@pytest.mark.parametrize("case", FREEZES, ids="-".join)
def test_every_test_vm_was_created_and_destroyed_once(done: Done, case: tuple[str, str]) -> None:
    """The host's own kernel log says so: libvirt takes each device at a create and resets it after a destroy."""
    log = done.kernel_logs[MACHINES[case]]
    device = re.search(r"vfio-pci (\S+): enabling device", log)
    assert device is not None
    assert log.count(f"vfio-pci {device[1]}: enabling device") == 1
    assert log.count(f"vfio-pci {device[1]}: reset done") == 1


def test_every_step_was_measured_once(done: Done) -> None:
    assert set(done.measured.values()) == {1}
    assert len({validation for validation, _ in done.measured}) == len(MACHINES)


def test_workers_were_frozen_where_they_should(done: Done) -> None:
    """Otherwise the tests above would prove nothing."""
    assert done.frozen == set(map("-".join, FREEZES))


def test_no_test_vm_is_left(done: Done) -> None:
    assert done.left == []
