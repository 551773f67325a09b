"""nccl-tests (`all_reduce_perf` and its siblings), every table layout since 2019.

A row ends with two groups of four: time, algbw, busbw and wrong, out of place and in place; what precedes them (redop, root)
changed over the years, so rows are read from the right. Bandwidth is in GB/s (10^9 bytes)."""

import re
from dataclasses import dataclass

from validators.tools.errors import ParseError
from validators.tools.lines import printable, unlabelled
from validators.tools.numbers import number, whole

_RANK = re.compile(
    r"#\s+Rank\s+(?P<rank>\d{1,6})\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(?P<host>\S+)\s+device\s+(?P<device>\d{1,3})\s+\[[^]]*\]\s*(?P<name>.*)"
)
_VERSION = re.compile(r"NCCL version (\S{1,60})")
_MAX_BYTES = re.compile(r"#.*\bmaxBytes\s+(\d{1,18})\b")
_OUT_OF_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d{1,18})\s+(OK|FAILED)\b")
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*(\S+)")
_WRONG_HEADER = re.compile(r"#.*\bbusbw\s+#wrong\b")
_ERROR = re.compile(r"Test (?:NCCL|CUDA) failure")
_WARNING = re.compile(r"NCCL WARN|Got completion (?:from peer|with error)|status=IBV_WC_\w+")
_TRANSPORT = re.compile(r"status=IBV_WC_RETRY_EXC_ERR|completion with error 12\b")
_HCA = re.compile(r"\bhca (\w{1,32})")
_MAX_ROWS = 10_000


@dataclass(frozen=True)
class NcclRow:
    """`wrong` counts values that came out wrong (None: not validated, or the old layout, which prints a deviation)."""

    size_bytes: int
    time_us: float
    busbw_gbs: float
    in_place_busbw_gbs: float
    validated: bool
    wrong: float | None


@dataclass(frozen=True)
class NcclRank:
    rank: int
    host: str
    device: int
    name: str


@dataclass(frozen=True)
class NcclRun:
    """`out_of_bounds` and `average_busbw_gbs` are the trailer; without both the output is not complete."""

    rows: tuple[NcclRow, ...]
    ranks: tuple[NcclRank, ...]
    max_bytes: int | None  # asked for, from the header
    out_of_bounds: int | None
    average_busbw_gbs: float | None
    errors: tuple[str, ...]  # the test gave up
    warnings: tuple[str, ...]  # of NCCL itself, which may have gone on
    nccl_version: str | None
    transport_error: str | None  # the HCA named with a "retry exceeded" completion, "" when none is named

    @property
    def complete(self) -> bool:
        return self.out_of_bounds is not None and self.average_busbw_gbs is not None

    @property
    def validated(self) -> bool:
        return bool(self.rows) and all(row.validated for row in self.rows)

    @property
    def largest(self) -> NcclRow:
        return max(self.rows, key=lambda row: row.size_bytes)

    @property
    def wrong(self) -> tuple[NcclRow, ...]:
        return tuple(row for row in self.rows if row.wrong)


def parse(output: str) -> NcclRun:
    """Raises ParseError when there is neither a row, a header nor an error that nccl-tests prints."""
    rows: list[NcclRow] = []
    ranks: dict[int, NcclRank] = {}
    errors: list[str] = []
    warnings: list[str] = []
    max_bytes = out_of_bounds = average = version = None
    counts_wrong = recognised = False
    transport: str | None = None
    lines = list(unlabelled(output))
    if lines and not output.endswith(("\n", "\r")) and lines[-1].lstrip()[:1].isdigit():
        lines.pop()  # cut in the middle: what is left of a row can read like one with other columns
    for line in lines:
        if line.lstrip().startswith("#"):
            text = line.strip()
            if rank := _RANK.match(text):
                number_ = int(rank["rank"])
                ranks[number_] = NcclRank(number_, rank["host"], int(rank["device"]), printable(rank["name"], 80))
            elif found := _OUT_OF_BOUNDS.match(text):
                out_of_bounds = int(found[1])
            elif found := _AVERAGE.match(text):
                average = number(found[1])
            elif found := _MAX_BYTES.match(text):
                max_bytes = int(found[1])
            elif _WRONG_HEADER.match(text):
                counts_wrong = recognised = True
            elif "busbw" in text:
                recognised = True
        elif (row := _row(line.split(), counts_wrong)) and len(rows) < _MAX_ROWS:
            rows.append(row)
        elif found := _VERSION.search(line):
            version = printable(found[1], 60)
        elif _ERROR.search(line):
            errors.append(printable(line))
        elif _WARNING.search(line):
            warnings.append(printable(line))
        if _TRANSPORT.search(line):
            transport = transport or ""
        if transport == "" and (hca := _HCA.search(line)):
            transport = hca[1]
    if not (rows or ranks or errors or warnings or recognised or max_bytes is not None):
        raise ParseError("no table, no header and no error of nccl-tests")
    return NcclRun(
        rows=tuple(rows),
        ranks=tuple(ranks[rank] for rank in sorted(ranks)),
        max_bytes=max_bytes,
        out_of_bounds=out_of_bounds,
        average_busbw_gbs=average,
        errors=tuple(errors[:20]),
        warnings=tuple(warnings[:20]),
        nccl_version=version,
        transport_error=transport,
    )


def _row(words: list[str], counts_wrong: bool) -> NcclRow | None:
    if not 11 <= len(words) <= 13:
        return None
    size, count = whole(words[0]), whole(words[1])
    if size is None or count is None or not words[2][0].isalpha():
        return None
    group = [number(word) for word in words[-8:]]
    time, busbw, in_place_busbw = group[0], group[2], group[6]
    if time is None or busbw is None or in_place_busbw is None or group[1] is None or group[4] is None:
        return None
    checked = [value for value in (group[3], group[7]) if value is not None]
    # `#wrong` of a size may be checked on one side only: all_gather in place reads N/A in some releases
    wrong = max(checked) if counts_wrong and checked else None
    return NcclRow(size, time, busbw, in_place_busbw, validated=bool(checked), wrong=wrong)
