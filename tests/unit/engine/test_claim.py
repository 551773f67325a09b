"""Which run is claimed, by whom, and for how long."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from fleet.engine.claim import claim, idle, let_go, release_leases
from fleet.engine.workflow import Phase, Run, Workflow, open_run
from fleet.store.database import Database
from fleet.store.tables import RunRow
from tests.unit.engine.scene import JOB, LEASE_S, WORKFLOWS, add, change, give_up, row, unused


def take(db: Database, worker: str = "w1") -> Run | None:
    return claim(db, WORKFLOWS, worker, LEASE_S)


def test_the_oldest_due_run_comes_first(db: Database) -> None:
    for subject, due in (("second", -10), ("first", -20), ("third", -5), ("later", 60)):
        add(db, subject, due=due)
    order = [run.subject for run in (take(db), take(db), take(db)) if run]
    assert order == ["first", "second", "third"]
    assert take(db) is None


def test_a_claim_raises_the_epoch_and_holds_the_row(db: Database) -> None:
    run_id = add(db, "m1", data={"a": 1})
    run = take(db)
    assert run is not None
    assert (run.id, run.epoch, run.phase, run.data) == (run_id, 1, "work", {"a": 1})
    held = row(db, run)
    assert (held.worker, held.epoch) == ("w1", 1)
    assert held.lease_until == pytest.approx(run.now + LEASE_S)
    assert take(db, "w2") is None


def test_a_dead_workers_run_is_taken_over_after_its_lease(db: Database) -> None:
    run_id = add(db, "m1")
    first = take(db, "w1")
    change(db, run_id, lease_until=db.now() - 0.001)
    second = take(db, "w2")
    assert first is not None
    assert second is not None
    assert (second.id, second.epoch, row(db, run_id).worker) == (first.id, 2, "w2")


def test_ended_runs_foreign_kinds_and_unknown_phases_are_left_alone(db: Database) -> None:
    add(db, "over", ended_at=1.0)
    add(db, "foreign", kind="other")
    add(db, "from-a-newer-version", phase="polish")
    assert idle(db, WORKFLOWS)
    assert take(db) is None


def test_a_phase_belongs_to_its_kind(db: Database) -> None:
    other = Workflow("other", {"polish": Phase(unused)}, abort=unused, give_up=give_up)
    add(db, "m1", kind="other", phase="work")
    assert claim(db, {"job": JOB, "other": other}, "w1", LEASE_S) is None


def test_idle_says_whether_something_is_due(db: Database) -> None:
    assert idle(db, WORKFLOWS)
    run_id = add(db, "m1", due=60)
    assert idle(db, WORKFLOWS)
    change(db, run_id, due_at=db.now())
    assert not idle(db, WORKFLOWS)
    take(db)
    assert idle(db, WORKFLOWS)


def test_a_run_that_is_let_go_is_free_at_once(db: Database) -> None:
    add(db, "m1")
    run = take(db)
    assert run is not None
    let_go(db, run)
    again = take(db, "w2")
    assert again is not None
    assert again.epoch == 2


def test_the_only_process_forgets_the_leases_of_its_past(db: Database) -> None:
    run_id = add(db, "m1")
    over = add(db, "m2", ended_at=1.0, epoch=5)
    take(db)
    release_leases(db)
    assert row(db, run_id).epoch == 2
    assert row(db, over).epoch == 5
    again = take(db)
    assert again is not None
    assert again.epoch == 3


def test_one_run_of_a_kind_is_open_per_subject(db: Database) -> None:
    first = add(db, "m1")
    with pytest.raises(sa.exc.IntegrityError):
        add(db, "m1")
    add(db, "m1", kind="other")
    change(db, first, ended_at=1.0)
    assert add(db, "m1") > first


def test_many_threads_open_one_run(db: Database) -> None:
    def report() -> bool:
        try:
            add(db, "m1")
        except sa.exc.IntegrityError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(task.result() for task in [pool.submit(report) for _ in range(40)]) == 1


def test_many_workers_claim_every_run_once(db: Database) -> None:
    with db.begin() as session:
        for n in range(40):
            open_run(session, "job", "work", f"m{n}", why="asked for")
    together = threading.Barrier(8)

    def worker(n: int) -> list[str]:
        together.wait()
        claimed = []
        while not idle(db, WORKFLOWS):
            run = take(db, f"w{n}")
            claimed += [run.subject] if run else []
        return claimed

    with ThreadPoolExecutor(8) as pool:
        claimed = [name for task in [pool.submit(worker, n) for n in range(8)] for name in task.result()]
    assert sorted(claimed) == sorted(f"m{n}" for n in range(40))
    with db.read() as session:
        assert set(session.scalars(sa.select(RunRow.epoch))) == {1}


@pytest.mark.real
def test_a_row_that_is_being_written_does_not_hold_up_the_next(postgresql_url: str) -> None:
    db = Database(postgresql_url)
    oldest = add(db, "m1", due=-10)
    add(db, "m2")
    with db.begin() as session:
        session.execute(sa.update(RunRow).where(RunRow.id == oldest).values(abort_reason="stop"))
        run = take(db)
    assert run is not None
    assert run.subject == "m2"
    db.close()
