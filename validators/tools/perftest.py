"""perftest (`ib_write_bw` and its siblings, `ib_write_lat`), text form. Bandwidth is given in Gb/s (10^9 bit/s) whatever the
tool was asked for: its "MB/sec" counts 2^20 bytes. In a loopback run server and client print the same row; it counts once."""

import re
from dataclasses import dataclass

from validators.tools.errors import ParseError
from validators.tools.lines import printable, unlabelled
from validators.tools.numbers import number, whole

_HEADER = re.compile(r"#bytes\s+#iterations\s+BW peak\[([A-Za-z]{1,4}/s(?:ec)?)\]\s+BW average\[")
_LATENCY_HEADER = re.compile(r"#bytes\s+#iterations\s+t_min\[usec\]")
_DEVICE = re.compile(r"\bDevice\s+:\s+(\S{1,64})")
_LINK = re.compile(r"\bLink type\s+:\s+(\S{1,32})")
_FAILURE = re.compile(
    r"Couldn't |Failed (?:to|status)|Completion with error|Unable to |not found|No such|IB device .* not|Port number .* state"
)
_GBPS_PER_UNIT = {"mb/s": 2**20 * 8 / 1e9, "mib/s": 2**20 * 8 / 1e9, "gb/s": 1.0}
_RULE = "-" * 40
_MAX_ROWS = 1_000


@dataclass(frozen=True)
class BandwidthRow:
    """`peak_gbps` is None where the tool does not measure it (duration mode prints 0.00)."""

    size_bytes: int
    iterations: int
    peak_gbps: float | None
    average_gbps: float


@dataclass(frozen=True)
class LatencyRow:
    size_bytes: int
    iterations: int
    average_us: float
    p99_us: float


@dataclass(frozen=True)
class PerftestRun:
    """`rows` has one row a size: the lower average where two differ. `complete` says that a rule was drawn under the last row:
    a sweep that was cut ends at a size which is slow on any card."""

    rows: tuple[BandwidthRow, ...]
    latency: tuple[LatencyRow, ...]
    device: str | None
    link_type: str | None
    errors: tuple[str, ...]
    complete: bool

    @property
    def largest(self) -> BandwidthRow:
        return max(self.rows, key=lambda row: row.size_bytes)


def parse(output: str) -> PerftestRun:
    """Raises ParseError when nothing of perftest is in the text."""
    rows: dict[int, BandwidthRow] = {}
    latency: dict[int, LatencyRow] = {}
    errors: list[str] = []
    device = link_type = None
    unit: float | None = None
    reads_latency = complete = False
    for line in unlabelled(output):
        if found := _HEADER.search(line):
            unit, reads_latency = _GBPS_PER_UNIT.get(found[1].lower().removesuffix("ec")), False
        elif _LATENCY_HEADER.search(line):
            unit, reads_latency = None, True
        elif unit is not None and (row := _bandwidth(line.split(), unit)):
            seen = rows.get(row.size_bytes)
            complete = False
            if (seen is None and len(rows) < _MAX_ROWS) or (seen and row.average_gbps < seen.average_gbps):
                rows[row.size_bytes] = row
        elif reads_latency and (read := _latency(line.split())) and len(latency) < _MAX_ROWS:
            latency[read.size_bytes] = read
        elif line.strip().startswith(_RULE):
            complete = bool(rows or latency)
        elif _FAILURE.search(line):
            errors.append(printable(line))
        if device is None and (found := _DEVICE.search(line)):
            device = found[1]
        if link_type is None and (found := _LINK.search(line)):
            link_type = found[1]
    if not (rows or latency or errors or device or unit is not None or reads_latency):
        raise ParseError("no table, no header and no error of perftest")
    by_size = tuple(rows[size] for size in sorted(rows))
    by_latency = tuple(latency[size] for size in sorted(latency))
    return PerftestRun(by_size, by_latency, device, link_type, tuple(errors[:20]), complete)


def _bandwidth(words: list[str], unit: float) -> BandwidthRow | None:
    if len(words) != 5:
        return None
    size, iterations = whole(words[0]), whole(words[1])
    peak, average, rate = number(words[2]), number(words[3]), number(words[4])
    if not size or not iterations or peak is None or average is None or rate is None or peak < 0 or average < 0:
        return None
    return BandwidthRow(size, iterations, round(peak * unit, 3) if peak else None, round(average * unit, 3))


def _latency(words: list[str]) -> LatencyRow | None:
    if len(words) != 9:
        return None
    size, iterations, average, p99 = whole(words[0]), whole(words[1]), number(words[5]), number(words[7])
    if not size or not iterations or average is None or p99 is None:
        return None
    return LatencyRow(size, iterations, average, p99)
