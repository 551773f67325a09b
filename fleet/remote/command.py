"""One command on one open channel: bounded in time and size, both while it runs."""

import re
import select
import threading

import paramiko

from fleet.core.clock import Deadline
from fleet.core.errors import CommandNotFound, ConnectionBroken, DeadlinePassed, OutputTooLarge
from fleet.remote.base import Output
from fleet.remote.printable import printable

_CHUNK = 64 * 1024
_WINDOW_POLL_S = 0.02  # paramiko has no way to wait for room to send and for output at once
_STUCK_GRACE_S = 2.0
_NOT_FOUND = re.compile(  # dash, bash and busybox; zsh; timeout, env and other coreutils
    r"(?:^|[:\s])(?P<shell>[^\s:]+): (?:(?:command )?not found|No such file or directory)\s*$"
    r"|command not found: (?P<zsh>\S+)"
    r"|failed to run command ['\u2018](?P<coreutils>[^'\u2019]+)['\u2019]",
    re.MULTILINE,
)


def run_on(
    channel: paramiko.Channel, command: str, deadline: Deadline, stdin: bytes, limit_bytes: int, name: str
) -> Output:
    """Run `command` on a fresh session channel and close it. Raises DeadlinePassed, ConnectionBroken, OutputTooLarge,
    CommandNotFound: all of them after the command was sent."""
    transport = channel.get_transport()
    # The waits below keep the deadline themselves. This is for calls that paramiko lets block without one: the
    # answer to "exec", and a write into a socket whose peer is gone.
    watchdog = threading.Timer(deadline.left_s + _STUCK_GRACE_S, transport.close)
    watchdog.daemon = True
    watchdog.start()
    try:
        try:
            channel.exec_command(command)
            stdout, stderr = _pump(channel, deadline, stdin, limit_bytes, name)
        except (paramiko.SSHException, EOFError, OSError) as exc:
            if deadline.passed:
                raise _late(name) from exc
            raise ConnectionBroken(f"{name}: the connection broke while a command ran: {printable(str(exc))}") from exc
        return _answer(Output(_exit_status(channel, transport, deadline, name), stdout, stderr), name)
    finally:
        watchdog.cancel()
        channel.close()


def _pump(
    channel: paramiko.Channel, deadline: Deadline, stdin: bytes, limit_bytes: int, name: str
) -> tuple[bytes, bytes]:
    """Feed stdin and read both streams side by side until the end of output."""
    stdout, stderr = bytearray(), bytearray()
    ready = select.poll()  # not select(): that fails on descriptors above 1023
    ready.register(channel.fileno(), select.POLLIN)
    sent = 0
    write_open = True
    while True:
        while channel.recv_ready() or channel.recv_stderr_ready():
            if channel.recv_ready():
                stdout += channel.recv(_CHUNK)
            if channel.recv_stderr_ready():
                stderr += channel.recv_stderr(_CHUNK)
            if len(stdout) + len(stderr) > limit_bytes:
                raise OutputTooLarge(f"{name}: the command printed more than {limit_bytes} bytes")
            if deadline.passed:
                raise _late(name)
        if channel.eof_received or channel.closed:
            if channel.recv_ready() or channel.recv_stderr_ready():
                continue  # arrived between the last look and this one
            return bytes(stdout), bytes(stderr)
        if deadline.passed:
            raise _late(name)
        if sent < len(stdin) and channel.send_ready():
            sent += _send(channel, stdin[sent : sent + _CHUNK])
            continue
        if write_open and sent == len(stdin):
            channel.shutdown_write()
            write_open = False
        wait_s = _WINDOW_POLL_S if write_open else deadline.left_s
        ready.poll(min(wait_s, 3600.0) * 1000)


def _send(channel: paramiko.Channel, chunk: bytes) -> int:
    try:
        return channel.send(chunk)
    except OSError:  # the command ended without reading all of its input, which is its own business
        if not channel.closed:
            raise
        return len(chunk)


def _exit_status(channel: paramiko.Channel, transport: paramiko.Transport, deadline: Deadline, name: str) -> int:
    """-1 when a signal ended the command: SSH then sends a close without a status."""
    if not channel.status_event.wait(deadline.left_s):
        raise _late(name)
    if channel.exit_status == -1:
        # A dying transport closes its channels before it calls itself inactive; what killed it is noted before both.
        # Refused channels of other threads are noted in the same place.
        died_of = transport.saved_exception
        if not transport.is_active() or (died_of and not isinstance(died_of, paramiko.ChannelException)):
            raise ConnectionBroken(f"{name}: the connection broke while a command ran")
    return channel.exit_status


def _answer(output: Output, name: str) -> Output:
    words = output.stderr[-2000:].decode("utf-8", "replace")
    if output.exit_status == 127 and (found := list(_NOT_FOUND.finditer(words))):
        missing = found[-1][found[-1].lastgroup or 0]
        raise CommandNotFound(f"{name}: {printable(missing, 80)} is not installed there")
    return output


def _late(name: str) -> DeadlinePassed:
    return DeadlinePassed(f"{name}: the command had not ended at its deadline")
