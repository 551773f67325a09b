"""The scripts as they are sent."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from fleet.hypervisor import scripts

NAMES = sorted(path.stem for path in Path(scripts.__file__).parent.glob("*.sh") if path.stem != "prelude")


@pytest.mark.parametrize("shell", ["sh", "dash", "bash"])
@pytest.mark.parametrize("name", NAMES)
def test_every_shell_can_parse_it(name: str, shell: str) -> None:
    if program := shutil.which(shell):
        told = subprocess.run([program, "-n"], input=scripts.source(name), capture_output=True, text=True)
        assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.parametrize("name", NAMES)
def test_comments_stay_here(name: str) -> None:
    assert not [line for line in scripts.source(name).splitlines() if not line.strip() or line.lstrip().startswith("#")]


def test_arguments_are_quoted() -> None:
    words = shlex.split(scripts.command("forget", "a b", "$(c)", 5, sudo=True))
    assert words[:4] == ["sudo", "-n", "sh", "-c"]
    assert words[5:] == ["fleet-forget", "a b", "$(c)", "5"]
