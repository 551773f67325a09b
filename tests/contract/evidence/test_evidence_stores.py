"""What both evidence stores promise: content comes back as it was, or not at all, and nothing is ever replaced."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.core.errors import InvalidInput, NotFound, StoreError
from fleet.store.evidence import EvidenceFolder, EvidenceStore
from fleet.store.evidence.bucket import EvidenceBucket

Overwrite = Callable[[str, bytes], None]


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> EvidenceStore:
    if request.param == "folder":
        return EvidenceFolder(tmp_path / "evidence", limit_bytes=1 << 20)
    found: EvidenceBucket = request.getfixturevalue("bucket")
    return found


def overwrite(store: EvidenceStore, path: str, content: bytes) -> None:
    """As somebody would who has access to where it is kept."""
    if isinstance(store, EvidenceFolder):
        (store.root / path).write_bytes(content)
    else:
        assert isinstance(store, EvidenceBucket)
        store.client.put_object(Bucket=store.bucket, Key=store.prefix + path, Body=content)


def test_an_output_comes_back_with_its_digest(store: EvidenceStore) -> None:
    stored = store.put("val-1", "nccl.1", "stdout", b"busbw 231\n")
    assert stored == {
        "path": "val-1/nccl.1/stdout.1b1120a7f20ce609",
        "sha256": "1b1120a7f20ce60951cac4112008108ee54445f9223b3168df84a02cf7c24a22",
        "bytes": 10,
    }
    assert store.get(stored) == b"busbw 231\n"
    assert store.put("val-1", "nccl.1", "stdout", b"busbw 231\n") == stored
    assert store.validations("", 10) == ["val-1"]


def test_a_later_put_of_another_content_leaves_what_a_record_names(store: EvidenceStore) -> None:
    """A worker that was frozen between its look and the writing of it, and has lost its run meanwhile."""
    stored = store.put("val-1", "device_return", "stdout", b"passed")
    store.put("val-1", "device_return", "stdout", b"failed")
    assert store.get(stored) == b"passed"


@pytest.mark.parametrize("other", [b"busbw 231\n", b"busbw 12", b"busbw 12\n" * 1000, b""])
def test_what_was_changed_is_no_evidence(store: EvidenceStore, other: bytes) -> None:
    stored = store.put("val-1", "nccl.1", "stdout", b"busbw 12\n")
    overwrite(store, stored["path"], other)
    with pytest.raises(StoreError, match="is not what was stored"):
        store.get(stored)


def test_what_is_longer_is_cut(store: EvidenceStore) -> None:
    stored = store.put("val-1", "fio.1", "stdout", b"x" * (2 << 20))
    assert stored["bytes"] == 1 << 20
    assert store.get(stored) == b"x" * (1 << 20)


@pytest.mark.parametrize("name", ["..", "../up", "a/b", "", ".hidden", "with space", "x" * 129, "nul\0", "line\n"])
def test_a_name_that_could_lead_elsewhere_is_refused(store: EvidenceStore, name: str) -> None:
    stored = {"path": f"val-1/nccl.1/{name}", "sha256": ""}
    acts = (
        lambda: store.put("val-1", name, "stdout", b""),
        lambda: store.put(name, "nccl.1", "stdout", b""),
        lambda: store.get(stored),
        lambda: store.drop(name),
    )
    for act in acts:
        with pytest.raises(InvalidInput, match="is not a name of evidence"):
            act()
    assert store.validations("", 10) == []


def test_what_is_not_there_is_not_found(store: EvidenceStore) -> None:
    with pytest.raises(NotFound, match=r"the evidence val-1/nccl\.1/stderr is not in"):
        store.get({"path": "val-1/nccl.1/stderr", "sha256": ""})


def test_a_validation_is_dropped_whole_and_alone(store: EvidenceStore) -> None:
    kept = store.put("val-10", "nccl", "stdout", b"of another, whose name begins alike")
    gone = [store.put("val-1", f"nccl.{n}", "stdout", b"busbw 231") for n in range(3)]
    for _ in range(2):  # the second time there is nothing left, and that is no error
        store.drop("val-1")
    for stored in gone:
        with pytest.raises(NotFound):
            store.get(stored)
    assert store.get(kept)
    assert store.validations("", 10) == ["val-10"]


def test_validations_are_listed_in_pages(store: EvidenceStore) -> None:
    for number in (3, 1, 10, 2, 5):
        for stream in ("stdout", "stderr"):
            store.put(f"val-{number}", "nccl", stream, stream.encode())
    seen: list[str] = []
    while page := store.validations(seen[-1] if seen else "", 2):
        assert len(page) <= 2
        seen += page
    assert seen == ["val-1", "val-10", "val-2", "val-3", "val-5"]


def test_a_store_that_can_be_used_says_so(store: EvidenceStore) -> None:
    free = store.free_bytes()
    assert free is None or free > 0
