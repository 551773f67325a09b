"""The loop around the handlers: goes on, gives up, drops what it lost, wakes and stops."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.clock import Deadline
from fleet.core.errors import LeaseLost, StoreBusy, Unreachable
from fleet.engine.claim import claim, request_abort
from fleet.engine.worker import Worker
from fleet.engine.workflow import Handler, Next, Phase, Work, Workflow
from fleet.store.database import Database
from fleet.store.tables import AuditRow, RunRow
from tests.unit.engine.scene import LEASE_S, add, change, give_up, row, unused


def job(work: Handler = unused, tidy: Handler = unused, **parts: Callable[..., Next]) -> Workflow:
    phases = {"work": Phase(work, max_attempts=3, backoff_s=8.0), "tidy": Phase(tidy, abortable=False)}
    return Workflow("job", phases, abort=parts.get("abort", unused), give_up=parts.get("give_up", give_up))


def done(work: Work) -> Next:
    return Next.done("done", within=lambda session: note(session, work))


def note(session: Session, work: Work) -> None:
    entry = AuditRow(at=work.run.now, actor="w", action="done", object=work.run.subject, allowed=True, detail={})
    session.add(entry)


def notes(db: Database) -> list[str | None]:
    with db.read() as session:
        return sorted(session.scalars(sa.select(AuditRow.object)))


def wait_for(what: Callable[[], bool]) -> None:
    assert any(what() for _ in Deadline.after(20).poll(0.01))


def raising(error: Exception) -> Handler:
    def handler(work: Work) -> Next:
        raise error

    return handler


def test_a_step_goes_as_far_as_is_due(db: Database) -> None:
    run_id = add(db, "m1")
    seen: list[str] = []
    worker = Worker(db, [job(lambda w: Next("tidy", "go on"), done)], before_step=lambda run: seen.append(run.phase))
    assert worker.step()
    assert seen == ["work", "tidy"]
    assert row(db, run_id).ended_at is not None
    assert not worker.step()
    assert notes(db) == ["m1"]


def test_an_error_is_tried_again_later_and_later(db: Database) -> None:
    run_id = add(db, "m1")
    worker = Worker(db, [job(raising(Unreachable("no route to m1")))])
    waits = []
    for _ in range(2):
        change(db, run_id, due_at=0.0)
        worker.step()
        waits.append(row(db, run_id).due_at - db.now())
    assert waits == [pytest.approx(8.0, abs=4), pytest.approx(16.0, abs=4)]
    failed = row(db, run_id)
    assert (failed.attempts, failed.last_error, failed.lease_until) == (2, "Unreachable: no route to m1", 0.0)


def test_after_the_last_attempt_the_workflow_decides_and_goes_on_at_once(db: Database) -> None:
    run_id = add(db, "m1", attempts=2)
    asked: list[str] = []

    def to_a_person(work: Work, error: Exception) -> Next:
        asked.append(str(error))
        return Next("tidy", "gave up")

    Worker(db, [job(raising(Unreachable("no route")), done, give_up=to_a_person)]).step()
    assert asked == ["no route"]
    assert row(db, run_id).ended_at is not None


def test_giving_up_can_fail_too_and_is_tried_again(db: Database) -> None:
    run_id = add(db, "m1", attempts=2)

    def unable(work: Work, error: Exception) -> Next:
        raise Unreachable("nor can it be cleaned up")

    worker = Worker(db, [job(raising(Unreachable("no route")), give_up=unable)])
    worker.step()
    failed = row(db, run_id)
    assert (failed.attempts, failed.last_error) == (3, "Unreachable: nor can it be cleaned up")
    assert (failed.ended_at, failed.lease_until) == (None, 0.0)


def test_a_busy_database_never_makes_a_run_give_up(db: Database) -> None:
    run_id = add(db, "m1", attempts=2)
    Worker(db, [job(raising(StoreBusy("locked")))]).step()
    assert (row(db, run_id).attempts, row(db, run_id).ended_at) == (2, None)


def test_a_handler_that_lost_its_row_is_forgotten(db: Database) -> None:
    run_id = add(db, "m1")

    def overtaken(work: Work) -> Next:
        change(db, run_id, lease_until=0.0)
        assert claim(db, {"job": job()}, "w2", LEASE_S) is not None
        work.guard()
        raise AssertionError("acted without owning the row")

    Worker(db, [job(overtaken)]).step()
    left = row(db, run_id)
    assert (left.worker, left.epoch, left.attempts, left.last_error) == ("w2", 2, 0, None)
    assert left.lease_until > 0.0


def test_a_frozen_workers_late_answer_writes_nothing(db: Database) -> None:
    run_id = add(db, "m1")

    def overtaken(work: Work) -> Next:
        change(db, run_id, epoch=work.run.epoch + 1)
        return done(work)

    Worker(db, [job(overtaken)]).step()
    assert (row(db, run_id).ended_at, notes(db)) == (None, [])


def test_an_abort_takes_the_place_of_the_handler(db: Database) -> None:
    run_id = add(db, "m1")
    with db.begin() as session:
        request_abort(session, run_id, "no longer wanted", "alice", ["work"])
    Worker(db, [job(abort=lambda w: Next("tidy", str(w.run.abort_reason)), tidy=done)]).step()
    assert row(db, run_id).ended_at is not None


def test_an_abort_during_the_last_step_is_carried_out_by_the_same_worker(db: Database) -> None:
    run_id = add(db, "m1")

    def aborted_meanwhile(work: Work) -> Next:
        with db.begin() as session:
            assert request_abort(session, run_id, "no longer wanted", "alice", ["work"])
        return Next("tidy", "passed")

    def tidy(work: Work) -> Next:
        return Next.done(work.run.data["verdict"])

    abort = {"abort": lambda w: Next("tidy", "aborted", data={"verdict": "aborted"})}
    Worker(db, [job(aborted_meanwhile, tidy, **abort)]).step()
    assert row(db, run_id).why == "aborted"


def test_a_handler_that_names_no_phase_of_its_workflow_counts_as_an_error(db: Database) -> None:
    run_id = add(db, "m1")
    Worker(db, [job(lambda w: Next("tydi", "typo"))]).step()
    assert (row(db, run_id).phase, row(db, run_id).attempts) == ("work", 1)


def test_two_workers_do_everything_once(db: Database) -> None:
    for n in range(20):
        add(db, f"m{n:02}")
    workers = [Worker(db, [job(lambda w: Next("tidy", "go on"), done)], threads=3, poll_s=0.02) for _ in range(2)]
    for worker in workers:
        worker.start()
    wait_for(lambda: len(notes(db)) >= 20)
    for worker in workers:
        worker.stop()
    assert notes(db) == [f"m{n:02}" for n in range(20)]


def test_a_kick_wakes_a_sleeping_worker(sqlite_url: str) -> None:
    db = Database(sqlite_url)
    worker = Worker(db, [job(done)], poll_s=3600)
    worker.start()
    add(db, "m1")

    def kicked() -> bool:
        worker.kick()
        return notes(db) == ["m1"]

    wait_for(kicked)
    worker.stop()


def test_stop_lets_a_handler_end_and_leaves_the_rest_for_others(sqlite_url: str) -> None:
    db = Database(sqlite_url)
    run_id = add(db, "m1")
    started, may_end = threading.Event(), threading.Event()

    def slow(work: Work) -> Next:
        started.set()
        may_end.wait(20)
        return Next("tidy", "go on")

    worker = Worker(db, [job(slow, unused)], threads=1)
    worker.start()
    assert started.wait(20)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    may_end.set()
    stopping.join(20)
    assert not stopping.is_alive()
    left = row(db, run_id)
    assert (left.phase, left.lease_until, left.attempts) == ("tidy", 0.0, 0)
    assert claim(db, {"job": job()}, "w2", LEASE_S) is not None


class Outage(Database):
    """A database that does not answer reads at first."""

    def __init__(self, url: str, refusals: int) -> None:
        super().__init__(url)
        self.refusals = refusals

    @contextmanager
    def read(self) -> Iterator[Session]:
        if self.refusals:
            self.refusals -= 1
            raise StoreBusy("locked") if self.refusals else RuntimeError("driver bug")
        with super().read() as session:
            yield session


def test_the_loop_outlives_an_outage(sqlite_url: str) -> None:
    db = Database(sqlite_url)
    add(db, "m1")
    outage = Outage(sqlite_url, refusals=2)
    worker = Worker(outage, [job(done)], poll_s=0.01)
    worker.start()

    def recovered() -> bool:
        worker.kick()
        return notes(db) == ["m1"]

    wait_for(recovered)
    worker.stop()
    assert outage.refusals == 0


def test_a_lost_lease_is_not_an_error_of_the_handler(db: Database) -> None:
    run_id = add(db, "m1", attempts=2)
    Worker(db, [job(raising(LeaseLost("gone")))]).step()
    with db.read() as session:
        assert session.scalar(sa.select(RunRow.attempts).where(RunRow.id == run_id)) == 2
