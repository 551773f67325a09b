"""What a person or a script reads: tables and sentences, or one JSON document. Nothing reaches a terminal unescaped."""

import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, TextIO

from fleet.cli.layout import details, lay_out

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Row = Mapping[str, Any]
Column = tuple[str, str | Callable[[Row], object]]
"""A title, and the key of the cell or the function that makes it."""

_PIPE_WIDTH = 1 << 16
"""Columns of a table that no terminal shows: wide enough that nothing is cut or wrapped on its way to grep."""

_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Unicode categories that move a cursor, turn the direction of text, or cannot be printed."""


def printable(value: object, keep: str = "") -> str:
    """`value` as text in which every control and format character, except those in `keep`, is written out (`\\x1b`)."""
    text = "" if value is None else str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c if c in keep or unicodedata.category(c) not in _HARMFUL else c.encode("unicode_escape").decode() for c in text
    )


def print_json(document: object) -> None:
    """One document, ASCII only: what a terminal would obey is written as `\\u001b`."""
    text = json.dumps(document, indent=2, ensure_ascii=True).replace("\x7f", "\\u007f")
    sys.stdout.write(text + "\n")


def print_text(text: str) -> None:
    """Text of several lines, such as a log or a ticket's body."""
    text = printable(text, keep="\n\t")
    sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")


def say(sentence: str) -> None:
    sys.stdout.write(printable(sentence, keep="\n\t") + "\n")


def complain(sentence: str) -> None:
    """A sentence for the person that is no part of the answer."""
    sys.stderr.write(printable(sentence, keep="\n\t") + "\n")


def console(stream: TextIO | None = None) -> "Console":
    from rich.console import Console

    stream = stream or sys.stdout
    return Console(file=stream, width=None if stream.isatty() else _PIPE_WIDTH, highlight=False)


def table(rows: Iterable[Row], columns: Sequence[Column]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title, _ in columns:
        grid.add_column(title, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(printable(cell(row))) for cell in map(_cell, columns)))
    return grid


def print_table(rows: Sequence[Row], columns: Sequence[Column], nothing: str) -> None:
    """`nothing` is said where there are no rows: an empty table answers no question."""
    if not rows:
        say(nothing)
        return
    cells = [_cell(column) for column in columns]
    texts = [[printable(cell(row)) for cell in cells] for row in rows]
    laid = lay_out([title for title, _ in columns], texts, _width())
    sys.stdout.write((f"\x1b[1m{laid.header}\x1b[0m" if _is_styled() else laid.header) + "\n")
    sys.stdout.writelines(line + "\n" for line in laid.body)


def print_details(pairs: Iterable[tuple[str, object]]) -> None:
    """One object, a line per field; fields without a value are left out."""
    shown = [(title, printable(value)) for title, value in pairs if value not in (None, "", [], {})]
    sys.stdout.writelines(line + "\n" for line in details(shown, _width()))


def _width() -> int | None:
    """None where no terminal shows it."""
    return get_terminal_size().columns if sys.stdout.isatty() else None


def _is_styled() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("NO_COLOR")


def time(value: object) -> str:
    """An RFC 3339 time to the second, for a table."""
    text = "" if value is None else str(value)
    return text[:19].replace("T", " ") + ("Z" if len(text) > 19 else "")


def _cell(column: Column) -> Callable[[Row], object]:
    _, key = column
    return key if callable(key) else lambda row: row.get(key)
