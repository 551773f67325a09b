"""Processes of a step, wherever they went: each carries its step's mark in the environment, which a child keeps when it
leaves the process group, and which a reused process id does not have."""

from __future__ import annotations

import os
import signal
from typing import Iterator

VARIABLE = "FLEET_STEP"


def mark(directory: str, step: str = "") -> str:
    return directory + ":" + step


def kill(directory: str, step: str = "") -> int:
    """Kill everything that a step (empty: any step) of the run in `directory` left behind; returns how many."""
    wanted = "\0{}={}".format(VARIABLE, mark(directory, step)).encode() + (b"\0" if step else b"")
    killed = 0
    for _ in range(5):  # a process may fork while we look
        found = list(_marked(wanted))
        if not found:
            break
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                pass
    return killed


def _marked(wanted: bytes) -> Iterator[int]:
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open("/proc/{}/environ".format(entry), "rb") as file:
                environment = file.read()
        except OSError:  # gone, or another user's
            continue
        if wanted in b"\0" + environment:
            yield int(entry)
