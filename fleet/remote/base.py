"""A shell on another machine, as the rest of the service sees it."""

from dataclasses import dataclass
from typing import Protocol

from fleet.core.clock import Deadline


@dataclass(frozen=True)
class Output:
    """What a command printed. `exit_status` is -1 when a signal ended it (SSH says so apart from the number)."""

    exit_status: int
    stdout: bytes
    stderr: bytes


class Shell(Protocol):
    """Every call is bounded in time by `deadline` and in size by `limit_bytes`, both while reading.

    Raises Unreachable, LoginRefused, HostKeyRefused (nothing happened); DeadlinePassed, ConnectionBroken, OutputTooLarge
    (it may have happened anyway); CommandNotFound (exit status 127 and the shell's own words)."""

    def run(self, command: str, deadline: Deadline, *, stdin: bytes = b"", limit_bytes: int = 1 << 20) -> Output:
        """Run `command` by the login shell. The caller quotes (shlex); a non-zero exit status is an answer, not an error."""

    def close(self) -> None: ...
