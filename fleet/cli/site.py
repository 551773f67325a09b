"""`fleet pause` and `fleet resume`: the switch over all automation of the site."""

import typer

from fleet.cli import session
from fleet.cli.output import say


def pause(context: typer.Context, reason: session.Reason) -> None:
    """Stop every new automatic act, fleet-wide. What runs goes on; people can still start validations."""
    here = session.of(context)
    with here.connect() as client:
        site = client.post("/v1/pause", {"reason": reason})
    here.answer(site, lambda: say("Automation is paused: nothing new starts by itself. `fleet resume` lets it go on."))


def resume(context: typer.Context) -> None:
    """Let automation go on after a pause."""
    here = session.of(context)
    with here.connect() as client:
        site = client.post("/v1/resume")
    here.answer(site, lambda: say("Automation goes on."))
