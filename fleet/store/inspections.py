"""Inspections: looks at a host that a person asked for."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import NotFound
from fleet.store.database import db_now
from fleet.store.tables import InspectionRow


def get(session: Session, id_: str) -> InspectionRow:
    """Raises NotFound."""
    row = session.get(InspectionRow, id_)
    if row is None:
        raise NotFound(f"there is no inspection {id_!r}; `fleet machine check` makes one")
    return row


def open_on(session: Session, machine: str) -> InspectionRow | None:
    """At most one, by the run's unique index."""
    wanted = sa.select(InspectionRow).where(InspectionRow.machine == machine, InspectionRow.ended_at.is_(None))
    return session.scalar(wanted)


def finish(session: Session, id_: str, outcome: str, result: Mapping[str, Any]) -> None:
    row = get(session, id_)
    row.outcome, row.result = outcome, dict(result)
    row.ended_at = session.scalar(sa.select(db_now())) or 0.0
