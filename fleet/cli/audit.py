"""`fleet audit`: who did what, when and from where; refused attempts too."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO

import typer

from fleet.cli import session
from fleet.cli.exits import CommandError, Exit
from fleet.cli.output import Column, complain, time

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
    ("DETAIL", lambda row: json.dumps(row.get("detail"), ensure_ascii=False)),
)


Actor = Annotated[str | None, typer.Option("--actor", metavar="NAME", help="Only what this token's owner did.")]
ActionName = Annotated[
    str | None, typer.Option("--action", metavar="NAME", help="Only this one; `machine.` for all that begin so.")
]
Refused = Annotated[
    bool | None, typer.Option("--refused/--allowed", help="Only refused attempts, or only what was done.")
]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="From 2026-11-30T08:00:00Z on.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Before this time.")]


@app.command("list")
def list_(
    context: typer.Context,
    machine: session.OfMachine = None,
    actor: Actor = None,
    action: ActionName = None,
    refused: Refused = None,
    since: Since = None,
    until: Until = None,
    limit: session.Limit = 100,
    cursor: session.Cursor = None,
) -> None:
    """The newest entries first."""
    here = session.of(context)
    with here.connect() as client:
        page = client.rows("/v1/audit", _wanted(machine, actor, action, refused, since, until), limit, cursor)
    here.answer_list(page, COLUMNS, "No audit entry.")


@app.command()
def export(
    context: typer.Context,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="A new file; standard output if left out.")
    ] = None,
    machine: session.OfMachine = None,
    actor: Actor = None,
    action: ActionName = None,
    refused: Refused = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """All of it as JSON lines, the oldest entry first: for an archive, or a program that reads on."""
    here, count = session.of(context), 0
    params = {**_wanted(machine, actor, action, refused, since, until), "order": "oldest"}
    with here.connect() as client, _opened(output) as stream:
        for page in client.pages("/v1/audit", params):
            stream.writelines(json.dumps(row) + "\n" for row in page["items"])
            count += len(page["items"])
    complain(f"{count} entries" + (f" in {output}." if output else "."))


def _wanted(
    machine: str | None,
    actor: str | None,
    action: str | None,
    refused: bool | None,
    since: str | None,
    until: str | None,
) -> dict[str, str | None]:
    allowed = None if refused is None else str(not refused).lower()
    return {
        "machine": machine,
        "actor": actor,
        "action": action,
        "allowed": allowed,
        "since": since,
        "until": until,
    }


@contextmanager
def _opened(output: Path | None) -> Iterator[TextIO]:
    """A file that is there only when it is whole, readable by its owner alone."""
    if output is None:
        yield sys.stdout
        return
    if output.exists():
        raise CommandError(f"{output} is there already", Exit.USAGE)
    part = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            yield stream
        part.rename(output)
    except OSError as exc:
        raise CommandError(f"{output}: cannot be written: {exc.strerror}", Exit.USAGE) from exc
    finally:
        part.unlink(missing_ok=True)
