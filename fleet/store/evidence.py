"""Raw outputs as files in a folder: `<validation>/<measurement>/<stream>`, written once, with size and SHA-256."""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.core.errors import InvalidInput, NotFound, StoreError

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")


@dataclass(frozen=True)
class EvidenceFolder:
    """`limit_bytes` bounds one file; what is longer is cut there, and the measurement says that it was truncated."""

    root: Path
    limit_bytes: int = 32 << 20

    def put(self, validation: str, measurement: str, stream: str, content: bytes) -> dict[str, Any]:
        """Store one output; a repeated put of the same name replaces it whole. Raises StoreError (disk full, permissions)."""
        content = content[: self.limit_bytes]
        path = self._path(validation, measurement, stream)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(content)
            partial.replace(path)
        except OSError as exc:
            raise StoreError(f"evidence cannot be stored in {self.root}: {exc.strerror}") from exc
        return {
            "path": str(path.relative_to(self.root)),
            "sha256": hashlib.sha256(content).hexdigest(),
            "bytes": len(content),
        }

    def get(self, validation: str, measurement: str, stream: str) -> bytes:
        """Raises NotFound."""
        try:
            return self._path(validation, measurement, stream).read_bytes()
        except FileNotFoundError:
            raise NotFound(f"{validation} has no {stream} of {measurement}") from None

    def _path(self, *parts: str) -> Path:
        for part in parts:
            if not _NAME.fullmatch(part):
                raise InvalidInput(f"{part!r} is not a name of evidence: letters, digits, dot, dash and underscore")
        return self.root.joinpath(*parts)
