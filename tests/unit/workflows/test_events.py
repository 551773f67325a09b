"""Events of the provider's control plane, on both databases: once each, in order by instance, and no trace when refused."""

import pytest
import sqlalchemy as sa

from fleet.core.errors import Conflict, NotFound, Refused
from fleet.core.model import Hold, Machine, SshTarget
from fleet.core.states import Move, State
from fleet.store import machines
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import EventRow, NoticeRow, RunRow
from fleet.workflows.events import Accepted, Event, EventKind, allocate, apply, apply_waiting

BY = By("scheduler", "127.0.0.1")
SSH = SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")


@pytest.fixture
def fleet(db: Database) -> Database:
    with db.begin() as session:
        for name in ("m1", "m2"):
            machines.add(session, Machine(name, "sim-a100x8", State.AVAILABLE, 1, 0.0, "imported", SSH), BY)
    return db


def send(
    db: Database, kind: EventKind, instance: str, machine: str = "m1", id_: str | None = None, why: str | None = None
) -> Accepted:
    with db.begin() as session:
        return apply(session, Event(id_ or f"{kind}/{machine}/{instance}", kind, machine, instance, why), BY)


def seen(db: Database, machine: str = "m1") -> Machine:
    with db.read() as session:
        return machines.get(session, machine)


def open_runs(db: Database) -> list[tuple[str, str]]:
    with db.read() as session:
        rows = session.execute(sa.select(RunRow.kind, RunRow.subject).where(RunRow.ended_at.is_(None)))
        return [(kind, subject) for kind, subject in rows]


def test_placed_allocates_and_removed_vacates_and_opens_the_way_to_a_validation(fleet: Database) -> None:
    assert send(fleet, EventKind.PLACED, "a").state == "applied"
    assert seen(fleet).state is State.ALLOCATED
    send(fleet, EventKind.REMOVED, "a", why="tenant asked")
    machine = seen(fleet)
    assert machine.state is State.VACATED
    assert machine.instances == ()
    assert machine.vacated_because == {"instance": "a", "cause": "removed", "why": "tenant asked", "signals": []}
    assert machine.state_why == "instance a removed: tenant asked"
    assert open_runs(fleet) == [("vacancy", "m1")]


def test_the_same_id_and_body_is_the_same_event(fleet: Database) -> None:
    first = send(fleet, EventKind.PLACED, "a", id_="e1")
    again = send(fleet, EventKind.PLACED, "a", id_="e1")
    assert (first.replayed, again.replayed) == (False, True)
    assert seen(fleet).version == 2


def test_the_same_id_with_another_body_is_a_conflict(fleet: Database) -> None:
    send(fleet, EventKind.PLACED, "a", id_="e1")
    with pytest.raises(Conflict, match="e1"):
        send(fleet, EventKind.PLACED, "b", id_="e1")


def test_an_event_of_an_instance_that_is_not_there_leaves_no_trace(fleet: Database) -> None:
    send(fleet, EventKind.PLACED, "a")
    with pytest.raises(Refused, match=r"instance b is not on m1 \(instances there: a\)"):
        send(fleet, EventKind.REMOVED, "b", id_="wrong")
    with fleet.read() as session:
        assert session.get(EventRow, "wrong") is None
    assert seen(fleet).state is State.ALLOCATED


def test_an_unknown_machine_is_not_found(fleet: Database) -> None:
    with pytest.raises(NotFound, match="m9"):
        send(fleet, EventKind.PLACED, "a", machine="m9")


def test_the_next_instance_waits_for_the_last_ones_removal(fleet: Database) -> None:
    send(fleet, EventKind.PLACED, "a")
    assert send(fleet, EventKind.PLACED, "b").state == "waiting"
    assert [i.id for i in seen(fleet).instances] == ["a"]
    send(fleet, EventKind.MIGRATED, "a")
    assert seen(fleet).state is State.VACATED  # not handed to b before it was validated


def test_an_instance_that_left_while_its_placing_waited_is_dropped(fleet: Database) -> None:
    send(fleet, EventKind.PLACED, "a")
    send(fleet, EventKind.PLACED, "b", id_="waits")
    assert send(fleet, EventKind.REMOVED, "b").state == "applied"
    with fleet.read() as session:
        row = session.get(EventRow, "waits")
        assert row is not None
        assert row.state == "dropped"
    assert [i.id for i in seen(fleet).instances] == ["a"]


def test_with_room_for_two_the_machine_is_vacated_when_the_last_is_gone(fleet: Database) -> None:
    roomy = Machine("m3", "sim-a100x8", State.AVAILABLE, 1, 0.0, "imported", SSH, capacity=2)
    with fleet.begin() as session:
        machines.add(session, roomy, BY)
    assert send(fleet, EventKind.PLACED, "a", "m3").state == "applied"
    assert send(fleet, EventKind.PLACED, "b", "m3").state == "applied"
    send(fleet, EventKind.REMOVED, "a", "m3")
    assert seen(fleet, "m3").state is State.ALLOCATED
    send(fleet, EventKind.REMOVED, "b", "m3")
    assert seen(fleet, "m3").state is State.VACATED


def test_a_migrating_instance_may_be_on_two_machines(fleet: Database) -> None:
    send(fleet, EventKind.PLACED, "a", "m1")
    assert send(fleet, EventKind.PLACED, "a", "m2").state == "applied"
    send(fleet, EventKind.MIGRATED, "a", "m1")
    assert (seen(fleet, "m1").state, seen(fleet, "m2").state) == (State.VACATED, State.ALLOCATED)


def test_a_machine_that_is_not_available_takes_no_instance(fleet: Database) -> None:
    send(fleet, EventKind.PLACED, "a")
    send(fleet, EventKind.REMOVED, "a")
    with pytest.raises(Refused, match="m1 is not available, it is vacated since"):
        send(fleet, EventKind.PLACED, "b")


def test_a_held_machine_takes_no_instance_and_says_who_holds_it(fleet: Database) -> None:
    with fleet.begin() as session:
        machines.set_hold(session, machines.get(session, "m1"), Hold("anna", "cable swap", 1_700_000_000.0), BY)
    with pytest.raises(Refused, match="m1 is held by anna since 2023-11-14 22:13:20Z: cable swap"):
        send(fleet, EventKind.PLACED, "a")


def test_kept_waits_until_the_domain_is_seen(fleet: Database) -> None:
    send(fleet, EventKind.PLACED, "a")
    send(fleet, EventKind.MIGRATED, "a")
    assert send(fleet, EventKind.KEPT, "a").state == "waiting"
    assert seen(fleet).state is State.VACATED
    assert open_runs(fleet) == [("vacancy", "m1")]


def test_kept_is_refused_for_another_instance_than_the_last(fleet: Database) -> None:
    send(fleet, EventKind.PLACED, "a")
    send(fleet, EventKind.MIGRATED, "a")
    with pytest.raises(Refused, match="was not the last on m1"):
        send(fleet, EventKind.KEPT, "b")


def test_the_pool_hears_once_that_a_machine_is_taken_and_nothing_of_what_changes_no_claim(fleet: Database) -> None:
    with fleet.begin() as session:
        session.execute(sa.delete(NoticeRow))
    send(fleet, EventKind.PLACED, "a")
    send(fleet, EventKind.REMOVED, "a")
    with fleet.read() as session:
        assert session.scalars(sa.select(NoticeRow.kind).where(NoticeRow.machine == "m1")).all() == ["pool.allocated"]


def back_in_the_pool_while_held(db: Database) -> None:
    """b was reported as placed before a was gone; the machine has passed since, under somebody's hold."""
    send(db, EventKind.PLACED, "a")
    send(db, EventKind.PLACED, "b")
    send(db, EventKind.REMOVED, "a")
    with db.begin() as session:
        machine = machines.set_hold(session, machines.get(session, "m1"), Hold("anna", "cable swap", 1.0), BY)
        machine = machines.move(session, machine, Move.START_VALIDATION, "", BY)
        machines.move(session, machine, Move.PASS, "", BY)
        apply_waiting(session, "m1", BY)
    assert seen(db).state is State.AVAILABLE


def test_a_machine_that_a_placed_instance_waits_for_is_nobody_elses(fleet: Database) -> None:
    back_in_the_pool_while_held(fleet)
    with fleet.begin() as session:
        machine = machines.set_hold(session, machines.get(session, "m1"), None, BY)
        with pytest.raises(Refused, match="instance b was reported as placed on it before"):
            allocate(session, machine, "c", BY, "claimed")
        allocate(session, machine, "b", BY, "claimed")
    with fleet.read() as session:
        states = session.scalars(sa.select(EventRow.state).where(EventRow.instance == "b")).all()
    assert states == ["applied"]
