"""Before a test VM comes onto a machine that was in the pool: the scheduler knows, or the machine goes back to it."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from fleet.core.states import Move, State
from fleet.store import machines, notices
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import InstanceRow, NoticeRow, RunRow
from fleet.workflows.world import Policy
from tests.unit.workflows.case import ALL, Case
from tests.unit.workflows.hosts import Hosts, tenant
from tests.unit.workflows.receiving import Desk

BY = By("anna")
DUE = Policy(host_patience=2, withdrawal_deadline_s=0.0)
KINDS = sa.select(NoticeRow.kind).order_by(NoticeRow.id)


def case(db: Database, folder: Path, policy: Policy = Policy(), hosts: Hosts | None = None) -> Case:
    """A validation of a machine that was available, whose turn has come."""
    case = Case(db, folder, ALL, policy, hosts=hosts, scheduler=Desk())
    case.turn()
    return case


def acknowledge(db: Database, version: int) -> None:
    with db.begin() as session:
        notices.delivered(session, notices.SCHEDULER, {"m1": version}, {"m1"}, 60.0)


def test_it_waits_until_the_withdrawal_is_acknowledged_and_nothing_older_will_do(db: Database, tmp_path: Path) -> None:
    waiting = case(db, tmp_path)
    assert waiting.run.phase == "withdrawal"
    acknowledge(db, version=1)
    waiting.turn()
    assert (waiting.run.phase, waiting.run.why) == ("withdrawal", "waits for the scheduler to acknowledge notice ntc-2")
    acknowledge(db, version=2)
    waiting.until("place")


def test_a_receipt_is_no_acknowledgement(db: Database, tmp_path: Path) -> None:
    waiting = case(db, tmp_path)
    with db.begin() as session:
        notices.delivered(session, notices.SCHEDULER, {"m1": 2}, set(), 60.0)
    waiting.turn()
    assert waiting.run.phase == "withdrawal"


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"last_error": None}, "it was not sent"),
        ({"last_error": "HTTP 503"}, "HTTP 503"),
        ({"delivered_at": 1.0}, "it was received, and not acknowledged"),
    ],
)
def test_a_scheduler_that_never_says_so_gets_the_machine_back(
    db: Database, tmp_path: Path, known: dict[str, object], said: str
) -> None:
    waiting = Case(db, tmp_path, ALL, DUE, scheduler=Desk())
    with db.begin() as session:
        session.execute(sa.update(NoticeRow).values(**known))
    waiting.until(None)
    why = f"the scheduler did not acknowledge the withdrawal (notice ntc-2) within 0 s: {said}"
    assert waiting.verdict == ("aborted", why)
    assert waiting.state is State.AVAILABLE
    with db.read() as session:
        assert session.scalars(KINDS).all() == ["pool.returned", "pool.withdrawn", "pool.returned"]


def test_a_tenant_that_was_placed_meanwhile_has_the_machine(db: Database, tmp_path: Path) -> None:
    waiting = case(db, tmp_path, DUE, Hosts({"m1": [tenant()]}))
    waiting.until(None)
    assert waiting.verdict[0] == "aborted"
    assert waiting.state is State.ALLOCATED
    with db.read() as session:
        assert session.scalars(sa.select(InstanceRow.id)).all() == [tenant().uuid]


def test_a_host_that_cannot_be_seen_keeps_the_machine_out(db: Database, tmp_path: Path) -> None:
    waiting = case(db, tmp_path, DUE, Hosts(away={"m1"}))
    waiting.until(None)
    assert (waiting.verdict[0], waiting.state, waiting.told()) == ("aborted", State.VACATED, ["aborted"])


@pytest.mark.parametrize(("hosts", "state"), [(Hosts(), State.AVAILABLE), (Hosts(away={"m1"}), State.VACATED)])
def test_a_person_can_end_the_waiting(db: Database, tmp_path: Path, hosts: Hosts, state: State) -> None:
    waiting = case(db, tmp_path, hosts=hosts)
    waiting.abort()
    waiting.until(None)
    assert waiting.verdict == ("aborted", "enough")
    assert waiting.state is state


def test_a_site_without_a_scheduler_waits_for_nobody(db: Database, tmp_path: Path) -> None:
    alone = Case(db, tmp_path)
    alone.turn()
    assert alone.run.phase == "place"


def test_a_scheduler_that_is_no_longer_set_up_is_not_waited_for(db: Database, tmp_path: Path) -> None:
    alone = Case(db, tmp_path)
    with db.begin() as session:
        session.execute(sa.update(RunRow).values(phase="withdrawal"))
    alone.turn()
    assert alone.run.phase == "place"


def test_a_machine_that_left_the_pool_by_other_ways_waits_too_as_long_as_that_is_not_known(
    db: Database, tmp_path: Path
) -> None:
    """A person withdrew it; the scheduler was away, and believes in it still."""
    waiting = Case(db, tmp_path, scheduler=Desk())
    with db.begin() as session:
        session.execute(sa.delete(NoticeRow))
        session.execute(sa.text("UPDATE machine SET state = 'available'"))
        machines.move(session, machines.get(session, "m1"), Move.WITHDRAW, "odd noise", BY)
        session.execute(sa.text("UPDATE machine SET state = 'validating'"))
    waiting.turn()
    assert waiting.run.phase == "withdrawal"


def test_what_the_scheduler_has_acknowledged_before_is_not_waited_for(db: Database, tmp_path: Path) -> None:
    known = Case(db, tmp_path, scheduler=Desk())
    acknowledge(db, version=2)
    known.turn()
    assert known.run.phase == "place"
