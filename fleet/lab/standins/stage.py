"""What every stand-in stands on: the scene the lab keeps for its guest, and the recordings."""

import json
import os
import time
from collections.abc import Iterable
from typing import Any

_RECORDINGS = os.path.join(os.path.dirname(__file__), os.pardir, "recordings")


def scene() -> dict[str, Any]:
    """The guest as it is now: devices, faults, clock."""
    found: dict[str, Any] = json.loads(_read(os.environ["LAB_SCENE"]))
    return found


def recording(name: str) -> str:
    return _read(os.path.join(_RECORDINGS, name)).decode()


def read_text(path: str) -> str:
    """Empty where there is no such file."""
    return _read(path).decode() if os.path.exists(path) else ""


def say(text: str) -> None:
    """To stdout at once, as it is: carriage returns, control codes and (as surrogates) bytes that are no text included."""
    left = text.encode("utf-8", "surrogateescape")
    while left:
        left = left[os.write(1, left) :]


def complain(text: str) -> None:
    os.write(2, text.encode())


def replay(pieces: Iterable[str], seconds: float) -> None:
    """Print the pieces evenly over the time."""
    parts = list(pieces)
    started = time.monotonic()
    for index, piece in enumerate(parts, 1):
        say(piece)
        if (left := started + seconds * index / len(parts) - time.monotonic()) > 0:
            time.sleep(left)


def stamp(now: float) -> str:
    """As `date` prints it in the C locale, UTC."""
    return time.strftime("%a %b %e %H:%M:%S UTC %Y", time.gmtime(now))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
