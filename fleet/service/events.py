"""Events of the provider's control plane."""

from typing import Annotated, Literal

from pydantic import Field
from sqlalchemy.orm import Session

from fleet.core.model import EventKind
from fleet.service.access import Permit
from fleet.service.body import Body, InstanceId, MachineName, Sentence, Word
from fleet.service.writing import Answer
from fleet.store import audit
from fleet.workflows import events
from fleet.workflows.events import Event

Signal = Sentence | Annotated[dict[Word, Sentence | int | float | bool | None], Field(max_length=20)]
"""Something seen inside the instance, in words (`Xid 79`) or as named values."""


class NewEvent(Body):
    """`why` is why the instance left, `signals` what was seen in it while it was there."""

    id: Word
    kind: Literal["instance.placed", "instance.migrated", "instance.removed", "instance.kept"]
    machine: MachineName
    instance: InstanceId
    why: Sentence | None = None
    signals: Annotated[list[Signal], Field(max_length=100)] = []


def report(session: Session, permit: Permit, order: NewEvent) -> Answer:
    """Take an event in, once. Raises NotFound, Conflict (the same id with another body), Refused (it cannot be true)."""
    event = Event(order.id, EventKind(order.kind), order.machine, order.instance, order.why, order.signals)
    accepted = events.apply(session, event, permit.actor.by)
    answer = {**order.model_dump(exclude={"signals", "why"}), "state": accepted.state}
    if accepted.replayed:
        return Answer.done(answer)
    detail = {"kind": order.kind, "instance": order.instance, "state": accepted.state}
    audit.write(session, permit.actor.by, "event.accepted", machine=order.machine, object_=order.id, detail=detail)
    return Answer.accepted(answer)
