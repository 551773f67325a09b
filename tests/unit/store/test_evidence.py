"""Raw outputs as files: named strictly, bounded, never replaced by another content."""

from pathlib import Path

import pytest

from fleet.core.errors import InvalidInput, NotFound, StoreError
from fleet.store.evidence import EvidenceFolder


def test_an_output_comes_back_with_its_digest(tmp_path: Path) -> None:
    folder = EvidenceFolder(tmp_path)
    stored = folder.put("val-1", "nccl.1", "stdout", b"busbw 231\n")
    assert stored["path"] == "val-1/nccl.1/stdout.1b1120a7f20ce609"
    assert stored["bytes"] == 10
    assert stored["sha256"] == "1b1120a7f20ce60951cac4112008108ee54445f9223b3168df84a02cf7c24a22"
    assert folder.get(stored) == b"busbw 231\n"


def test_a_repeated_put_is_the_same_file(tmp_path: Path) -> None:
    folder = EvidenceFolder(tmp_path)
    stored = [folder.put("val-1", "nccl.1", "stdout", b"busbw 231\n") for _ in range(2)]
    assert stored[0] == stored[1]
    assert len(list((tmp_path / "val-1" / "nccl.1").iterdir())) == 1


def test_a_later_put_of_another_content_leaves_what_a_record_names(tmp_path: Path) -> None:
    """A worker that was frozen between its look and the writing of it, and has lost its run meanwhile."""
    folder = EvidenceFolder(tmp_path)
    stored = folder.put("val-1", "device_return", "stdout", b"passed")
    folder.put("val-1", "device_return", "stdout", b"failed")
    assert folder.get(stored) == b"passed"


def test_a_file_that_was_changed_is_no_evidence(tmp_path: Path) -> None:
    folder = EvidenceFolder(tmp_path)
    stored = folder.put("val-1", "nccl.1", "stdout", b"busbw 12\n")
    (tmp_path / stored["path"]).write_bytes(b"busbw 231\n")
    with pytest.raises(StoreError, match="is not what was stored"):
        folder.get(stored)


def test_what_is_longer_is_cut(tmp_path: Path) -> None:
    folder = EvidenceFolder(tmp_path, limit_bytes=4)
    stored = folder.put("val-1", "fio.1", "stdout", b"123456")
    assert stored["bytes"] == 4
    assert folder.get(stored) == b"1234"


@pytest.mark.parametrize("name", ["..", "../up", "a/b", "", ".hidden", "with space", "x" * 129, "nul\0", "line\n"])
def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    folder = EvidenceFolder(tmp_path / "evidence")
    stored = {"path": f"val-1/nccl.1/{name}", "sha256": ""}
    for act in (lambda: folder.put("val-1", name, "stdout", b""), lambda: folder.get(stored)):
        with pytest.raises(InvalidInput, match="is not a name of evidence"):
            act()
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"the evidence val-1/nccl\.1/stderr is not in"):
        EvidenceFolder(tmp_path).get({"path": "val-1/nccl.1/stderr", "sha256": ""})


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    root = tmp_path / "evidence"
    root.write_text("a file is in the way")
    with pytest.raises(StoreError, match="evidence cannot be stored in"):
        EvidenceFolder(root).put("val-1", "nccl.1", "stdout", b"")
