"""Connections are shared, dropped when stale and replaced when broken; guests are reached through their host."""

import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fleet.core.clock import Deadline, SystemClock
from fleet.core.errors import ConnectionBroken, DeadlinePassed, HostKeyRefused, LoginRefused, Unreachable
from fleet.core.model import SshTarget
from fleet.remote.base import Shell
from fleet.remote.ssh import SshPool
from tests.contract.remote import sshd
from tests.contract.remote.sshd import Sshd, free_port, make_key, pretending, public
from tests.needs import need

pytestmark = pytest.mark.real


@pytest.fixture
def server(tmp_path: Path) -> object:
    """One for each test: its log counts the logins."""
    need("sshd (Debian: apt-get install openssh-server)", sshd.PROGRAM)
    directory = tmp_path / "sshd"
    directory.mkdir()
    with sshd.running(directory) as running:
        yield running


def soon() -> Deadline:
    return Deadline.after(30)


def end_connection(shell: Shell) -> None:
    """Kill the host's end of the shell's connection while a command is at work on it."""
    pid = int(shell.run("echo $PPID", soon()).stdout)
    os.kill(pid, signal.SIGKILL)


def through(pool: SshPool, host: SshTarget, guest: Sshd, **changed: object) -> Shell:
    target = guest.target(**changed)
    key = Path(target.key_ref.removeprefix("file:")).read_text()
    return pool.through(host, target.address, target.port, target.user, key, target.host_key, "guest-1")


def test_many_threads_share_one_login(server: Sshd, pool: SshPool) -> None:
    together = threading.Barrier(20)

    def work(number: int) -> bytes:
        together.wait()
        return pool.shell(server.target()).run(f"echo {number}", soon()).stdout

    with ThreadPoolExecutor(20) as threads:
        assert list(threads.map(work, range(20))) == [b"%d\n" % n for n in range(20)]
    assert server.logins == 1


def test_threads_that_wait_for_a_connection_share_its_failure(server: Sshd, pool: SshPool) -> None:
    attempts: list[socket.socket] = []
    hang_up = threading.Event()

    def behave(connection: socket.socket) -> None:
        attempts.append(connection)
        hang_up.wait()

    def work(_: int) -> None:
        with pytest.raises(Unreachable):
            pool.shell(server.target(port=port)).run("true", soon())

    with pretending(behave) as port, ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(work, n) for n in range(8)]
        hang_up.wait(1)  # whoever waits by then shares; all eight late would be needed to miss it
        hang_up.set()
        for one in asked:
            one.result()
    assert len(attempts) < 8


def test_a_slow_command_does_not_hold_up_another(server: Sshd, pool: SshPool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with ThreadPoolExecutor(1) as threads:
        shell = pool.shell(server.target())
        slow = threads.submit(shell.run, f"while [ ! -e {gate} ]; do sleep 0.05; done; echo slow", soon())
        assert shell.run("echo quick", soon()).stdout == b"quick\n"
        gate.touch()
        assert slow.result().stdout == b"slow\n"
    assert server.logins == 1


def test_a_connection_that_broke_while_idle_is_replaced_unseen(server: Sshd, pool: SshPool) -> None:
    shell = pool.shell(server.target())
    end_connection(shell)
    assert shell.run("echo again", soon()).stdout == b"again\n"
    assert server.logins == 2


def test_a_connection_that_breaks_under_a_command_is_an_error(server: Sshd, pool: SshPool) -> None:
    shell = pool.shell(server.target(), "host-1")
    with pytest.raises(ConnectionBroken, match="host-1"):
        shell.run("kill -KILL $PPID; sleep 20", soon())
    assert shell.run("echo again", soon()).stdout == b"again\n"


def test_a_command_without_an_answer_costs_the_connection(server: Sshd, pool: SshPool) -> None:
    """The network may be cut without a word: the next command must not wait on the same dead connection."""
    shell = pool.shell(server.target())
    with pytest.raises(DeadlinePassed):
        shell.run("sleep 20", Deadline.after(1))
    assert shell.run("echo on", soon()).stdout == b"on\n"
    assert server.logins == 2


def test_an_idle_connection_is_dropped(server: Sshd) -> None:
    clock = TurnedClock()
    pool = SshPool(clock=clock, idle_s=60)
    shell = pool.shell(server.target())
    shell.run("true", soon())
    clock.forward += 50
    shell.run("true", soon())
    clock.forward += 50
    shell.run("true", soon())
    assert server.logins == 1
    clock.forward += 61
    shell.run("true", soon())
    assert server.logins == 2
    pool.close()


def test_a_closed_shell_connects_anew(server: Sshd, pool: SshPool) -> None:
    shell = pool.shell(server.target())
    shell.run("true", soon())
    shell.close()
    shell.run("true", soon())
    assert server.logins == 2


def test_other_keys_are_other_connections(server: Sshd, pool: SshPool, tmp_path: Path) -> None:
    pool.shell(server.target()).run("true", soon())
    with pytest.raises(HostKeyRefused):
        pool.shell(server.target(host_key=public(make_key(tmp_path / "other")))).run("true", soon())
    with pytest.raises(LoginRefused):
        pool.shell(server.target(key_ref=f"file:{tmp_path / 'other'}")).run("true", soon())


def test_a_guest_is_reached_through_its_host(server: Sshd, pool: SshPool, tmp_path: Path) -> None:
    (tmp_path / "guest").mkdir()
    with sshd.running(tmp_path / "guest") as guest:
        shell = through(pool, server.target(), guest)
        assert shell.run("echo inside", soon()).stdout == b"inside\n"
        assert shell.run("cat", soon(), stdin=b"y" * 500_000).stdout == b"y" * 500_000
        pool.shell(server.target()).run("true", soon())
        assert (server.logins, guest.logins) == (1, 1)


def test_a_guest_has_its_own_pin_and_key(server: Sshd, pool: SshPool, tmp_path: Path) -> None:
    (tmp_path / "guest").mkdir()
    with sshd.running(tmp_path / "guest") as guest:
        with pytest.raises(HostKeyRefused, match="guest-1"):
            through(pool, server.target(), guest, host_key=public(server.host_key)).run("true", soon())
        with pytest.raises(LoginRefused, match="guest-1"):
            through(pool, server.target(), guest, key_ref=f"file:{server.login_key}").run("true", soon())


def test_a_guest_that_is_not_up_is_unreachable_and_its_host_is_not(server: Sshd, pool: SshPool) -> None:
    target = server.target(port=free_port())
    for _ in range(3):
        with pytest.raises(Unreachable, match="guest-1"):
            pool.through(
                server.target(),
                "127.0.0.1",
                target.port,
                "root",
                server.login_key.read_text(),
                target.host_key,
                "guest-1",
            ).run("true", soon())
    pool.shell(server.target()).run("true", soon())
    assert server.logins == 1


def test_a_guest_that_takes_tcp_before_it_is_up_is_unreachable(server: Sshd, pool: SshPool) -> None:
    """QEMU's user network accepts, and hangs up."""
    with pretending(lambda connection: None) as port, pytest.raises(Unreachable, match="guest-1"):
        pool.through(
            server.target(), "127.0.0.1", port, "root", server.login_key.read_text(), public(server.host_key), "guest-1"
        ).run("true", soon())


def test_a_guest_is_found_again_when_the_hosts_connection_broke(server: Sshd, pool: SshPool, tmp_path: Path) -> None:
    (tmp_path / "guest").mkdir()
    with sshd.running(tmp_path / "guest") as guest:
        shell = through(pool, server.target(), guest)
        shell.run("true", soon())
        end_connection(pool.shell(server.target()))
        assert shell.run("echo inside", soon()).stdout == b"inside\n"
        assert (server.logins, guest.logins) == (2, 2)


def test_a_guest_that_went_away_does_not_keep_its_hosts_connection(server: Sshd, tmp_path: Path) -> None:
    clock = TurnedClock()
    pool = SshPool(clock=clock, idle_s=60)
    (tmp_path / "guest").mkdir()
    with sshd.running(tmp_path / "guest") as guest:
        shell = through(pool, server.target(), guest)
        end_connection(shell)
        shell.run("true", soon())
        shell.close()
    clock.forward += 61
    pool.shell(server.target()).run("true", soon())
    assert server.logins == 2
    pool.close()


def test_a_host_that_is_not_there_makes_its_guest_unreachable(server: Sshd, pool: SshPool) -> None:
    with pytest.raises(Unreachable):
        through(pool, server.target(port=free_port()), server).run("true", soon())


class TurnedClock(SystemClock):
    forward = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.forward
