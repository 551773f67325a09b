"""The text of an answer: JSON that any reader takes, whatever a guest or a person once wrote into the record."""

import json
import math
from collections.abc import Mapping
from typing import Any

LONGEST_TEXT = 20_000
"""Characters of one text in an answer. Whole logs are read as files, not as fields."""


def document(body: Mapping[str, Any]) -> str:
    """ASCII only: control characters, bidirectional marks and halves of surrogate pairs leave as escapes."""
    return json.dumps(_plain(body), allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # a tool printed `nan`: JSON has no such number
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:LONGEST_TEXT]} [... {len(value) - LONGEST_TEXT} more characters]"
    return value
