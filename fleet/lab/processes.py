"""Ends the processes that ran on a simulated host or guest: found by their environment, since they may have left every
session and process group that the lab knows of."""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

_PASSES = 50


def end(marks: Mapping[str, str]) -> int:
    """Kill every process of ours whose environment has all of `marks`, until none is left; how many there were."""
    wanted = {f"{name}={value}".encode() for name, value in marks.items()}
    ended: set[int] = set()
    for _ in range(_PASSES):
        found = _find(wanted)
        if not found:
            break
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            ended.add(pid)
        time.sleep(0.002)  # a killed process stays visible for a moment; one that was forking may have a child now
    return len(ended)


def _find(wanted: set[bytes]) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue  # not ours, or gone
        if wanted <= set(environment.split(b"\0")):
            found.append(int(entry.name))
    return found
