"""Budgets are counted in the claiming transaction: exactly, whoever claims at the same time."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from fleet.engine.claim import _GATE_LOCK, Budgets, claim, idle, put_back, request_abort, save
from fleet.engine.workflow import Next, Phase, Run, Workflow
from fleet.store.database import Database
from fleet.store.tables import RunRow
from tests.unit.engine.scene import ABORTABLE, JOB, LEASE_S, WORKFLOWS, add, change, give_up, row, unused


def take(db: Database, **limits: int) -> Run | None:
    return claim(db, WORKFLOWS, "w1", LEASE_S, Budgets(**limits))


def taken(db: Database, **limits: int) -> list[str]:
    """The subjects of all runs that can be claimed now, in order."""
    return [run.subject for run in iter(lambda: take(db, **limits), None)]


def test_no_more_than_the_total_pass(db: Database) -> None:
    for n in range(5):
        add(db, f"m{n}", "wait", due=n - 10)
    assert taken(db, total=3) == ["m0", "m1", "m2"]
    assert not idle(db, WORKFLOWS)


def test_racks_and_power_feeds_have_their_own_room(db: Database) -> None:
    for n, (rack, feed) in enumerate([("r1", "a"), ("r1", "a"), ("r1", "b"), ("r2", "a"), ("r2", "b"), (None, None)]):
        add(db, f"m{n}", "wait", due=n - 10, rack=rack, power_feed=feed)
    assert taken(db, per_rack=2, per_power_feed=2) == ["m0", "m1", "m4", "m5"]


def test_machines_without_a_rack_are_not_a_rack(db: Database) -> None:
    for n in range(4):
        add(db, f"m{n}", "wait", due=n - 10)
    add(db, "m4", "wait", rack="r1", power_feed="a")
    assert taken(db, per_rack=1, per_power_feed=1) == ["m0", "m1", "m2", "m3", "m4"]


def test_a_full_rack_does_not_hold_up_the_next(db: Database) -> None:
    add(db, "m0", "wait", due=-30, rack="r1")
    add(db, "m1", "wait", due=-20, rack="r1")
    add(db, "m2", "wait", due=-10, rack="r2")
    assert taken(db, per_rack=1) == ["m0", "m2"]


def test_work_past_the_gate_goes_before_new_work(db: Database) -> None:
    add(db, "new", "wait", due=-100)
    add(db, "going", "work", due=-1)
    assert taken(db) == ["going", "new"]


def test_the_end_of_a_run_makes_room(db: Database) -> None:
    add(db, "m0", "wait", due=-2)
    add(db, "m1", "wait", due=-1)
    run = take(db, total=1)
    assert run is not None
    assert taken(db, total=1) == []
    save(db, JOB, run, Next.done("over"), LEASE_S)
    assert taken(db, total=1) == ["m1"]


def test_who_is_inside_comes_back_after_an_error_or_a_crash(db: Database) -> None:
    """Its own place must not be what keeps it out."""
    add(db, "m0", "wait")
    run = take(db, total=1, per_rack=1)
    assert run is not None
    put_back(db, run, RuntimeError("unreachable"), 0.0)
    assert taken(db, total=1) == ["m0"]
    change(db, run, lease_until=0.0)
    assert taken(db, total=1) == ["m0"]


def test_an_answer_does_not_lead_through_the_gate(db: Database) -> None:
    add(db, "inside", "wait")
    assert taken(db, total=1) == ["inside"]
    add(db, "m1", "work")
    run = take(db, total=1)
    assert run is not None
    assert save(db, JOB, run, Next("wait", "ready to burn"), LEASE_S) is None
    assert (row(db, run).lease_until, row(db, run).holds_budget) == (0.0, False)
    assert taken(db, total=1) == []


def test_an_abort_is_heard_in_front_of_a_full_gate(db: Database) -> None:
    add(db, "inside", "wait", due=-2)
    outside = add(db, "outside", "wait", due=-1)
    assert taken(db, total=1) == ["inside"]
    with db.begin() as session:
        request_abort(session, outside, "no longer wanted", "alice", ABORTABLE)
    assert taken(db, total=1) == ["outside"]
    assert not row(db, outside).holds_budget


def test_a_gate_is_one_workflows(db: Database) -> None:
    add(db, "m0", "wait")
    other = Workflow("other", {"wait": Phase(unused)}, abort=unused, give_up=give_up)
    free = add(db, "m1", "wait", kind="other")
    both = {"job": JOB, "other": other}
    closed = Budgets(total=0)
    run = claim(db, both, "w1", LEASE_S, closed)
    assert run is not None
    assert run.id == free
    assert claim(db, both, "w1", LEASE_S, closed) is None


@pytest.mark.parametrize("limits", [{"total": 7}, {"per_rack": 2}, {"per_power_feed": 3}])
def test_budgets_hold_however_many_claim_at_once(db: Database, limits: dict[str, int]) -> None:
    for n in range(24):
        add(db, f"m{n}", "wait", rack=f"r{n % 4}", power_feed=f"f{n % 2}")
    crowd = 6
    together = threading.Barrier(crowd)

    def worker() -> None:
        own = Database(db.url.render_as_string(hide_password=False))  # nothing in common but the database
        together.wait()
        while claim(
            own, WORKFLOWS, "w", LEASE_S, Budgets(**({"total": 50, "per_rack": 50, "per_power_feed": 50} | limits))
        ):
            pass
        own.close()

    with ThreadPoolExecutor(crowd) as pool:
        for task in [pool.submit(worker) for _ in range(crowd)]:
            task.result()
    with db.read() as session:
        inside = session.scalars(sa.select(RunRow).where(RunRow.holds_budget)).all()
    counted = {
        "total": Counter("all" for _ in inside),
        "per_rack": Counter(run.rack for run in inside),
        "per_power_feed": Counter(run.power_feed for run in inside),
    }
    ((kind, limit),) = limits.items()
    assert set(counted[kind].values()) == {limit}


@pytest.mark.real
def test_one_that_is_frozen_at_the_gate_keeps_nobody_from_other_work(postgresql_url: str) -> None:
    db = Database(postgresql_url)
    gated, free = add(db, "m0", "wait"), add(db, "m1", "work", due=3600.0)
    with db.begin() as frozen:
        frozen.execute(sa.select(sa.func.pg_advisory_xact_lock(_GATE_LOCK)))
        assert claim(db, WORKFLOWS, "w1", LEASE_S) is None  # and not after a wait for the lock
        change(db, free, due_at=0.0)
        run = claim(db, WORKFLOWS, "w1", LEASE_S)
        assert run is not None
        assert run.id == free
    run = claim(db, WORKFLOWS, "w1", LEASE_S)
    assert run is not None
    assert run.id == gated
    db.close()
