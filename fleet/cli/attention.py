"""`fleet attention`: what waits for a person, since when, and what to do next."""

from typing import Annotated

import typer

from fleet.cli import session
from fleet.cli.output import Column, print_details, say, time

app = session.noun("What waits for a person.")

AttentionId = Annotated[str, typer.Argument(metavar="ID")]

COLUMNS: tuple[Column, ...] = (
    ("ID", "id"),
    ("SINCE", lambda row: time(row.get("since"))),
    ("KIND", "kind"),
    ("MACHINE", "machine"),
    ("REASON", "reason"),
    ("NEXT STEP", "next_step"),
)


@app.command("list")
def list_(
    context: typer.Context,
    machine: session.OfMachine = None,
    kind: Annotated[str | None, typer.Option("--kind", help="Only this kind.")] = None,
    state: Annotated[str | None, typer.Option("--state", help="open (if left out) or resolved.")] = None,
    limit: session.Limit = None,
    cursor: session.Cursor = None,
) -> None:
    """What is open, oldest first."""
    here = session.of(context)
    with here.connect() as client:
        page = client.rows("/v1/attention", {"machine": machine, "kind": kind, "state": state}, limit, cursor)
    everything = state is None and machine is None and kind is None
    here.answer_list(page, COLUMNS, "Nothing waits for a person." if everything else "There is no such record.")


@app.command()
def show(context: typer.Context, attention_id: AttentionId) -> None:
    """One record: the reason, since when, and what to do next."""
    here = session.of(context)
    with here.connect() as client:
        found = client.get(f"/v1/attention/{session.segment(attention_id)}")
    names = ("id", "kind", "machine", "subject", "state", "since", "reason", "next_step", "resolved_at", "resolved_by")
    here.answer(found, lambda: print_details((name, found.get(name)) for name in names))


@app.command()
def resolve(
    context: typer.Context,
    attention_id: AttentionId,
    note: Annotated[str | None, typer.Option("--note", help="What was done.")] = None,
) -> None:
    """Say that it was looked after."""
    here = session.of(context)
    with here.connect() as client:
        done = client.post(f"/v1/attention/{session.segment(attention_id)}/resolve", {"note": note} if note else {})
    here.answer(done, lambda: say(f"{attention_id} is resolved."))
