"""What is wrong with one field, as a sentence for whoever sent it. What was sent is not repeated: it may be a secret in the
wrong place."""

from collections.abc import Callable, Mapping
from typing import Any

from fleet.service.shapes import WORDS

_Said = Mapping[str, Any]

_NUMBER = "is not a number"
_WHOLE = "is not a whole number"
_TRUTH = "is neither true nor false"
_OBJECT = "is not an object with named fields"

_SENTENCES: Mapping[str, str | Callable[[_Said], str]] = {
    "missing": "is missing",
    "extra_forbidden": "there is no such field",
    "string_type": "is not text; where it looks like a number or a truth value, put it in quotes",
    "string_too_short": "is empty",
    "string_too_long": lambda said: f"has more than {said['max_length']} characters",
    "string_pattern_mismatch": lambda said: f"is not {WORDS[said['pattern']]}",
    "literal_error": lambda said: f"is none of {said['expected']}",
    "enum": lambda said: f"is none of {said['expected']}",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "bool_type": _TRUTH,
    "bool_parsing": _TRUTH,
    "list_type": "is not a list",
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "too_long": lambda said: f"has more than {said['max_length']} entries",
    "too_short": "is empty",
    "greater_than": lambda said: f"must be more than {said['gt']:g}",
    "greater_than_equal": lambda said: f"must be at least {said['ge']:.15g}",
    "less_than_equal": lambda said: f"must be at most {said['le']:.15g}",
}
"""By pydantic's type of error, from its context."""


def explained(error: Any) -> tuple[str, str]:
    """Field and sentence of one of pydantic's errors. A validator that speaks of a field inside starts with its name."""
    # a part with a bracket is no field but pydantic's name for one branch of a union
    field = ".".join(str(part)[:100] for part in error["loc"] if "[" not in str(part))
    sentence = _SENTENCES.get(error["type"], str(error["msg"]).removeprefix("Value error, "))
    reason = sentence if isinstance(sentence, str) else sentence(error.get("ctx") or {})
    if not field and ": " in reason:
        field, _, reason = reason.partition(": ")
    return field, reason if field or not reason.startswith("is ") else f"the body {reason}"
