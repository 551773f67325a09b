"""kernel_log: what the kernels of guest and host said while the machine was tested, and the VM's serial console.

The control plane collects all three. A line condemns when the catalogue classes it as hardware evidence and it is of this
validation: the VM was born in it, so whatever guest and console say counts, whatever the guest's clock says; a host's line
counts when its stamp is not older than the claim."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from validators.base import Check, CheckResult, Ended, Finding, Measurement, Subject, conclude, failed, not_run, passed
from validators.catalogue import Evidence
from validators.record import not_applicable, of_check, same_pci
from validators.tools import kernel_log
from validators.tools.kernel_log import KernelEvent

NAME = "kernel_log"
_SOURCES = ("guest", "host", "console")
_ZONE_S = 14 * 3600  # a stamp without a zone is at most this far from the same clock in UTC
_MAX_INCIDENTS = 200


@dataclass(frozen=True)
class _Incident:
    """All lines of one code for one device in one log."""

    source: str
    device: str | None
    events: tuple[KernelEvent, ...]

    @property
    def evidence(self) -> Evidence:
        if any(event.evidence is Evidence.HARDWARE for event in self.events):
            return Evidence.HARDWARE
        repeat = self.events[0].repeat
        return Evidence.HARDWARE if repeat and len(self.events) >= repeat else self.events[0].evidence

    @property
    def worst(self) -> KernelEvent:
        return next((e for e in self.events if e.evidence is Evidence.HARDWARE), self.events[0])


def judge(measurements: Sequence[Measurement], subject: Subject) -> CheckResult:
    if skipping := not_applicable(NAME, subject):
        return skipping
    findings: list[Finding] = []
    facts: dict[str, Any] = {}
    read: list[str] = []
    speaks_for_guest = False
    for measurement in sorted(of_check(NAME, measurements), key=_order):
        source = _source(measurement)
        log = kernel_log.parse(measurement.stdout)
        facts[f"{source}_lines"] = log.lines
        told = {(finding.code, finding.device) for finding in findings}  # the console repeats what the guest's log says
        findings += [f for f in _incidents(source, log.events, subject, facts) if (f.code, f.device) not in told]
        findings += _gaps(source, measurement)
        if _was_read(measurement):
            read.append(source)
        speaks_for_guest |= source == "guest" and _was_read(measurement)
        speaks_for_guest |= source == "console" and log.lines > 0 and not measurement.truncated
    if not speaks_for_guest:
        # Xids are the guest's: the host's kernel does not drive these devices
        findings.append(not_run("no_log", "the guest's kernel log could not be read, and its console shows nothing"))
    elif not findings:
        findings.append(passed("clean", f"no hardware error in the log of {', '.join(read)}"))
    return conclude(NAME, findings, facts)


def _source(measurement: Measurement) -> str:
    return measurement.name.partition(".")[2] or "guest"


def _order(measurement: Measurement) -> int:
    source = _source(measurement)
    return _SOURCES.index(source) if source in _SOURCES else len(_SOURCES)


def _was_read(measurement: Measurement) -> bool:
    """An empty log is a log, unless the command that should print it failed."""
    return measurement.ended is Ended.EXITED and (bool(measurement.stdout.strip()) or not measurement.exit_status)


def _gaps(source: str, measurement: Measurement) -> Iterator[Finding]:
    """A cut console is no gap beside the guest's log, which it repeats."""
    if source != "console" and measurement.ended is Ended.EXITED and measurement.truncated:
        yield not_run(
            "truncated", f"the {source}'s kernel log is longer than what is kept of it: only its end was read"
        )


def _incidents(
    source: str, events: Sequence[KernelEvent], subject: Subject, facts: dict[str, Any]
) -> Iterator[Finding]:
    groups: dict[tuple[str, str | None], list[KernelEvent]] = {}
    undated = 0
    for event in events:
        if event.evidence is Evidence.HARMLESS:
            continue
        is_ours = _is_ours(source, event, subject.since)
        if is_ours is None and event.evidence is Evidence.HARDWARE:
            undated += 1
        if is_ours:
            groups.setdefault((event.code, _device(source, event, subject)), []).append(event)
    counts = Counter({code: 0 for code, _ in groups})
    for (code, device), group in list(groups.items())[:_MAX_INCIDENTS]:
        counts[code] += len(group)
        incident = _Incident(source, device, tuple(group))
        if incident.evidence is Evidence.HARDWARE:
            yield _finding(code, incident)
    facts |= {f"{source}_{code}_lines": count for code, count in sorted(counts.items())}
    if undated:
        yield not_run(
            "undated", f"{undated} hardware lines in the {source}'s log have no date: are they of this validation?"
        )


def _is_ours(source: str, event: KernelEvent, since: float | None) -> bool | None:
    """None where it cannot be told."""
    if source != "host" or since is None:
        return True
    at = event.line.at
    if at is None:
        return None
    slack = 0 if event.line.zoned else _ZONE_S
    if at + slack < since:
        return False
    return True if at - slack >= since else None


def _device(source: str, event: KernelEvent, subject: Subject) -> str | None:
    """The slot whose address, in that kernel's numbering, the line names; else what the line says."""
    address = "pci" if source == "host" else "guest_pci"
    slot = next((slot for slot in subject.slots if same_pci(slot.get(address), event.device)), None)
    return str(slot["slot"]) if slot else event.device


def _finding(code: str, incident: _Incident) -> Finding:
    event = incident.worst
    times = f", {len(incident.events)} lines" if len(incident.events) > 1 else ""
    name = (
        f"Xid {event.number}"
        if code.startswith("xid_")
        else f"SXid {event.number}"
        if code.startswith("sxid_")
        else code
    )
    place = f" at {event.device}" if event.device else ""
    reason = f"{name}{place} in the {incident.source}'s log{times}: {event.means}: {event.line.message}"
    return failed(code, reason, incident.device)


CHECK = Check(NAME, "Kernel logs", judge)
