"""A validation as one archive, and the ends of its raw outputs."""

import random
import tarfile
from pathlib import Path
from typing import Any

import pytest

from fleet.cli import archive
from fleet.cli.exits import CommandError
from fleet.service import exports
from fleet.service.access import Role
from fleet.store import validations
from fleet.store.tables import ValidationRow

OUTPUTS = {"gpu_burn.1": b"line 1\nline 2\nline 3\n", "nccl.1": b"\x1b[2J\xff"}


@pytest.fixture
def validation(api: Any) -> str:
    api.add("lab-01", "vacated")
    id_ = str(api.post("/v1/validations", {"machine": "lab-01"}, 202)["id"])
    for name, content in OUTPUTS.items():
        stored(api, id_, name, content)
    with api.db.begin() as session:
        finding = {"device": "gpu3", "code": "wrong", "outcome": "failed", "reason": "wrong by 7"}
        judged: dict[str, Any] = {"mode": "enforce", "outcome": "failed", "reason": "wrong by 7", "findings": [finding]}
        validations.put_check(session, id_, "gpu_burn", **judged, facts={}, limits={"gflops": 9000})
    return id_


def stored(api: Any, id_: str, name: str, content: bytes) -> None:
    file = api.services.evidence.put(id_, name, "stdout", content)
    taken: dict[str, Any] = {"ended": "exited", "exit_status": 0, "started_at": None, "duration_s": 1.5}
    with api.db.begin() as session:
        check = name.partition(".")[0]
        validations.put_measurement(session, id_, check, name, **taken, truncated=False, files={"stdout": file})


def exported(api: Any, id_: str, folder: Path) -> Path:
    answer = api.http.get(f"/v1/validations/{id_}/export", headers=api.headers(Role.VIEWER))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/gzip")
    path = folder / "export.tar.gz"
    path.write_bytes(answer.content)
    return path


def test_an_export_has_the_record_the_findings_the_limits_and_every_raw_output(
    api: Any, validation: str, tmp_path: Path
) -> None:
    path = exported(api, validation, tmp_path)
    manifest, problems = archive.check(path)
    assert (manifest["complete"], problems) == (True, [])
    with tarfile.open(path) as opened:
        read = {m.name.partition("/")[2]: opened.extractfile(m).read() for m in opened}  # type: ignore[union-attr]
    assert {name: read[f"raw/{name}/stdout"] for name in OUTPUTS} == OUTPUTS
    assert b"wrong by 7" in read["findings.json"]
    assert read["limits.json"] == b'{"gpu_burn":{"gflops":9000}}'
    assert validation.encode() in read["validation.json"]
    assert list(read)[-1] == "manifest.json"


def test_an_output_that_is_not_what_was_stored_is_told_and_left_out(api: Any, validation: str, tmp_path: Path) -> None:
    [file] = (api.services.evidence.root / validation / "nccl.1").iterdir()
    file.write_bytes(b"all fine")
    manifest, problems = archive.check(exported(api, validation, tmp_path))
    assert manifest["complete"] is False
    assert len(problems) == 1
    assert problems[0].startswith("raw/nccl.1/stdout: ")
    assert "is not what was stored" in problems[0]


def test_outputs_that_retention_dropped_are_named_with_when(api: Any, validation: str, tmp_path: Path) -> None:
    with api.db.begin() as session:
        session.get_one(ValidationRow, validation).evidence_dropped_at = 1_700_000_000.0
    _, problems = archive.check(exported(api, validation, tmp_path))
    assert [p.partition(": ")[0] for p in problems] == ["raw/gpu_burn.1/stdout", "raw/nccl.1/stdout"]
    assert all("dropped at 2023-11-14" in problem for problem in problems)
    detail = api.get(f"/v1/validations/{validation}/logs/nccl.1/stdout", 404)["detail"]
    assert "dropped at 2023-11-14" in detail
    assert api.get(f"/v1/validations/{validation}")["evidence"]["dropped_at"].startswith("2023-11-14")


def test_a_large_one_is_sent_piece_by_piece(api: Any, validation: str) -> None:
    noise = random.Random(1).randbytes(1 << 20)
    for number in range(8):
        stored(api, validation, f"soak.{number}", noise + bytes([number]))
    pieces = [len(piece) for piece in exports.export(api.services, validation)]
    assert sum(pieces) > 8 << 20
    assert max(pieces) < 2 << 20


def test_an_archive_that_was_cut_off_is_no_export(api: Any, validation: str, tmp_path: Path) -> None:
    path = exported(api, validation, tmp_path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CommandError, match="cut off"):
        archive.check(path)


def test_the_last_lines_of_an_output(api: Any, validation: str) -> None:
    path = f"/v1/validations/{validation}/logs/gpu_burn.1/stdout"
    assert api.http.get(f"{path}?tail=2", headers=api.headers()).content == b"line 2\nline 3\n"
    assert api.http.get(f"{path}?tail=9", headers=api.headers()).content == OUTPUTS["gpu_burn.1"]
    assert api.get(f"{path}?tail=0", 422)["field"] == "tail"


def test_an_unknown_validation_has_no_export(api: Any) -> None:
    assert "val-0" in api.get("/v1/validations/val-0/export", 404)["detail"]
