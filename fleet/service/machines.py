"""Machines: their records, and what people and the provider's control plane may do with them."""

from dataclasses import asdict
from typing import Annotated, Any

import sqlalchemy as sa
from pydantic import Field
from sqlalchemy.orm import Session

from fleet.core.errors import Conflict, IllegalMove, Refused
from fleet.core.model import Hold, Machine
from fleet.core.states import Move, State
from fleet.service.access import Permit
from fleet.service.body import Body, InstanceId, Seconds, Sentence
from fleet.service.listing import Json, Window, cursor
from fleet.service.machine_record import InvalidRows, NewMachine, bad_row, read_rows
from fleet.service.times import stamp, stamp_or_none
from fleet.service.validations import request_end
from fleet.service.writing import Answer
from fleet.store import attention, machines, validations
from fleet.store.site import at
from fleet.store.tables import MachineRow, ValidationRow
from fleet.workflows import events, vacancy


class Import(Body):
    """Rows are `NewMachine` documents. With `update`, machines that exist get the row's address, devices and place; their
    state and instances stay. A `dry_run` says what is wrong and imports nothing."""

    machines: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=10_000)]
    update: bool = False
    dry_run: bool = False


class HoldOrder(Body):
    """`abort` also ends a validation that is running; without it that one goes on."""

    reason: Sentence
    lock_power: bool = False
    expires_in_s: Seconds | None = None
    abort: bool = False


class Reason(Body):
    reason: Sentence


class Claim(Body):
    instance: InstanceId


class Override(Body):
    reason: Sentence
    instance: InstanceId


def listed(session: Session, window: Window, state: State | None = None, machine: str | None = None) -> Json:
    """By name; `machine` leaves only the one of that name."""
    if machine is not None:
        row = session.get(MachineRow, machine)
        here = row is not None and state in (None, row.state)
        return {"items": [show(session, machine)] if here else [], "next": None}
    after = window.after("machine", str) or [""]
    found = machines.listed(session, state=state, after=after[0], limit=window.limit + 1)
    more, found = len(found) > window.limit, found[: window.limit]
    open_ = _open_validations(session, [m.name for m in found])
    return {
        "items": [_view(m, open_.get(m.name)) for m in found],
        "next": cursor("machine", [found[-1].name] if more else None),
    }


def show(session: Session, name: str) -> Json:
    return _view(machines.get(session, name), _open_validations(session, [name]).get(name))


def add(session: Session, permit: Permit, order: NewMachine) -> Answer:
    if session.get(MachineRow, order.name) is not None:
        raise Refused(f"there is a machine {order.name} already; `fleet machine show {order.name}` shows it")
    _insert(session, permit, order, "added")
    return Answer.created(show(session, order.name))


def import_(session: Session, permit: Permit, order: Import) -> Answer:
    """All rows or none. Raises InvalidRows with every bad one."""
    good, bad = read_rows(order.machines)
    names = {row.name for row in good.values()}
    there = {m: s for m, s in session.execute(sa.select(MachineRow.name, MachineRow.state)) if m in names}
    first: dict[str, int] = {}
    for number, row in good.items():
        if first.setdefault(row.name, number) != number:
            bad.append(bad_row(number, row.name, "name", "is the name of an earlier row too"))
        elif row.name in there and not order.update:
            bad.append(bad_row(number, row.name, "name", "there is a machine of this name already"))
        elif there.get(row.name) == State.VALIDATING:
            bad.append(bad_row(number, row.name, "name", "is being validated by what its record says now; later"))
    if bad:
        raise InvalidRows(sorted(bad, key=lambda row: row["row"]))
    if order.dry_run:
        return Answer.done({"imported": 0, "added": 0, "updated": 0})
    for row in good.values():
        if row.name in there:
            seen = machines.get(session, row.name)
            if seen.state is State.VALIDATING:
                raise Conflict(f"a validation of {row.name} has begun meanwhile")
            machines.refresh(session, seen, row.machine("updated by an import"), permit.actor.by)
        else:
            _insert(session, permit, row, "imported")
    return Answer.created({"imported": len(good), "added": len(names - there.keys()), "updated": len(there)})


def hold(session: Session, permit: Permit, name: str, order: HoldOrder) -> Answer:
    machine = machines.get(session, name)
    if machine.hold is not None:
        raise Refused(held(machine))
    if machine.state is State.RETIRED:
        raise Refused(f"{name} is retired since {at(machine.state_since)}: nothing acts on it any more")
    if order.abort and (row := validations.open_on(session, name)) is not None:
        request_end(session, row, f"held: {order.reason}", permit.actor)
    since = machines.now(session)
    expires = None if order.expires_in_s is None else since + order.expires_in_s
    put = Hold(permit.actor.name, order.reason, since, expires, order.lock_power)
    machines.set_hold(session, machine, put, permit.actor.by)
    return Answer.done(show(session, name))


def unhold(session: Session, permit: Permit, name: str) -> Answer:
    machine = machines.get(session, name)
    if machine.hold is None:
        raise Refused(f"{name} is not held")
    machine = machines.set_hold(session, machine, None, permit.actor.by)
    if machine.state is State.VACATED:  # what the hold kept from starting may start now
        vacancy.open_vacancy(session, name, why=f"the hold was lifted by {permit.actor.name}")
    elif machine.state is State.AVAILABLE:
        events.apply_waiting(session, name, permit.actor.by)
    return Answer.done(show(session, name))


def withdraw(session: Session, permit: Permit, name: str, order: Reason) -> Answer:
    """Out of the pool, and held, so that nothing puts it back before the person says so."""
    machine = machines.get(session, name)
    _refuse_taken(session, machine, "withdrawn")
    put = machine.hold or Hold(permit.actor.name, f"withdrawn: {order.reason}", machines.now(session))
    machines.move(session, machine, Move.WITHDRAW, order.reason, permit.actor.by, hold=asdict(put))
    return Answer.done(show(session, name))


def retire(session: Session, permit: Permit, name: str, order: Reason) -> Answer:
    machine = machines.get(session, name)
    if machine.state is State.RETIRED:
        raise IllegalMove(f"{name} is retired already, since {at(machine.state_since)}: {machine.state_why}")
    _refuse_taken(session, machine, "retired")
    machines.move(session, machine, Move.RETIRE, order.reason, permit.actor.by)
    attention.settle(session, permit.actor.name, machine=name)
    return Answer.done(show(session, name))


def claim(session: Session, permit: Permit, name: str, order: Claim) -> Answer:
    """The last gate before a tenant gets the machine. Raises Refused with the reason."""
    machine = machines.get(session, name)
    events.allocate(session, machine, order.instance, permit.actor.by, f"claimed for instance {order.instance}")
    return Answer.done(show(session, name))


def override(session: Session, permit: Permit, name: str, order: Override) -> Answer:
    """A person gives a machine that is out to a tenant all the same. A running validation is ended first: the answer is
    202 then, and the override is repeated when the validation is over."""
    machine = machines.get(session, name)
    if machine.hold is not None:
        raise Refused(held(machine))
    if (row := validations.open_on(session, name)) is not None:
        request_end(session, row, f"overridden for {order.instance}: {order.reason}", permit.actor)
        return Answer.accepted(show(session, name))
    if machine.state is State.AVAILABLE:
        raise Refused(f"{name} is available: claim it, there is nothing to override")
    _refuse_taken(session, machine, "overridden")
    why = f"overridden by {permit.actor.name} for {order.instance}: {order.reason}"
    machines.move(session, machine, Move.OVERRIDE, why, permit.actor.by, detail={"instance": order.instance})
    machines.add_instance(session, name, order.instance)
    attention.settle(session, permit.actor.name, machine=name)  # what was to be done about a machine that was out
    return Answer.done(show(session, name))


def held(machine: Machine) -> str:
    assert machine.hold is not None
    return f"{machine.name} is held by {machine.hold.owner} since {at(machine.hold.since)}: {machine.hold.reason}"


def _insert(session: Session, permit: Permit, row: NewMachine, how: str) -> None:
    machines.add(session, row.machine(f"{how} by {permit.actor.name}"), permit.actor.by)


def _refuse_taken(session: Session, machine: Machine, what: str) -> None:
    """The table of moves refuses these too; here the answer says who has the machine."""
    since = at(machine.state_since)
    if machine.state is State.ALLOCATED:
        who = ", ".join(i.id for i in machine.instances) or "a tenant"
        raise Refused(f"{machine.name} is allocated to {who} since {since} and cannot be {what}: {machine.state_why}")
    if (row := validations.open_on(session, machine.name)) is not None:
        who = f"validation {row.id} by {row.requested_by}"
        raise Refused(f"{machine.name} is validating since {since} and cannot be {what}: {who}")


def _open_validations(session: Session, names: list[str]) -> dict[str, str]:
    found = sa.select(ValidationRow.machine, ValidationRow.id)
    rows = session.execute(found.where(ValidationRow.machine.in_(names), ValidationRow.ended_at.is_(None)))
    return dict(rows.all())


def _view(machine: Machine, open_validation: str | None) -> Json:
    hold = machine.hold
    return {
        "id": machine.name,
        "name": machine.name,
        "sku": machine.sku,
        "state": machine.state,
        "since": stamp(machine.state_since),
        "why": machine.state_why,
        "version": machine.version,
        "claimable": machine.claimable,
        "rack": machine.rack,
        "power_feed": machine.power_feed,
        "capacity": machine.capacity,
        "handed_over_at": stamp_or_none(machine.handed_over_at),
        "instances": [{"id": i.id, "kind": i.kind, "since": stamp(i.since)} for i in machine.instances],
        "hold": None
        if hold is None
        else {
            "owner": hold.owner,
            "reason": hold.reason,
            "since": stamp(hold.since),
            "expires_at": stamp_or_none(hold.expires_at),
            "lock_power": hold.lock_power,
        },
        "open_validation": open_validation,
        "vacated_because": machine.vacated_because,
        "ssh": asdict(machine.ssh) if machine.ssh.address else None,
        "guest_address": machine.guest_address,
        "guest_port": machine.guest_port,
        "scratch_disk": machine.scratch_disk,
        "slots": [asdict(slot) for slot in machine.slots],
    }
