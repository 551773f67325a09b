"""state.json: all that the orchestrator sees of a run, on one line, replaced as a whole, at most 64 KiB."""

from __future__ import annotations

import errno
import json
import os
import time
from typing import Any, Dict

LIMIT_BYTES = 64 << 10
TAIL_BYTES = 400
MAX_STEPS = 48  # times the largest record (about 1,100 bytes) stays under LIMIT_BYTES
REASON_CHARS = 400
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # EFBIG: the process's own limit on file sizes

RUNNING, DONE, STOPPED, BROKEN = "running", "done", "stopped", "broken"


class Record:
    """One step in the state. `ended` is a value of validators.base.Ended."""

    def __init__(self) -> None:
        self.state = "waiting"
        self.ended: str | None = None
        self.exit_status: int | None = None
        self.started_at: float | None = None
        self.duration_s: float | None = None
        self.stdout_bytes = 0
        self.stderr_bytes = 0
        self.truncated = False
        self.tail = ""

    def end(self, how: str) -> None:
        self.state, self.ended = "ended", how


class Unreadable(Exception):
    """state.json is there and is not what this runner writes."""


class StateFile:
    """`records` is what `write` puts under "checks"; the caller changes it in place."""

    def __init__(self, directory: str, records: Dict[str, Record]) -> None:
        self.records = records
        self.boot_id = boot_id()
        self._path = os.path.join(directory, "state.json")
        self._reserve = os.path.join(directory, "reserve")

    def write(self, state: str, reason: str = "") -> None:
        """Replace the file. A full disk is met from the reserve; OSError when even that is not enough."""
        data = self._encode(state, reason)
        try:
            self._replace(data)
        except OSError as exc:
            if exc.errno not in FULL:
                raise
            _remove(self._reserve)
            self._replace(data)
        if not os.path.exists(self._reserve):
            self._set_aside()

    def _encode(self, state: str, reason: str) -> bytes:
        document = {
            "version": 1,
            "state": state,
            "reason": plain(reason)[:REASON_CHARS],
            "boot_id": self.boot_id,
            "beat": round(time.clock_gettime(time.CLOCK_BOOTTIME), 2),  # the scale of /proc/uptime
            "checks": {name: vars(record) for name, record in self.records.items()},
        }
        return json.dumps(document, separators=(",", ":")).encode() + b"\n"

    def _replace(self, data: bytes) -> None:
        _write(self._path + ".new", data)
        os.replace(self._path + ".new", self._path)

    def _set_aside(self) -> None:
        try:
            _write(self._reserve, bytes(2 * LIMIT_BYTES))
        except OSError:
            _remove(self._reserve)


def read(directory: str) -> Any:
    """The state as a dict, or None where there is none. Raises Unreadable."""
    try:
        with open(os.path.join(directory, "state.json"), "rb") as file:
            document = json.loads(file.read(LIMIT_BYTES + 1).decode())
    except FileNotFoundError:
        return None
    except ValueError as exc:
        raise Unreadable("state.json: {}".format(exc)) from None
    if not isinstance(document, dict) or not isinstance(document.get("checks"), dict):
        raise Unreadable("state.json: not a state")
    return document


def boot_id() -> str:
    """Empty where the kernel does not tell."""
    try:
        with open(os.environ.get("FLEET_ROOT", "") + "/proc/sys/kernel/random/boot_id") as file:
            return file.read(64).strip()
    except OSError:
        return ""


def plain(text: str) -> str:
    """ASCII without control characters but line ends and tabs: two bytes a character at most once it is JSON."""
    return "".join(c if " " <= c <= "~" or c in "\r\n\t" else "?" for c in text)


def _write(path: str, data: bytes) -> None:
    try:
        with open(path, "wb", buffering=0) as file:
            while data:
                data = data[file.write(data) :]
    except OSError:
        _remove(path)  # half a file on a full disk would keep the space that is missing
        raise


def _remove(path: str) -> None:
    try:
        os.remove(path)
    except FileNotFoundError:
        pass
