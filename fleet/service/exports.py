"""A validation with everything that its verdict was made from, as one archive that can be read without the service."""

import hashlib
import io
import tarfile
from collections.abc import Iterator
from typing import Any

from fleet.core.errors import NotFound, StoreError
from fleet.service import validations as records
from fleet.service.document import document
from fleet.service.listing import Json
from fleet.service.services import Services
from fleet.service.times import stamp
from fleet.store import validations

FORMAT = 1


class _Drain:
    """What the archive has written and nobody has sent yet."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        taken, self._parts = b"".join(self._parts), []
        return taken


def export(services: Services, id_: str) -> Iterator[bytes]:
    """A gzipped tar, piece by piece, with one raw output at a time in memory. Raises NotFound before the first piece."""
    with services.db.read() as session:
        record = records.show(session, id_)
        row = validations.get(session, id_)
        created_at, dropped_at = row.created_at, row.evidence_dropped_at
        wanted = [
            (f"raw/{measured.name}/{stream}", file)
            for measured in validations.measurements(session, id_)
            for stream, file in sorted(measured.files.items(), reverse=True)
        ]
    return _archive(services, id_, record, created_at, dropped_at, wanted)


def _archive(
    services: Services,
    id_: str,
    record: Json,
    created_at: float,
    dropped_at: float | None,
    wanted: list[tuple[str, dict[str, Any]]],
) -> Iterator[bytes]:
    """The manifest is last: what could not be had is known then, and it says so. An archive without it was cut off."""
    drain = _Drain()
    files: list[Json] = []
    with tarfile.open(fileobj=drain, mode="w|gz") as archive:  # type: ignore[call-overload]

        def add(name: str, content: bytes) -> None:
            member = tarfile.TarInfo(f"{id_}/{name}")
            member.size, member.mtime, member.mode = len(content), int(created_at), 0o644
            archive.addfile(member, io.BytesIO(content))

        parts = {
            "validation.json": {key: value for key, value in record.items() if key not in ("checks", "limits")},
            "findings.json": {"items": record["checks"]},
            "limits.json": record["limits"],
        }
        for name, part in parts.items():
            content = document(part).encode()
            add(name, content)
            files.append({"path": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
        yield drain.take()
        for name, file in wanted:
            entry = {"path": name, "bytes": file["bytes"], "sha256": file["sha256"]}
            if dropped_at is not None:
                entry["problem"] = f"dropped at {stamp(dropped_at)} by the site's retention"
            else:
                try:
                    add(name, services.evidence.get(file))
                except (NotFound, StoreError) as exc:
                    entry["problem"] = str(exc)
            files.append(entry)
            yield drain.take()
        manifest = {
            "format": FORMAT,
            "validation": id_,
            "verdict": record["verdict"],
            "complete": not any("problem" in file for file in files),
            "files": files,
        }
        add("manifest.json", document(manifest).encode())
    yield drain.take()
