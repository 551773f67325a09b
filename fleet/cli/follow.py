"""Following a validation to its verdict: a live line per check on a terminal, one line per change otherwise."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from fleet.cli.exits import CommandError, Exit
from fleet.cli.output import complain, console, printable, table
from fleet.cli.session import segment

if TYPE_CHECKING:
    from rich.console import Group

    from fleet.cli.client import Client

Validation = Mapping[str, Any]

_EVERY_S = 0.4
_PATIENCE_S = 120.0
"""How long the service may be away: the validation goes on without it, and a restart takes seconds."""


def until_settled(client: "Client", validation: Validation, *, quiet: bool) -> Validation:
    """Show progress until there is a verdict, and return the record. `quiet` keeps stdout for the answer. A service that
    is away for less than two minutes is waited for; raises CommandError (NOT_REACHED) after that."""
    stream = sys.stderr if quiet else sys.stdout
    if not stream.isatty():
        return _poll(client, validation, Lines(stream))
    from rich.live import Live

    with Live(console=console(stream), refresh_per_second=8, transient=True) as live:
        return _poll(client, validation, lambda seen: live.update(_picture(seen), refresh=True))


class Absence:
    """A service that goes away while a command waits for `what`, which goes on without it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since: float | None = None

    def end(self) -> None:
        self._since = None

    def bear(self, exc: CommandError) -> None:
        """Say it once. Raises `exc` where that is another error, or where the absence has lasted too long."""
        now = time.monotonic()
        if self._since is None and exc.status is Exit.NOT_REACHED:
            self._since = now
            complain(f"The service is away; {self._what} goes on, waiting for the service.")
        if self._since is None or exc.status is not Exit.NOT_REACHED or now - self._since > _PATIENCE_S:
            raise exc


def _poll(client: "Client", validation: Validation, show: Callable[[Validation], None]) -> Validation:
    absence = Absence(str(validation["id"]))
    while True:
        show(validation)
        if validation.get("verdict") is not None:
            return validation
        time.sleep(_EVERY_S)
        try:
            validation = client.get(f"/v1/validations/{segment(str(validation['id']))}")
            absence.end()
        except CommandError as exc:
            absence.bear(exc)


class Lines:
    """Prints what changed since the last look: phases, and checks with their state, per cent and outcome."""

    def __init__(self, stream: TextIO, prefix: str = "") -> None:
        self._stream, self._prefix = stream, prefix
        self._seen: dict[str, str] = {}

    def __call__(self, validation: Validation) -> None:
        if validation.get("verdict") is None:
            self._tell("phase", f"{validation.get('phase')}: {validation.get('why') or ''}".rstrip(": "))
        for check, progress in (validation.get("progress") or {}).items():
            if progress.get("state") != "waiting":
                self._tell(f"check {check}", f"{check}: {standing(progress)}")

    def _tell(self, what: str, line: str) -> None:
        if self._seen.get(what) != line:
            self._seen[what] = line
            self._stream.write(printable(self._prefix + line) + "\n")
            self._stream.flush()


def standing(progress: Mapping[str, Any]) -> str:
    """`running, 40 %`, or the outcome once there is one."""
    percent = progress.get("percent")
    said = progress.get("outcome") or progress.get("state") or "waiting"
    running = progress.get("state") == "running" and isinstance(percent, int | float)
    return f"{said}, {percent:.0f} %" if running else str(said)


def _picture(validation: Validation) -> "Group":
    from rich.console import Group
    from rich.text import Text

    head = f"{validation['machine']}  {validation['id']}  {validation.get('phase')}: {validation.get('why') or ''}"
    rows = [{"check": name, "at": standing(p)} for name, p in (validation.get("progress") or {}).items()]
    return Group(Text(printable(head)), table(rows, (("CHECK", "check"), ("AT", "at"))))
