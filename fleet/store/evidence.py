"""Raw outputs as files in a folder: `<validation>/<measurement>/<stream>.<hash>`, with size and SHA-256.

The name tells the content, so that no file is ever replaced by another: a worker that has lost its run, and does not know
it yet, leaves a file that no record names."""

import hashlib
import os
import re
import threading
from collections.abc import Mapping
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
        """Store one output; returns what `get` wants. Raises StoreError (disk full, permissions)."""
        content = content[: self.limit_bytes]
        sha256 = hashlib.sha256(content).hexdigest()
        path = self._path(validation, measurement, f"{stream}.{sha256[:16]}")
        partial = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(content)
            partial.replace(path)
        except OSError as exc:
            raise StoreError(f"evidence cannot be stored in {self.root}: {exc.strerror}") from exc
        return {"path": str(path.relative_to(self.root)), "sha256": sha256, "bytes": len(content)}

    def get(self, stored: Mapping[str, Any]) -> bytes:
        """Raises NotFound, and StoreError for a file that is no longer what was stored."""
        path = self._path(*str(stored["path"]).split("/"))
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise NotFound(f"the evidence {stored['path']} is not in {self.root}") from None
        if hashlib.sha256(content).hexdigest() != stored["sha256"]:
            raise StoreError(f"the evidence {stored['path']} is not what was stored: its SHA-256 is another")
        return content

    def _path(self, *parts: str) -> Path:
        if len(parts) != 3:
            raise InvalidInput(f"{'/'.join(parts)!r} is not a name of evidence: validation, measurement and stream")
        for part in parts:
            if not _NAME.fullmatch(part):
                raise InvalidInput(f"{part!r} is not a name of evidence: letters, digits, dot, dash and underscore")
        return self.root.joinpath(*parts)
