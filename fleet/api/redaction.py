"""What a request said, fit to be kept: an audit entry of a refused write has its start, and people paste secrets into forms."""

import re

KEPT_BYTES = 2000
_READ_BYTES = 64 << 10  # a key that begins within what is kept ends within this

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_MEMBER = re.compile(
    r'("(?:[A-Za-z0-9_-]*(?:password|passphrase|passwd|secret|token)|key_ref)"\s*:\s*")'
    r'(?!(?:file|env|credential):)(?:[^"\\]|\\.)*',
    re.IGNORECASE,
)
_TOKEN = re.compile(r"\b(?:flt|whsec)_[A-Za-z0-9_+/=-]{8,}")
_INSTEAD = "(not kept)"


def kept(body: bytes) -> str:
    """The start of `body`, without private keys, tokens, and what stands where a secret's reference should."""
    text = body[:_READ_BYTES].decode(errors="replace")
    for pattern, instead in ((_PRIVATE_KEY, _INSTEAD), (_MEMBER, rf"\g<1>{_INSTEAD}"), (_TOKEN, _INSTEAD)):
        text = pattern.sub(instead, text)
    return text[:KEPT_BYTES]
