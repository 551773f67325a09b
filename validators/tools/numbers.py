"""Numbers as tools print them. `float()` alone would also take "nan", "inf" and "1_000"."""

import re

_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?")
_LARGEST = 1e30  # beyond this no tool measured anything


def number(text: str) -> float | None:
    """A finite decimal or scientific number, None for anything else ("N/A", "--", "nan")."""
    if _NUMBER.fullmatch(text) is None:
        return None
    value = float(text)
    return value if abs(value) < _LARGEST else None


def whole(text: str) -> int | None:
    """A whole number of at most 18 digits, None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
