"""The service dies by SIGKILL before and after every phase's act: one verdict, the right one, and no VM left."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from fleet.app import rack
from fleet.lab.process import LabProcess
from fleet.store.database import Database
from fleet.store.tables import RunRow, TicketRow, ValidationRow

PHASES = ("queued", "preflight", "place", "boot", "start", "checks", "collect", "teardown", "settle")
CASES = [(phase, when) for phase in PHASES for when in ("before", "after")]


def crashed_and_gone_on(lab: Path, home: Path, machine: str, phase: str, when: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.integration.rack.crashing", str(lab), str(home), machine, phase, when]
    first = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert first.returncode == -9, first.stderr[-2000:]
    second = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert second.returncode == 0, second.stderr[-2000:]
    return dict(json.loads(second.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[tuple[str, str], Any], Path, list[str]]]:
    """All cases, each on a machine and a database of its own."""
    root = tmp_path_factory.mktemp("crashes")
    lab = LabProcess(root / "lab", machines=len(CASES) + 1)
    manifest = lab.start()
    try:
        with ThreadPoolExecutor(3) as pool:
            running = {
                case: pool.submit(crashed_and_gone_on, root / "lab", root / "-".join(case), f"lab-{number:02}", *case)
                for number, case in enumerate(CASES, 2)
            }
        rows = rack.client(manifest).machines()
        left = [d["name"] for row in rows for d in row["domains"] if d["instance"] is None]
        yield {case: future.result() for case, future in running.items()}, root, left
    finally:
        lab.stop()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_the_verdict_is_right_and_there_is_one(
    outcomes: tuple[dict[tuple[str, str], Any], Path, list[str]], case: tuple[str, str]
) -> None:
    results, root, _ = outcomes
    assert results[case]["verdict"] == "passed", results[case]["reason"]
    assert results[case]["state"] == "available"
    db = Database(f"sqlite:///{root / '-'.join(case) / 'fleet.sqlite'}")
    with db.read() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(ValidationRow)) == 1
        assert session.scalar(sa.select(sa.func.count()).select_from(TicketRow)) == 0
        assert session.scalar(sa.select(sa.func.count()).select_from(RunRow).where(RunRow.ended_at.is_(None))) == 0
    db.close()


@pytest.mark.timeout(300)
def test_no_test_vm_is_left(outcomes: tuple[dict[tuple[str, str], Any], Path, list[str]]) -> None:
    _, _, left = outcomes
    assert left == []
