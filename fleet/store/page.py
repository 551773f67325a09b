"""Reading a long list in pages that stay right while rows come and go: a page begins after the last row of the one before."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session

Row = TypeVar("Row")


@dataclass(frozen=True)
class Page(Generic[Row]):
    """`next` is the sort key of the last row, to be given back as `after`; None on the last page."""

    rows: tuple[Row, ...]
    next: list[Any] | None


def page(
    session: Session,
    query: sa.Select[Any],
    keys: Sequence[InstrumentedAttribute[Any]],
    after: list[Any] | None,
    limit: int,
    *,
    newest_first: bool = False,
) -> Page[Any]:
    """One page of `query`, in the order of `keys`, which together are unique."""
    if after is not None:
        left, right = sa.tuple_(*keys), sa.tuple_(*after)
        query = query.where(left < right if newest_first else left > right)
    query = query.order_by(*(key.desc() if newest_first else key.asc() for key in keys))
    rows = list(session.scalars(query.limit(limit + 1)))
    more = len(rows) > limit
    rows = rows[:limit]
    return Page(tuple(rows), [getattr(rows[-1], key.key) for key in keys] if more else None)
