"""Ids of our records: a prefix that says of what, the time in milliseconds and randomness, so that they sort by age and
are never derived from anything that a repair replaces."""

import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no letter that reads as a digit


def new_id(prefix: str) -> str:
    """`val-06c9k2m4v3-7q2xw9` and the like: 10 digits of time, 6 of randomness, safe in a path, a shell and a URL."""
    return f"{prefix}-{_digits(int(time.time() * 1000), 10)}-{_digits(secrets.randbits(30), 6)}"


def made_at(id_: str) -> float | None:
    """When an id was made, seconds since the epoch; None for what is no id of ours."""
    digits = id_.split("-")[1:2]
    if len(id_.split("-")) != 3 or len(digits[0]) != 10 or not set(digits[0]) <= set(_ALPHABET):
        return None
    number = 0
    for digit in digits[0]:
        number = number * 32 + _ALPHABET.index(digit)
    return number / 1000


def _digits(number: int, width: int) -> str:
    out = ""
    for _ in range(width):
        number, digit = divmod(number, 32)
        out = _ALPHABET[digit] + out
    return out
