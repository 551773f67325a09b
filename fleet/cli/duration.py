"""Lengths of time as people write them on a command line: `90s`, `45m`, `12h`, `30d`, `2w`."""

import re
from typing import Annotated

import typer

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def seconds(text: str) -> int:
    """Raises BadParameter for anything but a whole number above zero and a unit."""
    found = re.fullmatch(r"([0-9]{1,9})([smhdw])", text)
    if found is None or int(found[1]) == 0:
        raise typer.BadParameter(f"{text!r} is not a time such as 12h or 30d (s, m, h, d, w)")
    return int(found[1]) * _SECONDS[found[2]]


Expires = Annotated[
    int | None,
    typer.Option("--expires", metavar="TIME", parser=seconds, help="From now, such as 12h or 30d; never if left out."),
]
