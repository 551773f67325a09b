"""`fleet up --lab N --demo`: the main job on three machines, told while it happens. A client of the API like any other.

One machine passes and returns to the pool, one has a faulty GPU and gets a ticket, one cannot place its test VM and goes
back to its prior state. A second start on the same database shows what there is and repeats nothing."""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet.cli.client import Client
from fleet.cli.exits import CommandError
from fleet.cli.follow import Lines, standing
from fleet.cli.output import Column, complain, console, print_table, say, table
from fleet.profile import Profile

if TYPE_CHECKING:
    from fleet.app.start import Service

Validation = Mapping[str, Any]


@dataclass(frozen=True)
class Story:
    machine: str
    instance: str
    kind: str  # of the event that vacates it
    fault: str | None
    title: str
    retried: bool = True  # an abort is not its end: the service tries again by itself

    @property
    def told(self) -> str:
        how = "migrates off" if self.kind == "instance.migrated" else "is removed from"
        return f"{self.instance} {how} {self.machine}, {self.title}"


STORIES = (
    Story("lab-02", "tenant-2", "instance.migrated", None, "which is healthy"),
    Story("lab-03", "tenant-3", "instance.removed", "faulty-gpu", "which has a faulty GPU"),
    Story("lab-04", "tenant-4", "instance.migrated", "vm-not-placed", "where no VM can be placed", retried=False),
)
MACHINES = 4
"""lab-01 keeps its tenant."""

_EVERY_S = 0.4
_LONG_S = 120.0
"""A validation on the rack takes seconds: after this the demonstration says what it waits for, and ends."""

_LIVE: tuple[Column, ...] = (
    ("MACHINE", "machine"),
    ("STATE", "state"),
    ("PHASE", "phase"),
    ("CHECKS", "checks"),
    ("VERDICT", "verdict"),
)
_SUMMARY: tuple[Column, ...] = (
    ("MACHINE", "machine"),
    ("VERDICT", "verdict"),
    ("NOW", "state"),
    ("TICKET", "ticket"),
    ("REASON", "reason"),
)


def run(service: "Service") -> None:
    """Show it, then say what to try next. Whatever refuses, the service stays up."""
    say(f"fleet is up at {service.url} with {service.lab} simulated machines; Ctrl-C ends it.")
    try:
        with Client(Profile(service.url, service.token, service.ca)) as client:
            begin(client)
            found = watch(client)
            summary(client, found)
            hints(client, service)
    except CommandError as exc:
        complain(f"The demonstration ends here, the service goes on: {exc}")


def begin(client: Client) -> None:
    """Tenants onto the three machines, faults into two, then the three departures; events that were are not repeated."""
    ahead = [story for story in STORIES if not _begun(client, story)]
    for story in ahead:
        _report(client, story, "instance.placed", "demo-placed")
        if story.fault is not None:
            client.post(f"/v1/lab/{story.machine}/break", {"fault": story.fault})
    for story in ahead:
        say(f"  {story.told}")
        _report(client, story, story.kind, "demo-vacated")
    if not ahead:
        say("The three machines were vacated at an earlier start; this is how they are now.")


def watch(client: Client) -> dict[str, Validation]:
    """Show the three machines until each has its verdict; the validations that tell it, by machine."""
    ends, told = time.monotonic() + _LONG_S, set[str]()
    with _screen() as show:
        while True:
            found = {story.machine: v for story in STORIES if (v := _validation(client, story)) is not None}
            machines = {story.machine: client.get(f"/v1/machines/{story.machine}") for story in STORIES}
            show(machines, found)
            waiting = [s.machine for s in STORIES if not _is_over(s, machines[s.machine], found.get(s.machine))]
            if not waiting:
                return found
            for again in {name for name in waiting if found.get(name, {}).get("verdict")} - told:
                told.add(again)
                say(f"{again}  was cut short; it is validated again by itself, in a minute")
            if time.monotonic() > ends:
                complain(f"No verdict yet for {', '.join(waiting)}: `fleet validation list` shows how far they are.")
                return found
            time.sleep(_EVERY_S)


def summary(client: Client, found: Mapping[str, Validation]) -> None:
    rows = []
    for story in STORIES:
        seen, machine = found.get(story.machine, {}), client.get(f"/v1/machines/{story.machine}")
        tickets = client.rows("/v1/tickets", {"machine": story.machine})["items"]
        rows.append(
            {
                "machine": story.machine,
                "verdict": seen.get("verdict") or "none yet",
                "state": machine["state"],
                "ticket": ", ".join(ticket["id"] for ticket in tickets if ticket["state"] != "closed"),
                "reason": seen.get("reason"),
            }
        )
    say("")
    print_table(rows, _SUMMARY, "")


def hints(client: Client, service: "Service") -> None:
    fleet, broken = service.command, STORIES[1].machine
    tickets = client.rows("/v1/tickets", {"machine": broken})["items"]
    ticket = tickets[0]["id"] if tickets else "TICKET"
    say("")
    say(f"The service is up at {service.url} and stays up. Try, in another terminal:")
    for line in (
        f"{fleet} machine list",
        f"{fleet} ticket show {ticket}",
        f"{fleet} revalidate lab-05 --wait" if service.lab > MACHINES else f"{fleet} revalidate lab-02 --wait",
        f"{fleet} lab mend {broken} {STORIES[1].fault}",
        f"{fleet} ticket fixed {ticket} --note 'GPU replaced'",
    ):
        say(f"  {line}")


def _begun(client: Client, story: Story) -> bool:
    """Has its tenant left already? Then the machine is on its way, or has been."""
    gone = (client.get(f"/v1/machines/{story.machine}").get("vacated_because") or {}).get("instance")
    return gone == story.instance or _validation(client, story) is not None


def _validation(client: Client, story: Story) -> Validation | None:
    """The one that tells the story: the first after its departure, or where an abort is tried again, the newest."""
    found = client.rows("/v1/validations", {"machine": story.machine})["items"]
    started = [v for v in found if v["trigger"] == "vacated"]
    return started[0 if story.retried else -1] if started else None


def _is_over(story: Story, machine: Mapping[str, Any], validation: Validation | None) -> bool:
    """An end of the service in the middle of a check aborts it; the machine waits, vacated, for another try."""
    if validation is None or validation.get("verdict") is None:
        return False
    again = story.retried and validation["verdict"] == "aborted" and machine["state"] in ("vacated", "validating")
    return not again


def _report(client: Client, story: Story, kind: str, id_: str) -> None:
    body = {"id": f"{id_}-{story.machine}", "kind": kind, "machine": story.machine, "instance": story.instance}
    client.post("/v1/events", body)


class _Table:
    """On a terminal: one table, drawn again at each look."""

    def __init__(self, update: Any) -> None:
        self._update = update

    def __call__(self, machines: Mapping[str, Any], found: Mapping[str, Validation]) -> None:
        self._update(table([_row(machines[name], found.get(name)) for name in machines], _LIVE), refresh=True)


class _Report:
    """Elsewhere: a line for each change, and for what had ended before, the verdict alone."""

    def __init__(self) -> None:
        self._running: dict[str, Lines] = {}
        self._ended: set[str] = set()

    def __call__(self, machines: Mapping[str, Any], found: Mapping[str, Validation]) -> None:
        for name, validation in found.items():
            id_, ended = str(validation["id"]), validation.get("verdict") is not None
            if not ended:
                self._running.setdefault(id_, Lines(sys.stdout, f"{name}  "))
            if id_ in self._running:
                self._running[id_](validation)
            if ended and id_ not in self._ended:
                self._ended.add(id_)
                say(f"{name}  {validation['verdict']}: {validation.get('reason')}")


@contextmanager
def _screen() -> Iterator[_Table | _Report]:
    if not sys.stdout.isatty():
        yield _Report()
        return
    from rich.live import Live

    with Live(console=console(), refresh_per_second=8) as live:
        yield _Table(live.update)


def _row(machine: Mapping[str, Any], validation: Validation | None) -> dict[str, Any]:
    seen = validation or {}
    return {
        "machine": machine["name"],
        "state": machine["state"],
        "phase": seen.get("phase") if seen.get("verdict") is None else "",
        "checks": _checks(seen.get("progress") or {}),
        "verdict": seen.get("verdict"),
    }


def _checks(progress: Mapping[str, Mapping[str, Any]]) -> str:
    """What runs and what failed by name, the others by number: `nccl running, 40 %, 3 passed`."""
    named, counts = [], Counter[str]()
    for name, check in progress.items():
        outcome = check.get("outcome")
        if check.get("state") == "running" or outcome == "failed":
            named.append(f"{name} {standing(check)}")
        elif outcome:
            counts[outcome] += 1
    return ", ".join([*named, *(f"{count} {outcome}" for outcome, count in counts.items())])
