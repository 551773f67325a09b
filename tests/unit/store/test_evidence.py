"""What only a folder can do: be full, be in the way, be on the database's own disk."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.core.errors import EvidenceFull, StoreError
from fleet.store.evidence import EvidenceFolder
from tests.needs import need


def test_a_repeated_put_is_the_same_file(tmp_path: Path) -> None:
    folder = EvidenceFolder(tmp_path)
    stored = [folder.put("val-1", "nccl.1", "stdout", b"busbw 231\n") for _ in range(2)]
    assert stored[0] == stored[1]
    assert len(list((tmp_path / "val-1" / "nccl.1").iterdir())) == 1


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    root = tmp_path / "evidence"
    root.write_text("a file is in the way")
    folder = EvidenceFolder(root)
    for act in (lambda: folder.put("val-1", "nccl.1", "stdout", b""), folder.free_bytes):
        with pytest.raises(StoreError, match=f"evidence cannot be stored in {root}"):
            act()


def test_what_is_reserved_for_the_database_stays_free(tmp_path: Path) -> None:
    everything = shutil.disk_usage(tmp_path).total + 1
    folder = EvidenceFolder(tmp_path, reserve_bytes=everything)
    assert folder.free_bytes() == 0
    with pytest.raises(EvidenceFull, match=r"MiB are reserved \(evidence.reserve_mib\)"):
        folder.put("val-1", "nccl.1", "stdout", b"busbw 231\n")
    assert not list(tmp_path.rglob("stdout*"))


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    need("root, to mount a small tmpfs", os.geteuid() == 0)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], capture_output=True)
    need(f"the right to mount: {mounted.stderr!r}", mounted.returncode == 0)
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.mark.real
def test_a_full_disk_keeps_what_it_has_and_says_that_it_is_full(small: Path) -> None:
    folder = EvidenceFolder(small)
    stored = folder.put("val-1", "nccl.1", "stdout", b"busbw 231\n")
    for _ in range(2):
        with pytest.raises(EvidenceFull, match=f"evidence cannot be stored in {small}: No space left on device"):
            folder.put("val-1", "nccl.2", "stdout", b"x" * (2 << 20))
    assert not list((small / "val-1" / "nccl.2").iterdir())  # no part of it takes the place that is left
    assert folder.get(stored) == b"busbw 231\n"


def test_foreign_files_in_the_folder_are_no_validations(tmp_path: Path) -> None:
    folder = EvidenceFolder(tmp_path)
    folder.put("val-1", "nccl.1", "stdout", b"")
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "README").write_text("not ours")
    assert folder.validations("", 10) == ["val-1"]
