"""A runner, or its guest, that went down in the middle: the run is closed with the reason and never begun again."""

import os
import signal
from dataclasses import replace

from fleet.workflows.guest import STALE_S, GuestPoll, RunState
from tests.unit.guest.world import BOOT_ID, VALIDATION, Guest, soon, step
from validators.base import Ended

ANOTHER_BOOT = "99999999-2222-3333-4444-555555555555"


def begin_burn(guest: Guest) -> None:
    guest.tool("quick", "echo quick")
    guest.tool("burn", 'echo x >> "$HOME/ran"; setsid sleep 1000 & echo begun; sleep 1000')
    guest.begin([step("gpu_inventory", "quick")], [step("gpu_burn", "burn")], [step("nccl", "burn")])
    for _ in soon().poll(0.05):
        state = guest.look()
        if state and state.checks["gpu_burn"].tail:
            return


def kill_supervisor(guest: Guest) -> None:
    pid = guest.supervisor()
    os.kill(pid, signal.SIGKILL)
    for _ in soon().poll(0.01):
        if pid not in dict(guest.processes()):
            return


def start(guest: Guest) -> None:
    answer = guest.shell.run(f"cd fleet/{VALIDATION} && python3 -I -S runner.pyz start", soon())
    assert answer.exit_status == 0, answer.stderr


def assert_closed(guest: Guest, reason: str) -> None:
    state = guest.look()
    assert state is not None
    assert state.state is RunState.BROKEN
    assert state.reason.startswith(reason)
    assert [check.ended for check in state.checks.values()] == [Ended.EXITED, Ended.LOST, Ended.LOST]
    outputs = guest.outputs()
    assert outputs["gpu_inventory"].stdout == b"quick\n"
    assert outputs["gpu_burn"].stdout == b"begun\n"
    assert state.checks["gpu_burn"].stdout_bytes == len("begun\n")
    assert (guest.home / "ran").read_text() == "x\n"


def test_killed_runner_is_seen_by_a_later_start_which_ends_what_it_left(guest: Guest) -> None:
    begin_burn(guest)
    kill_supervisor(guest)
    assert list(guest.processes()), "the burn outlives its runner"
    start(guest)
    assert list(guest.processes()) == []
    assert_closed(guest, "the runner died while the run was on; ")


def test_rebooted_guest_is_noticed_by_a_poll_alone(guest: Guest) -> None:
    begin_burn(guest)
    guest.end()
    guest.reboot(ANOTHER_BOOT)
    assert_closed(guest, f"the guest was rebooted while the run was on: boot id {BOOT_ID} is now {ANOTHER_BOOT}")


def test_begin_on_a_dead_run_closes_it_too(guest: Guest) -> None:
    begin_burn(guest)
    kill_supervisor(guest)
    begin_again = [step("gpu_burn", "burn")]
    guest.begin(begin_again)
    assert_closed(guest, "the runner died")


def test_start_on_a_living_run_leaves_it_alone(guest: Guest) -> None:
    begin_burn(guest)
    start(guest)
    state = guest.look()
    assert state is not None
    assert (state.state, state.checks["gpu_burn"].state) == (RunState.RUNNING, "running")


def test_polite_end_of_the_runner_is_a_broken_run(guest: Guest) -> None:
    """A guest that shuts down sends SIGTERM first: that is no order of ours."""
    begin_burn(guest)
    os.kill(guest.supervisor(), signal.SIGTERM)
    guest.wait()
    assert_closed(guest, "runner: Terminated: ended by signal 15")
    assert list(guest.processes()) == []


def test_mangled_state_is_broken_after_a_start(guest: Guest) -> None:
    guest.begin([step("nccl", "true")])
    guest.wait()
    (guest.directory / "state.json").write_bytes(b"\0" * 100)
    start(guest)
    state = guest.look()
    assert state is not None
    assert (state.state, state.checks) == (RunState.BROKEN, {})
    assert state.reason.startswith("state.json: ")


def test_stale_is_running_without_a_beat_or_under_another_boot(guest: Guest) -> None:
    guest.tool("burn", "exec sleep 1000")
    guest.begin([step("gpu_burn", "burn")])
    seen = guest.run.poll((), 0, soon())
    assert seen.state is not None
    assert not seen.stale
    assert replace(seen, uptime_s=seen.state.beat + STALE_S + 1).stale
    assert replace(seen, boot_id=ANOTHER_BOOT).stale
    over = seen.state.model_copy(update={"state": RunState.DONE})
    assert not GuestPoll(over, {}, ANOTHER_BOOT, 1e9).stale
