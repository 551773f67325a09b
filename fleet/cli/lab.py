"""`fleet lab`: put faults into the simulated rack and take them out again."""

from typing import Annotated, Any

import typer

from fleet.cli import session
from fleet.cli.output import Column, say

app = session.noun("The simulated rack of `fleet up --lab N`.")

Machine = Annotated[str, typer.Argument(metavar="MACHINE")]
Fault = Annotated[str, typer.Argument(metavar="FAULT", help="A name from `fleet lab faults`.")]

COLUMNS: tuple[Column, ...] = (
    ("FAULT", "name"),
    ("WHAT IT DOES", lambda row: row.get("description") or row.get("title")),
    ("IN", lambda row: ", ".join(map(str, row.get("machines") or ()))),
)


@app.command()
def faults(context: typer.Context) -> None:
    """Which faults there are, and the machines that have them now."""
    here = session.of(context)
    with here.connect() as client:
        page = client.rows("/v1/lab/faults")
    here.answer_list(page, COLUMNS, "This rack knows no faults.")


@app.command("break")
def break_(context: typer.Context, machine: Machine, fault: Fault) -> None:
    """Put a fault in."""
    here = session.of(context)
    done = _change(here, machine, "break", fault)
    here.answer(done, lambda: say(f"{machine} has {fault} now."))


@app.command()
def mend(context: typer.Context, machine: Machine, fault: Fault) -> None:
    """Take a fault out."""
    here = session.of(context)
    done = _change(here, machine, "mend", fault)
    here.answer(done, lambda: say(f"{machine} is rid of {fault}."))


def _change(here: session.Session, machine: str, verb: str, fault: str) -> Any:
    with here.connect() as client:
        return client.post(f"/v1/lab/{session.segment(machine)}/{verb}", {"fault": fault})
