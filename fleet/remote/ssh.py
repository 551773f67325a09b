"""Connections are shared: one per route, opened once when many ask at once, dropped when stale, replaced when broken."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import paramiko

from fleet.core.clock import SYSTEM, Clock, Deadline
from fleet.core.errors import DeadlinePassed, FleetError, Unreachable
from fleet.core.model import SshTarget
from fleet.remote.base import Output, Shell
from fleet.remote.command import run_on
from fleet.remote.connection import Broken, Connection, Route, dial, log_on
from fleet.remote.handshake import Socket

OpenOn = Callable[[Connection, float], contextlib.AbstractContextManager[paramiko.Channel]]


@dataclass
class _Line:
    """The place of one route's connection. `users` and `connection` change under the pool's lock; `dialing` is held
    while one thread connects for all that wait."""

    dialing: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    connection: Connection | None = None
    attempts: int = 0
    failure: FleetError | None = None  # how the last attempt ended


class SshPool:
    """Thread-safe. A connection is dropped when its transport has died, when it has been idle for `idle_s`, or when a
    command on it got no answer by its deadline (the network may be cut without a word)."""

    def __init__(
        self, *, clock: Clock = SYSTEM, connect_s: float = 10.0, idle_s: float = 120.0, keepalive_s: float = 15.0
    ) -> None:
        self._clock = clock
        self._connect_s = connect_s
        self._idle_s = idle_s
        self._keepalive_s = keepalive_s
        self._lock = threading.Lock()
        self._lines: dict[Route, _Line] = {}
        self._sweep_at = 0.0

    def shell(self, target: SshTarget, name: str = "") -> Shell:
        """A shell on a host; `name` is what errors call it. Connects at first use."""
        return PooledShell(self, _host_route(target, name))

    def through(
        self,
        target: SshTarget,
        address: str,
        port: int,
        user: str,
        private_key_pem: str,
        host_key_public: str,
        name: str,
    ) -> Shell:
        """A shell on a machine that only the host `target` can reach, by a tunnel in the host's connection."""
        via = _host_route(target, "")
        return PooledShell(
            self, Route(address, port, user, host_key_public, key_pem=private_key_pem, via=via, name=name)
        )

    def drop(self, route: Route) -> None:
        """Close the route's connection once its present users are done."""
        with self._lock:
            line = self._lines.get(route)
            connection = line.connection if line else None
        if connection:
            connection.retire()

    def close(self) -> None:
        """Close every connection, those in use too."""
        with self._lock:
            connections = [line.connection for line in self._lines.values() if line.connection]
            self._lines.clear()
        for connection in connections:
            connection.close()

    @contextlib.contextmanager
    def opened(self, route: Route, deadline: Deadline, open_on: OpenOn) -> Iterator[paramiko.Channel]:
        """A channel on the route's connection. A connection that turns out broken is replaced, once: nothing was sent
        on the channel yet. Raises Unreachable, LoginRefused, HostKeyRefused, InvalidInput."""
        for last in (False, True):
            with contextlib.ExitStack() as stack:
                proven, connection = self._lease(route, deadline, stack)
                try:
                    channel = stack.enter_context(open_on(connection, min(deadline.left_s, self._connect_s)))
                except Broken:
                    connection.retire()
                    if last or not proven:
                        raise
                    continue
                try:
                    yield channel
                except DeadlinePassed:
                    connection.retire()
                    raise
                return

    def _lease(self, route: Route, deadline: Deadline, stack: contextlib.ExitStack) -> tuple[bool, Connection]:
        """The route's connection, held until `stack` ends, and whether it had been of use before."""
        self._sweep()
        with self._lock:
            line = self._lines.setdefault(route, _Line())
            line.users += 1
            asked_at = line.attempts
        stack.callback(self._leave, line)
        connection = line.connection
        if connection is None or not connection.usable:
            connection = self._connect_once(route, line, asked_at, deadline)
        proven = connection.proven
        stack.enter_context(connection.in_use())
        return proven, connection

    def _leave(self, line: _Line) -> None:
        with self._lock:
            line.users -= 1

    def _connect_once(self, route: Route, line: _Line, asked_at: int, deadline: Deadline) -> Connection:
        if not line.dialing.acquire(timeout=deadline.left_s):
            raise Unreachable(f"{route}: still connecting at the deadline")
        try:
            if line.connection and line.connection.usable:
                return line.connection
            if line.failure and line.attempts > asked_at:  # another thread's, while we waited: our answer too
                raise type(line.failure)(*line.failure.args)
            if line.connection:
                line.connection.retire()  # gives back the tunnel that it went through
            try:
                line.connection = self._connect(route, deadline)
            except FleetError as exc:
                line.failure = exc
                raise
            finally:
                line.attempts += 1
            line.failure = None
            return line.connection
        finally:
            line.dialing.release()

    def _connect(self, route: Route, deadline: Deadline) -> Connection:
        clock = deadline.clock
        within = Deadline(clock, min(deadline.at, clock.monotonic() + self._connect_s))
        with contextlib.ExitStack() as held:

            def connect() -> Socket:
                if route.via is None:
                    return dial(route, within)
                tunnel = self.opened(
                    route.via, within, lambda host, open_s: contextlib.closing(host.tunnel(route, open_s))
                )
                return held.enter_context(tunnel)

            transport = log_on(route, connect, within)
            return Connection(transport, route, self._clock, self._keepalive_s, held.pop_all())

    def _sweep(self) -> None:
        """Forget what nobody uses: dead connections, and those idle for too long."""
        with self._lock:
            now = self._clock.monotonic()
            if now < self._sweep_at:
                return
            self._sweep_at = now + self._idle_s / 8
            stale = []
            for route, line in list(self._lines.items()):
                kept = line.connection and line.connection.usable and line.connection.idle_s < self._idle_s
                if not line.users and not kept:
                    del self._lines[route]
                    stale += [line.connection] if line.connection else []
        for connection in stale:
            connection.close()


class PooledShell:
    """The Shell of one route."""

    def __init__(self, pool: SshPool, route: Route) -> None:
        self._pool = pool
        self._route = route

    def run(self, command: str, deadline: Deadline, *, stdin: bytes = b"", limit_bytes: int = 1 << 20) -> Output:
        if deadline.passed:
            raise Unreachable(f"{self._route}: the deadline had passed before anything was sent")
        with self._pool.opened(self._route, deadline, lambda host, open_s: host.session(deadline, open_s)) as channel:
            return run_on(channel, command, deadline, stdin, limit_bytes, str(self._route))

    def close(self) -> None:
        """Drop the connection: the next call makes a new one. Commands at work on it now go on."""
        self._pool.drop(self._route)


def _host_route(target: SshTarget, name: str) -> Route:
    return Route(target.address, target.port, target.user, target.host_key, key_ref=target.key_ref, name=name)
