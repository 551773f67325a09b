"""What the project promises of its own files."""

import importlib
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("package", ["fleet", "validators", "ticketing", "playbooks", "image"])
def test_our_packages_come_before_foreign_ones_of_the_same_name(package: str) -> None:
    found = importlib.import_module(package).__file__
    assert found is not None
    assert Path(found).resolve().is_relative_to(ROOT)


def test_no_python_file_is_longer_than_four_hundred_lines() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    lengths = {
        name: len((ROOT / name).read_text().splitlines()) for name in listed.stdout.split() if (ROOT / name).exists()
    }
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_the_lock_file_names_no_registry() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    assert "--index-url" not in lock
    assert lock.count("--hash=sha256:") > 100
