"""The rack as a child process, for the service that wants one beside it."""

import contextlib
import os
import selectors
import subprocess
import sys
from pathlib import Path

from fleet.core.errors import InvalidInput, Unreachable
from fleet.lab import manifest
from fleet.lab.client import LabClient
from fleet.lab.hardware import MOST_MACHINES
from fleet.lab.manifest import Manifest
from fleet.lab.places import Places

_LAST_WORDS = 2000
_ENVIRONMENT = frozenset({"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH"})
"""What a child gets of ours: the service's environment may hold secrets, and hosts and guests inherit it."""


class LabProcess:
    """Ends with us, however we end: it watches its standard input."""

    def __init__(self, directory: Path, machines: int, listen: str = "127.0.0.1") -> None:
        if not 1 <= machines <= MOST_MACHINES:
            raise InvalidInput(f"a simulated rack has 1 to {MOST_MACHINES} machines, not {machines}", "lab")
        self._places, self._machines, self._listen = Places(directory.resolve()), machines, listen
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    def start(self, timeout_s: float = 20.0) -> Manifest:
        """Waits until the rack answers. Raises Unreachable with its last words when it does not come up."""
        self._places.base.mkdir(parents=True, exist_ok=True, mode=0o700)
        where = ["--dir", str(self._places.base), "--machines", str(self._machines), "--listen", self._listen]
        with self._places.log.open("ab") as log:
            log_start = log.tell()
            self._child = subprocess.Popen(
                [sys.executable, "-m", "fleet.lab", *where],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={name: value for name, value in os.environ.items() if name in _ENVIRONMENT},
                start_new_session=True,  # a Ctrl-C at the terminal is ours to handle, in order
            )
        if not self._ready(self._child, timeout_s):
            self.stop()
            words = self._places.log.read_bytes()[log_start:][-_LAST_WORDS:].decode(errors="replace").strip()
            raise Unreachable(f"the simulated rack in {self._places.base} did not start: {words or 'no reason given'}")
        return manifest.read(self._places.manifest)

    def client(self) -> LabClient:
        control = manifest.read(self._places.manifest).control
        return LabClient(control.url, control.secret)

    def stop(self, timeout_s: float = 10.0) -> None:
        """Everything that runs in the rack ends; its state stays."""
        child, self._child = self._child, None
        if child is None:
            return
        child.terminate()
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()

    @staticmethod
    def _ready(child: subprocess.Popen[bytes], timeout_s: float) -> bool:
        assert child.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            return bool(selector.select(timeout_s)) and child.stdout.readline() == b"ready\n"
