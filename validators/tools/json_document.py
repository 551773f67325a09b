"""One JSON object out of hostile text: found after whatever precedes it, bounded in depth, no NaN."""

import json
import re
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from validators.tools.errors import ParseError
from validators.tools.lines import printable

Document = TypeVar("Document", bound=BaseModel)
_OPENS = re.compile(r"^[ \t]*\{", re.MULTILINE)


def find_object(output: str) -> dict[str, Any]:
    """The JSON object that begins at the first line starting with "{". Raises ParseError."""
    opens = _OPENS.search(output)
    if opens is None:
        raise ParseError("no JSON object in the output")
    try:
        value, _ = json.JSONDecoder(parse_constant=_refuse).raw_decode(output, opens.end() - 1)
    except RecursionError:
        raise ParseError("the JSON is nested too deep") from None
    except ValueError as exc:
        raise ParseError(f"the JSON is broken or cut: {printable(str(exc), 120)}") from None
    if not isinstance(value, dict):
        raise ParseError("the JSON is no object")
    return value


def read(model: type[Document], output: str) -> Document:
    """The object as `model`. Raises ParseError naming the first field that does not fit."""
    try:
        return model.model_validate(find_object(output))
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False, include_context=False)[0]
        place = printable(".".join(str(part) for part in first["loc"]) or "the document", 120)
        raise ParseError(f"{place}: {printable(first['msg'], 160)}") from None
    except RecursionError:
        raise ParseError("the JSON is nested too deep") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")
