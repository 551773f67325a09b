"""What a ticket says: a title a person can act on, the failed numbers against their limits, and the last log lines."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import jinja2

from fleet.core.model import Machine


class FindingLike(Protocol):
    @property
    def device(self) -> str | None: ...
    @property
    def code(self) -> str: ...
    @property
    def outcome(self) -> str: ...
    @property
    def reason(self) -> str: ...


class ResultLike(Protocol):
    """A check's result, as the validators give it."""

    @property
    def check(self) -> str: ...
    @property
    def outcome(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def findings(self) -> Sequence[FindingLike]: ...


@dataclass(frozen=True)
class Report:
    """Everything a ticket is written from. `failed` names the checks that condemned the machine, in the plan's order."""

    machine: Machine
    validation: str
    plan: str
    results: Sequence[ResultLike]
    failed: Sequence[str]
    log: Sequence[str] = ()


@dataclass(frozen=True)
class TicketText:
    """`cause` is stable over repeats of the same fault: check and code of the first failed finding, and its device."""

    title: str
    body: str
    cause: str


_BODY = jinja2.Environment(
    loader=jinja2.PackageLoader("ticketing"),
    autoescape=False,  # noqa: S701 - plain text for terminals and mail, never HTML
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
).get_template("ticket.txt.j2")


def render(report: Report) -> TicketText:
    """The text of a ticket. Control characters of guests and logs are made visible: it is shown in terminals."""
    failures = [
        _Failure(r.check, f.device, f.code, _plain(f.reason))
        for name in report.failed
        for r in report.results
        if r.check == name
        for f in r.findings
        if f.outcome == "failed"
    ]
    first = failures[0]
    where = f"{first.device}: " if first.device else ""
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    title = f"{report.machine.name}: {first.check}: {where}{first.reason}{more}"[:300]
    text = " ".join(f"{f.device or ''} {f.reason}" for f in failures)
    slots = [s for s in report.machine.slots if _named(text, s.slot, s.pci, s.serial, s.guid)]
    body = _BODY.render(
        title=title,
        m=report.machine,
        validation=report.validation,
        plan=report.plan,
        failures=failures,
        results=[_Failure(r.check, None, "", _plain(r.reason), r.outcome) for r in report.results],
        slots=slots,
        log=[_plain(line) for line in report.log[-50:]],
    )
    return TicketText(title=title, body=body, cause=f"{first.check}/{first.code}")


@dataclass(frozen=True)
class _Failure:
    check: str
    device: str | None
    code: str
    reason: str
    outcome: str = "failed"


def _named(text: str, *words: str | None) -> bool:
    return any(word is not None and word in text for word in words)


def _plain(text: str) -> str:
    """Printable, on one line, at most 500 characters."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)[:500]
