"""Parameters that many endpoints share."""

from typing import Annotated

from fastapi import Depends, Path, Query
from pydantic import BeforeValidator

from fleet.service.listing import LIMIT, MOST, Window
from fleet.service.times import seconds


def _seconds(text: object) -> object:
    return seconds(text) if isinstance(text, str) else text


_MACHINE = r"^[a-z0-9][a-z0-9.-]{0,62}$"

MachinePath = Annotated[str, Path(pattern=_MACHINE)]
OfMachine = Annotated[str | None, Query(pattern=_MACHINE)]
RecordPath = Annotated[str, Path(pattern=r"^[a-z]{2,8}-[a-z0-9-]{1,60}$")]
NamePath = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
Limit = Annotated[int, Query(ge=1, le=MOST)]
Time = Annotated[float | None, Query(), BeforeValidator(_seconds)]
"""An RFC 3339 time with its offset, as seconds since the epoch."""
Cursor = Annotated[str | None, Query(max_length=500)]


def window(limit: Limit = LIMIT, cursor: Cursor = None) -> Window:
    return Window(limit, cursor)


Part = Annotated[Window, Depends(window)]
"""Which part of a list: `limit` rows after `cursor`."""
