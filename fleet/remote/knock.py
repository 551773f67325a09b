"""Reaching a host step by step, on a connection of its own: what a shared connection, opened yesterday, cannot tell."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

import paramiko

from fleet.core.clock import Deadline
from fleet.core.errors import HostKeyRefused, InvalidInput, LoginRefused, Unreachable
from fleet.core.model import SshTarget
from fleet.remote.connection import Route, dial
from fleet.remote.handshake import log_in, negotiate
from fleet.remote.printable import printable

T = TypeVar("T")
STEPS = ("connect", "host_key", "login_key", "login", "tunnel")
_TUNNEL_S = 4.0  # a host tells after three that nobody has an address


@dataclass(frozen=True)
class Step:
    """`error` None: it went well."""

    name: str
    error: str | None = None


def knock(target: SshTarget, name: str, tunnel_to: tuple[str, int], deadline: Deadline) -> list[Step]:
    """The steps that could be tried, in the order of STEPS; a later one is left out where an earlier one is in its way.
    `tunnel` only asks whether the host forwards to that address: nothing has to answer there."""
    route = Route(target.address, target.port, target.user, target.host_key, key_ref=target.key_ref, name=name)
    with ExitStack() as stack:
        return list(_steps(route, tunnel_to, deadline, stack))


def _steps(route: Route, tunnel_to: tuple[str, int], deadline: Deadline, stack: ExitStack) -> Iterator[Step]:
    pinned, bad_pin = _read("host_key", route.pinned)
    key, bad_key = _read("login_key", route.login_key)
    transport: paramiko.Transport | None = None
    try:
        sock = dial(route, deadline)
        stack.callback(sock.close)
        transport = negotiate(sock, pinned, str(route), deadline)
        stack.callback(transport.close)
    except Unreachable as exc:
        yield Step("connect", str(exc))
    except HostKeyRefused as exc:
        yield Step("connect")
        yield bad_pin or Step("host_key", str(exc))
    else:
        yield Step("connect")
        yield Step("host_key")
    yield bad_key or Step("login_key")
    if transport is None or key is None:
        return
    try:
        log_in(transport, route.user, key, str(route), deadline)
    except (LoginRefused, Unreachable) as exc:
        yield Step("login", str(exc))
        return
    yield Step("login")
    yield _tunnel(transport, tunnel_to, deadline)


def _read(name: str, load: Callable[[], T]) -> tuple[T | None, Step | None]:
    try:
        return load(), None
    except InvalidInput as exc:
        return None, Step(name, str(exc))


def _tunnel(transport: paramiko.Transport, to: tuple[str, int], deadline: Deadline) -> Step:
    try:
        wait_s = max(0.01, min(deadline.left_s, _TUNNEL_S))
        transport.open_channel("direct-tcpip", to, ("127.0.0.1", 0), timeout=wait_s).close()
    except paramiko.ChannelException as exc:
        if exc.code == 1:  # administratively prohibited; 2 is "connect failed", as it has to be while no VM is there
            return Step("tunnel", f"the host's sshd refuses to forward to {to[0]}:{to[1]}: {printable(exc.text)}")
    except (paramiko.SSHException, EOFError, OSError) as exc:
        if not transport.is_active():
            return Step("tunnel", f"the connection broke when asked to forward: {printable(str(exc))}")
        # no answer in time: sshd tries to connect, and so it may
    return Step("tunnel")
