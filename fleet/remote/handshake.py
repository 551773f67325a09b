"""From a connected socket to a logged-in SSH transport: every step bounded, one host key accepted, one key offered.

Neither fabric's Connection nor paramiko's SSHClient is used for this: both read the person's own SSH configuration, agent
and known hosts unless each is switched off, share no deadline between their steps, and hide the transport that the
channel reader needs anyway."""

import io
import logging
from typing import Protocol

import paramiko
from paramiko.packet import Packetizer

from fleet.core.clock import Deadline
from fleet.core.errors import HostKeyRefused, InvalidInput, LoginRefused, RemoteError, Unreachable
from fleet.remote.host_keys import ALGORITHMS, HostKey
from fleet.remote.printable import printable

_PACKET_LIMIT = 256 * 1024  # RFC 4253 asks for 35,000; OpenSSH sends at most 256 KiB
_BANNER_LIMIT = 16 * 1024  # everything before and with the peer's version line
_CIPHERS = ("aes128-ctr", "aes256-ctr", "aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
_MACS = ("hmac-sha2-256", "hmac-sha2-512", "hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com")

# paramiko logs tracebacks and the peer's own words. We raise our errors instead, with those words made printable.
_LOG = "fleet.remote.paramiko"
logging.getLogger(_LOG).addHandler(logging.NullHandler())
logging.getLogger(_LOG).propagate = False


class Socket(Protocol):
    """What a transport needs: a TCP socket, or a channel through another transport."""

    def close(self) -> None: ...


class _BoundedPacketizer(Packetizer):
    """paramiko reads a version line of any length and a packet of any length that the peer announces."""

    _banner_bytes = 0

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        if n > _PACKET_LIMIT:
            raise paramiko.SSHException(f"the peer announced a packet of {n} bytes")
        return super().read_all(n, check_rekey)

    def _read_timeout(self, timeout: float) -> bytes:
        data: bytes = super()._read_timeout(timeout)  # type: ignore[misc]
        self._banner_bytes += len(data)
        if self._banner_bytes > _BANNER_LIMIT:
            raise paramiko.SSHException(f"no SSH version line in the first {_BANNER_LIMIT} bytes")
        return data


class HostKeyTypeMissing(HostKeyRefused):
    """The host has no key of the pinned type; which key it has is only known after another handshake."""


def negotiate(
    sock: Socket, pinned: HostKey | None, name: str, deadline: Deadline, any_type: bool = False
) -> paramiko.Transport:
    """Encrypt, and compare the host key. Raises Unreachable, HostKeyRefused; the socket is closed then.

    With no pinned key, or `any_type`, the host is asked for any of its keys, so that the refusal can name it."""
    transport = paramiko.Transport(sock, packetizer_class=_BoundedPacketizer)  # type: ignore[arg-type]
    try:
        _agree(transport, None if any_type else pinned, name, deadline)
        _compare(transport, pinned, name)
    except BaseException:
        transport.close()
        raise
    return transport


def _agree(transport: paramiko.Transport, pinned: HostKey | None, name: str, deadline: Deadline) -> None:
    transport.daemon = True
    transport.set_log_channel(_LOG)
    options = transport.get_security_options()
    options.ciphers = _CIPHERS
    options.digests = _MACS
    options.key_types = ALGORITHMS[pinned.kind] if pinned else [a for known in ALGORITHMS.values() for a in known]
    left = max(deadline.left_s, 0.01)
    transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = left
    try:
        transport.start_client(timeout=left)
    except paramiko.ssh_exception.IncompatiblePeer as exc:
        if pinned and "host key" in str(exc):
            raise HostKeyTypeMissing(f"{name} has no {pinned.kind} host key") from exc
        raise Unreachable(f"{name}: no common SSH algorithm: {printable(str(exc))}") from exc
    except (paramiko.SSHException, EOFError, OSError) as exc:
        if deadline.passed:  # paramiko's own timer ends the handshake as if the peer had hung up
            raise Unreachable(f"{name}: the SSH handshake was not answered in {left:.1f} s") from exc
        raise Unreachable(f"{name}: something listens, but no SSH: {printable(str(exc)) or 'it hung up'}") from exc
    if not transport.initial_kex_done:
        raise Unreachable(f"{name}: the SSH handshake was not answered in {left:.1f} s")


def _compare(transport: paramiko.Transport, pinned: HostKey | None, name: str) -> None:
    key = transport.get_remote_server_key()
    seen = HostKey(key.get_name(), key.asbytes())
    if pinned is None:
        raise HostKeyRefused(
            f"{name}: no host key is pinned; it shows {seen.kind} {seen.fingerprint}. Pin it after checking it on the host"
        )
    if seen != pinned:
        raise HostKeyRefused(
            f"{name} shows the host key {seen.kind} {seen.fingerprint}, pinned is {pinned.kind} {pinned.fingerprint}: "
            "another machine answers at this address, or the host was installed again"
        )


def log_in(transport: paramiko.Transport, user: str, key: paramiko.PKey, name: str, deadline: Deadline) -> None:
    """Log in with this one key. Raises LoginRefused, Unreachable (the peer hung up, or did not answer in time)."""
    transport.auth_timeout = left = max(deadline.left_s, 0.01)
    who = f"{name}: user {printable(user, 64)} with key {key.fingerprint}"
    try:
        more = transport.auth_publickey(user, key)
    except paramiko.SSHException as exc:
        raise _login_error(transport, exc, who, deadline, left) from exc
    except (EOFError, OSError) as exc:
        raise Unreachable(f"{who}: the connection broke during the login") from exc
    if more:
        raise LoginRefused(f"{who}: accepted, but the host asks for more: {printable(', '.join(more))}")


def _login_error(
    transport: paramiko.Transport, exc: paramiko.SSHException, who: str, deadline: Deadline, left_s: float
) -> RemoteError:
    if isinstance(exc, paramiko.BadAuthenticationType):
        allowed = printable(", ".join(exc.allowed_types))
        return LoginRefused(f"{who}: the host takes no keys, only {allowed or 'nothing'}")
    if not transport.is_active():
        return Unreachable(f"{who}: the host hung up during the login: {printable(str(exc))}")
    if deadline.passed:
        return Unreachable(f"{who}: the login was not answered in {left_s:.1f} s")
    return LoginRefused(f"{who}: {printable(str(exc))}")


def load_login_key(pem: str, field: str) -> paramiko.PKey:
    """An unencrypted private key in OpenSSH or PEM form. Raises InvalidInput; the key is never in the message."""
    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        try:
            return kind.from_private_key(io.StringIO(pem))
        except paramiko.PasswordRequiredException:
            raise InvalidInput(
                f"{field}: the private key has a passphrase; the service needs one without", field
            ) from None
        except (paramiko.SSHException, ValueError, IndexError, TypeError):
            continue
    raise InvalidInput(f"{field}: this is not an ed25519, ECDSA or RSA private key", field)
