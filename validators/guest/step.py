"""One command: its process group, deadline, output cap and files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import BinaryIO, Dict, List, cast

from . import leftovers
from .state import FULL, TAIL_BYTES, Record, plain

TERM_GRACE_S = 2.0  # from SIGTERM to SIGKILL
ABANDON_AFTER_S = 7.0  # from SIGTERM: a process stuck in the driver (state D) outlives SIGKILL, and must not hold us
DRAIN_S = 1.0  # how long a background child may keep the output open after its parent has ended
CHUNK_BYTES = 64 << 10


class Output:
    """One stream on its way from a pipe to a file."""

    def __init__(self, path: str) -> None:
        self.pipe: BinaryIO | None = None
        self.bytes = 0
        self.tail = b""
        self._path = path
        self._file: BinaryIO | None = None

    def create(self) -> None:
        open(self._path, "ab").close()

    def open(self) -> None:
        self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115 closed with the step

    def attach(self, pipe: BinaryIO) -> None:
        os.set_blocking(pipe.fileno(), False)
        self.pipe = pipe

    def pump(self, room: int) -> int:
        """Move what is there, at most one chunk, of which `room` bytes are kept; returns how many came. Closes the pipe
        at its end. OSError when the file cannot take it."""
        assert self.pipe is not None
        try:
            data = os.read(self.pipe.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            self.close_pipe()
        self.keep(data[:room])
        return len(data)

    def keep(self, data: bytes) -> None:
        assert self._file is not None
        while data:
            written = self._file.write(data) or 0
            self.bytes += written
            self.tail = (self.tail + data[:written])[-TAIL_BYTES:]
            data = data[written:]

    def close_pipe(self) -> None:
        if self.pipe is not None:
            self.pipe.close()
            self.pipe = None

    def close(self) -> None:
        self.close_pipe()
        if self._file is not None:
            self._file.close()


class Step:
    """`start` it, feed it with `pump` and `tick` until it is no longer `running`."""

    def __init__(self, directory: str, name: str, argv: List[str], deadline_s: float, limit_bytes: int) -> None:
        self.name = name
        self.record = Record()
        self._directory = directory
        self._argv = argv
        self._deadline_s = deadline_s
        self._limit_bytes = limit_bytes
        self._out = os.path.join(directory, "out", name)
        self._stdout = Output(os.path.join(self._out + ".part", "stdout"))
        self._stderr = Output(os.path.join(self._out + ".part", "stderr"))
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._cause: str | None = None  # why we are killing it
        self._cause_at = 0.0
        self._left_at: float | None = None  # when the first process of the group was seen to have ended

    @property
    def running(self) -> bool:
        return self.record.state == "running"

    @property
    def outputs(self) -> List[Output]:
        return [self._stdout, self._stderr]

    @property
    def open_outputs(self) -> List[Output]:
        return [output for output in self.outputs if output.pipe is not None]

    def start(self) -> None:
        self._started = time.monotonic()
        self.record.state, self.record.started_at = "running", round(time.time(), 3)
        try:
            self._stdout.open()
            self._stderr.open()
        except OSError as exc:
            if exc.errno not in FULL:
                raise
            return self._finish("disk_full")
        try:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=os.path.join(self._directory, "work"),
                env=self._environment(),
                bufsize=0,
                start_new_session=True,
            )
        except OSError as exc:  # not there, not executable, or no memory for a process
            return self._not_started(exc)
        for output, pipe in ((self._stdout, self._process.stdout), (self._stderr, self._process.stderr)):
            output.attach(cast(BinaryIO, pipe))

    def _command(self) -> List[str]:
        if self._argv[0] != "@measure":
            return self._argv
        return [sys.executable, "-I", "-S", os.path.join(self._directory, "runner.pyz"), "measure", *self._argv[1:]]

    def _environment(self) -> Dict[str, str]:
        mark = leftovers.mark(self._directory, self.name)
        return dict(os.environ, LC_ALL="C", **{leftovers.VARIABLE: mark})

    def _not_started(self, exc: OSError) -> None:
        try:
            self._stderr.keep("{}: {}\n".format(self._argv[0], exc.strerror).encode())
        except OSError as full:
            if full.errno not in FULL:
                raise
        self._finish("not_found")

    def pump(self, output: Output) -> None:
        """Take what a readable stream has. What comes after the cap, or does not fit the disk, is dropped."""
        room = self._limit_bytes - self._stdout.bytes - self._stderr.bytes
        try:
            if output.pump(room) > room:
                self.record.truncated = True
                self.kill("output_limit")
        except OSError as exc:
            if exc.errno not in FULL:
                raise
            self.record.truncated = True
            self.kill("disk_full")

    def kill(self, cause: str) -> None:
        """Begin to end it; the first cause stands. Nothing more is read when reading is the trouble."""
        if self._cause is None:
            self._cause, self._cause_at = cause, time.monotonic()
            self._signal(signal.SIGTERM)
        if cause in ("output_limit", "disk_full"):
            self._stdout.close_pipe()
            self._stderr.close_pipe()

    def tick(self) -> None:
        """Look at the process and at the clock, and end the step when it is over. The process first: one that ended in
        time did so, however late we look."""
        now = time.monotonic()
        if self._left():
            self._left_at = self._left_at or now
            if not self.open_outputs or self._cause or now - self._left_at >= DRAIN_S:
                self._finish("exited")
        elif self._cause is None:
            if now - self._started >= self._deadline_s:
                self.kill("deadline")
        elif now - self._cause_at >= ABANDON_AFTER_S:
            self._finish(self._cause)
        elif now - self._cause_at >= TERM_GRACE_S:
            self._signal(signal.SIGKILL)

    def cut(self, how: str) -> None:
        """End it at once, started or not; for when the whole run ends."""
        if self.record.state == "ended":
            return
        if self.running:
            self._cause = self._cause or how
        self._finish(how)

    def _left(self) -> bool:
        """Has the first process ended? It is not reaped yet, so that its group's number stays ours."""
        assert self._process is not None
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def _signal(self, number: int) -> None:
        assert self._process is not None
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass

    def _finish(self, how: str) -> None:
        """`how` it ended, unless we were killing it: then that is why."""
        if self._process is not None:
            self._signal(signal.SIGKILL)  # by group and by mark: one can leave the group, and one can drop the mark
            leftovers.kill(self._directory, self.name)
            self._drain()
            if self._left_at is not None:
                self.record.exit_status = self._process.wait()
        if self.running:
            self.note_progress()
        for output in self.outputs:
            output.close()
        os.rename(self._out + ".part", self._out)  # complete: readers take what has its final name
        self.record.end(self._cause or how)

    def _drain(self) -> None:
        """What was printed just before the end is still in the pipes; they hold 64 KiB, seldom up to 1 MiB."""
        for _ in range(16):
            for output in self.open_outputs:
                self.pump(output)

    def note_progress(self) -> None:
        """Bring the record up to date."""
        record = self.record
        record.duration_s = round(time.monotonic() - self._started, 3)
        record.stdout_bytes, record.stderr_bytes = self._stdout.bytes, self._stderr.bytes
        record.tail = plain(self._stdout.tail.decode("ascii", "replace"))
