"""The archive that is pushed: what is in it, and that an old guest can read it."""

import ast
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from validators.guest.build import runner_zipapp, sources

OURS = sorted(name for name in sources() if name != "pynvml.py")


def test_same_bytes_at_every_build() -> None:
    again = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from validators.guest.build import *; sys.stdout.buffer.write(runner_zipapp())",
        ],
        capture_output=True,
        check=True,
    )
    assert again.stdout == runner_zipapp()


def test_holds_our_code_and_the_binding_and_nothing_else() -> None:
    with zipfile.ZipFile(io.BytesIO(runner_zipapp())) as archive:
        names = archive.namelist()
        assert archive.read("pynvml.py") == sources()["pynvml.py"]
    assert names == sorted(names)
    assert {"__main__.py", "pynvml.py", "guest/supervisor.py", "guest/measure/gpu_inventory.py"} <= set(names)
    assert "guest/build.py" not in names
    assert {name.split("/")[0] for name in names} == {"__main__.py", "pynvml.py", "guest"}


def test_is_small_enough_to_push_at_every_validation() -> None:
    assert len(runner_zipapp()) < 100_000


@pytest.mark.parametrize("name", OURS)
def test_our_code_is_python_3_8(name: str) -> None:
    tree = ast.parse(sources()[name], name, feature_version=(3, 8))
    assert isinstance(tree, ast.Module)


@pytest.mark.parametrize("name", OURS)
def test_our_code_needs_the_standard_library_and_the_binding_only(name: str) -> None:
    imported = set()
    for node in ast.walk(ast.parse(sources()[name])):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imported.add(str(node.module).split(".")[0])
    assert imported <= set(sys.stdlib_module_names) | {"pynvml", "guest"}


@pytest.mark.parametrize("words", [[], ["dance"], ["measure"], ["measure", "dance"], ["measure", "ib_links", "x"]])
def test_unknown_words_are_refused(tmp_path: Path, words: list[str]) -> None:
    archive = tmp_path / "runner.pyz"
    archive.write_bytes(runner_zipapp())
    ran = subprocess.run([sys.executable, "-I", "-S", archive, *words], capture_output=True, cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stdout == b""
    assert ran.stderr
    assert list(tmp_path.iterdir()) == [archive]
