"""Names of phases are an interface: a run that an older version left in any of its phases goes on after the upgrade."""

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from fleet.core.states import State
from fleet.engine.claim import Budgets, claim
from fleet.engine.worker import Worker
from fleet.store import machines
from fleet.store import upgrade as upgrading
from fleet.store.database import Database
from fleet.store.tables import RunRow, ValidationRow
from fleet.store.upgrade import upgrade
from fleet.workflows import revalidation
from fleet.workflows.world import Policy
from tests.unit.store.test_upgrade import at_revision
from tests.unit.workflows.all_workflows import all_workflows
from tests.unit.workflows.gone import Dead
from tests.unit.workflows.hosts import world

_FIRST = ("queued", "preflight", "place", "boot", "start", "checks", "collect", "teardown", "settle")
RELEASED = {
    "0001": {"validation": _FIRST, "vacancy": ("await_clear",), "sweep": ("reap",)},
    "0002": {"validation": _FIRST, "vacancy": ("await_clear",), "sweep": ("reap",)},
    "0003": {
        "validation": ("queued", "withdrawal", "preflight", "hooks", *_FIRST[2:]),
        "vacancy": ("await_clear",),
        "sweep": ("reap",),
        "watchdog": ("look",),
        "delivery": ("send",),
        "retention": ("try", "drop", "collect"),
        "inspection": ("look", "image"),
    },
}
"""By schema revision, what the releases on it write to `run`. A phase that was renamed stays here: its migration must have
renamed it in the rows."""

ROW = """INSERT INTO run (kind, subject, phase, phase_since, why, due_at, epoch, lease_until, attempts, data, holds_budget,
         created_at) VALUES (:kind, :phase, :phase, 1, '', 1, 3, 0, 0, '{}', :no, 1)"""
LEFT = json.loads((Path(__file__).parents[2] / "data/releases/0002.json").read_text())
"""The rows of one validation as release 0002 wrote them."""


@pytest.mark.parametrize("revision", RELEASED)
def test_a_row_in_every_phase_of_a_release_is_taken_up(empty_database_url: str, tmp_path: Path, revision: str) -> None:
    db = Database(empty_database_url)
    at_revision(db, revision)
    left = {(kind, phase) for kind, phases in RELEASED[revision].items() for phase in phases}
    with db.begin() as session:
        session.execute(sa.text(ROW), [{"kind": kind, "phase": phase, "no": False} for kind, phase in left])
    upgrade(db)
    workflows = {flow.kind: flow for flow in all_workflows(db, tmp_path)}
    taken = [(run.kind, run.phase) for run in iter(lambda: claim(db, workflows, "w", 30.0, Budgets()), None)]
    assert sorted(taken) == sorted(left)
    db.close()


def test_what_this_release_writes_is_on_record_for_the_next(db: Database, tmp_path: Path) -> None:
    present = {flow.kind: set(flow.phases) for flow in all_workflows(db, tmp_path)}
    assert {kind: set(phases) for kind, phases in RELEASED[upgrading._head() or ""].items()} == present


@pytest.mark.parametrize("phase", RELEASED["0002"]["validation"])
def test_a_validation_that_the_last_release_left_is_read_and_brought_to_its_end(
    empty_database_url: str, tmp_path: Path, phase: str
) -> None:
    """By a host that does not answer: the way that leads through every phase after this one."""
    db = Database(empty_database_url)
    at_revision(db, "0002")
    placed = phase not in ("queued", "preflight")
    with db.begin() as session:
        for table in ("machine", "run", "validation"):
            insert(session.connection(), table, LEFT[table])
        session.execute(sa.text("UPDATE run SET phase = :phase, due_at = 0"), {"phase": phase})
    upgrade(db)
    with db.begin() as session:
        row = session.scalars(sa.select(RunRow)).one()
        row.data = {**row.data, "placed": placed, "boot_id": "boot-1", "since": 1.0}
        if not placed:
            session.execute(sa.update(ValidationRow).values(secrets=sa.null()))
    policy = Policy(host_patience=2, teardown_deadline_s=0.0)
    worker = Worker(db, [revalidation.workflow(world(db, Dead(), tmp_path, policy))], threads=1)
    for _ in range(60):
        with db.begin() as session:
            session.execute(sa.update(RunRow).values(due_at=0.0))
        if not worker.step():
            break
    with db.read() as session:
        row = session.get_one(ValidationRow, LEFT["validation"]["id"])
        assert (row.verdict, row.secrets) == ("aborted", None)
        assert "internal error" not in (row.reason or "")
        assert machines.get(session, "m1").state is State.VACATED
    db.close()


def insert(connection: sa.Connection, table: str, row: dict[str, Any]) -> None:
    """By the schema of then, not by the tables of now."""
    columns = ", ".join(f'"{name}"' for name in row)
    values = {name: json.dumps(value) if isinstance(value, (dict, list)) else value for name, value in row.items()}
    connection.execute(sa.text(f"INSERT INTO {table} ({columns}) VALUES ({', '.join(f':{n}' for n in row)})"), values)
