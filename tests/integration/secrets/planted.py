"""Secrets that are like nothing else, and every form in which one of them could be somewhere."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat


@dataclass
class Planted:
    """What must not be found, by name."""

    forms: dict[str, frozenset[bytes]] = field(default_factory=dict)

    def plant(self, name: str, secret: str) -> str:
        self.forms[name] = frozenset(_forms(secret))
        return secret

    def found(self, text: bytes | str) -> list[str]:
        """The names of those that are in it."""
        raw = text.encode(errors="surrogateescape") if isinstance(text, str) else text
        return [name for name, forms in self.forms.items() if any(form in raw for form in forms)]

    def leaks(self, places: Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]]) -> list[str]:
        named = places.items() if isinstance(places, Mapping) else places
        return sorted({f"{name} in {place}" for place, text in named for name in self.found(text)})


def _forms(secret: str) -> Iterator[bytes]:
    """As it is, line by line where it is a key, quoted, in JSON, in hex, and in base64 whatever stands before it."""
    if (
        "PRIVATE KEY" in secret
    ):  # the first lines of two keys are alike, and any of the others is enough to be warned by
        ordinary = set(new_key().splitlines())
        yield from (line.encode() for line in secret.splitlines() if line not in ordinary and len(line) > 20)
        return
    raw = secret.strip().encode()
    yield from (raw, quote(raw, safe="").encode(), json.dumps(raw.decode())[1:-1].encode(), raw.hex().encode())
    for shift in range(3):
        encoded = base64.b64encode(b"x" * shift + raw)
        yield encoded[4 if shift else 0 : len(encoded) - 4]  # the ends depend on what is beside it


def new_key() -> str:
    private = Ed25519PrivateKey.generate()
    return private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
