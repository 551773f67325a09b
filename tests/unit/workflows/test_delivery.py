"""The outbox on its way: what is said, what becomes of each answer, and that nothing is lost or given up."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from fleet.core.errors import ConnectionBroken, DeadlinePassed, FleetError, InvalidInput, Unreachable
from fleet.core.model import Hold, Machine, SshTarget
from fleet.core.states import Move, State
from fleet.engine.worker import Worker
from fleet.store import attention, machines, notices
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import NoticeRow, RunRow
from fleet.webhook.receiver import ANSWER_LIMIT_BYTES, Answer
from fleet.workflows import delivery
from tests.unit.workflows.hosts import Hosts, world
from tests.unit.workflows.receiving import OK, Desk, acknowledging

BY = By("anna")
SSH = SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")


class Outbox:
    """Machines m1, m2, ... in the pool, a scheduler, and a worker that is turned by hand."""

    def __init__(self, db: Database, folder: Path, scheduler: Desk | None, people: Desk | None = None) -> None:
        self.db = db
        outside = replace(world(db, Hosts(), folder), scheduler=scheduler, attention_hook=people)
        self.worker = Worker(db, [delivery.workflow(outside)], threads=1)
        with db.begin() as session:
            delivery.ensure(session)
        self.turn()

    def add(self, *names: str, state: State = State.AVAILABLE) -> None:
        with self.db.begin() as session:
            for name in names:
                machines.add(session, Machine(name, "sim", state, 1, 0.0, "imported", SSH), BY)

    def move(self, how: Move, name: str = "m1") -> None:
        with self.db.begin() as session:
            machines.move(session, machines.get(session, name), how, "by hand", BY)

    def turn(self) -> None:
        """As far as it goes now."""
        while self.worker.step():
            pass

    def pass_time(self) -> None:
        """Every wait is over: the backoff's, and that of what is sent again."""
        with self.db.begin() as session:
            for run in session.scalars(sa.select(RunRow)):
                run.due_at, run.data = 0.0, {**run.data, "not_before": 0.0}
            session.execute(sa.update(NoticeRow).values(due_at=0.0))

    def run(self, destination: str = notices.SCHEDULER) -> RunRow:
        with self.db.read() as session:
            return session.scalars(sa.select(RunRow).where(RunRow.subject == destination)).one()

    def rows(self) -> list[NoticeRow]:
        with self.db.read() as session:
            return list(session.scalars(sa.select(NoticeRow).order_by(NoticeRow.id)))

    def standings(self) -> list[str]:
        return [f"{row.subject}:{row.version} {notices.standing(row)}" for row in self.rows()]


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def outbox(db: Database, tmp_path: Path, desk: Desk) -> Outbox:
    return Outbox(db, tmp_path, desk)


def test_a_notice_is_sent_without_waiting_for_the_next_round(outbox: Outbox, desk: Desk) -> None:
    assert outbox.run().due_at > outbox.db.now() + 10.0
    outbox.add("m1")
    outbox.turn()
    (said,) = desk.notices()
    assert said["id"] == "ntc-1"
    assert {k: said[k] for k in ("kind", "machine", "version", "claimable", "state", "sku", "held_by")} == {
        "kind": "pool.returned",
        "machine": "m1",
        "version": 1,
        "claimable": True,
        "state": "available",
        "sku": "sim",
        "held_by": None,
    }
    assert outbox.standings() == ["m1:1 acknowledged"]
    assert desk.heard[0][1]["type"] == "scheduler.notices"


def test_what_is_said_is_true_now_and_stands_for_all_before(outbox: Outbox, desk: Desk) -> None:
    outbox.add("m1", "m2")
    outbox.move(Move.START_VALIDATION)
    outbox.move(Move.FAIL)
    outbox.turn()
    assert [(n["machine"], n["version"], n["claimable"], n["state"]) for n in desk.notices()] == [
        ("m2", 1, True, "available"),
        ("m1", 3, False, "failed"),
    ]
    assert len(desk.heard) == 1
    assert {standing.split()[1] for standing in outbox.standings()} == {"acknowledged"}


def test_a_change_while_it_is_told_is_told_next_and_not_covered(outbox: Outbox, desk: Desk) -> None:
    outbox.add("m1")

    def change() -> None:
        desk.while_it_is_told = lambda: None
        outbox.move(Move.START_VALIDATION)

    desk.while_it_is_told = change
    outbox.turn()
    assert [n["version"] for n in (desk.notices(0) + desk.notices(1))] == [1, 2]
    assert outbox.standings() == ["m1:1 acknowledged", "m1:2 acknowledged"]


def test_a_thousand_notices_are_a_few_messages(outbox: Outbox, desk: Desk) -> None:
    outbox.add(*(f"m{n}" for n in range(250)))
    outbox.turn()
    assert [len(message["data"]["notices"]) for _, message in desk.heard] == [100, 100, 50]


@pytest.mark.parametrize(
    ("answer", "standing"),
    [
        (OK, "acknowledged"),
        (Answer(204, b""), "acknowledged"),
        (Answer(200, b"OK, thanks"), "acknowledged"),
        (Answer(200, b'{"status": "fine"}'), "acknowledged"),
        (Answer(200, b'["ntc-1"]'), "acknowledged"),
        (acknowledging("ntc-1"), "acknowledged"),
        (acknowledging("ntc-7"), "delivered"),
        (acknowledging(), "delivered"),
        (Answer(202, b""), "delivered"),
        (Answer(200, b'{"acknowledged": "ntc-1"}'), "pending"),
        (Answer(200, b'{"acknowledged": [1]}'), "pending"),
        (Answer(200, b" " * (ANSWER_LIMIT_BYTES + 1)), "pending"),
        (Answer(302, b""), "pending"),
        (Answer(401, b"bad signature"), "pending"),
        (Answer(410, b"gone"), "pending"),
        (Answer(500, b""), "pending"),
        (Answer(503, b""), "pending"),
        (Unreachable("no route"), "pending"),
        (DeadlinePassed("one call took too long"), "pending"),
        (ConnectionBroken("reset"), "pending"),
        (InvalidInput("scheduler.secret_ref: there is no such file", "scheduler.secret_ref"), "pending"),
    ],
)
def test_each_answer_says_how_far_a_notice_is(
    outbox: Outbox, desk: Desk, answer: Answer | FleetError, standing: str
) -> None:
    desk.answer = answer
    outbox.add("m1")
    outbox.turn()
    assert outbox.standings() == [f"m1:1 {standing}"]
    (row,) = outbox.rows()
    assert (row.last_error is None) == (standing != "pending")
    assert len(desk.heard) == 1
    if standing != "acknowledged":  # never given up: it comes again until it is known
        desk.answer = OK
        outbox.pass_time()
        outbox.turn()
        assert outbox.standings() == ["m1:1 acknowledged"]


def test_the_same_again_has_the_same_id_and_anything_else_another(outbox: Outbox, desk: Desk) -> None:
    desk.answer = DeadlinePassed("one call took too long")
    outbox.add("m1")
    outbox.turn()
    outbox.pass_time()
    outbox.turn()
    outbox.move(Move.START_VALIDATION)
    outbox.pass_time()
    outbox.turn()
    first, second, third = (id_ for id_, _ in desk.heard)
    assert first == second != third


def test_waits_grow_to_five_minutes_and_end_with_the_first_answer(outbox: Outbox, desk: Desk) -> None:
    desk.answer = Unreachable("no route")
    outbox.add("m1")
    waits: list[float] = []
    for _ in range(12):
        outbox.turn()
        waits.append(outbox.run().data["not_before"] - outbox.db.now())
        outbox.pass_time()
    assert len(desk.heard) == 12
    assert waits[0] < 2.5
    assert 140.0 < waits[-1] <= delivery.LONGEST_WAIT_S
    desk.answer = OK
    outbox.turn()
    assert (outbox.run().data["tries"], outbox.standings()) == (0, ["m1:1 acknowledged"])


def test_while_a_receiver_is_away_new_notices_bring_no_calls(outbox: Outbox, desk: Desk) -> None:
    desk.answer = Unreachable("no route")
    outbox.add("m1")
    for _ in range(6):
        outbox.turn()
        with outbox.db.begin() as session:
            session.execute(sa.update(RunRow).values(data={"tries": 6, "not_before": outbox.db.now() + 100.0}))
        outbox.add(f"n{outbox.db.now()}")
    assert len(desk.heard) == 1
    assert outbox.worker.step()  # looks once more that it has to wait, and sleeps
    assert not outbox.worker.step()


class Choking(Desk):
    """Has a fault that one machine brings out."""

    def post(self, *args: Any) -> Answer:
        super().post(*args)
        return Answer(500, b"KeyError") if "bad" in [n["machine"] for n in self.notices()] else OK


def test_one_notice_that_the_receiver_chokes_on_keeps_no_other_back(db: Database, tmp_path: Path) -> None:
    outbox = Outbox(db, tmp_path, Choking())
    outbox.add("bad", "m1", "m2")
    for _ in range(notices.ALONE_AFTER + 3):
        outbox.turn()
        outbox.pass_time()
    outbox.add("m3")
    outbox.turn()
    assert outbox.standings() == ["bad:1 pending", "m1:1 acknowledged", "m2:1 acknowledged", "m3:1 acknowledged"]


def test_without_a_receiver_nothing_piles_up(db: Database, tmp_path: Path) -> None:
    outbox = Outbox(db, tmp_path, None)
    outbox.add("m1")
    outbox.pass_time()
    outbox.turn()
    (row,) = outbox.rows()
    assert row.acknowledged_by == "nobody: no receiver is set up"
    assert row.delivered_at is None


def test_the_end_of_a_hold_is_told_though_nobody_ended_it(outbox: Outbox, desk: Desk) -> None:
    outbox.add("m1", "m2")
    with outbox.db.begin() as session:
        for name, expires_at in (("m1", machines.now(session) + 0.01), ("m2", machines.now(session) + 3600.0)):
            hold = Hold("anna", "cable swap", 1.0, expires_at)
            machines.set_hold(session, machines.get(session, name), hold, BY)
    outbox.turn()
    outbox.pass_time()
    outbox.turn()
    last = {notice["machine"]: notice for _, message in desk.heard for notice in message["data"]["notices"]}
    assert (last["m1"]["claimable"], last["m1"]["held_by"]) == (True, None)
    assert (last["m2"]["claimable"], last["m2"]["held_by"]) == (False, "anna")


def need(outbox: Outbox, subject: str = "m1") -> None:
    with outbox.db.begin() as session:
        attention.need(session, "stuck", subject, machine=None, reason="it stands", next_step="`fleet revalidate m1`")


def settle(outbox: Outbox) -> None:
    with outbox.db.begin() as session:
        attention.settle(session, "service:watchdog", kind="stuck")


def test_people_are_told_what_waits_for_them_and_when_it_is_over(db: Database, tmp_path: Path) -> None:
    people = Desk(Answer(202, b"queued"))  # what pages people says 202, and is not asked twice
    outbox = Outbox(db, tmp_path, None, people)
    need(outbox)
    outbox.turn()
    settle(outbox)
    outbox.turn()
    opened, resolved = (people.notices(0)[0], people.notices(1)[0])
    assert (opened["version"], opened["about"], opened["next_step"]) == (1, "stuck", "`fleet revalidate m1`")
    assert (resolved["version"], resolved["attention"]) == (2, opened["attention"])
    assert resolved["resolved_by"] == "service:watchdog"
    assert {row.acknowledged_by for row in outbox.rows()} == {"attention"}


def test_what_was_over_before_anybody_could_be_told_pages_nobody(db: Database, tmp_path: Path) -> None:
    people = Desk()
    outbox = Outbox(db, tmp_path, None, people)
    need(outbox)
    settle(outbox)
    outbox.turn()
    need(outbox, "m2")
    need(outbox, "m3")
    with db.begin() as session:
        attention.settle(session, "anna", subject="m3")
    outbox.turn()
    assert [[n["subject"] for n in message["data"]["notices"]] for _, message in people.heard] == [["m2"]]
    assert {standing.split()[1] for standing in outbox.standings()} == {"acknowledged"}
