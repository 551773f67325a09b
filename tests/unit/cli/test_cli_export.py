"""`fleet validation export` and the ways to narrow `fleet validation logs`."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

PATH = "/v1/validations/val-1/export"


def packed(content: bytes, **entry: Any) -> bytes:
    """An export of one file, as its manifest describes it."""
    named = {"path": "raw/nccl.1/stdout", "sha256": hashlib.sha256(b"abc").hexdigest(), "bytes": 3, **entry}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, raw in {named["path"]: content, "manifest.json": json.dumps({"files": [named]}).encode()}.items():
            member = tarfile.TarInfo(f"val-1/{name}")
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
    return out.getvalue()


def test_an_export_is_saved_and_checked(fleet, service, tmp_path: Path) -> None:
    service.on("GET", PATH, packed(b"abc"))
    out = tmp_path / "val.tar.gz"
    done = fleet("validation", "export", "val-1", "-o", str(out), "--json")
    assert (done.status, done.json["complete"], done.json["files"]) == (0, True, 1)
    assert out.read_bytes() == packed(b"abc")
    assert list(tmp_path.glob(".*")) == []


def test_what_is_missing_or_another_is_said_and_is_the_exit_status(fleet, service, tmp_path: Path) -> None:
    service.on("GET", PATH, packed(b"abd"), packed(b"abc", problem="dropped by retention"))
    first = fleet("validation", "export", "val-1", "-o", str(tmp_path / "1.tar.gz"))
    assert (first.status, "raw/nccl.1/stdout: is not what the manifest says" in first.err) == (3, True)
    second = fleet("validation", "export", "val-1", "-o", str(tmp_path / "2.tar.gz"))
    assert (second.status, "dropped by retention" in second.err) == (3, True)


def test_a_broken_one_leaves_no_file(fleet, service, tmp_path: Path) -> None:
    service.on("GET", PATH, packed(b"abc")[:-30])
    out = tmp_path / "val.tar.gz"
    done = fleet("validation", "export", "val-1", "-o", str(out))
    assert (done.status, "cut off" in done.err, list(tmp_path.glob("*.gz*"))) == (3, True, [])
    service.problem("GET", PATH, 404, "not-found", detail="there is no validation 'val-1'")
    assert fleet("validation", "export", "val-1", "-o", str(out)).status == 4
    assert not out.exists()


def test_a_place_that_cannot_be_written_is_named(fleet, service, tmp_path: Path) -> None:
    service.on("GET", PATH, packed(b"abc"))
    there = tmp_path / "there"
    there.write_text("mine")
    taken = fleet("validation", "export", "val-1", "-o", str(there))
    assert (taken.status, "already" in taken.err, there.read_text()) == (2, True, "mine")
    nowhere = fleet("validation", "export", "val-1", "-o", str(tmp_path / "no" / "val.tar.gz"))
    assert (nowhere.status, "No such file" in nowhere.err) == (2, True)


def test_logs_by_check_with_their_last_lines(fleet, service) -> None:
    rows = [
        {"name": name, "check": name.partition(".")[0], "stream": "stdout", "bytes": 5}
        for name in ("nccl.1", "nccl.2", "fio.1")
    ]
    service.on("GET", "/v1/validations/val-1/logs", {"items": rows, "next": None})
    for name in ("nccl.1", "nccl.2", "fio.1"):
        service.on("GET", f"/v1/validations/val-1/logs/{name}/stdout", f"of {name}\n".encode())
    said = fleet("validation", "logs", "val-1", "--check", "nccl", "--tail", "5")
    assert said.out == "== nccl.1 stdout\nof nccl.1\n== nccl.2 stdout\nof nccl.2\n"
    assert service.requests[-1].query == {"tail": ["5"]}
    assert fleet("validation", "logs", "val-1", "--name", "fio.1").out == "of fio.1\n"
    assert fleet("validation", "logs", "val-1", "--check", "storage").status == 4
    assert fleet("validation", "logs", "val-1", "--tail", "0").status == 2
