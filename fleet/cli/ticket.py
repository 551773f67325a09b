"""`fleet ticket`: the hardware team's queue."""

from typing import Annotated, Any

import typer

from fleet.cli import session
from fleet.cli.output import Column, print_details, print_text, say, time

app = session.noun("Hardware tickets.")

TicketId = Annotated[str, typer.Argument(metavar="ID")]

COLUMNS: tuple[Column, ...] = (
    ("ID", "id"),
    ("MACHINE", "machine"),
    ("STATE", "state"),
    ("CAUSE", "cause"),
    ("TITLE", "title"),
    ("VALIDATION", "validation"),
    ("UPDATED", lambda row: time(row.get("updated_at"))),
)


@app.command("list")
def list_(
    context: typer.Context,
    machine: session.OfMachine = None,
    state: Annotated[str | None, typer.Option("--state", help="open, taken, fixed, closed or reopened.")] = None,
    limit: session.Limit = None,
    cursor: session.Cursor = None,
) -> None:
    """Tickets, the oldest first."""
    here = session.of(context)
    with here.connect() as client:
        page = client.rows("/v1/tickets", {"machine": machine, "state": state}, limit, cursor)
    here.answer_list(page, COLUMNS, "No tickets.")


@app.command()
def show(context: typer.Context, ticket_id: TicketId) -> None:
    """One ticket: per-test results, numbers against limits, the last lines of the logs, its history."""
    here = session.of(context)
    with here.connect() as client:
        ticket = client.get(f"/v1/tickets/{session.segment(ticket_id)}")
    here.answer(ticket, lambda: _print(ticket))


@app.command()
def fixed(
    context: typer.Context,
    ticket_id: TicketId,
    note: Annotated[str | None, typer.Option("--note", help="What was done to the machine.")] = None,
) -> None:
    """Say that the hardware was fixed: the machine is validated again, and returns to the pool only by a pass."""
    here = session.of(context)
    with here.connect() as client:
        ticket = client.post(f"/v1/tickets/{session.segment(ticket_id)}/fixed", {"note": note} if note else {})
    here.answer(ticket, lambda: say(f"{ticket['id']} is marked fixed; {ticket['machine']} is validated again."))


def _print(ticket: dict[str, Any]) -> None:
    names = ("id", "machine", "state", "cause", "title", "validation", "created_at", "updated_at")
    print_details((name, ticket.get(name)) for name in names)
    say("")
    print_text(str(ticket.get("body") or ""))
    for entry in ticket.get("history") or ():
        said = [entry.get("actor"), entry.get("what"), entry.get("validation"), entry.get("note")]
        say("  ".join([time(entry.get("at")), *(str(part) for part in said if part)]))
