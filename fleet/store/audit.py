"""The audit trail: who did what, when, from where; denied attempts too."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.store.database import db_now
from fleet.store.page import Page, page
from fleet.store.tables import AuditRow


@dataclass(frozen=True)
class By:
    """Who acts: a token's name or a part of the service (`service:revalidation`), and the address it came from."""

    actor: str
    source: str | None = None


def write(
    session: Session,
    by: By,
    action: str,
    *,
    machine: str | None = None,
    object_: str | None = None,
    allowed: bool = True,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Add an entry to the caller's transaction: it is there exactly if what it tells of has happened."""
    session.add(
        AuditRow(
            at=session.scalar(sa.select(db_now())) or 0.0,
            actor=by.actor,
            source=by.source,
            action=action,
            machine=machine,
            object=object_,
            allowed=allowed,
            detail=dict(detail or {}),
        )
    )


def listed(
    session: Session, *, machine: str | None = None, after: list[Any] | None = None, limit: int = 100
) -> Page[AuditRow]:
    """Newest first."""
    wanted = sa.select(AuditRow)
    if machine is not None:
        wanted = wanted.where(AuditRow.machine == machine)
    return page(session, wanted, (AuditRow.id,), after, limit, newest_first=True)
