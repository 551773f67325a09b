"""Tables and records as lines of text. Without a width nothing is cut or folded, for grep and awk. In a width, a column is
shown whole or not as a column: ids can be copied, and what has no room stands below its row, four lines of it at most."""

import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_GAP = "  "
_INDENT = "    "
_SENTENCE = 30
"""Columns that a sentence needs at least to be read beside the others."""
_MOST_LINES = 4
CUT = "…"

Cells = Sequence[str]


@dataclass(frozen=True)
class Laid:
    header: str
    body: Sequence[str]


def lay_out(titles: Cells, rows: Sequence[Cells], width: int | None) -> Laid:
    columns, sentence, below = _divided(titles, rows, width)
    wide = [max(columns_of(text) for text in (titles[c], *(row[c] for row in rows))) for c in columns]
    body = [line for row in rows for line in _row(row, titles, columns, wide, sentence, below, width)]
    last = [] if sentence is None else [titles[sentence]]
    return Laid(_line([*(titles[c] for c in columns), *last], wide), body)


def details(pairs: Sequence[tuple[str, str]], width: int | None) -> Iterator[str]:
    """A line a field; in a width, a value that is longer goes on below its own beginning."""
    indent = max((len(title) for title, _ in pairs), default=0) + len(_GAP)
    for title, value in pairs:
        room = 0 if width is None else width - indent
        lines = _folded(value, room) if room >= _SENTENCE else [value]
        yield f"{title:<{indent}}{lines[0]}"
        yield from (" " * indent + line for line in lines[1:])


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _divided(titles: Cells, rows: Sequence[Cells], width: int | None) -> tuple[list[int], int | None, list[int]]:
    """Which columns stand side by side, which one is a sentence beside them, and which stand below. Empty ones are left out."""
    if width is None:
        return list(range(len(titles))), None, []
    columns: list[int] = []
    below: list[int] = []
    used = 0
    for c, title in enumerate(titles):
        if not any(row[c] for row in rows):
            continue
        wide = max(columns_of(text) for text in (title, *(row[c] for row in rows)))
        if used + wide <= width:
            columns.append(c)
            used += wide + len(_GAP)
        else:
            below.append(c)
    if len(below) == 1 and width - used >= _SENTENCE and below[0] > max(columns, default=-1):
        return columns, below[0], []
    return columns, None, below


def _row(
    row: Cells,
    titles: Cells,
    columns: Sequence[int],
    wide: Sequence[int],
    sentence: int | None,
    below: Sequence[int],
    width: int | None,
) -> Iterator[str]:
    start = [row[c] for c in columns]
    if sentence is None or width is None:
        yield _line(start, wide)
    else:
        room = width - sum(wide) - len(_GAP) * len(wide)
        first, *rest = _shortened(row[sentence], room)
        yield _line([*start, first], wide)
        yield from (_line([*("" for _ in columns), line], wide) for line in rest)
    if width is not None:
        yield from _below([f"{titles[c].lower()}: {row[c]}" for c in below if row[c]], width - len(_INDENT))


def _below(said: Cells, room: int) -> Iterator[str]:
    """Short ones share a line."""
    line = ""
    for each in said:
        if line and columns_of(line) + len(_GAP) + columns_of(each) > room:
            yield from (_INDENT + part for part in _shortened(line, room))
            line = each
        else:
            line = f"{line}{_GAP}{each}" if line else each
    if line:
        yield from (_INDENT + part for part in _shortened(line, room))


def _shortened(text: str, room: int) -> list[str]:
    lines = _folded(text, room)
    if len(lines) <= _MOST_LINES:
        return lines
    return [*lines[: _MOST_LINES - 1], lines[_MOST_LINES - 1][: room - 1] + CUT]


def _folded(text: str, room: int) -> list[str]:
    """At spaces where there are any."""
    if columns_of(text) != len(text):  # a letter may take two columns
        room //= 2
    return textwrap.wrap(text, max(room, 1), break_on_hyphens=False, replace_whitespace=False) or [""]


def _line(cells: Cells, wide: Sequence[int]) -> str:
    """The last cell may be longer than its column, or have none."""
    padded = [cell + " " * (wide[n] - columns_of(cell)) if n < len(wide) else cell for n, cell in enumerate(cells)]
    return _GAP.join(padded).rstrip()
