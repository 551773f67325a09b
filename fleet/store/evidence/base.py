"""What an evidence store promises, and how what is in it is named: `<validation>/<measurement>/<stream>.<hash>`.

The name tells the content, so that no file is ever replaced by another: a worker that has lost its run, and does not know
it yet, leaves a file that no record names. It goes with the rest of its validation."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Protocol

from fleet.core.errors import InvalidInput, NotFound, StoreError

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")


class EvidenceStore(Protocol):
    """Every call may raise EvidenceBusy (the store does not answer: again later) and EvidenceError (it cannot be used)."""

    @property
    def limit_bytes(self) -> int:
        """Bounds one file: what is longer is cut there, and its measurement says that it was truncated."""

    def put(self, validation: str, measurement: str, stream: str, content: bytes) -> dict[str, Any]:
        """Store one output for good; returns what `get` wants. Raises EvidenceFull."""

    def get(self, stored: Mapping[str, Any]) -> bytes:
        """Raises NotFound, and StoreError for content that is no longer what was stored."""

    def drop(self, validation: str) -> None:
        """Remove everything of a validation; nothing happens where nothing is left."""

    def validations(self, after: str, limit: int) -> list[str]:
        """At most `limit` validations of which there is something, in order, those after `after`."""

    def free_bytes(self) -> int | None:
        """How much it still takes, None where it does not tell. A call that is answered shows that it can be used."""


def name_of(validation: str, measurement: str, stream: str, content: bytes) -> tuple[str, str]:
    """The path that `content` is stored under, and its SHA-256."""
    sha256 = hashlib.sha256(content).hexdigest()
    return checked(validation, measurement, f"{stream}.{sha256[:16]}"), sha256


def checked(*parts: str) -> str:
    """The path of three names, or of a validation alone. Raises InvalidInput for one that could lead elsewhere."""
    if len(parts) not in (1, 3):
        raise InvalidInput(f"{'/'.join(parts)!r} is not a name of evidence: validation, measurement and stream")
    for part in parts:
        if not is_name(part):
            raise InvalidInput(f"{part!r} is not a name of evidence: letters, digits, dot, dash and underscore")
    return "/".join(parts)


def is_name(part: str) -> bool:
    return _NAME.fullmatch(part) is not None


def verified(stored: Mapping[str, Any], content: bytes) -> bytes:
    """Raises StoreError unless this is what was stored."""
    if hashlib.sha256(content).hexdigest() != stored["sha256"]:
        raise StoreError(f"the evidence {stored['path']} is not what was stored: its SHA-256 is another")
    return content


def missing(stored: Mapping[str, Any], where: object) -> NotFound:
    return NotFound(f"the evidence {stored['path']} is not in {where}")
