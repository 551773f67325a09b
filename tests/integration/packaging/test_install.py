"""What is installed is exactly what is locked, and all of it; the container file says no more than that."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.needs import need

ROOT = Path(__file__).parents[3]
PACKAGES = ("fleet", "validators", "ticketing", "playbooks")
CONTAINERFILE = (ROOT / "packaging" / "Containerfile").read_text()


def locked(file: str) -> dict[str, str]:
    """By package, its version, hashes and conditions."""
    entries = re.split(r"\n(?=\S)", (ROOT / file).read_text())
    return {entry.partition("==")[0]: entry.strip() for entry in entries}


def test_what_runs_is_what_is_tested() -> None:
    tested = locked("requirements.lock")
    for part in ("runtime", "build"):
        entries = locked(f"requirements/{part}.lock")
        assert {name: entry for name, entry in entries.items() if tested[name] != entry} == {}
        asked = (ROOT / "requirements" / f"{part}.in").read_text().split()
        assert {re.split(r"[\[>=]", line)[0].lower() for line in asked} <= entries.keys()
        assert all("--hash=sha256:" in entry for entry in entries.values())
    assert not {"pytest", "mypy", "moto"} & locked("requirements/runtime.lock").keys()


def test_the_wheel_has_every_file(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "requirements", source / "requirements")
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy2(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", tmp_path, source], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    have = set(zipfile.ZipFile(wheel).namelist())
    want = {
        str(f.relative_to(source))
        for name in PACKAGES
        for f in (source / name).rglob("*")
        if f.is_file() and f.suffix != ".md"
    }
    assert want - have == set()


@pytest.mark.real
def test_the_script_is_sound() -> None:
    need("shellcheck (Debian: apt-get install shellcheck)", program := shutil.which("shellcheck"))
    ended = subprocess.run([str(program), ROOT / "packaging" / "install"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout


def test_the_container_is_built_from_the_site_s_own_image_and_nobodys_root() -> None:
    assert set(re.findall(r"^FROM (\S+)", CONTAINERFILE, re.MULTILINE)) == {"${BASE}"}
    (user,) = re.findall(r"^USER (\d+):\d+", CONTAINERFILE, re.MULTILINE)
    assert int(user) != 0
    assert "://" not in CONTAINERFILE


def test_the_build_gets_what_the_script_copies_and_no_more() -> None:
    ignored = (ROOT / "packaging" / "Containerfile.containerignore").read_text().splitlines()
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    (copied,) = re.findall(r"cp -R (.*) \"\$work/source\"", (ROOT / "packaging" / "install").read_text())
    assert ignored[0] == "*"
    assert let_in == {*copied.split(), "packaging/install"}
