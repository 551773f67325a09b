"""Evidence as files in a folder of this machine, or of a file system that all processes share."""

import errno
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.core.errors import EvidenceError, EvidenceFull
from fleet.store.evidence.base import checked, is_name, missing, name_of, verified

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class EvidenceFolder:
    """`reserve_bytes` of the file system are left free: the database may be on it, and must be able to write that the
    evidence could not be."""

    root: Path
    limit_bytes: int = 32 << 20
    reserve_bytes: int = 0

    def put(self, validation: str, measurement: str, stream: str, content: bytes) -> dict[str, Any]:
        content = content[: self.limit_bytes]
        name, sha256 = name_of(validation, measurement, stream, content)
        path = self.root / name
        partial = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        with self._translated("stored in"):
            path.parent.mkdir(parents=True, exist_ok=True)
            if self.reserve_bytes and (free := shutil.disk_usage(self.root).free) < self.reserve_bytes + len(content):
                raise EvidenceFull(
                    f"evidence cannot be stored in {self.root}: of its file system {free >> 20} MiB are free, and "
                    f"{self.reserve_bytes >> 20} MiB are reserved (evidence.reserve_mib)"
                )
            try:
                with partial.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())  # the row that names it will survive a power cut too
                partial.replace(path)
                _sync(path.parent)
            except OSError:
                partial.unlink(missing_ok=True)
                raise
        return {"path": name, "sha256": sha256, "bytes": len(content)}

    def get(self, stored: Mapping[str, Any]) -> bytes:
        path = self.root / checked(*str(stored["path"]).split("/"))
        with self._translated("read from"):
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                raise missing(stored, self.root) from None
        return verified(stored, content)

    def drop(self, validation: str) -> None:
        path = self.root / checked(validation)
        with self._translated("removed from"):
            if path.is_dir():
                shutil.rmtree(path)

    def validations(self, after: str, limit: int) -> list[str]:
        with self._translated("listed in"):
            if not self.root.is_dir():
                return []
            with os.scandir(self.root) as entries:
                there = (e.name for e in entries if e.name > after and is_name(e.name) and e.is_dir())
                return sorted(there)[:limit]

    def free_bytes(self) -> int | None:
        with self._translated("stored in"):
            self.root.mkdir(parents=True, exist_ok=True)
            if not os.access(self.root, os.W_OK | os.X_OK):
                raise EvidenceError(f"evidence cannot be stored in {self.root}: this user may not write there")
            return max(0, shutil.disk_usage(self.root).free - self.reserve_bytes)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            error = EvidenceFull if exc.errno in _FULL else EvidenceError
            raise error(f"evidence cannot be {what} {self.root}: {exc.strerror}") from exc


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
