"""The outbox: what is due, what an acknowledgement covers, and what may wait."""

from typing import Any

import pytest
import sqlalchemy as sa

from fleet.core.errors import NotFound
from fleet.core.model import Hold, Machine, SshTarget
from fleet.core.states import Move, State
from fleet.store import attention, machines, notices
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.notices import ATTENTION, SCHEDULER, Standing
from fleet.store.tables import NoticeRow

BY = By("anna")
SSH = SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")


def promise(db: Database, subject: str, *versions: int, destination: str = SCHEDULER) -> None:
    for version in versions:
        with db.begin() as session:
            notices.put(session, destination, notices.WITHDRAWN, subject, version, machine=None, why="because")


def due(db: Database, limit: int = 100) -> list[tuple[str, int]]:
    with db.read() as session:
        return [(row.subject, row.version) for row in notices.batch(session, SCHEDULER, limit)]


def standings(db: Database) -> list[str]:
    with db.read() as session:
        rows = session.scalars(sa.select(NoticeRow).order_by(NoticeRow.id))
        return [f"{row.subject}:{row.version} {notices.standing(row)}" for row in rows]


def take(db: Database, told: dict[str, int], acknowledged: set[str], again_s: float = 60.0) -> None:
    with db.begin() as session:
        notices.delivered(session, SCHEDULER, told, acknowledged, again_s)


def test_the_newest_of_each_subject_stands_for_all_before_it(db: Database) -> None:
    promise(db, "m1", 2, 3)
    promise(db, "m2", 7)
    promise(db, "a-1", 1, destination=ATTENTION)
    assert due(db) == [("m1", 3), ("m2", 7)]
    assert due(db, limit=1) == [("m1", 3)]


def test_an_acknowledgement_covers_what_was_told_and_nothing_newer(db: Database) -> None:
    promise(db, "m1", 2, 3, 5)
    take(db, {"m1": 3}, {"m1"})
    assert standings(db) == ["m1:2 acknowledged", "m1:3 acknowledged", "m1:5 pending"]
    assert due(db) == [("m1", 5)]


def test_what_arrived_without_being_acknowledged_is_sent_again_after_a_while(db: Database) -> None:
    promise(db, "m1", 2)
    take(db, {"m1": 2}, set())
    assert (standings(db), due(db)) == (["m1:2 delivered"], [])
    take(db, {"m1": 2}, set(), again_s=0.0)
    assert due(db) == [("m1", 2)]


def test_a_person_or_the_receiver_can_acknowledge_by_id_twice_and_late(db: Database) -> None:
    promise(db, "m1", 2, 3)
    for _ in range(2):
        with db.begin() as session:
            assert notices.acknowledge(session, 1, "scheduler").acknowledged_by == "scheduler"
    assert standings(db) == ["m1:2 acknowledged", "m1:3 pending"]
    with pytest.raises(NotFound, match="no notice ntc-9"), db.begin() as session:
        notices.acknowledge(session, 9, "scheduler")


def test_what_a_receiver_chokes_on_goes_alone_and_last(db: Database) -> None:
    promise(db, "bad", 1)
    promise(db, "m1", 1)
    for _ in range(notices.ALONE_AFTER):
        with db.begin() as session:
            notices.failed(session, SCHEDULER, ["bad", "m1"], "HTTP 500", counts=True)
    promise(db, "m2", 1)
    assert due(db) == [("m2", 1)]
    take(db, {"m2": 1}, {"m2"})
    assert due(db) == [("bad", 1)]


def test_a_receiver_that_is_away_says_nothing_of_what_was_sent(db: Database) -> None:
    promise(db, "m1", 1)
    promise(db, "m2", 1)
    for _ in range(10):
        with db.begin() as session:
            notices.failed(session, SCHEDULER, ["m1", "m2"], "no connection", counts=False)
    assert due(db) == [("m1", 1), ("m2", 1)]


def test_nothing_is_due_before_its_destination_may_be_tried_again(db: Database) -> None:
    promise(db, "m1", 1)
    with db.begin() as session:
        notices.postpone(session, SCHEDULER, machines.now(session) + 60.0)
    assert due(db) == []
    with db.read() as session:
        assert not session.scalar(sa.select(notices.is_due(SCHEDULER)))
    promise(db, "m2", 1)
    with db.read() as session:
        assert session.scalar(sa.select(notices.is_due(SCHEDULER)))


def test_only_what_was_acknowledged_long_ago_is_forgotten(db: Database) -> None:
    promise(db, "m1", 1)
    promise(db, "m2", 1)
    take(db, {"m1": 1}, {"m1"})
    with db.begin() as session:
        notices.forget(session, SCHEDULER, 3600.0)
        assert session.scalar(sa.select(sa.func.count()).select_from(NoticeRow)) == 2
        notices.forget(session, SCHEDULER, -1.0)
    assert standings(db) == ["m2:1 pending"]


def told(db: Database) -> list[tuple[str, int]]:
    with db.read() as session:
        return [(row.kind, row.version) for row in session.scalars(sa.select(NoticeRow).order_by(NoticeRow.id))]


def machine(state: State) -> Machine:
    return Machine("m1", "sim", state, 1, 0.0, "imported", SSH)


def test_whatever_changes_whether_a_machine_can_be_claimed_is_told_with_a_version_to_order_by(db: Database) -> None:
    def change(act: Any, *args: Any, **more: Any) -> None:
        with db.begin() as session:
            act(session, machines.get(session, "m1"), *args, **more)

    with db.begin() as session:
        machines.add(session, machine(State.AVAILABLE), BY)
    change(machines.set_hold, Hold("anna", "cable swap", 1.0), BY)
    change(machines.set_hold, None, BY)
    change(machines.move, Move.START_VALIDATION, "by hand", BY)
    change(machines.move, Move.FAIL, "burnt", BY)
    change(machines.move, Move.FIX, "mended", BY)
    change(machines.move, Move.START_VALIDATION, "fixed", BY)
    change(machines.move, Move.PASS, "all good", BY)
    change(machines.move, Move.ALLOCATE, "claimed", BY)
    change(machines.move, Move.VACATE, "removed", BY)
    assert told(db) == [
        ("pool.returned", 1),
        ("pool.held", 2),
        ("pool.unheld", 3),
        ("pool.withdrawn", 4),
        ("pool.condemned", 5),
        ("pool.returned", 8),
        ("pool.allocated", 9),
    ]


def test_a_machine_that_was_never_in_the_pool_is_no_news(db: Database) -> None:
    with db.begin() as session:
        machines.add(session, machine(State.VACATED), BY)
        machines.set_hold(session, machines.get(session, "m1"), Hold("anna", "cable swap", 1.0), BY)
    assert told(db) == []


def test_the_scheduler_may_believe_in_a_machine_until_it_acknowledged_that_it_is_out(db: Database) -> None:
    with db.begin() as session:
        machines.add(session, machine(State.AVAILABLE), BY)
        machines.move(session, machines.get(session, "m1"), Move.START_VALIDATION, "by hand", BY)
    take(db, {"m1": 1}, {"m1"})
    with db.read() as session:
        assert notices.withdrawal_open(session, "m1") is not None
    take(db, {"m1": 2}, set())
    with db.read() as session:
        assert notices.withdrawal_open(session, "m1") is not None
    take(db, {"m1": 2}, {"m1"})
    with db.read() as session:
        assert notices.withdrawal_open(session, "m1") is None


def test_a_record_of_attention_is_told_when_it_opens_and_when_it_ends(db: Database) -> None:
    for reason in ("first", "second"):
        with db.begin() as session:
            attention.need(session, "stuck", "m1", machine=None, reason=reason, next_step="look")
    with db.begin() as session:
        attention.settle(session, "service:watchdog", kind="stuck")
        attention.settle(session, "service:watchdog", kind="stuck")
    assert told(db) == [("attention.opened", 1), ("attention.resolved", 2)]


@pytest.mark.parametrize("standing", Standing)
def test_a_list_can_be_narrowed_to_what_waits(db: Database, standing: Standing) -> None:
    for subject in ("pending", "delivered", "acknowledged"):
        promise(db, subject, 1)
    take(db, {"delivered": 1, "acknowledged": 1}, {"acknowledged"})
    with db.read() as session:
        assert [row.subject for row in notices.listed(session, standing=standing).rows] == [standing]
