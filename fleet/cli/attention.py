"""`fleet attention`: what waits for a person, since when, and what to do next."""

from typing import Annotated

import typer

from fleet.cli import session
from fleet.cli.output import Column, say, time

app = session.noun("What waits for a person.")

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
    limit: session.Limit = None,
    cursor: session.Cursor = None,
) -> None:
    """What is open, oldest first."""
    here = session.of(context)
    with here.connect() as client:
        page = client.rows("/v1/attention", {"machine": machine}, limit, cursor)
    here.answer_list(page, COLUMNS, "Nothing waits for a person.")


@app.command()
def resolve(
    context: typer.Context,
    attention_id: Annotated[str, typer.Argument(metavar="ID")],
    note: Annotated[str | None, typer.Option("--note", help="What was done.")] = None,
) -> None:
    """Say that it was looked after."""
    here = session.of(context)
    with here.connect() as client:
        done = client.post(f"/v1/attention/{session.segment(attention_id)}/resolve", {"note": note} if note else {})
    here.answer(done, lambda: say(f"{attention_id} is resolved."))
