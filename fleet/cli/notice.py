"""`fleet notice`: what is told to the scheduler and to people, and how far that is."""

from typing import Annotated

import typer

from fleet.cli import session
from fleet.cli.output import Column, print_details, say, time

app = session.noun("What the scheduler, and what tells people, are told.")

NoticeId = Annotated[str, typer.Argument(metavar="ID")]

COLUMNS: tuple[Column, ...] = (
    ("ID", "id"),
    ("AT", lambda row: time(row.get("created_at"))),
    ("TO", "destination"),
    ("KIND", "kind"),
    ("MACHINE", "machine"),
    ("VERSION", "version"),
    ("STATE", "state"),
    ("LAST ERROR", "last_error"),
)
_FIELDS = (
    *("id", "destination", "kind", "state", "machine", "subject", "version", "why", "created_at", "attempts"),
    *("last_error", "delivered_at", "acknowledged_at", "acknowledged_by"),
)


@app.command("list")
def list_(
    context: typer.Context,
    machine: session.OfMachine = None,
    state: Annotated[str | None, typer.Option("--state", help="pending, delivered or acknowledged.")] = None,
    destination: Annotated[str | None, typer.Option("--to", help="scheduler or attention.")] = None,
    limit: session.Limit = 100,
    cursor: session.Cursor = None,
) -> None:
    """Notices, the newest first."""
    here = session.of(context)
    with here.connect() as client:
        asked = {"machine": machine, "state": state, "destination": destination}
        page = client.rows("/v1/notices", asked, limit, cursor)
    here.answer_list(page, COLUMNS, "No notices.")


@app.command()
def show(context: typer.Context, notice_id: NoticeId) -> None:
    """One notice: why, when it was sent, who has acknowledged it."""
    here = session.of(context)
    with here.connect() as client:
        found = client.get(f"/v1/notices/{session.segment(notice_id)}")
    here.answer(found, lambda: print_details((name, found.get(name)) for name in _FIELDS))


@app.command()
def ack(context: typer.Context, notice_id: NoticeId) -> None:
    """Say for the receiver that it knows, also of everything older about the same machine. A validation that waits for a
    withdrawal goes on: be sure that no tenant is being placed."""
    here = session.of(context)
    with here.connect() as client:
        done = client.post(f"/v1/notices/{session.segment(notice_id)}/acknowledge")
    here.answer(done, lambda: say(f"{done['id']} is acknowledged by {done['acknowledged_by']}."))
