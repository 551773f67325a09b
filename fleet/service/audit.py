"""Who did what, when and from where."""

from sqlalchemy.orm import Session

from fleet.service.listing import Json, Window, listing
from fleet.service.times import stamp
from fleet.store import audit
from fleet.store.tables import AuditRow


def listed(session: Session, window: Window, machine: str | None = None) -> Json:
    """Newest first."""
    after = window.after("audit", int)
    return listing("audit", audit.listed(session, machine=machine, after=after, limit=window.limit), _view)


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
