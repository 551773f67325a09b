"""Names of phases are an interface: a run that an older version left in any of its phases goes on after the upgrade."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from fleet.engine.claim import Budgets, claim
from fleet.store.database import Database
from fleet.store.upgrade import upgrade
from fleet.workflows import revalidation, sweep, vacancy
from tests.unit.store.test_upgrade import at_revision
from tests.unit.workflows.hosts import Hosts, world

RELEASED = {
    "0001": {
        "validation": ("queued", "preflight", "place", "boot", "start", "checks", "collect", "teardown", "settle"),
        "vacancy": ("await_clear",),
        "sweep": ("reap",),
    },
}
"""By schema revision, what the releases on it wrote to `run`. A phase that was renamed stays here: its migration must have
renamed it in the rows."""

ROW = """INSERT INTO run (kind, subject, phase, phase_since, why, due_at, epoch, lease_until, attempts, data, holds_budget,
         created_at) VALUES (:kind, :phase, :phase, 1, '', 1, 3, 0, 0, '{}', :no, 1)"""


@pytest.mark.parametrize("revision", RELEASED)
def test_a_row_in_every_phase_of_a_release_is_taken_up(empty_database_url: str, tmp_path: Path, revision: str) -> None:
    db = Database(empty_database_url)
    at_revision(db, revision)
    left = {(kind, phase) for kind, phases in RELEASED[revision].items() for phase in phases}
    with db.begin() as session:
        session.execute(sa.text(ROW), [{"kind": kind, "phase": phase, "no": False} for kind, phase in left])
    upgrade(db)
    outside = world(db, Hosts(), tmp_path)
    workflows = {w.kind: w for w in (part.workflow(outside) for part in (revalidation, vacancy, sweep))}
    taken = [(run.kind, run.phase) for run in iter(lambda: claim(db, workflows, "w", 30.0, Budgets()), None)]
    assert sorted(taken) == sorted(left)
    db.close()
