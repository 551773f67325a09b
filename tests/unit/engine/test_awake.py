"""A run that sleeps until something is in the database: whoever puts it there neither knows the run nor touches its row."""

from dataclasses import replace

from fleet.engine.claim import claim, idle
from fleet.engine.workflow import Run
from fleet.store import notices
from fleet.store.database import Database
from fleet.store.tables import RunRow
from tests.unit.engine.scene import JOB, LEASE_S, add, change, row

WORKFLOWS = {"job": replace(JOB, awake=notices.is_due(RunRow.subject))}


def take(db: Database) -> Run | None:
    return claim(db, WORKFLOWS, "w1", LEASE_S)


def promise(db: Database, destination: str) -> None:
    with db.begin() as session:
        notices.put(session, destination, notices.WITHDRAWN, "m1", 2, machine=None, why="because")


def test_it_sleeps_until_its_own_condition_is_true(db: Database) -> None:
    asleep = add(db, "scheduler", due=3600)
    add(db, "attention", due=3600)
    assert idle(db, WORKFLOWS)
    assert take(db) is None
    promise(db, "scheduler")
    assert not idle(db, WORKFLOWS)
    woken = take(db)
    assert woken is not None
    assert woken.id == asleep
    assert take(db) is None  # claimed once, and the other sleeps on


def test_it_comes_in_turn(db: Database) -> None:
    add(db, "scheduler", due=3600)
    waits_longer = add(db, "m1", due=-10)
    promise(db, "scheduler")
    order = [run.subject for run in (take(db), take(db)) if run]
    assert order == ["m1", "scheduler"]
    assert row(db, waits_longer).epoch == 1


def test_what_failed_or_is_over_or_of_another_version_sleeps_on(db: Database) -> None:
    promise(db, "scheduler")
    run = add(db, "scheduler", due=3600, attempts=1)
    assert idle(db, WORKFLOWS)
    assert take(db) is None
    change(db, run, attempts=0, phase="polish")
    assert take(db) is None
    change(db, run, phase="work", ended_at=1.0)
    assert take(db) is None


def test_a_workflow_that_waits_for_nothing_keeps_its_runs_time(db: Database) -> None:
    promise(db, "scheduler")
    run = add(db, "scheduler", due=3600)
    assert claim(db, {"job": JOB}, "w1", LEASE_S) is None
    assert row(db, run).due_at > db.now()
