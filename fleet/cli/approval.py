"""`fleet approval`: what one person has asked for and another has to approve, where the site has the two-person rule."""

from typing import Annotated

import typer

from fleet.cli import session
from fleet.cli.exits import Exit
from fleet.cli.output import Column, Row, complain, print_details, say, time

app = session.noun("Acts that wait for a second person.")

ApprovalId = Annotated[str, typer.Argument(metavar="ID")]

COLUMNS: tuple[Column, ...] = (
    ("ID", "id"),
    ("STATE", "state"),
    ("ACTION", "action"),
    ("TARGET", "target"),
    ("ASKED BY", "requested_by"),
    ("EXPIRES", lambda row: time(row.get("expires_at"))),
    ("DECIDED BY", "decided_by"),
    ("REASON", "reason"),
)


@app.command("list")
def list_(
    context: typer.Context,
    machine: session.OfMachine = None,
    state: Annotated[str | None, typer.Option("--state", help="waiting, approved, rejected or expired.")] = None,
    limit: session.Limit = 100,
    cursor: session.Cursor = None,
) -> None:
    """The newest first."""
    here = session.of(context)
    with here.connect() as client:
        page = client.rows("/v1/approvals", {"machine": machine, "state": state}, limit, cursor)
    here.answer_list(page, COLUMNS, "No approvals.")


@app.command()
def show(context: typer.Context, approval_id: ApprovalId) -> None:
    """What was asked for, by whom and why, and what became of it."""
    here = session.of(context)
    with here.connect() as client:
        found = client.get(f"/v1/approvals/{session.segment(approval_id)}")
    here.answer(found, lambda: _print(found))


@app.command()
def approve(
    context: typer.Context,
    approval_id: ApprovalId,
    note: Annotated[str | None, typer.Option("--note", help="Goes to the record.")] = None,
) -> int:
    """Carry it out, as the second person. Refused where the state of now forbids it."""
    here = session.of(context)
    with here.connect() as client:
        path = f"/v1/approvals/{session.segment(approval_id)}/approve"
        done = client.post(path, {"note": note} if note else {})
    if done["state"] == "waiting":
        here.answer(done, lambda: say(f"{approval_id} still waits: {done['outcome']}."))
        return Exit.NOT_SETTLED
    here.answer(done, lambda: say(f"Done: {done['action']} of {done['target']}, asked for by {done['requested_by']}."))
    return Exit.DONE


@app.command()
def reject(context: typer.Context, approval_id: ApprovalId, reason: session.Reason) -> None:
    """Say no; whoever asked for it takes it back the same way."""
    here = session.of(context)
    with here.connect() as client:
        done = client.post(f"/v1/approvals/{session.segment(approval_id)}/reject", {"reason": reason})
    here.answer(done, lambda: say(f"{approval_id} is rejected; nothing was done."))


def answer_act(here: session.Session, done: Row, said: str) -> int:
    """The answer of an act that may take two people: done, or only asked for, which settles nothing yet."""
    if "decided_by" not in done:
        here.answer(done, lambda: say(said))
        return Exit.DONE
    here.answer(done, lambda: _print(done))
    complain(f"Nothing is done yet: another person approves it with `fleet approval approve {done['id']}`.")
    return Exit.NOT_SETTLED


def _print(row: Row) -> None:
    times = ("requested_at", "expires_at", "decided_at")
    names = ("id", "action", "target", "reason", "state", "requested_by", *times[:2], "decided_by", times[2], "outcome")
    asked = [(name, value) for name, value in (row.get("request") or {}).items() if name != "reason"]
    print_details([*((name, time(row.get(name)) if name in times else row.get(name)) for name in names), *asked])
