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


@dataclass(frozen=True)
class Filter:
    """Which entries are wanted; None leaves all in. `since` and `until` are seconds since the epoch. `action` is a whole
    one, or the start of some with its dot (`machine.`)."""

    machine: str | None = None
    actor: str | None = None
    action: str | None = None
    allowed: bool | None = None
    since: float | None = None
    until: float | None = None


def listed(
    session: Session,
    wanted: Filter = Filter(),
    *,
    oldest_first: bool = False,
    after: list[Any] | None = None,
    limit: int = 100,
) -> Page[AuditRow]:
    query = sa.select(AuditRow)
    for column, value in (
        (AuditRow.machine, wanted.machine),
        (AuditRow.actor, wanted.actor),
    ):
        if value is not None:
            query = query.where(column == value)
    if wanted.allowed is not None:
        query = query.where(AuditRow.allowed if wanted.allowed else ~AuditRow.allowed)
    if wanted.action is not None:
        starts = wanted.action.endswith(".")
        query = query.where(
            AuditRow.action.startswith(wanted.action, autoescape=True) if starts else AuditRow.action == wanted.action
        )
    if wanted.since is not None:
        query = query.where(AuditRow.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(AuditRow.at < wanted.until)
    return page(session, query, (AuditRow.at, AuditRow.id), after, limit, newest_first=not oldest_first)
