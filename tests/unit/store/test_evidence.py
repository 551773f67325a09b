"""Raw outputs as files: named strictly, bounded, replaced whole."""

from pathlib import Path

import pytest

from fleet.core.errors import InvalidInput, NotFound, StoreError
from fleet.store.evidence import EvidenceFolder


def test_an_output_comes_back_with_its_digest(tmp_path: Path) -> None:
    folder = EvidenceFolder(tmp_path)
    stored = folder.put("val-1", "nccl.1", "stdout", b"busbw 231\n")
    assert stored["path"] == "val-1/nccl.1/stdout"
    assert stored["bytes"] == 10
    assert stored["sha256"] == "1b1120a7f20ce60951cac4112008108ee54445f9223b3168df84a02cf7c24a22"
    assert folder.get("val-1", "nccl.1", "stdout") == b"busbw 231\n"


def test_a_repeated_put_replaces_the_whole(tmp_path: Path) -> None:
    folder = EvidenceFolder(tmp_path)
    folder.put("val-1", "nccl.1", "stdout", b"a long first attempt")
    folder.put("val-1", "nccl.1", "stdout", b"short")
    assert folder.get("val-1", "nccl.1", "stdout") == b"short"
    assert [p.name for p in (tmp_path / "val-1" / "nccl.1").iterdir()] == ["stdout"]


def test_what_is_longer_is_cut(tmp_path: Path) -> None:
    folder = EvidenceFolder(tmp_path, limit_bytes=4)
    assert folder.put("val-1", "fio.1", "stdout", b"123456")["bytes"] == 4
    assert folder.get("val-1", "fio.1", "stdout") == b"1234"


@pytest.mark.parametrize("name", ["..", "../up", "a/b", "", ".hidden", "with space", "x" * 129, "nul\0", "line\n"])
def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    folder = EvidenceFolder(tmp_path / "evidence")
    for act in (lambda: folder.put("val-1", name, "stdout", b""), lambda: folder.get("val-1", "nccl.1", name)):
        with pytest.raises(InvalidInput, match="is not a name of evidence"):
            act()
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"val-1 has no stderr of nccl\.1"):
        EvidenceFolder(tmp_path).get("val-1", "nccl.1", "stderr")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    root = tmp_path / "evidence"
    root.write_text("a file is in the way")
    with pytest.raises(StoreError, match="evidence cannot be stored in"):
        EvidenceFolder(root).put("val-1", "nccl.1", "stdout", b"")
