"""A hook that is a program on the worker's machine: JSON on its standard input, the answer in its exit status."""

import json
import os
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fleet.core.clock import Deadline
from fleet.hooks.base import ANSWER_LIMIT_BYTES, Answer, Reply, yes
from fleet.remote.printable import printable

NOT_YET_STATUS = os.EX_TEMPFAIL
"""75: "try again later" in sysexits.h."""
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
"""All that a hook gets of ours: the service's own environment may hold secrets."""
_PIPE_BYTES = 64 << 10  # what Linux keeps in a pipe: one read after the end gets all of it
_WORDS_BYTES = 600
_END_S = 1.0


@dataclass(frozen=True)
class CommandHook:
    """`argv` is run as it is written, by no shell, in the root directory."""

    name: str
    argv: tuple[str, ...]
    deadline_s: float

    def ask(self, question: Mapping[str, Any], key: str, deadline: Deadline) -> Answer:
        with tempfile.TemporaryFile() as stdin:
            stdin.write(json.dumps(question).encode())
            stdin.seek(0)
            try:
                process = subprocess.Popen(
                    self.argv,
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**ENVIRONMENT, "FLEET_HOOK": self.name, "FLEET_HOOK_KEY": key},
                    cwd="/",
                    start_new_session=True,
                )
            except OSError as exc:
                return Answer(Reply.NO, f"{printable(self.argv[0])} cannot be started: {exc.strerror}")
        printed = _follow(process, deadline)
        if printed is None:
            return Answer(Reply.NONE, "one call took too long and was ended")
        return _answer(process.wait(), *printed)


def _answer(status: int, stdout: bytes, stderr: bytes) -> Answer:
    if status == 0:
        return yes(stdout)
    words = printable(stderr)
    if status == NOT_YET_STATUS:
        return Answer(Reply.NOT_YET, words)
    ended = f"exit status {status}" if status > 0 else f"ended by signal {-status}"
    return Answer(Reply.NO, f"{ended}: {words}" if words else ended)


def _follow(process: subprocess.Popen[bytes], deadline: Deadline) -> tuple[bytes, bytes] | None:
    """What it printed until it ended; None when the deadline came first. Its process group ends with it. The end of its
    pipes is not waited for: a child that it left behind may hold them for ever. Of too much output the start is kept, of
    too many errors the end."""
    assert process.stdout is not None
    assert process.stderr is not None
    stdout, stderr = process.stdout.fileno(), process.stderr.fileno()
    kept = {stdout: b"", stderr: b""}

    def read(fd: int) -> bool:
        with suppress(BlockingIOError):
            chunk = os.read(fd, _PIPE_BYTES)
            kept[fd] += chunk
            kept[fd] = kept[fd][: ANSWER_LIMIT_BYTES + 1] if fd == stdout else kept[fd][-_WORDS_BYTES:]
            return bool(chunk)
        return True

    with process.stdout, process.stderr, selectors.DefaultSelector() as ready:
        ended = os.pidfd_open(process.pid)
        try:
            for fd in (ended, stdout, stderr):
                os.set_blocking(fd, False)
                ready.register(fd, selectors.EVENT_READ)
            seen: set[int] = set()
            while ended not in seen and not deadline.passed:
                seen = {key.fd for key, _ in ready.select(deadline.left_s)}
                for fd in seen - {ended}:
                    if not read(fd):
                        ready.unregister(fd)
        finally:
            os.close(ended)
            with suppress(ProcessLookupError):  # before it is waited for: until then its number is nobody else's
                os.killpg(process.pid, signal.SIGKILL)
        if ended not in seen:
            with suppress(subprocess.TimeoutExpired):  # the kernel may hold it; then it is left to the kernel
                process.wait(_END_S)
            return None
        read(stdout)
        read(stderr)
    return kept[stdout], kept[stderr]
