"""`fleet validation`, `fleet revalidate`, `fleet abort`: validations, by hand and on record."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fleet.cli import session
from fleet.cli.exits import BY_VERDICT, CommandError, Exit
from fleet.cli.output import Column, Row, complain, print_details, print_table, print_text, say, time

app = session.noun("Validations.")

ValidationId = Annotated[str, typer.Argument(metavar="ID")]

COLUMNS: tuple[Column, ...] = (
    ("ID", "id"),
    ("MACHINE", "machine"),
    ("PLAN", "plan"),
    ("TRIGGER", "trigger"),
    ("PHASE", "phase"),
    ("VERDICT", "verdict"),
    ("CREATED", lambda row: time(row.get("created_at"))),
    ("REASON", lambda row: row.get("reason") or row.get("why")),
)
_PHASES: tuple[Column, ...] = (
    ("PHASE", "phase"),
    ("SINCE", lambda row: time(row.get("since"))),
    ("UNTIL", lambda row: time(row.get("until"))),
    ("WHY", "why"),
)
_CHECKS: tuple[Column, ...] = (("CHECK", "check"), ("MODE", "mode"), ("OUTCOME", "outcome"), ("REASON", "reason"))
_FINDINGS: tuple[Column, ...] = (
    ("CHECK", "check"),
    ("DEVICE", "device"),
    ("OUTCOME", "outcome"),
    ("CODE", "code"),
    ("REASON", "reason"),
)
_RECEIPTS: tuple[Column, ...] = (
    ("HOOK", "hook"),
    ("SAID YES", lambda row: time(row.get("at"))),
    ("RECEIPT", lambda row: json.dumps(row.get("receipt"))),
)
_LOGS: tuple[Column, ...] = (
    ("MEASUREMENT", "name"),
    ("STREAM", "stream"),
    ("BYTES", "bytes"),
    ("ENDED", "ended"),
    ("SHA256", "sha256"),
)


@app.command("list")
def list_(
    context: typer.Context,
    machine: session.OfMachine = None,
    state: Annotated[str | None, typer.Option("--state", help="open, passed, failed or aborted.")] = None,
    limit: session.Limit = 100,
    cursor: session.Cursor = None,
) -> None:
    """The newest validations first."""
    here = session.of(context)
    with here.connect() as client:
        page = client.rows("/v1/validations", {"machine": machine, "state": state}, limit, cursor)
    here.answer_list(page, COLUMNS, "No validations.")


@app.command()
def show(context: typer.Context, validation: ValidationId) -> None:
    """One validation: verdict, phases with times, checks, findings."""
    here = session.of(context)
    with here.connect() as client:
        found = client.get(f"/v1/validations/{session.segment(validation)}")
    here.answer(found, lambda: _print(found))


@app.command()
def logs(
    context: typer.Context,
    validation: ValidationId,
    measurement: Annotated[str | None, typer.Argument(metavar="[MEASUREMENT]", help="Print this one's output.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="The same as MEASUREMENT.")] = None,
    check: Annotated[str | None, typer.Option("--check", help="Print all outputs of this check.")] = None,
    tail: Annotated[int | None, typer.Option("--tail", min=1, max=1_000_000, help="Only the last lines.")] = None,
    stream: Annotated[str | None, typer.Option("--stream", help="stdout or stderr; both if left out.")] = None,
) -> None:
    """Which raw outputs are stored, or what is in them."""
    here = session.of(context)
    base = f"/v1/validations/{session.segment(validation)}/logs"
    with here.connect() as client:
        page = client.rows(base)
        asked = {"name": measurement or name, "check": check, "stream": stream}
        wanted = {key: value for key, value in asked.items() if value is not None}
        if not wanted and tail is None:
            here.answer_list(page, _LOGS, "Nothing was measured.")
            return
        kept = [row for row in page["items"] if all(row[key] == value for key, value in wanted.items())]
        if not kept:
            names = ", ".join(dict.fromkeys(str(row["name"]) for row in page["items"])) or "none"
            raise CommandError(
                f"{validation} has no output of {' '.join(wanted.values())}; there is: {names}", Exit.REFUSED
            )
        for row in kept:
            path = f"{base}/{session.segment(row['name'])}/{session.segment(row['stream'])}"
            row["text"] = client.text(path, {"tail": tail})
    several = len({row["name"] for row in kept}) > 1
    here.answer({"items": kept, "next": None}, lambda: print_text("".join(_titled(row, several) for row in kept)))


def _titled(row: dict[str, Any], several: bool) -> str:
    """Where there are several, each says of what it is; those that printed nothing are left out."""
    text = str(row["text"])
    if not several or not text:
        return text
    return f"== {row['name']} {row['stream']}\n{text if text.endswith(chr(10)) else text + chr(10)}"


@app.command()
def export(
    context: typer.Context,
    validation: ValidationId,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="A new file, such as val.tar.gz.")],
) -> None:
    """Record, findings, limits and raw outputs in one archive. Exit status 3: something of it could not be had."""
    here = session.of(context)
    if out.exists():
        raise CommandError(f"-o: there is a file {out} already", Exit.USAGE)
    partial = out.with_name(f".{out.name}.partial")
    try:
        with here.connect() as client, partial.open("wb") as file:
            client.download(f"/v1/validations/{session.segment(validation)}/export", file)
        from fleet.cli import archive

        manifest, problems = archive.check(partial)
        partial.rename(out)
    except OSError as exc:
        raise CommandError(f"-o: {out} cannot be written: {exc.strerror}", Exit.USAGE) from exc
    finally:
        partial.unlink(missing_ok=True)
    said = {"file": str(out), "complete": not problems, "files": len(manifest["files"]), "problems": problems}
    here.answer(said, lambda: say(f"{out}: {said['files']} files of {validation}."))
    for problem in problems:
        complain(problem)
    if problems:
        raise typer.Exit(Exit.NOT_SETTLED)


def revalidate(
    context: typer.Context,
    machine: Annotated[str, typer.Argument(metavar="MACHINE")],
    plan: Annotated[str | None, typer.Option("--plan", help="quick, standard, soak or a site's own.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it; the exit status is the verdict's.")] = False,
) -> None:
    """Validate a machine now. With --wait: 0 passed, 1 failed, 3 aborted."""
    here = session.of(context)
    with here.connect() as client:
        started = client.post("/v1/validations", {"machine": machine} | ({"plan": plan} if plan else {}))
        if not wait:
            here.answer(started, lambda: say(f"{started['id']}: {machine} is being validated, plan {started['plan']}."))
            return
        from fleet.cli import follow

        try:
            ended = follow.until_settled(client, started, quiet=here.json)
        except KeyboardInterrupt:
            said = f"no longer followed: {started['id']} goes on; end it with "
            said += f"`fleet abort {started['id']} --reason 'no longer needed'`"
            raise CommandError(said, Exit.INTERRUPTED) from None
    here.answer(ended, lambda: _print_end(ended))
    raise typer.Exit(BY_VERDICT[ended["verdict"]])


def abort(context: typer.Context, validation: ValidationId, reason: session.Reason) -> None:
    """End a running validation early. The machine gets its prior state back, unless hardware already failed."""
    here = session.of(context)
    with here.connect() as client:
        found = client.post(f"/v1/validations/{session.segment(validation)}/abort", {"reason": reason})
    here.answer(found, lambda: say(f"{validation} is being aborted; its VM goes first."))


def _print_end(row: Row) -> None:
    say(f"{row['machine']} {row['verdict']}: {row.get('reason') or ''}")
    print_table(row.get("checks") or (), _CHECKS, "No check ran.")


def _image(row: Row) -> str | None:
    """What the test VM was booted from: as it says itself, and its file's digest as seen on the host."""
    image = row.get("image") or {}
    said = image.get("versions") or {}
    digest = image.get("seen_digest")
    words = [said.get("profile"), said.get("version"), digest and f"sha256 {digest[:12]}"]
    return " ".join(word for word in words if word) or None


def _print(row: Row) -> None:
    names = ("id", "machine", "plan", "trigger", "requested_by", "phase", "why", "verdict", "reason", "prior_state")
    print_details([*((name, row.get(name)) for name in (*names, "created_at", "ended_at")), ("image", _image(row))])
    checks = row.get("checks") or []
    found = [{"check": check["check"], **finding} for check in checks for finding in check.get("findings") or ()]
    said = {check.get("reason") for check in checks}  # the table of checks has these sentences
    telling = [one for one in found if one["outcome"] != "passed" and one.get("reason") not in said]
    receipts = [{"hook": hook, **kept} for hook, kept in (row.get("receipts") or {}).items()]
    for rows, columns in ((row.get("phases"), _PHASES), (receipts, _RECEIPTS), (checks, _CHECKS), (telling, _FINDINGS)):
        if rows:
            say("")
            print_table(rows, columns, "")
    if passed := sum(one["outcome"] == "passed" for one in found):
        complain(f"{passed} findings passed; --json has them, with numbers and limits.")
