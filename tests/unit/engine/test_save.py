"""What a handler's answer writes, and that nobody but the row's owner writes at all."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import LeaseLost, StoreBusy
from fleet.engine.claim import claim, put_back, save
from fleet.engine.workflow import Next, Run, Work
from fleet.store.database import Database
from fleet.store.tables import SiteRow
from tests.unit.engine.scene import JOB, LEASE_S, WORKFLOWS, add, change, row


@pytest.fixture
def run(db: Database) -> Run:
    add(db, "m1", data={"kept": 1, "replaced": 1})
    claimed = claim(db, WORKFLOWS, "w1", LEASE_S)
    assert claimed is not None
    return claimed


def answer(db: Database, run: Run, then: Next) -> Run | None:
    return save(db, JOB, run, then, LEASE_S)


def promise(session: Session) -> None:
    session.add(SiteRow(id=1, mode="enforce", data={}))


def promised(db: Database) -> bool:
    with db.read() as session:
        return session.scalar(sa.select(SiteRow.id)) is not None


def take_over(db: Database, run: Run) -> Run:
    change(db, run, lease_until=0.0)
    taken = claim(db, WORKFLOWS, "w2", LEASE_S)
    assert taken is not None
    return taken


def test_an_answer_moves_the_phase_and_merges_the_data(db: Database, run: Run) -> None:
    change(db, run, attempts=3, last_error="before", phase_since=1.0)
    then = Next("tidy", "seen to work", after_s=60, data={"replaced": 2, "added": 3}, within=promise)
    assert answer(db, run, then) is None
    saved = row(db, run)
    assert (saved.phase, saved.why, saved.attempts, saved.last_error) == ("tidy", "seen to work", 0, None)
    assert saved.data == {"kept": 1, "replaced": 2, "added": 3}
    assert saved.phase_since > 1.0
    assert saved.due_at == pytest.approx(saved.phase_since + 60)
    assert saved.lease_until == 0.0
    assert promised(db)


def test_looking_again_does_not_count_as_a_new_phase(db: Database, run: Run) -> None:
    change(db, run, phase_since=1.0)
    answer(db, run, Next("work", "not there yet", after_s=1))
    assert row(db, run).phase_since == 1.0


def test_what_is_due_at_once_goes_on_under_the_same_lease(db: Database, run: Run) -> None:
    on = answer(db, run, Next("tidy", "go on", data={"added": 3}))
    assert on is not None
    assert (on.phase, on.epoch, on.data["added"]) == ("tidy", run.epoch, 3)
    assert row(db, run).lease_until == pytest.approx(on.now + LEASE_S)
    assert claim(db, WORKFLOWS, "w2", LEASE_S) is None


def test_the_end_frees_everything(db: Database, run: Run) -> None:
    change(db, run, holds_budget=True)
    assert answer(db, run, Next.done("all is well", within=promise)) is None
    ended = row(db, run)
    assert ended.ended_at is not None
    assert (ended.why, ended.lease_until, ended.holds_budget) == ("all is well", 0.0, False)
    assert claim(db, WORKFLOWS, "w2", LEASE_S) is None


def test_who_lost_the_row_writes_nothing(db: Database, run: Run) -> None:
    take_over(db, run)
    before = row(db, run)
    for act in (
        lambda: answer(db, run, Next.done("late", within=promise)),
        lambda: put_back(db, run, RuntimeError("late"), 5.0),
        Work(db, run, LEASE_S).guard,
    ):
        with pytest.raises(LeaseLost):
            act()
    assert not promised(db)
    after = row(db, run)
    assert (after.ended_at, after.attempts, after.lease_until) == (None, 0, before.lease_until)


def test_an_ended_run_is_nobodys(db: Database, run: Run) -> None:
    answer(db, run, Next.done("over"))
    with pytest.raises(LeaseLost):
        answer(db, run, Next("work", "again", within=promise))
    with pytest.raises(LeaseLost):
        Work(db, run, LEASE_S).guard()
    assert not promised(db)


def test_an_answer_committed_unheard_is_not_overwritten_by_its_repetition(db: Database, run: Run) -> None:
    """The connection broke at the commit: the row went on, the worker believes that it failed."""
    answer(db, run, Next("tidy", "committed"))
    with pytest.raises(LeaseLost):
        put_back(db, run, RuntimeError("connection lost at commit"), 5.0)
    with pytest.raises(LeaseLost):
        answer(db, run, Next.done("gave up", within=promise))
    assert (row(db, run).phase, row(db, run).attempts, promised(db)) == ("tidy", 0, False)


def test_writes_within_that_fail_take_the_phase_back_with_them(db: Database, run: Run) -> None:
    def fails(session: Session) -> None:
        promise(session)
        session.flush()
        raise RuntimeError("conflict")

    with pytest.raises(RuntimeError, match="conflict"):
        answer(db, run, Next("tidy", "go on", within=fails))
    assert (row(db, run).phase, promised(db)) == ("work", False)


def test_a_phase_that_does_not_exist_is_never_written(db: Database, run: Run) -> None:
    with pytest.raises(KeyError, match="job has no phase 'tydi', which 'work' answered"):
        answer(db, run, Next("tydi", "typo", within=promise))
    assert (row(db, run).phase, promised(db)) == ("work", False)


def test_an_error_keeps_the_phase_and_counts(db: Database, run: Run) -> None:
    put_back(db, run, ValueError("x" * 5000), 30.0)
    put = row(db, run)
    assert (put.phase, put.attempts, put.lease_until) == ("work", 1, 0.0)
    assert put.due_at - run.now == pytest.approx(30.0, abs=10)
    assert put.last_error is not None
    assert put.last_error.startswith("ValueError: xxx")
    assert len(put.last_error) == 2000


def test_a_busy_database_is_not_the_runs_fault(db: Database, run: Run) -> None:
    put_back(db, run, StoreBusy("locked"), 0.0)
    assert (row(db, run).attempts, row(db, run).last_error) == (0, "StoreBusy: locked")


def test_guard_renews_the_lease(db: Database, run: Run) -> None:
    change(db, run, lease_until=db.now() + 1)
    Work(db, run, LEASE_S).guard()
    assert row(db, run).lease_until > db.now() + 1


def test_writes_of_a_handler_happen_only_for_the_owner(db: Database, run: Run) -> None:
    def write(work: Work) -> None:
        with work.transaction() as session:
            promise(session)

    take_over(db, run)
    with pytest.raises(LeaseLost):
        write(Work(db, run, LEASE_S))
    assert not promised(db)


class FrozenOnce(Work):
    """The worker is frozen after the database answered for the first time; `meanwhile` the world goes on."""

    def __init__(self, db: Database, run: Run, meanwhile: Callable[[], object]) -> None:
        super().__init__(db, run, lease_s=0.2)
        self.asked, self.meanwhile = 0, meanwhile

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        self.asked += 1
        with super().transaction() as session:
            yield session
        if self.asked == 1:
            self.meanwhile()
            time.sleep(self.lease_s)


def test_guard_asks_again_when_the_answer_is_old(db: Database, run: Run) -> None:
    work = FrozenOnce(db, run, meanwhile=lambda: None)
    work.guard()
    assert work.asked == 2


def test_a_right_that_was_lost_while_frozen_is_no_right(db: Database, run: Run) -> None:
    work = FrozenOnce(db, run, meanwhile=lambda: take_over(db, run))
    with pytest.raises(LeaseLost):
        work.guard()
    assert work.asked == 2
