"""Hardware tickets of the built-in queue: one open ticket per machine and cause."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import NotFound
from fleet.core.ids import new_id
from fleet.store.database import db_now
from fleet.store.tables import TicketRow


def get(session: Session, id_: str, *, lock: bool = False) -> TicketRow:
    """`lock`: keep it from being changed by others until the transaction ends. Raises NotFound."""
    row = session.get(TicketRow, id_, with_for_update=lock or None)
    if row is None:
        raise NotFound(f"there is no ticket {id_!r}; `fleet ticket list` shows all")
    return row


def open_of(session: Session, machine: str) -> Sequence[TicketRow]:
    """Everything not closed, oldest first: what keeps the machine out. Locked until the transaction ends: a repair that is
    reported while a verdict is settled is seen by the verdict, or sees it."""
    return session.scalars(
        sa.select(TicketRow)
        .where(TicketRow.machine == machine, TicketRow.closed_at.is_(None))
        .order_by(TicketRow.created_at)
        .with_for_update()
    ).all()


def file(
    session: Session,
    *,
    machine: str,
    cause: str,
    title: str,
    body: str,
    checks: Sequence[str],
    validation: str,
    by: str,
) -> TicketRow:
    """Open a ticket for this cause, or bring the open one up to date; one that was `fixed` is reopened. A check that failed
    once stays on it: a later run that stopped before that check has not shown that it passes."""
    at = session.scalar(sa.select(db_now())) or 0.0
    row = next((t for t in open_of(session, machine) if t.cause == cause), None)
    if row is None:
        row = TicketRow(
            id=new_id("tkt"), machine=machine, cause=cause, state="open", checks=[], history=[], created_at=at
        )
        what = "opened"
        session.add(row)
    else:
        what = "reopened" if row.state == "fixed" else "failed again"
        row.state = "reopened" if row.state == "fixed" else row.state
    row.checks = list(dict.fromkeys([*row.checks, *checks]))
    row.title, row.body, row.validation, row.updated_at = title, body, validation, at
    _note(row, at, by, what, title, validation)
    session.flush()
    return row


def mark_fixed(session: Session, row: TicketRow, by: str, note: str) -> None:
    at = session.scalar(sa.select(db_now())) or 0.0
    row.state, row.updated_at = "fixed", at
    _note(row, at, by, "fixed", note, None)


def close(session: Session, row: TicketRow, by: str, note: str, validation: str | None) -> None:
    at = session.scalar(sa.select(db_now())) or 0.0
    row.state, row.closed_at, row.updated_at = "closed", at, at
    _note(row, at, by, "closed", note, validation)


def remark(session: Session, row: TicketRow, by: str, note: str, validation: str | None) -> None:
    at = session.scalar(sa.select(db_now())) or 0.0
    row.updated_at = at
    _note(row, at, by, "noted", note, validation)


def fixed_at(row: TicketRow) -> float | None:
    """When it was last marked fixed, None unless it is `fixed` now."""
    if row.state != "fixed":
        return None
    return max((float(h["at"]) for h in row.history if h["what"] == "fixed"), default=None)


def _note(row: TicketRow, at: float, by: str, what: str, note: str, validation: str | None) -> None:
    row.history = [*row.history, {"at": at, "actor": by, "what": what, "note": note, "validation": validation}]
