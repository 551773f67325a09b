"""One command over a real sshd: what comes back, and where it is bounded."""

import pytest

from fleet.core.clock import Deadline
from fleet.core.errors import CommandNotFound, DeadlinePassed, OutputTooLarge
from fleet.remote.base import Output, Shell
from fleet.remote.ssh import SshPool
from tests.contract.remote.sshd import Sshd

pytestmark = pytest.mark.real


@pytest.fixture
def shell(server: Sshd, pool: SshPool) -> Shell:
    return pool.shell(server.target(), "host-1")


def soon() -> Deadline:
    return Deadline.after(30)


def test_both_streams_and_the_exit_status(shell: Shell) -> None:
    assert shell.run("echo out; echo err >&2; exit 3", soon()) == Output(3, b"out\n", b"err\n")


def test_a_command_ended_by_a_signal_has_no_status(shell: Shell) -> None:
    assert shell.run("kill -KILL $$", soon()) == Output(-1, b"", b"")


def test_input_larger_than_every_window_comes_back_whole(shell: Shell) -> None:
    sent = bytes(range(256)) * 20_000
    assert shell.run("cat", soon(), stdin=sent, limit_bytes=len(sent)).stdout == sent


def test_a_command_need_not_read_its_input(shell: Shell) -> None:
    assert shell.run("exit 5", soon(), stdin=b"x" * 8_000_000).exit_status == 5


def test_input_ends(shell: Shell) -> None:
    assert shell.run("wc -c", soon()).stdout.strip() == b"0"


def test_output_up_to_the_limit_is_kept(shell: Shell) -> None:
    assert len(shell.run("head -c 5000 /dev/zero", soon(), limit_bytes=5000).stdout) == 5000


@pytest.mark.parametrize("command", ["yes", "yes >&2", "head -c 5001 /dev/zero"])
def test_output_beyond_the_limit_ends_the_call(shell: Shell, command: str) -> None:
    with pytest.raises(OutputTooLarge, match=r"host-1.*more than 5000 bytes"):
        shell.run(command, soon(), limit_bytes=5000)
    assert shell.run("echo on", soon()).stdout == b"on\n"


@pytest.mark.parametrize("command", ["sleep 60", "sleep 60 & exec >&- 2>&-; wait", "cat >/dev/null; sleep 60"])
def test_no_command_outlives_its_deadline(shell: Shell, command: str) -> None:
    with pytest.raises(DeadlinePassed, match="host-1"):
        shell.run(command, Deadline.after(0.7), stdin=b"x")


def test_endless_output_does_not_postpone_the_deadline(shell: Shell) -> None:
    with pytest.raises(DeadlinePassed):
        shell.run("while :; do echo tick; done", Deadline.after(0.7), limit_bytes=1 << 40)


@pytest.mark.parametrize(
    "command",
    [
        "no-such-tool -x",
        "sh -c no-such-tool",
        "exec no-such-tool",
        "timeout 5 no-such-tool",
        "/opt/no-such-tool",
    ],
)
def test_a_missing_command_is_named(shell: Shell, command: str) -> None:
    with pytest.raises(CommandNotFound, match=r"host-1: .*no-such-tool is not installed there"):
        shell.run(command, soon())


def test_status_127_without_the_words_is_an_answer(shell: Shell) -> None:
    assert shell.run("echo all is well >&2; exit 127", soon()) == Output(127, b"", b"all is well\n")
