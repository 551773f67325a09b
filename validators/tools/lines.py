"""Raw output as lines: without colours, carriage-return progress and launchers' labels, and bounded.

A GPU tool's output passes through a pty, mpirun or srun before it is stored, and each of them adds its own."""

import re
from collections.abc import Iterator

MAX_LINES = 400_000
MAX_LINE = 4_000  # characters; longer lines are cut: no tool here prints a figure beyond

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[ -/]?[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)?|[@-Z\\-_])")
_BREAK = re.compile(r"\r\n|\n|\r")
_LABEL = re.compile(r"^(?:\[\d{1,4},\d{1,5}\]<std(?:out|err|diag)>:|\s{0,4}\d{1,5}: )")  # mpirun --tag-output, srun -l


def lines(output: str) -> Iterator[str]:
    """Lines without line ends or colours; a carriage return ends a line as a newline does. Empty lines are kept."""
    start = 0
    for _ in range(MAX_LINES):
        found = _BREAK.search(output, start)
        end = found.start() if found else len(output)
        line = output[start : min(end, start + MAX_LINE)]
        yield _ANSI.sub("", line) if "\x1b" in line else line
        if found is None:
            return
        start = found.end()


def unlabelled(output: str) -> Iterator[str]:
    """`lines` without the task label that mpirun or srun puts before each."""
    for line in lines(output):
        yield _LABEL.sub("", line, count=1)


def printable(text: str, limit: int = 300) -> str:
    """`text` on one line, with control characters replaced and cut at `limit`: safe to put into a reason."""
    shown = "".join(c if c.isprintable() else " " for c in text[: 4 * limit])
    shown = " ".join(shown.split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
