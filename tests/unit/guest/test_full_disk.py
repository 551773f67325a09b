"""Where the guest's disk is full the output ends early, and the state still tells the truth."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.workflows.guest import GuestError, RunState
from tests.needs import need
from tests.unit.guest.world import Guest, soon, step
from validators.base import Ended


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Guest]:
    """A guest whose home is a file system of 1 MiB."""
    need("root, to mount a small tmpfs", os.geteuid() == 0)
    guest = Guest(tmp_path)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", guest.home], capture_output=True)
    need(f"the right to mount: {mounted.stderr!r}", mounted.returncode == 0)
    yield guest
    guest.end()
    subprocess.run(["umount", "-l", guest.home], check=True)


@pytest.mark.real
def test_output_that_fills_the_disk_ends_its_step_and_the_run_goes_on(small: Guest) -> None:
    small.tool("chatty", "trap '' TERM; yes")
    small.begin([step("a", "chatty", output_limit_bytes=1 << 30)], [step("b", "chatty")], [step("c", "true")])
    state = small.wait()
    assert state.state is RunState.DONE
    assert [check.ended for check in state.checks.values()] == [Ended.DISK_FULL, Ended.DISK_FULL, Ended.EXITED]
    first = state.checks["a"]
    assert first.truncated
    assert 100_000 < first.stdout_bytes < 1 << 20
    assert len(small.outputs()["a"].stdout) == first.stdout_bytes


@pytest.mark.real
def test_state_is_written_while_somebody_else_keeps_the_disk_full(small: Guest) -> None:
    small.tool("glutton", 'head -c 2000000 /dev/zero > "$HOME/all"; echo said >&2; head -c 100000 /dev/zero')
    small.begin([step("a", "glutton")], [step("b", "glutton")])
    state = small.wait()
    assert state.state is RunState.DONE
    assert [check.state for check in state.checks.values()] == ["ended", "ended"]
    assert state.checks["b"].ended is Ended.DISK_FULL


@pytest.mark.real
def test_disk_full_before_the_start_is_an_error_that_says_so(small: Guest) -> None:
    filled = small.shell.run("head -c 2000000 /dev/zero > all", soon())
    assert b"No space left" in filled.stderr
    with pytest.raises(GuestError, match="No space left"):
        small.begin([step("a", "true")])
    assert small.look() is None


def test_limit_on_file_sizes_is_met_like_a_full_disk(tmp_path: Path) -> None:
    guest = Guest(tmp_path, prelude="ulimit -f 512; ")
    guest.tool("chatty", "yes")
    try:
        guest.begin([step("a", "chatty", output_limit_bytes=1 << 30)], [step("b", "true")])
        state = guest.wait()
    finally:
        guest.end()
    assert state.state is RunState.DONE
    assert (state.checks["a"].ended, state.checks["a"].stdout_bytes) == (Ended.DISK_FULL, 512 * 512)
    assert state.checks["b"].ended is Ended.EXITED


def test_begin_without_a_working_home_says_what_the_guest_said(guest: Guest) -> None:
    (guest.home / "fleet").write_text("a file")
    with pytest.raises(GuestError, match="fleet"):
        guest.run.begin({"stages": []}, soon())
