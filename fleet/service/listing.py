"""Lists as the API gives them: `{items, next}`, with a cursor that says where the next page begins."""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fleet.core.errors import InvalidInput
from fleet.store.page import Page

LIMIT = 100
MOST = 500

Row = TypeVar("Row")
Json = dict[str, Any]


@dataclass(frozen=True)
class Window:
    """Which part of a list is asked for. `cursor` is what the last answer had in `next`."""

    limit: int = LIMIT
    cursor: str | None = None

    def after(self, noun: str, *types: type) -> list[Any] | None:
        """The sort key to go on from. Raises InvalidInput for a cursor that did not come from this list."""
        if self.cursor is None:
            return None
        try:
            of, *key = json.loads(base64.urlsafe_b64decode(self.cursor.encode("ascii")))
        except (ValueError, TypeError, UnicodeError, binascii.Error, RecursionError):
            of, key = None, []
        if of != noun or len(key) != len(types) or not all(type(k) is t for k, t in zip(key, types, strict=True)):
            raise InvalidInput("this is not a cursor of this list; take `next` of its last answer as it is", "cursor")
        return list(key)


def listing(noun: str, page: Page[Row], view: Callable[[Row], Mapping[str, Any]]) -> Json:
    return {"items": [view(row) for row in page.rows], "next": cursor(noun, page.next)}


def portion(noun: str, rows: Sequence[Json], window: Window) -> Json:
    """A list that is short and at hand anyhow; its cursor is a number of rows."""
    start = max(0, (window.after(noun, int) or [0])[0])
    end = start + window.limit
    return {"items": list(rows[start:end]), "next": cursor(noun, [end] if end < len(rows) else None)}


def cursor(noun: str, key: Iterable[Any] | None) -> str | None:
    if key is None:
        return None
    return base64.urlsafe_b64encode(json.dumps([noun, *key]).encode()).decode()
