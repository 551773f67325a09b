"""A loaded document against its schema: problems said with line, key and the nearest valid key."""

import difflib
import json
import re
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from playbooks.errors import PlaybookError, Problem
from playbooks.strict_yaml import Document, Key, dotted
from validators.sku import Limit, Strict

Model = TypeVar("Model", bound=Strict)
_NAMED = re.compile(r"(?P<key>[a-z_]+)(?:\[(?P<index>\d{1,2})\])?: ")
_SHOWN = 20  # problems of one file; the rest is usually one mistake repeated


def validated(document: Document, model: type[Model], content: Any = None, below: Key = ()) -> Model:
    """`content` (the whole document, or the part at `below`) as `model`. Raises PlaybookError with every problem."""
    content = document.content if content is None else content
    try:
        # by way of JSON: strict there means no "yes" for a number and no 1 for a word, but lists where tuples are due
        return model.model_validate_json(json.dumps(content), strict=True)
    except ValidationError as exc:
        details = exc.errors(include_url=False)
        problems = list(dict.fromkeys(_problem(document, model, detail, below) for detail in details))
        raise PlaybookError(*problems[:_SHOWN]) from None


def _problem(document: Document, model: type[BaseModel], detail: ErrorDetails, below: Key) -> Problem:
    inner = tuple(detail["loc"])
    key, what = (*below, *inner), detail["msg"].removeprefix("Value error, ")
    owner = _model_at(model, inner[:-1])
    if detail["type"] == "extra_forbidden":
        what = "unknown key" + _hint(str(inner[-1]), owner)
    elif owner is Limit and detail["type"] == "missing":
        key, what = key[:-1], "a limit needs `value` and `source`"
    elif _model_at(model, inner) is Limit and detail["type"] in ("model_type", "model_attributes_type"):
        what = "a limit needs `value` and `source`"
    elif detail["type"] == "missing":
        what = "is missing"
    elif not inner and (named := _NAMED.match(what)):  # a rule of the whole model names its key itself
        key = (*below, named["key"], *([int(named["index"])] if named["index"] else []))
        what = what[named.end() :]
    return Problem(document.file, document.line(key), dotted(key), what)


def _hint(name: str, owner: type[BaseModel] | None) -> str:
    known = [field.alias or key for key, field in owner.model_fields.items()] if owner else []
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"; did you mean `{near[0]}`?"
    return f"; known here: {', '.join(sorted(known))}" if known else ""


def _model_at(model: type[BaseModel], key: Key) -> type[BaseModel] | None:
    """The model whose fields are valid at `key`, found by walking the annotations."""
    at: Any = model
    for part in key:
        at = _model_in(at)
        if at is None:
            return None
        if isinstance(at, type) and issubclass(at, BaseModel):
            field = next((f for name, f in at.model_fields.items() if part in (name, f.alias)), None)
            at = field.annotation if field else None
        else:  # a mapping or a list: its values
            at = get_args(at)[-1] if get_args(at) else None
    found = _model_in(at)
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


def _model_in(annotation: Any) -> Any:
    """The model of `Model | None`; anything else unchanged."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    options = [option for option in get_args(annotation) if isinstance(option, type) and issubclass(option, BaseModel)]
    is_optional = type(None) in get_args(annotation)
    return options[0] if is_optional and options else annotation
