"""Who did what, when and from where."""

from typing import Literal

from sqlalchemy.orm import Session

from fleet.service.listing import Json, Window, listing
from fleet.service.times import stamp
from fleet.store import audit
from fleet.store.audit import Filter
from fleet.store.tables import AuditRow

Order = Literal["newest", "oldest"]

__all__ = ["Filter", "Order", "listed"]


def listed(session: Session, window: Window, wanted: Filter = Filter(), order: Order = "newest") -> Json:
    """`order` is what comes first."""
    after, oldest_first = window.after("audit", float, int), order == "oldest"
    page = audit.listed(session, wanted, oldest_first=oldest_first, after=after, limit=window.limit)
    return listing("audit", page, _view)


def _view(row: AuditRow) -> Json:
    return {
        "id": row.id,
        "at": stamp(row.at),
        "actor": row.actor,
        "source": row.source,
        "action": row.action,
        "machine": row.machine,
        "object": row.object,
        "allowed": row.allowed,
        "detail": row.detail,
    }
