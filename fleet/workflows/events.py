"""Events of the provider's control plane: facts about instances, applied once each, in order by instance."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy.orm import Session

from fleet.core.errors import Conflict, Refused
from fleet.core.model import EventKind, Machine
from fleet.core.states import Move, State
from fleet.engine.claim import request_abort
from fleet.store import events, machines, site, validations
from fleet.store.audit import By
from fleet.store.tables import EventRow
from fleet.workflows import begin, vacancy


@dataclass(frozen=True)
class Event:
    """`why` and `signals` tell why the instance left and what was seen in it: an Xid in the guest is invisible to us."""

    id: str
    kind: EventKind
    machine: str
    instance: str
    why: str | None = None
    signals: Sequence[Any] = ()

    @property
    def sha256(self) -> str:
        body = {**asdict(self), "signals": list(self.signals)}
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Accepted:
    state: str  # applied, waiting, dropped: see fleet.store.events
    replayed: bool  # this id was accepted before, with the same body


def apply(session: Session, event: Event, by: By) -> Accepted:
    """Take the event in, in the caller's transaction. Raises NotFound (machine), Conflict (same id, other body), Refused
    (the instance is not there, the machine cannot take it): then nothing is written."""
    known = events.get(session, event.id)
    if known is not None:
        if known.body_sha256 != event.sha256:
            raise Conflict(f"event {event.id} was accepted before with another body; a new fact needs a new id")
        return Accepted(known.state, replayed=True)
    state = _HANDLERS[event.kind](session, machines.get(session, event.machine), event, by)
    at = machines.now(session)
    session.add(
        EventRow(
            id=event.id,
            body_sha256=event.sha256,
            kind=event.kind,
            machine=event.machine,
            instance=event.instance,
            cause=_CAUSE.get(event.kind),
            why=event.why,
            signals=list(event.signals),
            state=state,
            received_at=at,
            applied_at=at if state == events.APPLIED else None,
        )
    )
    session.flush()
    return Accepted(state, replayed=False)


def allocate(session: Session, machine: Machine, instance: str, by: By, why: str) -> Machine:
    """The pool gate: an available machine, held by nobody, gets its tenant. Raises Refused with the reason."""
    if machine.state is State.ALLOCATED and any(i.id == instance for i in machine.instances):
        return machine  # said twice
    if machine.hold is not None:
        hold = machine.hold
        raise Refused(f"{machine.name} is held by {hold.owner} since {site.at(hold.since)}: {hold.reason}")
    if machine.state is not State.AVAILABLE:
        since = f"since {site.at(machine.state_since)}: {machine.state_why}"
        raise Refused(f"{machine.name} is not available, it is {machine.state} {since}")
    if (first := events.waiting(session, machine.name, EventKind.PLACED)) is not None:
        if first.instance != instance:
            raise Refused(f"{machine.name} is taken: instance {first.instance} was reported as placed on it before")
        events.finish(session, first, events.APPLIED)
    machines.add_instance(session, machine.name, instance)
    return machines.move(session, machine, Move.ALLOCATE, why, by, detail={"instance": instance})


def apply_waiting(session: Session, name: str, by: By) -> None:
    """A machine came back to the pool: the `placed` that waited longest for it is now true. A held machine keeps it
    waiting until the hold is lifted; nobody else gets the machine before."""
    row = events.waiting(session, name, EventKind.PLACED)
    machine = machines.get(session, name)
    if row is not None and machine.hold is None:
        allocate(session, machine, row.instance, by, f"instance {row.instance} placed (the event waited)")


def _placed(session: Session, machine: Machine, event: Event, by: By) -> str:
    here = {i.id for i in machine.instances}
    if machine.state is State.ALLOCATED and event.instance not in here:
        if len(here) >= machine.capacity:
            return events.WAITING  # the last one's `removed` has not come yet: order is by instance, not by time
        machines.add_instance(session, machine.name, event.instance)
        machines.touch(session, machine)  # who counts its instances at the same time counts again
        return events.APPLIED
    allocate(session, machine, event.instance, by, f"instance {event.instance} placed")
    return events.APPLIED


def _left(session: Session, machine: Machine, event: Event, by: By) -> str:
    dropped = events.drop_waiting(session, machine.name, EventKind.PLACED, event.instance)
    if event.instance not in {i.id for i in machine.instances}:
        if dropped:
            return events.APPLIED  # it left before it could be noted as placed
        there = ", ".join(i.id for i in machine.instances) or "none"
        raise Refused(f"instance {event.instance} is not on {machine.name} (instances there: {there})")
    machines.remove_instance(session, machine.name, event.instance)
    cause = _CAUSE[event.kind] + "d"
    if machine.state is State.ALLOCATED and len(machine.instances) == 1:
        because = {"instance": event.instance, "cause": cause, "why": event.why, "signals": list(event.signals)}
        why = f"instance {event.instance} {cause}" + (f": {event.why}" if event.why else "")
        machines.move(session, machine, Move.VACATE, why, by, detail={"event": event.id}, vacated_because=because)
        events.drop_waiting(session, machine.name, EventKind.KEPT)
        vacancy.open_vacancy(session, machine.name, why="the tenant's domain must be gone first")
    else:
        machines.touch(session, machine)  # of two that leave at once, one is the last
    return events.APPLIED


def _kept(session: Session, machine: Machine, event: Event, by: By) -> str:
    if event.instance in {i.id for i in machine.instances}:
        return events.APPLIED  # it never left
    last = machine.vacated_because.get("instance")
    if machine.state not in (State.VACATED, State.VALIDATING) or last != event.instance:
        raise Refused(
            f"instance {event.instance} was not the last on {machine.name} (last: {last or 'none'}; now {machine.state})"
        )
    if machine.state is State.VALIDATING and (row := validations.open_on(session, machine.name)) is not None:
        reason = f"the migration was rolled back, {event.instance} stays"
        request_abort(session, row.run, reason, by.actor, list(begin.ABORTABLE))
    else:
        vacancy.look_now(session, machine.name)
    machines.touch(session, machine)  # a settlement, or a start, that does not know of this yet must look again
    return events.WAITING


_CAUSE = {EventKind.MIGRATED: "migrate", EventKind.REMOVED: "remove"}
_HANDLERS = {
    EventKind.PLACED: _placed,
    EventKind.MIGRATED: _left,
    EventKind.REMOVED: _left,
    EventKind.KEPT: _kept,
}
