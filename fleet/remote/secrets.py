"""Secrets are references, resolved at use: the settings and the database hold `file:PATH` or `env:NAME`, never the secret."""

import os
from collections.abc import Mapping
from pathlib import Path

from fleet.core.errors import InvalidInput
from fleet.remote.printable import printable

_LIMIT_BYTES = 64 * 1024  # an OpenSSH private key of 16384 bits has 12 KiB


def resolve(reference: str, field: str = "key_ref", environment: Mapping[str, str] = os.environ) -> str:
    """The secret that `reference` names. Raises InvalidInput, naming `field` and the reference but never the content."""
    kind, _, where = reference.partition(":")
    shown = printable(reference)
    if kind == "file" and where:
        return _read(Path(where).expanduser(), shown, field)
    if kind == "env" and where:
        secret = environment.get(where, "")
        if not secret:
            raise InvalidInput(
                f"{field}: {shown}: the service's environment has no such variable, or it is empty", field
            )
        return secret
    raise InvalidInput(f"{field}: a secret is named by file:PATH or env:NAME, not {shown!r}", field)


def _read(path: Path, shown: str, field: str) -> str:
    try:
        if not path.is_file():  # a pipe or a device could block for ever
            raise InvalidInput(f"{field}: {shown}: there is no such file", field)
        with path.open("rb") as file:
            content = file.read(_LIMIT_BYTES + 1)
    except OSError as exc:
        raise InvalidInput(f"{field}: {shown}: {exc.strerror}", field) from exc
    if not content or len(content) > _LIMIT_BYTES:
        raise InvalidInput(f"{field}: {shown}: the file is empty or larger than {_LIMIT_BYTES} bytes", field)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{field}: {shown}: the file is not text", field) from None
