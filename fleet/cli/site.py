"""`fleet site`: the switches of the whole site, and `fleet pause`, `fleet resume` over all automation."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from fleet.cli import approval, session
from fleet.cli.output import Row, print_details, say, time

app = session.noun("The site's mode, its pause, its rules.")


class Mode(StrEnum):
    OBSERVE = "observe"
    ENFORCE = "enforce"


_MEANS = {
    Mode.OBSERVE: "verdicts are recorded, no ticket is filed and no machine is condemned",
    Mode.ENFORCE: "a failed verdict files a ticket and keeps the machine out",
}


@app.command()
def show(context: typer.Context) -> None:
    """Mode, pause, and whether some acts take two people."""
    here = session.of(context)
    with here.connect() as client:
        site = client.get("/v1/site")
    here.answer(site, lambda: _print(site))


@app.command()
def mode(
    context: typer.Context,
    to: Annotated[Mode, typer.Argument(metavar="MODE", help="observe or enforce.")],
    reason: Annotated[str | None, typer.Option("--reason", help="Why; goes to the audit trail.")] = None,
) -> None:
    """What follows from a verdict, for validations that start from now on. A mode in the service's settings file is set
    again at its next start."""
    here = session.of(context)
    with here.connect() as client:
        site = client.post("/v1/site/mode", {"mode": to} | ({"reason": reason} if reason else {}))
    here.answer(site, lambda: say(f"The site is in mode {to}: {_MEANS[to]}."))


def pause(context: typer.Context, reason: session.Reason) -> None:
    """Stop every new automatic act, fleet-wide. What runs goes on; people can still start validations."""
    here = session.of(context)
    with here.connect() as client:
        site = client.post("/v1/pause", {"reason": reason})
    here.answer(site, lambda: say("Automation is paused: nothing new starts by itself. `fleet resume` lets it go on."))


def resume(
    context: typer.Context,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; goes to the audit trail.")] = None,
) -> int:
    """Let automation go on after a pause."""
    here = session.of(context)
    with here.connect() as client:
        done = client.post("/v1/resume", {"reason": reason} if reason else {})
    return approval.answer_act(here, done, "Automation goes on.")


def _print(site: Row) -> None:
    paused: dict[str, Any] = site.get("paused") or {}
    two = "override, retire and resume take two people" if site.get("two_person_rule") else "no act takes two people"
    print_details(
        [
            ("mode", f"{site['mode']}: {_MEANS[Mode(site['mode'])]}"),
            ("paused", f"by {paused['by']} since {time(paused['since'])}: {paused['reason']}" if paused else "no"),
            ("rule", two),
        ]
    )
