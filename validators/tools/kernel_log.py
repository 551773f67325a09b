"""Kernel messages: `dmesg` in each of its time formats, /dev/kmsg, the journal, syslog and a serial console.

Every line is freed from its stamps and classed by the catalogue (``validators.catalogue``)."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from validators.catalogue import Catalogue, Evidence, LinePattern, catalogue
from validators.tools.lines import lines, printable

_PREFIXES = (
    re.compile(r"\d{1,3},\d{1,20},(?P<relative_us>\d{1,20}),[^;]{1,40};"),  # /dev/kmsg
    re.compile(r"<\d{1,3}>"),
    re.compile(r"\[ *(?P<relative_s>\d{1,12}\.\d{1,9})\]"),  # dmesg, console
    re.compile(r"\[(?P<ctime>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\]"),  # dmesg -T
    re.compile(r"[a-z0-9]{3,8} *:[a-z]{3,6} *: "),  # dmesg --decode
    re.compile(r"(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?P<zone>Z|[+-]\d\d:?\d\d)?)(?=\s|$)"),
    re.compile(r"(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d)(?= )"),  # syslog: no year
    re.compile(r"(?:[A-Za-z0-9._-]{1,253} )?kernel(?:\[\d+\])?:"),  # syslog and journal, host name before
)
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{4,20})[^)]{0,40}\): (?P<code>\d{1,3})\b(?P<rest>.{0,1000})"
)
_SXID = re.compile(
    r"\bSXid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{4,20})\): (?P<code>\d{5}), (?P<severity>Fatal|Non-fatal)\b"
)
_RECOVERY = re.compile(r"recovery action changed from .{0,80}\bto 0x[0-9a-f]+ \((?P<to>[^)]{1,60})\)")
_FATAL = re.compile(r"\bFatal\b")
_PCI = re.compile(r"\b[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?\b")
_DISK = re.compile(r"\b(nvme\d+(?:n\d+)?|sd[a-z]+|md\d+|dm-\d+)\b")
_MAX_EVENTS = 20_000
_MAX_MESSAGE = 1_000  # the kernel's own limit for one record is about this


@dataclass(frozen=True)
class LogLine:
    """`at` is wall time (seconds since the epoch), None for a relative or missing stamp. `zoned` is False where the stamp
    names no time zone: then `at` reads it as UTC and may be off by half a day."""

    message: str
    at: float | None
    zoned: bool


@dataclass(frozen=True)
class KernelEvent:
    """A line that the catalogue knows. `code` is snake_case: `xid_79`, `sxid_24007`, or the id of a kernel line; `device` a
    PCI address as printed or a disk's name."""

    code: str
    evidence: Evidence
    means: str
    device: str | None
    line: LogLine
    repeat: int | None = None
    number: int | None = None  # the Xid or SXid


@dataclass(frozen=True)
class KernelLog:
    lines: int
    events: tuple[KernelEvent, ...]


def parse(output: str) -> KernelLog:
    """Reads any text: a log without a known line is a log without events."""
    known = catalogue()
    count = 0
    events: list[KernelEvent] = []
    for raw in lines(output):
        if not raw.strip():
            continue
        count += 1
        if len(events) < _MAX_EVENTS and (event := _classify(raw[:_MAX_MESSAGE], known)):
            events.append(event)
    return KernelLog(count, tuple(events))


def stamped(raw: str) -> LogLine:
    """The message of one line without its stamps, and when it was written."""
    at, zoned, rest = None, False, raw.strip()
    for _ in range(8):
        found = next((match for prefix in _PREFIXES if (match := prefix.match(rest))), None)
        if found is None:
            break
        named = found.groupdict()
        for text, form in ((named.get("iso"), None), (named.get("ctime"), "%a %b %d %H:%M:%S %Y")):
            if text and (moment := _moment(text, form)) is not None:
                at, zoned = moment.timestamp(), bool(named.get("zone"))
        rest = rest[found.end() :].lstrip()
    return LogLine(printable(rest, 500), at, zoned)


def _moment(text: str, form: str | None) -> datetime | None:
    try:
        moment = datetime.strptime(text, form) if form else datetime.fromisoformat(text.replace(",", "."))  # noqa: DTZ007
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _classify(raw: str, known: Catalogue) -> KernelEvent | None:
    if xid := _XID.search(raw):
        return _xid(xid, stamped(raw), known)
    if sxid := _SXID.search(raw):
        code = int(sxid["code"])
        evidence = Evidence.HARDWARE if sxid["severity"] == "Fatal" else Evidence.SUSPECT
        means = f"{sxid['severity']} NVSwitch error: {known.sxids.get(code, 'a code that is not in the catalogue')}"
        return KernelEvent(f"sxid_{code}", evidence, means, sxid["pci"], stamped(raw), number=code)
    for pattern in known.lines:
        if pattern.match.search(raw):
            return _line(pattern, stamped(raw))
    return None


def _xid(found: re.Match[str], line: LogLine, known: Catalogue) -> KernelEvent:
    code = int(found["code"])
    row = known.xids.get(code)
    evidence = row.evidence if row else Evidence.SUSPECT
    means = row.means if row else "a code that is not in the catalogue"
    if evidence is Evidence.FATAL:
        evidence = Evidence.HARDWARE if _FATAL.search(found["rest"]) else Evidence.SUSPECT
    elif evidence is Evidence.ACTION:
        recovery = _RECOVERY.search(found["rest"])
        evidence = known.recovery.get(recovery["to"], Evidence.SUSPECT) if recovery else Evidence.SUSPECT
        means = f"the driver asks for: {recovery['to']}" if recovery else means
    return KernelEvent(f"xid_{code}", evidence, means, found["pci"], line, number=code)


def _line(pattern: LinePattern, line: LogLine) -> KernelEvent:
    named = _PCI.search(line.message) or _DISK.search(line.message)
    device = named[0] if named else None
    return KernelEvent(pattern.id, pattern.evidence, pattern.means, device, line, pattern.repeat)
