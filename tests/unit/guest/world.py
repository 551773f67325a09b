"""A guest for tests: a directory as home, small scripts as tools, and a shell that is `sh -c`."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fleet.core.clock import Deadline
from fleet.core.errors import DeadlinePassed
from fleet.remote.base import Output
from fleet.workflows.guest import GuestOutput, GuestRun, GuestState, RunState

BOOT_ID = "11111111-2222-3333-4444-555555555555"
VALIDATION = "val-1"


class LocalShell:
    """The login shell of a guest without SSH. `prelude` is run before each command: limits, for example."""

    def __init__(self, home: Path, environment: Mapping[str, str], prelude: str = "") -> None:
        self.home, self.environment, self.prelude = home, environment, prelude

    def run(self, command: str, deadline: Deadline, *, stdin: bytes = b"", limit_bytes: int = 1 << 20) -> Output:
        argv = ["sh", "-c", self.prelude + command]
        try:
            ran = subprocess.run(
                argv, cwd=self.home, env=self.environment, input=stdin, capture_output=True, timeout=deadline.left_s
            )
        except subprocess.TimeoutExpired as exc:
            raise DeadlinePassed(command) from exc
        assert len(ran.stdout) <= limit_bytes
        return Output(ran.returncode, ran.stdout, ran.stderr)

    def close(self) -> None: ...


class Guest:
    """Everything it starts carries GUEST_HOME in its environment, by which `end` finds it."""

    def __init__(self, home: Path, prelude: str = "") -> None:
        self.home, self.root, self.tools = home / "home", home / "root", home / "tools"
        for directory in (self.home, self.root, self.tools):
            directory.mkdir(parents=True)
        self.reboot(BOOT_ID)
        path = f"{self.tools}:{os.environ['PATH']}"
        self.environment = {
            "HOME": str(self.home),
            "GUEST_HOME": str(self.home),
            "PATH": path,
            "FLEET_ROOT": str(self.root),
        }
        self.shell = LocalShell(self.home, self.environment, prelude)
        self.run = GuestRun(self.shell, VALIDATION)
        self.directory = self.home / "fleet" / VALIDATION

    def tool(self, name: str, script: str, interpreter: str = "/bin/sh") -> None:
        path = self.tools / name
        path.write_text(f"#!{interpreter}\n{script}")
        path.chmod(0o755)

    def reboot(self, boot_id: str) -> None:
        """Only the number: what ran is ended by `end`."""
        path = self.root / "proc/sys/kernel/random/boot_id"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{boot_id}\n")

    def begin(self, *stages: list[dict[str, Any]]) -> None:
        self.run.begin({"validation": VALIDATION, "stages": list(stages)}, soon())

    def wait(self) -> GuestState:
        """Until the run is over. No output is fetched on the way."""
        for _ in soon().poll(0.05):
            state = self.look()
            if state is not None and state.state is not RunState.RUNNING:
                return state
        raise AssertionError(f"the run does not end: {self.look()}")

    def look(self) -> GuestState | None:
        return self.run.poll((), 0, soon()).state

    def outputs(self, limit_bytes: int = 1 << 20) -> Mapping[str, GuestOutput]:
        return self.run.poll((), limit_bytes, soon()).outputs

    def processes(self) -> Iterator[tuple[int, bytes]]:
        """(process id, environment) of all that was started here and is alive."""
        wanted = f"GUEST_HOME={self.home}\0".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    environment = (entry / "environ").read_bytes()
                except OSError:
                    continue
                if wanted in environment:
                    yield int(entry.name), environment

    def supervisor(self) -> int:
        (pid,) = [pid for pid, environment in self.processes() if b"FLEET_STEP=" not in environment]
        return pid

    def end(self) -> None:
        """Power off."""
        for _ in soon().poll(0.02):
            found = [pid for pid, _ in self.processes()]
            if not found:
                return
            for pid in found:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


def step(name: str, *argv: str, deadline_s: float = 60, output_limit_bytes: int = 1 << 20) -> dict[str, Any]:
    return {"name": name, "argv": list(argv), "deadline_s": deadline_s, "output_limit_bytes": output_limit_bytes}


def soon() -> Deadline:
    return Deadline.after(60)
