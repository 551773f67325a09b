"""The watchdog: what is late is told once, with a command to try; what is over is settled; one broken rule stops no other."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.model import Hold
from fleet.core.states import State
from fleet.engine.worker import Worker
from fleet.store import approvals, machines, notices
from fleet.store.database import Database
from fleet.store.tables import ApprovalRow, AttentionRow, MachineRow, RunRow
from fleet.workflows import watchdog
from fleet.workflows.deadlines import RULES, Rule
from fleet.workflows.world import Policy
from tests.unit.workflows.hosts import Hosts, world
from tests.unit.workflows.lateness import BY, LATE, add_machine, add_run, ago, forget_all, told


def test_every_rule_has_something_late_here() -> None:
    assert set(LATE) == {rule.kind for rule in RULES}


@pytest.mark.parametrize("kind", LATE)
def test_what_is_late_is_told_once_and_settled_when_it_is_over(db: Database, tmp_path: Path, kind: str) -> None:
    with db.begin() as session:
        LATE[kind](session)
    first = told(db, tmp_path)
    assert [k for k, _ in first] == [kind]
    assert told(db, tmp_path) == first
    with db.read() as session:
        record = session.scalars(sa.select(AttentionRow)).one()
        assert "`fleet " in record.next_step
        assert "{" not in record.reason + record.next_step
    with db.begin() as session:
        forget_all(session)
    assert told(db, tmp_path) == []
    with db.read() as session:
        assert session.scalars(sa.select(AttentionRow.resolved_by)).all() == ["service:watchdog"]


def on_the_way(session: Session) -> None:
    add_machine(session, State.VACATED)
    add_run(session, "vacancy", "await_clear")


def held(session: Session) -> None:
    machines.set_hold(session, add_machine(session, State.VACATED), Hold("anna", "new riser", ago(session, 5.0)), BY)


def in_time(session: Session) -> None:
    add_machine(session, State.VALIDATING)
    add_run(session, "validation", "checks", phase_since=ago(session, 3600.0))


def just_due(session: Session) -> None:
    add_run(session, "sweep", "reap", "fleet", due_at=ago(session, 30.0))


def at_work(session: Session) -> None:
    add_run(session, "sweep", "reap", "fleet", due_at=ago(session), lease_until=ago(session, -10.0))


def in_the_queue(session: Session) -> None:
    """Budgets let through one after the other."""
    add_machine(session, State.VALIDATING)
    add_run(session, "validation", "queued", due_at=ago(session, 3 * 3600.0), phase_since=ago(session))


def asleep(session: Session) -> None:
    """Until there is something to deliver, or its receiver may be back."""
    add_run(session, "delivery", "send", "scheduler", due_at=ago(session, -300.0), phase_since=ago(session))


def just_promised(session: Session) -> None:
    notices.put(session, notices.SCHEDULER, notices.WITHDRAWN, "m1", 2, machine="m1", why="because")


def in_a_persons_hand(session: Session) -> None:
    add_machine(session, State.VACATED)
    session.add(
        AttentionRow(id="att-1", kind="aborted", subject="m1", machine="m1", reason="", next_step="", since=1.0)
    )


@pytest.mark.parametrize(
    "fine",
    [on_the_way, held, in_time, just_due, at_work, in_the_queue, asleep, just_promised, in_a_persons_hand],
)
def test_what_is_in_time_or_in_hand_is_not_told(db: Database, tmp_path: Path, fine: Callable[[Session], None]) -> None:
    with db.begin() as session:
        fine(session)
    assert [kind for kind, _ in told(db, tmp_path) if kind != "aborted"] == []


def test_a_queue_that_stands_for_more_than_a_day_is_told(db: Database, tmp_path: Path) -> None:
    with db.begin() as session:
        add_machine(session, State.VALIDATING)
        add_run(session, "validation", "queued", due_at=ago(session, 2 * 86400.0))
    assert told(db, tmp_path) == [("untaken", "validation m1")]


def test_a_notice_that_is_acknowledged_at_last_is_settled(db: Database, tmp_path: Path) -> None:
    with db.begin() as session:
        LATE["notices"](session)
        notices.delivered(session, notices.SCHEDULER, {"m1": 2}, set(), 60.0)
    assert told(db, tmp_path) == [("notices", "scheduler")]
    with db.begin() as session:
        notices.delivered(session, notices.SCHEDULER, {"m1": 2}, {"m1"}, 60.0)
    assert told(db, tmp_path) == []


def test_an_expired_hold_holds_nobody(db: Database, tmp_path: Path) -> None:
    with db.begin() as session:
        hold = Hold("anna", "new riser", ago(session), expires_at=ago(session, 5.0))
        machines.set_hold(session, add_machine(session, State.VACATED), hold, BY)
    assert told(db, tmp_path) == [("stuck", "m1")]


def one_round(db: Database, folder: Path, policy: Policy) -> None:
    worker = Worker(db, [watchdog.workflow(world(db, Hosts(), folder, policy))], threads=1)
    with db.begin() as session:
        watchdog.ensure(session)
        session.execute(sa.update(RunRow).where(RunRow.kind == watchdog.KIND).values(due_at=0.0))
    while worker.step():
        pass
    with db.read() as session:
        assert session.scalars(sa.select(RunRow.why).where(RunRow.kind == watchdog.KIND)).one() == "round complete"


def kinds(db: Database) -> list[str]:
    with db.read() as session:
        return list(session.scalars(sa.select(AttentionRow.kind).where(AttentionRow.resolved_at.is_(None))))


def test_its_run_goes_through_all_rules_and_comes_again(db: Database, tmp_path: Path) -> None:
    with db.begin() as session:
        LATE["stuck"](session)
        LATE["pause"](session)
    for _ in range(2):
        one_round(db, tmp_path, Policy(watchdog_grace_s=0.0))
    assert sorted(kinds(db)) == ["pause", "stuck"]


def test_after_the_whole_service_was_away_it_waits_before_it_tells(db: Database, tmp_path: Path) -> None:
    with db.begin() as session:
        LATE["stuck"](session)
    one_round(db, tmp_path, Policy(watchdog_grace_s=900.0))
    assert kinds(db) == []
    passed(db, up_for_s=1000.0, away_for_s=30.0)
    one_round(db, tmp_path, Policy(watchdog_grace_s=900.0))
    assert kinds(db) == ["stuck"]


def test_an_absence_is_noticed_by_its_own_rounds(db: Database, tmp_path: Path) -> None:
    policy = Policy(watchdog_grace_s=900.0)
    one_round(db, tmp_path, policy)
    with db.begin() as session:
        LATE["stuck"](session)
    passed(db, up_for_s=5000.0, away_for_s=3600.0)
    one_round(db, tmp_path, policy)
    assert kinds(db) == []


def passed(db: Database, *, up_for_s: float, away_for_s: float) -> None:
    with db.begin() as session:
        row = session.scalars(sa.select(RunRow).where(RunRow.kind == watchdog.KIND)).one()
        now = machines.now(session)
        row.data = {**row.data, "up_since": now - up_for_s, "looked_at": now - away_for_s}


def test_a_rule_that_cannot_be_tried_stops_no_other(db: Database, tmp_path: Path) -> None:
    broken = Rule("broken", lambda _world: sa.select(sa.text("1 / nothing")), "", "")
    outside = world(db, Hosts(), tmp_path, Policy(watchdog_grace_s=0.0))
    worker = Worker(db, [watchdog.workflow(outside, (broken, *RULES))], threads=1)
    with db.begin() as session:
        LATE["stuck"](session)
        watchdog.ensure(session)
    for _ in range(3):
        with db.begin() as session:
            session.execute(sa.update(RunRow).where(RunRow.kind == watchdog.KIND).values(due_at=0.0))
        assert worker.step()
    assert kinds(db) == ["stuck"]


def test_an_approval_that_nobody_gave_in_time_is_closed(db: Database, tmp_path: Path) -> None:
    by = replace(BY, actor="anna")
    with db.begin() as session:
        asked = approvals.request(
            session, "machine.retire", "m1", by, token="tok-1", machine="m1", order={"reason": "old"}, expires_in_s=-1.0
        )
        id_ = asked.id
    assert kinds(db) == ["approval"]
    one_round(db, tmp_path, Policy())
    assert kinds(db) == []
    with db.read() as session:
        assert session.get_one(ApprovalRow, id_).state == "expired"


def test_a_whole_file_of_new_machines_is_one_record_and_not_before_an_hour(db: Database, tmp_path: Path) -> None:
    with db.begin() as session:
        LATE["never validated"](session)
    assert told(db, tmp_path) == [("never validated", "fleet")]
    with db.begin() as session:
        assert session.scalars(sa.select(AttentionRow.reason)).one().startswith("2 machines have not been validated")
        young = ago(session, 3000.0)
        session.execute(sa.update(MachineRow).values(state_since=young, created_at=young))
    assert told(db, tmp_path) == []
