"""One logged-in SSH connection, shared by many commands and tunnels at once."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import paramiko

from fleet.core.clock import Clock, Deadline
from fleet.core.errors import Unreachable
from fleet.remote.handshake import HostKeyTypeMissing, Socket, load_login_key, log_in, negotiate
from fleet.remote.host_keys import HostKey
from fleet.remote.printable import printable
from fleet.remote.secrets import resolve

# A network cut without a word: the kernel ends the connection when what we sent (a keepalive, if nothing else) was not
# acknowledged for this long.
_SILENCE_MS = 20_000
SESSIONS = 8  # at once on one connection; sshd's MaxSessions is 10 unless the site says otherwise


@dataclass(frozen=True)
class Route:
    """Where a connection goes and with which keys: two equal routes share one connection. The login key is a reference,
    or the PEM itself where the key was made for this one machine."""

    address: str
    port: int
    user: str
    host_key: str
    key_ref: str = ""
    key_pem: str = field(default="", repr=False)
    via: "Route | None" = None
    name: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.name or printable(f"{self.address}:{self.port}", 120)

    def pinned(self) -> HostKey | None:
        return HostKey.parse(self.host_key, f"{self}: host_key") if self.host_key.strip() else None

    def login_key(self) -> paramiko.PKey:
        return load_login_key(
            self.key_pem or resolve(self.key_ref, f"{self}: key_ref"), f"{self}: {self.key_ref or 'login key'}"
        )


def dial(route: Route, deadline: Deadline) -> socket.socket:
    """A TCP connection. Raises Unreachable."""
    try:
        sock = socket.create_connection((route.address, route.port), timeout=max(deadline.left_s, 0.01))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_MS)
        return sock
    except (OSError, UnicodeError) as exc:  # UnicodeError: a name that IDNA cannot encode
        why = "no answer in time" if isinstance(exc, TimeoutError) else getattr(exc, "strerror", None) or str(exc)
        raise Unreachable(
            f"{route}: no connection to {printable(route.address, 120)}:{route.port}: {printable(why)}"
        ) from exc


def log_on(route: Route, connect: Callable[[], Socket], deadline: Deadline) -> paramiko.Transport:
    """Raises Unreachable, HostKeyRefused, LoginRefused, and InvalidInput for a bad pin or login key."""
    key, pinned = route.login_key(), route.pinned()
    try:
        transport = negotiate(connect(), pinned, str(route), deadline)
    except HostKeyTypeMissing:  # once more with any type, so that the refusal names what the host shows
        transport = negotiate(connect(), pinned, str(route), deadline, any_type=True)
    try:
        log_in(transport, route.user, key, str(route), deadline)
    except BaseException:
        transport.close()
        raise
    return transport


class Broken(Unreachable):
    """The connection does not open channels any more: another one may."""


class Connection:
    """`held` is closed with the connection: the tunnel that it goes through, if any."""

    def __init__(
        self, transport: paramiko.Transport, route: Route, clock: Clock, keepalive_s: float, held: contextlib.ExitStack
    ) -> None:
        transport.set_keepalive(max(1, int(keepalive_s)))
        # paramiko wakes up this often to see whether it was closed; its own 0.1 s adds up over a thousand connections.
        transport.sock.settimeout(1.0)
        self._transport = transport
        self._route = route
        self._clock = clock
        self._held = held
        self._lock = threading.Lock()
        self._sessions = threading.BoundedSemaphore(SESSIONS)
        self._users = 0
        self._retired = False
        self._used_at = clock.monotonic()
        self.proven = False  # a channel has been opened: when the next one fails, the connection broke since

    @property
    def usable(self) -> bool:
        return not self._retired and self._transport.is_active()

    @property
    def idle_s(self) -> float:
        with self._lock:
            return 0.0 if self._users else self._clock.monotonic() - self._used_at

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                self._used_at = self._clock.monotonic()
                last = self._retired and not self._users
            if last:
                self.close()

    def retire(self) -> None:
        """No new use; closed as soon as those who are on it now are done."""
        with self._lock:
            self._retired = True
            unused = not self._users
        if unused:
            self.close()

    def close(self) -> None:
        with self._lock:
            self._retired = True
        self._transport.close()
        self._held.close()

    @contextlib.contextmanager
    def session(self, deadline: Deadline, open_s: float) -> Iterator[paramiko.Channel]:
        """A channel to run one command on. Raises Unreachable; Broken when the connection is of no more use."""
        if not self._sessions.acquire(timeout=deadline.left_s):
            raise Unreachable(f"{self._route}: {SESSIONS} commands were at work on this connection until the deadline")
        try:
            channel = self._open_session(open_s)
            with contextlib.closing(channel):
                yield channel
        finally:
            self._sessions.release()

    def _open_session(self, open_s: float) -> paramiko.Channel:
        try:
            channel = self._transport.open_session(timeout=max(open_s, 0.01))
        except paramiko.ChannelException as exc:  # the host answered: the connection itself is sound
            raise Unreachable(f"{self._route}: the host refuses another session: {printable(exc.text)}") from exc
        except (paramiko.SSHException, EOFError, OSError) as exc:
            raise self._broken(exc) from exc
        self.proven = True
        return channel

    def tunnel(self, to: Route, open_s: float) -> paramiko.Channel:
        """A direct-tcpip channel, to be used as a socket. Raises Unreachable, Broken."""
        try:
            channel = self._transport.open_channel(
                "direct-tcpip", (to.address, to.port), ("127.0.0.1", 0), timeout=max(open_s, 0.01)
            )
        except paramiko.ChannelException as exc:
            raise Unreachable(f"{to}: {self._route} cannot connect to it: {printable(exc.text)}") from exc
        except (paramiko.SSHException, EOFError, OSError) as exc:
            if self._transport.is_active():  # the host is still trying
                raise Unreachable(f"{to}: {self._route} got no answer from it in {open_s:.1f} s") from exc
            raise self._broken(exc) from exc
        self.proven = True
        return channel

    def _broken(self, exc: Exception) -> Broken:
        return Broken(f"{self._route}: the connection broke before the command was sent: {printable(str(exc))}")
