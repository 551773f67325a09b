"""The switches of the whole site: its mode and whether it is paused."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from fleet.core.errors import Refused
from fleet.store import audit
from fleet.store.audit import By
from fleet.store.machines import now
from fleet.store.tables import SiteRow


def get(session: Session) -> SiteRow:
    """The one row; made with mode `observe`, how every operator starts, when it is not there yet."""
    row = session.get(SiteRow, 1)
    if row is None:
        try:
            with session.begin_nested():
                session.add(SiteRow(id=1, mode="observe", paused=None, data={}))
        except IntegrityError:  # another process was first
            session.expire_all()
        row = session.get_one(SiteRow, 1)
    return row


def get_paused(session: Session) -> dict[str, Any] | None:
    """Who paused the fleet, since when and why; None when it runs. Only reads."""
    row = session.get(SiteRow, 1)
    return None if row is None else row.paused


def set_mode(session: Session, mode: str, by: By, reason: str | None = None) -> None:
    row = get(session)
    if row.mode != mode:
        audit.write(session, by, "site.mode", detail={"was": row.mode, "now": mode, "reason": reason})
        row.mode = mode


def pause(session: Session, reason: str, by: By) -> dict[str, Any]:
    """Stop every new automatic act. Raises Refused when it is paused already, saying by whom."""
    row = get(session)
    if row.paused is not None:
        since = f"by {row.paused['by']} since {at(row.paused['since'])}"
        raise Refused(f"the fleet is paused already {since}: {row.paused['reason']}")
    row.paused = {"by": by.actor, "reason": reason, "since": now(session)}
    audit.write(session, by, "site.paused", detail={"reason": reason})
    return dict(row.paused)


def resume(session: Session, by: By, reason: str | None = None) -> None:
    """Raises Refused when it is not paused."""
    row = get(session)
    if row.paused is None:
        raise Refused("the fleet is not paused")
    audit.write(
        session,
        by,
        "site.resumed",
        detail={"pause": {**row.paused, "since": at(row.paused["since"])}, "reason": reason},
    )
    row.paused = None


def at(seconds: float) -> str:
    """A time as people read it, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
