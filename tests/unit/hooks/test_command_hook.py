"""A program as a hook: its exit status is the answer, and it can neither stay, flood, nor read the service's environment."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from fleet.core.clock import Deadline
from fleet.hooks.base import Answer, Reply, yes
from fleet.hooks.command import CommandHook

QUESTION = {"hook": "wipe", "machine": {"name": "m1"}}


def ask(program: str, within_s: float = 10.0, *args: str) -> Answer:
    hook = CommandHook("wipe", (sys.executable, "-c", program, *args), 60.0)
    return hook.ask(QUESTION, "val-1/wipe", Deadline.after(within_s))


@pytest.mark.parametrize(
    ("printed", "receipt"),
    [
        ('{"disks": 8}', {"disks": 8}),
        ("wiped by nwipe\\n8 of 8\\n", "wiped by nwipe 8 of 8"),
        ("", ""),
        ("NaN", "NaN"),
        ("1e999", "1e999"),
        ('"\\\\ud800"', '"\\ud800"'),
        ("\\x1b[2Jred", "[2Jred"),
    ],
)
def test_status_0_is_a_yes_and_its_output_the_receipt(printed: str, receipt: Any) -> None:
    assert ask(f"print('{printed}', end='')") == Answer(Reply.YES, receipt=receipt)


def test_status_75_is_not_yet() -> None:
    answer = ask("import sys; print('3 of 8', file=sys.stderr); sys.exit(75)")
    assert answer == Answer(Reply.NOT_YET, "3 of 8")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import sys; print('disk 3\\x1b[2J stays', file=sys.stderr); sys.exit(4)", "exit status 4: disk 3 [2J stays"),
        ("import sys; sys.exit(1)", "exit status 1"),
        ("import os; os.kill(os.getpid(), 9)", "ended by signal 9"),
        ("print('x' * 20000)", "its receipt has more than 16 KiB"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", "its receipt is not UTF-8"),
    ],
)
def test_anything_else_is_a_no_with_its_last_words(program: str, words: str) -> None:
    assert ask(program) == Answer(Reply.NO, words)


def test_a_program_that_is_not_there_is_a_no() -> None:
    answer = CommandHook("wipe", ("/nowhere/wipe",), 60.0).ask(QUESTION, "k", Deadline.after(5.0))
    assert answer == Answer(Reply.NO, "/nowhere/wipe cannot be started: No such file or directory")


def test_it_is_told_the_question_and_nothing_of_our_environment() -> None:
    os.environ["FLEET_PLANTED_SECRET"] = "hunter2"
    try:
        answer = ask("import json, os, sys; print(json.dumps([json.load(sys.stdin), dict(os.environ), os.getcwd()]))")
    finally:
        del os.environ["FLEET_PLANTED_SECRET"]
    told, environment, directory = answer.receipt
    assert (told, directory) == (QUESTION, "/")
    assert set(environment) - {"LC_CTYPE"} == {"PATH", "LANG", "FLEET_HOOK", "FLEET_HOOK_KEY"}
    assert environment["FLEET_HOOK_KEY"] == "val-1/wipe"


def test_no_shell_reads_the_arguments() -> None:
    assert ask("import sys, json; print(json.dumps(sys.argv[1:]))", 10.0, "$(id)", "; id").receipt == ["$(id)", "; id"]


def test_a_call_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    """`sleep` keeps the pipes open as well: nobody may wait for them."""
    pid = tmp_path / "pid"
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "open(sys.argv[1], 'w').write(str(child.pid))\n"
        "time.sleep(1000)"
    )
    answer = ask(program, 1.5, str(pid))
    assert answer == Answer(Reply.NONE, "one call took too long and was ended")
    assert gone(int(pid.read_text()))


def test_a_child_that_is_left_behind_is_ended_and_not_waited_for(tmp_path: Path) -> None:
    program = "import subprocess, sys\nchild = subprocess.Popen(['sleep', '1000'])\nprint(child.pid)"
    answer = ask(program)
    assert answer.reply is Reply.YES
    assert gone(int(answer.receipt))


def test_output_without_end_is_cut_off_at_the_deadline() -> None:
    assert ask("while True: print('x' * 4096)", 1.0).reply is Reply.NONE


@pytest.mark.parametrize("depth", [8000, 500, 40])
def test_a_receipt_nested_too_deep_is_kept_as_text(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    assert yes(deep.encode()) == Answer(Reply.YES, receipt=deep)


def gone(pid: int) -> bool:
    """Ended, whether or not its new parent has waited for it yet."""
    for _ in Deadline.after(10.0).poll(0.05):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
    return False
