"""Machines: their record, their instances, their hold, and the one way to change their state."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import Conflict, NotFound
from fleet.core.model import Hold, Instance, Machine, Slot, SlotKind, SshTarget
from fleet.core.states import Move, State, advance
from fleet.store import audit, notices
from fleet.store.audit import By
from fleet.store.database import db_now
from fleet.store.tables import InstanceRow, MachineRow


def now(session: Session) -> float:
    """The database's time, seconds since the epoch."""
    return float(session.scalar(sa.select(db_now())) or 0.0)


def get(session: Session, name: str) -> Machine:
    """Raises NotFound."""
    row = session.get(MachineRow, name, populate_existing=True)
    if row is None:
        raise NotFound(f"there is no machine {name!r}; `fleet machine list` shows all")
    return _view(row, _instances(session, [name]).get(name, ()), now(session))


def some(session: Session, names: Sequence[str]) -> dict[str, Machine]:
    """Those of these names that there are."""
    rows = session.scalars(sa.select(MachineRow).where(MachineRow.name.in_(names))).all()
    instances, at = _instances(session, names), now(session)
    return {row.name: _view(row, instances.get(row.name, ()), at) for row in rows}


def hold_expired(session: Session) -> list[Machine]:
    """Available machines whose hold has ended by itself: nobody has written that they can be claimed again."""
    expires = MachineRow.hold["expires_at"].as_float()
    ended = sa.select(MachineRow.name).where(MachineRow.state == State.AVAILABLE, expires <= db_now())
    return [get(session, name) for name in session.scalars(ended.order_by(MachineRow.name))]


def listed(session: Session, *, state: State | None = None, after: str = "", limit: int = 500) -> list[Machine]:
    """Machines by name, those after `after`."""
    wanted = sa.select(MachineRow).where(MachineRow.name > after).order_by(MachineRow.name).limit(limit)
    if state is not None:
        wanted = wanted.where(MachineRow.state == state)
    rows = session.scalars(wanted).all()
    instances, at = _instances(session, [r.name for r in rows]), now(session)
    return [_view(row, instances.get(row.name, ()), at) for row in rows]


def add(session: Session, machine: Machine, by: By) -> None:
    """Insert a new record with its instances. IntegrityError at flush when the name exists."""
    at = now(session)
    session.add(
        MachineRow(
            name=machine.name,
            sku=machine.sku,
            state=machine.state,
            version=1,
            state_since=at,
            state_why=machine.state_why,
            created_at=at,
            capacity=machine.capacity,
            handed_over_at=machine.handed_over_at,
            vacated_because=dict(machine.vacated_because),
            **_connection(machine),
        )
    )
    session.flush()
    for instance in machine.instances:
        add_instance(session, machine.name, instance.id, instance.kind)
    audit.write(session, by, "machine.added", machine=machine.name, detail={"sku": machine.sku, "state": machine.state})
    if machine.state is State.AVAILABLE:
        _tell(session, get(session, machine.name), notices.RETURNED, machine.state_why)


def refresh(session: Session, seen: Machine, machine: Machine, by: By) -> None:
    """Write the parts of a record that say how the machine is reached and what is in it; its state stays. Raises Conflict:
    a validation that has begun since `seen` was read goes by the record as it was."""
    _swap(session, seen, **_connection(machine))
    audit.write(session, by, "machine.refreshed", machine=machine.name)


def move(
    session: Session,
    seen: Machine,
    how: Move,
    why: str,
    by: By,
    *,
    detail: Mapping[str, Any] | None = None,
    **also: Any,
) -> Machine:
    """Compare and swap on the version that `seen` has: state, audit entry and pool notice are one transaction.

    `also` are more columns to write with it. Raises IllegalMove, Conflict (the record changed since it was read)."""
    to = advance(seen.state, how)
    at = now(session)
    _swap(session, seen, state=to, state_since=at, state_why=why, **also)
    more = {"was": seen.state, "now": to, "why": why, **(detail or {})}
    audit.write(session, by, f"machine.{how}", machine=seen.name, detail=more)
    moved = get(session, seen.name)
    if kind := _notice(seen, moved):
        _tell(session, moved, kind, why)
    return moved


def set_hold(session: Session, seen: Machine, hold: Hold | None, by: By) -> Machine:
    """Put a hold on, or lift it. Raises Conflict."""
    _swap(session, seen, hold=None if hold is None else asdict(hold))
    action, detail = ("machine.unheld", {}) if hold is None else ("machine.held", asdict(hold))
    audit.write(session, by, action, machine=seen.name, detail=detail)
    put = get(session, seen.name)
    if put.state is State.AVAILABLE:
        why = f"the hold was lifted by {by.actor}" if hold is None else f"held by {hold.owner}: {hold.reason}"
        _tell(session, put, notices.UNHELD if hold is None else notices.HELD, why)
    return put


def touch(session: Session, seen: Machine) -> None:
    """A fact about the machine was written beside its row (an instance, an event): whoever decides from what was read
    before it must look again. Raises Conflict, since that may be the caller."""
    _swap(session, seen)


def add_instance(session: Session, machine: str, instance: str, kind: str = "tenant") -> None:
    session.merge(InstanceRow(machine=machine, id=instance, kind=kind, since=now(session)))
    session.flush()


def remove_instance(session: Session, machine: str, instance: str) -> None:
    session.execute(sa.delete(InstanceRow).where(InstanceRow.machine == machine, InstanceRow.id == instance))


def _swap(session: Session, seen: Machine, **values: Any) -> None:
    """Compare and swap on the version that `seen` has. Raises Conflict."""
    swapped = session.execute(
        sa.update(MachineRow)
        .where(MachineRow.name == seen.name, MachineRow.version == seen.version)
        .values(version=seen.version + 1, **values)
    )
    if swapped.rowcount != 1:  # type: ignore[attr-defined]
        raise Conflict(f"{seen.name} changed since it was read; look again")


def _notice(was: Machine, now: Machine) -> str | None:
    """Which moves the provider's scheduler must hear of: the pool shrinks, the pool grows, a machine is condemned."""
    if now.state is State.FAILED:
        return notices.CONDEMNED
    if was.claimable is now.claimable:
        return None
    if now.claimable:
        return notices.RETURNED
    return notices.ALLOCATED if now.state is State.ALLOCATED else notices.WITHDRAWN


def _tell(session: Session, machine: Machine, kind: str, why: str) -> None:
    notices.put(session, notices.SCHEDULER, kind, machine.name, machine.version, machine=machine.name, why=why)


def _connection(machine: Machine) -> dict[str, Any]:
    return {
        "ssh": asdict(machine.ssh),
        "slots": [asdict(slot) for slot in machine.slots],
        "guest_address": machine.guest_address,
        "guest_port": machine.guest_port,
        "scratch_disk": machine.scratch_disk,
        "rack": machine.rack,
        "power_feed": machine.power_feed,
    }


def _instances(session: Session, names: Sequence[str]) -> dict[str, tuple[Instance, ...]]:
    found: dict[str, tuple[Instance, ...]] = {}
    for row in session.scalars(sa.select(InstanceRow).where(InstanceRow.machine.in_(names)).order_by(InstanceRow.id)):
        found[row.machine] = (*found.get(row.machine, ()), Instance(row.id, row.kind, row.since))
    return found


def _view(row: MachineRow, instances: tuple[Instance, ...], at: float) -> Machine:
    hold = None if row.hold is None else Hold(**row.hold)
    if hold is not None and hold.expires_at is not None and hold.expires_at <= at:
        hold = None  # an expired hold binds nobody
    return Machine(
        name=row.name,
        sku=row.sku,
        state=State(row.state),
        version=row.version,
        state_since=row.state_since,
        state_why=row.state_why,
        ssh=SshTarget(**row.ssh),
        slots=tuple(Slot(**{**slot, "kind": SlotKind(slot["kind"])}) for slot in row.slots),
        guest_address=row.guest_address,
        guest_port=row.guest_port,
        scratch_disk=row.scratch_disk,
        rack=row.rack,
        power_feed=row.power_feed,
        capacity=row.capacity,
        handed_over_at=row.handed_over_at,
        hold=hold,
        instances=instances,
        vacated_because=row.vacated_because,
    )
