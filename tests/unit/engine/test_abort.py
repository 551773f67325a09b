"""An abort and the run it ends meet on one row: the first wins, the other is told."""

import threading

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import LeaseLost
from fleet.engine.claim import claim, put_back, request_abort, save
from fleet.engine.workflow import Next, Run
from fleet.store.database import Database
from fleet.store.tables import AuditRow, SiteRow
from tests.unit.engine.scene import ABORTABLE, JOB, LEASE_S, WORKFLOWS, add, change, row


def abort(db: Database, run: int | Run, reason: str = "no longer wanted") -> bool:
    with db.begin() as session:
        return request_abort(session, run if isinstance(run, int) else run.id, reason, "alice", ABORTABLE)


def take(db: Database) -> Run:
    run = claim(db, WORKFLOWS, "w1", LEASE_S)
    assert run is not None
    return run


def settle(session: Session) -> None:
    session.add(SiteRow(id=1, mode="enforce", data={}))


def settled(db: Database) -> bool:
    with db.read() as session:
        return session.scalar(sa.select(SiteRow.id)) is not None


def test_an_abort_wakes_a_waiting_run(db: Database) -> None:
    run_id = add(db, "m1", due=3600)
    assert abort(db, run_id)
    run = take(db)
    assert (run.abort_reason, run.abort_by) == ("no longer wanted", "alice")


def test_a_second_abort_is_told(db: Database) -> None:
    run_id = add(db, "m1")
    assert abort(db, run_id, "first")
    assert not abort(db, run_id, "second")
    assert row(db, run_id).abort_reason == "first"


@pytest.mark.parametrize("values", [{"phase": "tidy"}, {"ended_at": 1.0}])
def test_too_late_is_told(db: Database, values: dict[str, object]) -> None:
    run_id = add(db, "m1")
    change(db, run_id, **values)
    assert not abort(db, run_id)
    assert row(db, run_id).abort_reason is None


@pytest.mark.parametrize("then", [Next.done("passed", within=settle), Next("tidy", "passed", within=settle)])
def test_an_abort_accepted_while_the_handler_settles_wins(db: Database, then: Next) -> None:
    add(db, "m1")
    run = take(db)
    assert abort(db, run)
    again = save(db, JOB, run, then, LEASE_S)
    assert again is not None
    assert (again.phase, again.abort_reason, again.epoch) == ("work", "no longer wanted", run.epoch)
    assert not settled(db)
    assert row(db, run).ended_at is None


def test_a_step_on_the_way_is_kept_and_the_abort_does_not_wait_for_its_timer(db: Database) -> None:
    add(db, "m1")
    run = take(db)
    abort(db, run)
    again = save(db, JOB, run, Next("work", "one check ended", after_s=3600, data={"seen": 1}, within=settle), LEASE_S)
    assert again is not None
    assert (again.data, again.abort_reason) == ({"seen": 1}, "no longer wanted")
    assert settled(db)


def test_an_abort_that_is_being_carried_out_keeps_its_timers(db: Database) -> None:
    """Otherwise tearing down, which looks again and again, would look without a pause."""
    run_id = add(db, "m1")
    abort(db, run_id)
    run = take(db)
    assert save(db, JOB, run, Next("tidy", "tear down", after_s=60), LEASE_S) is None
    assert row(db, run).due_at > db.now() + 30


def test_an_abort_does_not_wait_for_a_backoff(db: Database) -> None:
    add(db, "m1")
    run = take(db)
    abort(db, run)
    put_back(db, run, RuntimeError("unreachable"), 3600)
    assert take(db).abort_reason == "no longer wanted"


def test_a_failing_abort_backs_off(db: Database) -> None:
    abort(db, add(db, "m1"))
    put_back(db, take(db), RuntimeError("unreachable"), 3600)
    assert claim(db, WORKFLOWS, "w1", LEASE_S) is None


def test_abort_and_settle_raced_have_one_winner(db: Database) -> None:
    for n in range(12):
        add(db, f"m{n}")
        run = take(db)
        together, accepted = threading.Barrier(2), []

        def ask(run: Run = run, together: threading.Barrier = together, accepted: list[bool] = accepted) -> None:
            together.wait()
            accepted.append(abort(db, run))

        asker = threading.Thread(target=ask)
        asker.start()
        together.wait()
        try:
            left = save(db, JOB, run, Next.done("passed", within=lambda s, run=run: s.add(_verdict(run))), LEASE_S)
        except LeaseLost:
            pytest.fail("an abort does not take the row away from its worker")
        asker.join()
        with db.read() as session:
            verdicts = session.scalar(sa.select(sa.func.count()).where(AuditRow.object == run.subject))
        assert (accepted, left is None, verdicts) in (([True], False, 0), ([False], True, 1))
        change(db, run, ended_at=1.0)


def _verdict(run: Run) -> AuditRow:
    return AuditRow(at=run.now, actor="w1", action="passed", object=run.subject, allowed=True, detail={})
