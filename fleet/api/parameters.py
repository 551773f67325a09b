"""Parameters that many endpoints share."""

from typing import Annotated

from fastapi import Depends, Path, Query
from pydantic import BeforeValidator

from fleet.service import shapes
from fleet.service.listing import LIMIT, MOST, Window
from fleet.service.times import seconds


def _seconds(text: object) -> object:
    return seconds(text) if isinstance(text, str) else text


MachinePath = Annotated[str, Path(pattern=shapes.MACHINE)]
OfMachine = Annotated[str | None, Query(pattern=shapes.MACHINE)]
RecordPath = Annotated[str, Path(pattern=shapes.RECORD)]
NamePath = Annotated[str, Path(pattern=shapes.MEASUREMENT)]
Limit = Annotated[int, Query(ge=1, le=MOST)]
Time = Annotated[float | None, Query(), BeforeValidator(_seconds)]
"""An RFC 3339 time with its offset, as seconds since the epoch."""
Cursor = Annotated[str | None, Query(max_length=500)]


def window(limit: Limit = LIMIT, cursor: Cursor = None) -> Window:
    return Window(limit, cursor)


Part = Annotated[Window, Depends(window)]
"""Which part of a list: `limit` rows after `cursor`."""
