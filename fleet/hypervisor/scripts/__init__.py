"""What runs on a host: POSIX sh, sent over SSH with each call, so that nothing has to be installed there first."""

import shlex
from functools import cache
from importlib import resources


@cache
def source(name: str) -> str:
    """The text of `name`.sh with the prelude before it; lines that are only comments stay on this side."""
    here = resources.files(__name__)
    text = "".join(here.joinpath(f"{part}.sh").read_text() for part in ("prelude", name))
    return "".join(f"{line}\n" for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))


def command(name: str, *arguments: str | int, sudo: bool = False) -> str:
    """A line for a login shell. Arguments are quoted; secrets do not belong in them, they show in process lists."""
    words = ["sh", "-c", source(name), f"fleet-{name}", *(str(argument) for argument in arguments)]
    return shlex.join(["sudo", "-n", *words] if sudo else words)
