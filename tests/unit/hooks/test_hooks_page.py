"""The command in docs/hooks.md, as it stands there, and the page's settings."""

import re
from pathlib import Path

import pytest

from fleet.app import parts
from fleet.core.clock import Deadline
from fleet.hooks.base import Answer, Reply
from fleet.hooks.command import CommandHook
from fleet.settings import load

PAGE = (Path(__file__).parents[3] / "docs" / "hooks.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


@pytest.fixture
def wipe(tmp_path: Path) -> CommandHook:
    program = tmp_path / "wipe-receipt"
    program.write_text(block("python"))
    program.chmod(0o755)
    return CommandHook("wipe", (str(program), str(tmp_path)), 60.0)


def ask(hook: CommandHook) -> Answer:
    return hook.ask({"hook": "wipe", "validation": "val-1"}, "val-1/wipe", Deadline.after(10.0))


def test_the_sample_orders_once_waits_and_brings_the_receipt(wipe: CommandHook, tmp_path: Path) -> None:
    waiting = Answer(Reply.NOT_YET, "the station has not finished")
    assert ask(wipe) == waiting
    ordered = (tmp_path / "val-1.order").stat().st_mtime_ns
    assert ask(wipe) == waiting
    assert (tmp_path / "val-1.order").stat().st_mtime_ns == ordered
    (tmp_path / "val-1.receipt").write_text('{"disks": 8, "by": "nwipe 0.37"}')
    assert ask(wipe) == Answer(Reply.YES, receipt={"disks": 8, "by": "nwipe 0.37"})


def test_the_sample_says_why_a_wipe_failed(wipe: CommandHook, tmp_path: Path) -> None:
    (tmp_path / "val-1.failed").write_text("nvme3: I/O error at 40%")
    assert ask(wipe) == Answer(Reply.NO, "exit status 1: nvme3: I/O error at 40%")


def test_the_settings_on_the_page_are_settings(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(block("yaml"))
    hooks = [parts.hook(rules) for rules in load(tmp_path / "fleet.yaml").hooks]
    assert [hook.name for hook in hooks] == ["wipe", "partition"]
