"""`fleet audit`: who did what, when and from where; refused attempts too."""

import json

import typer

from fleet.cli import session
from fleet.cli.output import Column, time

app = session.noun("Who did what, when, from where; refused attempts too.")

COLUMNS: tuple[Column, ...] = (
    ("ID", "id"),
    ("AT", lambda row: time(row.get("at"))),
    ("ACTOR", "actor"),
    ("FROM", "source"),
    ("ACTION", "action"),
    ("MACHINE", "machine"),
    ("OBJECT", "object"),
    ("ALLOWED", lambda row: "yes" if row.get("allowed") else "REFUSED"),
    ("DETAIL", lambda row: json.dumps(row.get("detail"), ensure_ascii=False)[:120]),
)


@app.command("list")
def list_(
    context: typer.Context,
    machine: session.OfMachine = None,
    limit: session.Limit = 100,
    cursor: session.Cursor = None,
) -> None:
    """The newest entries first."""
    here = session.of(context)
    with here.connect() as client:
        page = client.rows("/v1/audit", {"machine": machine}, limit, cursor)
    here.answer_list(page, COLUMNS, "No audit entry.")
