"""Pinned host keys: the one key that a host may show, compared by type and every byte."""

import base64
import binascii
import hashlib
import struct
from dataclasses import dataclass

from fleet.core.errors import InvalidInput
from fleet.remote.printable import printable

# Key type -> signature algorithms to offer in the handshake. A host with several keys then shows the pinned one.
# SHA-1 signatures ("ssh-rsa") are not offered.
ALGORITHMS: dict[str, tuple[str, ...]] = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}


@dataclass(frozen=True)
class HostKey:
    kind: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")
        return f"SHA256:{digest}"

    @classmethod
    def parse(cls, text: str, field: str = "host_key") -> "HostKey":
        """One line of a public key file, `ssh-ed25519 AAAA... [comment]`. Raises InvalidInput."""
        kind, _, rest = text.strip().partition(" ")
        if kind not in ALGORITHMS:
            raise InvalidInput(f"{field}: {printable(kind, 40)!r} is not one of {', '.join(ALGORITHMS)}", field)
        try:
            blob = base64.b64decode(rest.split(" ")[0], validate=True)
        except binascii.Error:
            raise InvalidInput(f"{field}: the key after {kind} is not base64", field) from None
        if len(blob) < 4 + len(kind) or blob[: 4 + len(kind)] != struct.pack(">I", len(kind)) + kind.encode():
            raise InvalidInput(f"{field}: the key is cut, or of another type than its first word {kind}", field)
        return cls(kind, blob)
