"""What every stand-in stands on: the scene the lab keeps for its guest, the recordings, and the line to the lab."""

import json
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_RECORDINGS = Path(__file__).parent.parent / "recordings"
_ANSWER_LIMIT = 4 << 20


def scene() -> dict[str, Any]:
    """The guest as it is now: devices, faults, clock."""
    found: dict[str, Any] = json.loads(Path(os.environ["LAB_SCENE"]).read_bytes())
    return found


def recording(name: str) -> str:
    return (_RECORDINGS / name).read_bytes().decode()


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


def tell(event: str) -> None:
    """Let the lab know what happened to the hardware; nobody there: then nothing comes of it."""
    try:
        ask({"host": os.environ["LAB_HOST"], "guest": os.environ["LAB_GUEST"], "event": event}, timeout_s=5.0)
    except (OSError, ValueError):
        return


def ask(request: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
    """One question to the lab, one answer. Raises OSError when it is not there, ValueError when it broke off."""
    path = Path(os.environ["LAB_SOCKET"])
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(timeout_s)
            line.connect(f"/proc/self/fd/{folder}/{path.name}")  # a socket's own path may be too long for its address
            line.sendall(json.dumps(request).encode() + b"\n")
            received = b""
            while len(received) < _ANSWER_LIMIT and (data := line.recv(1 << 16)):
                received += data
    finally:
        os.close(folder)
    answer: dict[str, Any] = json.loads(received)
    return answer


def stamp(now: float) -> str:
    """As `date` prints it in the C locale, UTC."""
    return time.strftime("%a %b %e %H:%M:%S UTC %Y", time.gmtime(now))
