"""`fleet machine check` and `discover`: what a host lacks, and what is in it. A worker looks; these commands wait for it."""

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fleet.cli import session
from fleet.cli.exits import CommandError, Exit
from fleet.cli.follow import Absence
from fleet.cli.output import Column, complain, print_table, print_text, say

if TYPE_CHECKING:
    from fleet.cli.client import Client

_EVERY_S = 0.3
_UNTAKEN_S = 30.0
"""Workers look for work many times a second: after this there is none."""
_PATIENCE_S = 1200.0  # a host may have to read an image of tens of gigabytes

_ROWS: tuple[Column, ...] = (("PREREQUISITE", "name"), ("STATUS", "status"), ("SEEN", "seen"))


def check(here: session.Session, machine: str) -> Exit:
    done = _inspect(here, machine, "check")
    rows = done["result"].get("rows") or []
    here.answer(done, lambda: _print_rows(machine, rows, done))
    return Exit.DONE if done["outcome"] == "met" else Exit.NOT_SETTLED


def discover(here: session.Session, machine: str) -> Exit:
    done = _inspect(here, machine, "discover")
    if done["outcome"] != "proposed":
        here.answer(done, lambda: None)
        complain(f"fleet: {done['result'].get('error') or 'the host could not be asked'}")
        return Exit.NOT_SETTLED
    here.answer(done, lambda: print_text(_yaml(done["result"])))
    return Exit.DONE


def _inspect(here: session.Session, machine: str, kind: str) -> Mapping[str, Any]:
    with here.connect() as client:
        asked = client.post("/v1/inspections", {"machine": machine, "kind": kind})
        try:
            for seen in _until_ended(client, asked):
                if seen["outcome"] is not None:
                    return seen
        except KeyboardInterrupt:
            said = f"no longer waited for: {asked['id']} looks on and changes nothing; "
            said += f"`fleet machine {kind} {machine}` waits for it again"
            raise CommandError(said, Exit.INTERRUPTED) from None
    raise CommandError(f"{asked['id']} has not ended in {_PATIENCE_S:.0f} s; look again later", Exit.NOT_SETTLED)


def _until_ended(client: "Client", asked: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    started, absence = time.monotonic(), Absence(str(asked["id"]))
    while (waited_s := time.monotonic() - started) < _PATIENCE_S:
        time.sleep(_EVERY_S)
        try:
            seen = client.get(f"/v1/inspections/{session.segment(str(asked['id']))}")
            absence.end()
        except CommandError as exc:
            absence.bear(exc)
            continue
        if not seen["taken_up"] and waited_s > _UNTAKEN_S:
            raise CommandError(
                f"no worker has taken up {asked['id']} in {_UNTAKEN_S:.0f} s: is one running (`fleet worker`)?",
                Exit.NOT_SETTLED,
            )
        yield seen


def _print_rows(machine: str, rows: list[Mapping[str, Any]], done: Mapping[str, Any]) -> None:
    print_table(rows, _ROWS, f"nothing was looked at: {done['result'].get('error') or done['outcome']}")
    missing = [row for row in rows if row.get("status") == "missing"]
    if missing:
        say("\nTo mend:")
    for row in missing:
        say(f"  {row.get('name')}: {row.get('mend')}")
    untried = sum(row.get("status") == "not tried" for row in rows)
    rest = f", {untried} not tried" if untried else ""
    say(
        f"\n{machine}: {len(missing)} of {len(rows)} prerequisites missing{rest}."
        if missing or untried
        else f"\n{machine}: all {len(rows)} prerequisites are met."
    )


def _yaml(result: Mapping[str, Any]) -> str:
    """What `fleet machine import` reads; the notes are comments in it."""
    import yaml

    notes = "".join(f"# {line}\n" for note in result.get("notes") or () for line in str(note).splitlines())
    return notes + str(yaml.safe_dump([result["machine"]], sort_keys=False, allow_unicode=False, width=10_000))
