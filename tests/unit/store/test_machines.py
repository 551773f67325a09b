"""Machine records: every move is compare-and-swap, and its history and promises are in the same transaction."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from fleet.core.errors import Conflict, IllegalMove, NotFound
from fleet.core.model import Hold, Instance, Machine, Slot, SlotKind, SshTarget
from fleet.core.states import Move, State
from fleet.store import machines
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import AuditRow, NoticeRow

ALICE = By("alice", "192.0.2.7")


def machine(name: str, state: State = State.AVAILABLE, **known: object) -> Machine:
    ssh = SshTarget("192.0.2.1", 22, "fleet", "ssh-ed25519 AAAA", "file:/key")
    return Machine(name, "sim-a100x8", state, 1, 0.0, "new", ssh, **known)  # type: ignore[arg-type]


def add(db: Database, *names: str, **known: object) -> None:
    with db.begin() as session:
        for name in names:
            machines.add(session, machine(name, **known), ALICE)  # type: ignore[arg-type]


def get(db: Database, name: str) -> Machine:
    with db.read() as session:
        return machines.get(session, name)


def move(db: Database, seen: Machine, how: Move, **also: object) -> Machine:
    with db.begin() as session:
        return machines.move(session, seen, how, "because", ALICE, **also)


def actions(db: Database) -> list[str]:
    with db.read() as session:
        return list(session.scalars(sa.select(AuditRow.action).order_by(AuditRow.id)))


def notices(db: Database) -> list[tuple[str, int]]:
    with db.read() as session:
        return [(n.kind, n.version) for n in session.scalars(sa.select(NoticeRow).order_by(NoticeRow.id))]


def test_a_record_comes_back_as_it_went_in(db: Database) -> None:
    slots = (
        Slot("GPU0", SlotKind.GPU, "0000:1b:00.0", "0000:00:05.0", serial="1"),
        Slot("R0", SlotKind.RAIL, "0000:2b:00.0"),
    )
    add(db, "m1", state=State.ALLOCATED, slots=slots, rack="r1", instances=(Instance("vm-1", "tenant", 0.0),))
    seen = get(db, "m1")
    assert (seen.slots, seen.rack, seen.state, seen.ssh) == (slots, "r1", State.ALLOCATED, machine("m1").ssh)
    assert [(i.id, i.kind) for i in seen.instances] == [("vm-1", "tenant")]


def test_an_unknown_machine_is_named(db: Database) -> None:
    with pytest.raises(NotFound, match="no machine 'm9'"):
        get(db, "m9")


def test_a_move_brings_its_audit_entry_and_its_notice(db: Database) -> None:
    add(db, "m1")
    moved = move(db, get(db, "m1"), Move.WITHDRAW, hold=None)
    assert (moved.state, moved.version, moved.state_why) == (State.VACATED, 2, "because")
    assert actions(db) == ["machine.added", "machine.withdrawn"]
    assert notices(db) == [("pool.returned", 1), ("pool.withdrawn", 2)]


def test_an_illegal_move_leaves_nothing(db: Database) -> None:
    add(db, "m1")
    with pytest.raises(IllegalMove, match="a machine that is available cannot be vacated"):
        move(db, get(db, "m1"), Move.VACATE)
    assert (get(db, "m1").version, actions(db), notices(db)) == (1, ["machine.added"], [("pool.returned", 1)])


def test_who_read_an_older_record_changes_nothing(db: Database) -> None:
    add(db, "m1")
    old = get(db, "m1")
    move(db, old, Move.ALLOCATE)
    with pytest.raises(Conflict, match="m1 changed since it was read"):
        move(db, old, Move.WITHDRAW)
    hold = Hold("bob", "chassis open", 1.0)
    with pytest.raises(Conflict), db.begin() as session:
        machines.set_hold(session, old, hold, ALICE)
    assert get(db, "m1").state is State.ALLOCATED
    assert actions(db) == ["machine.added", "machine.allocated"]


def test_of_many_movers_one_wins(db: Database) -> None:
    add(db, "m1")
    seen, together = get(db, "m1"), threading.Barrier(8)

    def try_it(how: Move) -> bool:
        together.wait()
        try:
            move(db, seen, how)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        tries = [pool.submit(try_it, how) for how in (Move.ALLOCATE, Move.START_VALIDATION) * 4]
        assert sum(task.result() for task in tries) == 1
    assert (get(db, "m1").version, len(actions(db))) == (2, 2)


def test_an_expired_hold_binds_nobody(db: Database) -> None:
    add(db, "m1", "m2")
    now = db.now()
    for name, until in (("m1", now + 3600), ("m2", now - 1)):
        with db.begin() as session:
            machines.set_hold(session, machines.get(session, name), Hold("bob", "why", now - 60, until), ALICE)
    assert get(db, "m1").hold == Hold("bob", "why", now - 60, now + 3600)
    assert get(db, "m2").hold is None


def test_lists_go_on_after_a_name(db: Database) -> None:
    add(db, "m2", "m1", "m3")
    add(db, "m4", state=State.FAILED)
    with db.read() as session:
        assert [m.name for m in machines.listed(session, limit=2)] == ["m1", "m2"]
        assert [m.name for m in machines.listed(session, after="m2")] == ["m3", "m4"]
        assert [m.name for m in machines.listed(session, state=State.FAILED)] == ["m4"]


def test_a_name_is_given_once(db: Database) -> None:
    add(db, "m1")
    with pytest.raises(sa.exc.IntegrityError):
        add(db, "m1")
    assert actions(db) == ["machine.added"]


def test_a_record_is_refreshed_only_as_it_was_seen(db: Database) -> None:
    """A validation that begins in between goes by the record as it was."""
    add(db, "m1", state=State.VACATED)
    seen = get(db, "m1")
    move(db, seen, Move.START_VALIDATION)
    with pytest.raises(Conflict), db.begin() as session:
        machines.refresh(session, seen, machine("m1", guest_port=2222), ALICE)
    assert get(db, "m1").guest_port == 22


def test_who_decided_from_what_was_before_a_touch_looks_again(db: Database) -> None:
    add(db, "m1", state=State.VACATED)
    seen = get(db, "m1")
    with db.begin() as session:
        machines.touch(session, seen)
    with pytest.raises(Conflict):
        move(db, seen, Move.START_VALIDATION)
    assert get(db, "m1").state is State.VACATED
