"""The real runner, in a home of its own, with scripts as tools."""

import json
import os
import select
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fleet.core.errors import InvalidInput
from fleet.workflows.guest import GuestError, GuestRun, RunState
from tests.unit.guest.world import BOOT_ID, Guest, soon, step
from validators.base import Ended


def test_no_state_before_the_start(guest: Guest) -> None:
    assert guest.look() is None
    assert guest.run.boot_id(soon()) == BOOT_ID


def test_raw_output_exit_status_and_times_of_each_step(guest: Guest) -> None:
    guest.tool("burn", "printf 'hot\\n'; echo odd >&2; exit 3")
    guest.begin([step("gpu_burn", "burn")], [step("gpu_inventory.2", "burn")])
    state = guest.wait()
    assert (state.state, state.reason, state.boot_id) == (RunState.DONE, "", BOOT_ID)
    check = state.checks["gpu_burn"]
    assert (check.state, check.ended, check.exit_status, check.tail) == ("ended", Ended.EXITED, 3, "hot\n")
    assert (check.stdout_bytes, check.stderr_bytes, check.truncated) == (4, 4, False)
    assert check.started_at is not None
    assert check.duration_s is not None
    output = guest.outputs()["gpu_inventory.2"]
    assert (output.stdout, output.stderr, output.truncated) == (b"hot\n", b"odd\n", False)


def test_start_detaches_and_says_what_is_running(guest: Guest) -> None:
    """The shell's pipes are read to their end: a runner that kept them open would make `begin` wait for the step."""
    guest.tool("burn", "echo 40%; exec sleep 1000")
    guest.begin([step("gpu_burn", "burn")], [step("nccl", "burn")])
    for _ in soon().poll(0.05):
        if (state := guest.look()) and state.checks["gpu_burn"].tail:
            break
    assert state is not None
    assert state.state is RunState.RUNNING
    assert [check.state for check in state.checks.values()] == ["running", "waiting"]
    assert state.checks["gpu_burn"].tail == "40%\n"
    assert guest.outputs() == {}, "what has not ended is not handed out"


def test_start_keeps_nothing_open_that_it_was_given(guest: Guest) -> None:
    """A channel that stays open until all that was started in it has ended would look like a command that hangs."""
    guest.tool("burn", "exec sleep 1000")
    guest.begin([step("gpu_burn", "true")])
    guest.wait()
    (guest.directory / "state.json").unlink()
    (guest.directory / "plan.json").write_text(json.dumps({"stages": [[step("nccl", "burn")]]}))
    reading, writing = os.pipe()
    command = [sys.executable, "-I", "-S", "runner.pyz", "start"]
    subprocess.run(command, cwd=guest.directory, env=guest.environment, pass_fds=[writing], check=True)
    os.close(writing)
    assert select.select([reading], [], [], 30)[0], "somebody still holds the other end"
    assert os.read(reading, 1) == b""
    os.close(reading)
    assert guest.supervisor()


def test_steps_of_a_stage_run_side_by_side_and_stages_in_order(guest: Guest) -> None:
    """Each of the two waits for the other; the next stage sees both gone."""
    guest.tool("meet", 'mkfifo "$1" 2>/dev/null; mkfifo "$2" 2>/dev/null; echo here > "$1" & cat "$2"; wait')
    guest.tool("after", "ls")
    guest.begin([step("a", "meet", "one", "two"), step("b", "meet", "two", "one")], [step("c", "after")])
    assert guest.wait().state is RunState.DONE
    assert [guest.outputs()[name].stdout for name in ("a", "b", "c")] == [b"here\n", b"here\n", b"one\ntwo\n"]


def test_missing_tool_is_not_found_and_the_run_goes_on(guest: Guest) -> None:
    guest.tool("there", "echo yes")
    guest.begin([step("nccl", "all_reduce_perf_of_nowhere"), step("fio", "there")])
    state = guest.wait()
    assert state.state is RunState.DONE
    assert (state.checks["nccl"].ended, state.checks["nccl"].exit_status) == (Ended.NOT_FOUND, None)
    assert guest.outputs()["nccl"].stderr == b"all_reduce_perf_of_nowhere: No such file or directory\n"
    assert state.checks["fio"].ended is Ended.EXITED


def test_deadline_kills_the_whole_group_also_what_ignores_sigterm_or_left_it(guest: Guest) -> None:
    guest.tool("stubborn", "trap '' TERM; sleep 1000 & setsid sleep 1000 & echo begun; sleep 1000; sleep 1000")
    guest.begin([step("gpu_burn", "stubborn", deadline_s=0.5)])
    check = guest.wait().checks["gpu_burn"]
    assert (check.ended, check.exit_status, check.tail) == (Ended.DEADLINE, -9, "begun\n")
    assert not [pid for pid, environment in guest.processes() if b"FLEET_STEP=" in environment]


def has_ended(pid: int) -> bool:
    """Or is a zombie that waits for its parent, which in a container may be nobody."""
    for _ in soon().poll(0.02):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
    return False


def test_last_words_after_sigterm_are_kept(guest: Guest) -> None:
    guest.tool("polite", "trap 'echo summary; exit 7' TERM; while :; do sleep 0.05; done")
    guest.begin([step("gpu_burn", "polite", deadline_s=0.5)])
    check = guest.wait().checks["gpu_burn"]
    assert (check.ended, check.exit_status) == (Ended.DEADLINE, 7)
    assert guest.outputs()["gpu_burn"].stdout == b"summary\n"


def test_endless_output_is_cut_at_the_cap_and_the_tool_killed(guest: Guest) -> None:
    guest.tool("chatty", "trap '' TERM; yes & yes; yes >&2")
    guest.begin([step("nccl", "chatty", output_limit_bytes=100_000)])
    check = guest.wait().checks["nccl"]
    assert (check.ended, check.truncated) == (Ended.OUTPUT_LIMIT, True)
    assert check.stdout_bytes + check.stderr_bytes == 100_000
    assert guest.outputs()["nccl"].truncated


def test_output_of_exactly_the_cap_is_whole(guest: Guest) -> None:
    guest.tool("exact", "head -c 100000 /dev/zero")
    guest.begin([step("nccl", "exact", output_limit_bytes=100_000)])
    check = guest.wait().checks["nccl"]
    assert (check.ended, check.truncated, check.stdout_bytes) == (Ended.EXITED, False, 100_000)


def test_binary_output_is_kept_as_it_is_and_harmless_in_the_state(guest: Guest) -> None:
    guest.tool("binary", r"printf '\000\033[2J\377\303ok\r50%%\r'")
    guest.begin([step("gpu_burn", "binary")])
    assert guest.wait().checks["gpu_burn"].tail == "??[2J??ok\n50%\n"
    assert guest.outputs()["gpu_burn"].stdout == b"\0\x1b[2J\xff\xc3ok\r50%\r"


def test_background_child_that_keeps_the_output_open_ends_with_its_parent(guest: Guest) -> None:
    guest.tool("leaves", "sleep 1000 & setsid sleep 1000 & env -i sleep 1000 & echo $! > unmarked; echo done")
    guest.begin([step("ib_bandwidth", "leaves")])
    check = guest.wait().checks["ib_bandwidth"]
    assert (check.ended, check.exit_status) == (Ended.EXITED, 0)
    assert not [pid for pid, environment in guest.processes() if b"FLEET_STEP=" in environment]
    assert has_ended(int((guest.directory / "work/unmarked").read_text()))


def test_stop_ends_what_runs_and_what_waits(guest: Guest) -> None:
    guest.tool("burn", "echo begun; exec sleep 1000")
    guest.begin([step("gpu_burn", "burn")], [step("nccl", "burn")])
    guest.run.stop(soon())
    state = guest.wait()
    assert (state.state, state.reason) == (RunState.STOPPED, "stopped by the orchestrator")
    assert {check.ended for check in state.checks.values()} == {Ended.STOPPED}
    assert state.checks["nccl"].started_at is None
    assert set(guest.outputs()) == {"gpu_burn", "nccl"}


def test_stop_after_the_end_changes_nothing_and_before_the_start_is_nothing(guest: Guest) -> None:
    guest.run.stop(soon())
    guest.begin([step("nccl", "true")])
    guest.wait()
    guest.run.stop(soon())
    guest.begin([step("nccl", "true")])
    assert guest.wait().state is RunState.DONE


def test_begun_once_however_often_and_by_however_many(guest: Guest) -> None:
    guest.tool("burn", 'echo x >> "$HOME/ran"; sleep 0.3')
    together = [threading.Thread(target=guest.begin, args=([step("gpu_burn", "burn")],)) for _ in range(6)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert guest.wait().state is RunState.DONE
    guest.begin([step("another", "burn")])
    assert set(guest.wait().checks) == {"gpu_burn"}
    assert (guest.home / "ran").read_text() == "x\n"


def test_known_outputs_are_not_sent_again_and_long_ones_are_cut(guest: Guest) -> None:
    guest.tool("long", "head -c 5000 /dev/zero; head -c 30 /dev/zero >&2")
    guest.begin([step("a", "long"), step("b", "long")])
    guest.wait()
    outputs = guest.run.poll({"a"}, 1000, soon()).outputs
    assert set(outputs) == {"b"}
    assert (len(outputs["b"].stdout), len(outputs["b"].stderr), outputs["b"].truncated) == (1000, 30, True)


def test_one_poll_is_bounded_as_a_whole(guest: Guest) -> None:
    guest.tool("long", "head -c 5000 /dev/zero")
    guest.begin([step(f"s{number}", "long") for number in range(8)])
    guest.wait()
    outputs = guest.outputs(1000)
    assert [len(outputs[f"s{number}"].stdout) for number in range(8)] == [1000] * 4 + [0] * 4
    assert all(output.truncated for output in outputs.values())


@pytest.mark.parametrize(
    ("stages", "reason"),
    [
        ([[{"name": "../x", "argv": ["true"], "deadline_s": 1, "output_limit_bytes": 1}]], "plan.json: ValueError"),
        ([[{"name": "x", "argv": [], "deadline_s": 1, "output_limit_bytes": 1}]], "plan.json: ValueError: argv of x"),
        ([[{"name": "x", "argv": ["true"]}]], "plan.json: KeyError: 'deadline_s'"),
        ([[step("x", "true")], [step("x", "true")]], "plan.json: 2 steps, at most 48 with different names"),
        ("stages", "plan.json: TypeError"),
    ],
)
def test_unusable_plan_breaks_the_run_with_the_reason(guest: Guest, stages: object, reason: str) -> None:
    guest.run.begin({"stages": stages}, soon())
    state = guest.wait()
    assert state.state is RunState.BROKEN
    assert state.reason.startswith(reason)
    assert state.checks == {}


def test_upload_that_was_cut_starts_nothing_and_can_be_repeated(guest: Guest) -> None:
    class Cut:
        def run(self, command: str, deadline, *, stdin: bytes = b"", limit_bytes: int = 0):  # type: ignore[no-untyped-def]
            return guest.shell.run(command, deadline, stdin=stdin[: len(stdin) // 2], limit_bytes=limit_bytes)

        def close(self) -> None: ...

    with pytest.raises(GuestError, match="the upload was cut"):
        GuestRun(Cut(), "val-1").begin({"stages": []}, soon())
    assert guest.look() is None
    guest.begin([step("nccl", "true")])
    assert guest.wait().state is RunState.DONE


@pytest.mark.parametrize(("octal", "shown"), [("134", b"\\\\"), ("001", b"?")])
def test_state_stays_under_its_limit_with_the_largest_plan(guest: Guest, octal: str, shown: bytes) -> None:
    """Both characters are longer in JSON than they are."""
    guest.tool("ugly", f"head -c 2000 /dev/zero | tr '\\000' '\\{octal}'")
    names = [f"{'n' * 40}.{number}" for number in range(48)]
    guest.begin([step(name, "ugly") for name in names])
    assert guest.wait().state is RunState.DONE
    written = (guest.directory / "state.json").read_bytes()
    assert written.count(shown * 400) == 48
    assert len(written) < 64 << 10
    assert list(json.loads(written)["checks"]) == names


def test_kernel_log_is_the_end_of_dmesg(guest: Guest) -> None:
    guest.tool("dmesg", '[ "$1" = --time-format ] && echo 1234567890')
    assert guest.run.kernel_log(5, soon()) == b"7890\n"


def test_kernel_log_that_cannot_be_read_is_an_error(guest: Guest) -> None:
    guest.tool("dmesg", "exit 1")
    with pytest.raises(GuestError, match="kernel log is empty"):
        guest.run.kernel_log(100, soon())


def test_a_validation_id_never_becomes_shell_words(guest: Guest) -> None:
    for bad in ("", "../x", "a b", "a;b", "-x", "a\n", "x" * 65):
        with pytest.raises(InvalidInput):
            GuestRun(guest.shell, bad)
