"""Secrets are references, resolved at use: the settings and the database hold `file:PATH`, `env:NAME` or `credential:NAME` (what
systemd gave the unit by LoadCredential, systemd.exec(5)), never the secret."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from fleet.core.errors import InvalidInput
from fleet.remote.printable import printable

_LIMIT_BYTES = 64 * 1024  # an OpenSSH private key of 16384 bits has 12 KiB
_CREDENTIAL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


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
    if kind == "credential" and _CREDENTIAL.fullmatch(where):
        directory = environment.get("CREDENTIALS_DIRECTORY")
        if not directory:
            raise InvalidInput(f"{field}: {shown}: systemd gave this process no credentials (LoadCredential=)", field)
        return _read(Path(directory, where), shown, field)
    raise InvalidInput(f"{field}: a secret is named by file:PATH, env:NAME or credential:NAME, not {shown!r}", field)


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
