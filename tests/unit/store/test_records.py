"""Tickets, attention and the records of a validation: repeated writing changes nothing, one of a kind is open."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import NotFound, Refused
from fleet.core.model import Machine, Trigger
from fleet.core.states import State
from fleet.engine.workflow import open_run
from fleet.store import attention, machines, tickets, validations
from fleet.store.database import Database
from fleet.store.tables import AttentionRow, TicketRow, ValidationRow
from tests.unit.store.test_machines import ALICE, machine


@pytest.fixture
def vacated(db: Database) -> Machine:
    with db.begin() as session:
        machines.add(session, machine("m1", State.VACATED), ALICE)
        add_validation(session, "val-1")
    with db.read() as session:
        return machines.get(session, "m1")


def add_validation(session: Session, id_: str, ended_at: float | None = None) -> None:
    run = open_run(session, "validation", "queued", id_, why="test")
    row = ValidationRow(
        id=id_, run=run, machine="m1", plan="quick", trigger=Trigger.MANUAL, requested_by="alice", prior_state="vacated",
        site_mode="enforce", created_at=1.0, ended_at=ended_at, playbook={}, image={}, phases=[], progress={}, inventory={},
    )  # fmt: skip
    session.add(row)
    session.flush()


def file(session: Session, cause: str = "nccl.slow", title: str = "slow") -> TicketRow:
    return tickets.file(
        session, machine="m1", cause=cause, title=title, body="...", checks=["nccl"], validation="val-1", by="service"
    )


def test_one_ticket_is_open_per_machine_and_cause(db: Database, vacated: Machine) -> None:
    with db.begin() as session:
        first, other = file(session), file(session, "gpu_burn.faulty")
        again = file(session, title="slower")
        assert (again.id, again.title) == (first.id, "slower")
        assert other.id != first.id
        assert [t.id for t in tickets.open_of(session, "m1")] == [first.id, other.id]
        assert [entry["what"] for entry in again.history] == ["opened", "failed again"]


def test_a_ticket_that_fails_after_its_repair_is_reopened_and_a_closed_one_stays_closed(
    db: Database, vacated: Machine
) -> None:
    with db.begin() as session:
        first = file(session)
        tickets.mark_fixed(session, first, "bob", "replaced GPU 3")
        assert tickets.fixed_at(first) is not None
        assert file(session).id == first.id
        assert (first.state, tickets.fixed_at(first)) == ("reopened", None)
        tickets.close(session, first, "service", "passed", "val-1")
        session.flush()
        assert tickets.open_of(session, "m1") == []
        assert file(session).id != first.id


def test_a_repair_reported_while_a_verdict_is_settled_sees_it(db: Database, vacated: Machine) -> None:
    with db.begin() as session:
        id_ = file(session).id
    asking = threading.Event()

    def report() -> str:
        with db.begin() as session:
            asking.set()
            row = tickets.get(session, id_, lock=True)
            seen = row.title
            tickets.mark_fixed(session, row, "bob", "replaced GPU 3")
            return seen

    with ThreadPoolExecutor(1) as pool:
        with db.begin() as session:
            tickets.open_of(session, "m1")
            reported = pool.submit(report)
            if not db.is_sqlite:  # there the other does not even begin
                assert asking.wait(20)
            file(session, title="failed again")
        assert reported.result() == "failed again"
    with db.read() as session:
        assert [entry["what"] for entry in tickets.get(session, id_).history] == ["opened", "failed again", "fixed"]


def test_the_database_itself_refuses_a_second_open_ticket(db: Database, vacated: Machine) -> None:
    with db.begin() as session:
        first = file(session)
        twin = {column.key: getattr(first, column.key) for column in sa.inspect(TicketRow).column_attrs}
    with pytest.raises(sa.exc.IntegrityError), db.begin() as session:
        session.add(TicketRow(**{**twin, "id": "tkt-twin"}))


def test_attention_is_one_record_until_it_is_resolved(db: Database) -> None:
    def need(reason: str) -> None:
        with db.begin() as session:
            attention.need(session, "stuck", "m1", machine=None, reason=reason, next_step="look")

    need("first")
    need("second")
    with db.begin() as session:
        (row,) = attention.listed(session).rows
        assert row.reason == "second"
        attention.resolve(session, row.id, "alice")
    with pytest.raises(Refused, match="already resolved by alice"), db.begin() as session:
        attention.resolve(session, row.id, "bob")
    with pytest.raises(NotFound), db.begin() as session:
        attention.resolve(session, "att-none", "bob")
    need("third")
    with db.read() as session:
        assert [r.reason for r in attention.listed(session).rows] == ["third"]
        assert session.scalar(sa.select(sa.func.count()).select_from(AttentionRow)) == 2


def test_phases_follow_each_other_without_a_gap(db: Database, vacated: Machine) -> None:
    for phase in ("queued", "preflight", "place"):
        with db.begin() as session:
            validations.set_phase(session, "val-1", phase, f"now {phase}")
    with db.read() as session:
        phases = validations.get(session, "val-1").phases
    assert [entry["phase"] for entry in phases] == ["queued", "preflight", "place"]
    assert [entry["until"] for entry in phases] == [phases[1]["since"], phases[2]["since"], None]


def test_a_collection_repeated_after_a_crash_is_the_same_measurement(db: Database, vacated: Machine) -> None:
    columns = {"ended": "exited", "truncated": False, "files": {}}
    for status in (None, 0):
        with db.begin() as session:
            validations.put_measurement(session, "val-1", "nccl", "nccl.1", exit_status=status, **columns)
            outcome = {"outcome": "passed" if status == 0 else "not_run", "reason": "because"}
            lists = {"mode": "enforce", "findings": [], "facts": {}, "limits": {}}
            validations.put_check(session, "val-1", "nccl", **outcome, **lists)
    with db.read() as session:
        assert [m.exit_status for m in validations.measurements(session, "val-1")] == [0]
        assert [c.outcome for c in validations.checks(session, "val-1")] == ["passed"]


def test_what_is_open_and_what_is_proven(db: Database, vacated: Machine) -> None:
    with db.begin() as session:
        add_validation(session, "val-0", ended_at=2.0)
        for _ in range(2):
            validations.prove(session, "sim-a100x8", "digest", "val-1")
    with db.read() as session:
        open_row = validations.open_on(session, "m1")
        assert open_row is not None
        assert open_row.id == "val-1"
        assert validations.live_ids(session) == {"val-1"}
        assert validations.is_proven(session, "sim-a100x8", "digest")
        assert not validations.is_proven(session, "sim-a100x8", "another")
