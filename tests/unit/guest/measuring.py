"""Runs one measurement of the zipapp, as the runner does."""

import os
import subprocess
import sys
from pathlib import Path

from validators.guest.build import runner_zipapp


def measure(directory: Path, *words: str, environment: dict[str, str] | None = None) -> str:
    archive = directory / "runner.pyz"
    archive.write_bytes(runner_zipapp())
    ran = subprocess.run(
        [sys.executable, "-I", "-S", archive, "measure", *words],
        cwd=directory,
        env={"PATH": os.environ["PATH"], **(environment or {})},
        capture_output=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.decode()
