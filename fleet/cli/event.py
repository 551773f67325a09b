"""`fleet event`: what the provider's control plane posts to `/v1/events`, by hand."""

import uuid
from enum import StrEnum
from typing import Annotated, Any

import typer

from fleet.cli import session
from fleet.cli.output import say

app = session.noun("Report what the control plane did with an instance.")


class Cause(StrEnum):
    MIGRATE = "migrate"
    REMOVE = "remove"


KIND_BY_CAUSE = {Cause.MIGRATE: "instance.migrated", Cause.REMOVE: "instance.removed"}

Machine = Annotated[str, typer.Argument(metavar="MACHINE")]
Instance = Annotated[str, typer.Option("--instance", metavar="ID", help="The tenant's VM.")]
EventId = Annotated[
    str | None, typer.Option("--event-id", metavar="ID", help="The same id twice is one event; made if left out.")
]
Why = Annotated[str | None, typer.Option("--why", help="Why the control plane did it.")]
Signals = Annotated[
    list[str] | None,
    typer.Option("--signal", metavar="TEXT", help="What was seen inside the instance, such as 'Xid 79'. Repeatable."),
]


@app.command()
def placed(
    context: typer.Context, machine: Machine, instance: Instance, event_id: EventId = None, why: Why = None
) -> None:
    """An instance was placed on the machine."""
    _report(context, "instance.placed", machine, instance, event_id, why, None)


@app.command()
def vacated(
    context: typer.Context,
    machine: Machine,
    instance: Instance,
    cause: Annotated[Cause, typer.Option("--cause", help="How it left.")],
    event_id: EventId = None,
    why: Why = None,
    signal: Signals = None,
) -> None:
    """An instance left the machine: by migration, or because it was removed."""
    _report(context, KIND_BY_CAUSE[cause], machine, instance, event_id, why, signal)


@app.command()
def kept(
    context: typer.Context, machine: Machine, instance: Instance, event_id: EventId = None, why: Why = None
) -> None:
    """A migration was rolled back: the instance is still there."""
    _report(context, "instance.kept", machine, instance, event_id, why, None)


def _report(
    context: typer.Context,
    kind: str,
    machine: str,
    instance: str,
    event_id: str | None,
    why: str | None,
    signals: list[str] | None,
) -> None:
    here = session.of(context)
    body: dict[str, Any] = {
        "id": event_id or f"cli-{uuid.uuid4()}",
        "kind": kind,
        "machine": machine,
        "instance": instance,
    }
    body |= {name: value for name, value in (("why", why), ("signals", signals)) if value}
    with here.connect() as client:
        event = client.post("/v1/events", body)
    here.answer(event, lambda: say(f"Event {event['id']}, {kind} {instance} on {machine}: {event['state']}."))
