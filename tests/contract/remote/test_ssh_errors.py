"""Every way not to get in has its own error, and the words of a hostile peer are harmless in it."""

import os
import socket
import struct
import time
from pathlib import Path

import pytest

from fleet.core.clock import Deadline
from fleet.core.errors import HostKeyRefused, InvalidInput, LoginRefused, Unreachable
from fleet.core.model import SshTarget
from fleet.remote.host_keys import HostKey
from fleet.remote.ssh import SshPool
from tests.contract.remote.sshd import Sshd, free_port, make_key, pretending, public

pytestmark = pytest.mark.real


def attempt(pool: SshPool, target: SshTarget, seconds: float = 30) -> None:
    pool.shell(target, "host-1").run("true", Deadline.after(seconds))


def test_nobody_listens(server: Sshd, pool: SshPool) -> None:
    with pytest.raises(Unreachable, match=r"host-1: no connection to 127\.0\.0\.1:\d+: Connection refused"):
        attempt(pool, server.target(port=free_port()))


def test_a_name_that_does_not_resolve(server: Sshd, pool: SshPool) -> None:
    with pytest.raises(Unreachable, match=r"host-1: no connection to no-such-host\.invalid"):
        attempt(pool, server.target(address="no-such-host.invalid"))


def test_another_login_key_is_refused(server: Sshd, pool: SshPool, tmp_path: Path) -> None:
    stranger = make_key(tmp_path / "stranger")
    with pytest.raises(LoginRefused, match=r"host-1: user .* with key SHA256:"):
        attempt(pool, server.target(key_ref=f"file:{stranger}"))


def test_an_unknown_user_is_refused(server: Sshd, pool: SshPool) -> None:
    with pytest.raises(LoginRefused, match="user no-such-user"):
        attempt(pool, server.target(user="no-such-user"))


def test_neither_an_agent_nor_the_persons_own_keys_are_tried(server: Sshd, pool: SshPool, tmp_path: Path) -> None:
    """The right key lies where ssh(1) would find it."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_ed25519").write_bytes(server.login_key.read_bytes())
    stranger = make_key(tmp_path / "stranger")
    before = os.environ.get("HOME")
    os.environ["HOME"] = str(home)
    try:
        with pytest.raises(LoginRefused):
            attempt(pool, server.target(key_ref=f"file:{stranger}"))
    finally:
        os.environ["HOME"] = before or "/"


def test_another_host_key_is_refused_and_both_are_named(server: Sshd, pool: SshPool, tmp_path: Path) -> None:
    other = public(make_key(tmp_path / "other"))
    seen, pinned = HostKey.parse(public(server.host_key)), HostKey.parse(other)
    with pytest.raises(HostKeyRefused) as refused:
        attempt(pool, server.target(host_key=other))
    assert "host-1" in str(refused.value)
    assert f"ssh-ed25519 {seen.fingerprint}" in str(refused.value)
    assert f"ssh-ed25519 {pinned.fingerprint}" in str(refused.value)
    assert server.target().key_ref not in str(refused.value)


def test_a_pinned_key_of_another_type_is_refused_with_the_key_that_is_shown(
    server: Sshd, pool: SshPool, tmp_path: Path
) -> None:
    other = public(make_key(tmp_path / "other", "ecdsa"))
    with pytest.raises(HostKeyRefused) as refused:
        attempt(pool, server.target(host_key=other))
    assert HostKey.parse(public(server.host_key)).fingerprint in str(refused.value)
    assert HostKey.parse(other).fingerprint in str(refused.value)


def test_a_host_without_a_pinned_key_is_refused_with_its_fingerprint(server: Sshd, pool: SshPool) -> None:
    seen = HostKey.parse(public(server.host_key)).fingerprint
    with pytest.raises(HostKeyRefused, match="no host key is pinned") as refused:
        attempt(pool, server.target(host_key=""))
    assert seen in str(refused.value)


@pytest.mark.parametrize(
    "pin", ["ssh-dss AAAA", "ssh-ed25519", "ssh-ed25519 !!!!", "ssh-ed25519 AAAAB3NzaC1yc2EAAAADAQABAAAA", "\x1b[2J"]
)
def test_a_pin_that_is_no_key_never_reaches_the_network(pool: SshPool, server: Sshd, pin: str) -> None:
    with pytest.raises(InvalidInput, match="host-1: host_key") as refused:
        attempt(pool, server.target(host_key=pin, port=free_port()))
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "reference", ["file:/no/such/key", "env:NO_SUCH_VARIABLE_HERE", "password:hunter2", "", "file:/dev/zero"]
)
def test_a_login_key_that_cannot_be_had_names_its_reference(pool: SshPool, server: Sshd, reference: str) -> None:
    with pytest.raises(InvalidInput, match="host-1: key_ref"):
        attempt(pool, server.target(key_ref=reference))


def test_a_login_key_that_is_none_is_not_shown(pool: SshPool, server: Sshd, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n-----END OPENSSH PRIVATE KEY-----\n")
    with pytest.raises(InvalidInput, match="not an ed25519, ECDSA or RSA private key") as refused:
        attempt(pool, server.target(key_ref=f"file:{path}"))
    assert "c2VjcmV0" not in str(refused.value)


def test_the_deadline_holds_when_the_banner_never_comes(server: Sshd, pool: SshPool) -> None:
    with (
        pretending(lambda connection: connection.settimeout(60) or drain(connection)) as port,
        pytest.raises(Unreachable),
    ):
        attempt(pool, server.target(port=port), seconds=0.5)


def test_the_deadline_holds_when_the_handshake_stops_half_way(server: Sshd, pool: SshPool) -> None:
    def behave(connection: socket.socket) -> None:
        connection.sendall(b"SSH-2.0-slow\r\n")
        drain(connection)

    with pretending(behave) as port, pytest.raises(Unreachable, match="handshake was not answered"):
        attempt(pool, server.target(port=port), seconds=0.5)


def test_words_of_something_that_is_not_ssh_are_made_harmless(server: Sshd, pool: SshPool) -> None:
    def behave(connection: socket.socket) -> None:
        connection.sendall(b"\x1b]0;owned\x07\x1b[2J" + b"A" * 200 + b"\n" * 200)
        time.sleep(0.2)

    with pretending(behave) as port, pytest.raises(Unreachable, match="no SSH") as refused:
        attempt(pool, server.target(port=port))
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


def test_a_banner_without_an_end_is_not_read_for_ever(server: Sshd, pool: SshPool) -> None:
    def behave(connection: socket.socket) -> None:
        while True:
            connection.sendall(b"A" * 4096)

    with pretending(behave) as port, pytest.raises(Unreachable, match="no SSH version line in the first 16384 bytes"):
        attempt(pool, server.target(port=port))


def test_a_packet_of_a_gigabyte_is_not_waited_for(server: Sshd, pool: SshPool) -> None:
    def behave(connection: socket.socket) -> None:
        connection.sendall(b"SSH-2.0-large\r\n" + struct.pack(">I", (1 << 30) + 4) + b"x" * 65536)
        drain(connection)

    with pretending(behave) as port, pytest.raises(Unreachable, match="announced a packet of 10737"):
        attempt(pool, server.target(port=port))


def test_a_peer_that_hangs_up_at_once(server: Sshd, pool: SshPool) -> None:
    with pretending(lambda connection: None) as port, pytest.raises(Unreachable, match="no SSH"):
        attempt(pool, server.target(port=port))


def drain(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass
