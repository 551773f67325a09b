"""Taking a due run and putting it back: the two transactions around every handler."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import LeaseLost
from fleet.engine.workflow import Next, Run, Workflow
from fleet.store.database import Database, db_now
from fleet.store.tables import RunRow

_GATE_LOCK = 0x666C6565  # any number that only this code uses: PostgreSQL's advisory lock around counting budgets


@dataclass(frozen=True)
class Budgets:
    """How many runs of gated workflows may be past their gate at once: in all, in one rack, on one power feed."""

    total: int = 50
    per_rack: int = 4
    per_power_feed: int = 8


def idle(db: Database, kinds: list[str]) -> bool:
    """Is nothing due? Reads without a lock, so that an idle worker costs no writes."""
    with db.read() as session:
        return session.scalar(sa.select(RunRow.id).where(*_due(kinds)).limit(1)) is None


def claim(
    db: Database, workflows: Mapping[str, Workflow], worker: str, lease_s: float, budgets: Budgets = Budgets()
) -> Run | None:
    """Take the oldest due run: epoch + 1, lease from now. Gate phases only within the budgets."""
    kinds = list(workflows)
    gates = [p for w in workflows.values() for p, phase in w.phases.items() if phase.gate]
    with db.begin() as session:
        oldest = sa.select(RunRow).order_by(RunRow.due_at).limit(1)
        if not db.is_sqlite:
            oldest = oldest.with_for_update(skip_locked=True)
        row = session.scalar(oldest.where(*_due(kinds), RunRow.phase.not_in(gates)))
        if row is None and gates:
            row = _through_the_gate(session, oldest.where(*_due(kinds), RunRow.phase.in_(gates)), budgets, db)
        if row is None:
            return None
        row.epoch += 1
        row.worker = worker
        now = session.scalar(sa.select(db_now())) or 0.0
        row.lease_until = now + lease_s
        return _view(row, now)


def save(db: Database, run: Run, then: Next, lease_s: float) -> Run | None:
    """Write what a handler answered, only while our epoch is the row's; raises LeaseLost. When the next phase is due at
    once, the lease is kept and the fresh row returned, so that going on costs no second transaction."""
    with db.begin() as session:
        row = session.scalar(
            sa.select(RunRow)
            .where(RunRow.id == run.id, RunRow.epoch == run.epoch, RunRow.ended_at.is_(None))
            .with_for_update()
        )
        if row is None:
            raise LeaseLost(f"run {run.id} has gone on without this worker")
        now = session.scalar(sa.select(db_now())) or 0.0
        if then.within is not None:
            then.within(session)
        row.why = then.why
        row.data = {**row.data, **then.data}
        row.attempts, row.last_error = 0, None
        if then.phase is None:
            row.ended_at, row.lease_until, row.holds_budget = now, 0.0, False
            return None
        if then.phase != row.phase:
            row.phase, row.phase_since = then.phase, now
        aborting = row.abort_reason is not None  # an abort asked for meanwhile does not wait for the timer
        row.due_at = now if aborting else now + then.after_s
        keep = row.due_at <= now
        row.lease_until = now + lease_s if keep else 0.0
        return _view(row, now) if keep else None


def put_back(db: Database, run: Run, error: Exception, backoff_s: float) -> None:
    """The handler raised: same phase, one attempt more, later. Raises LeaseLost."""
    with db.begin() as session:
        changed = session.execute(
            sa.update(RunRow)
            .where(RunRow.id == run.id, RunRow.epoch == run.epoch, RunRow.ended_at.is_(None))
            .values(
                attempts=run.attempts + 1,
                last_error=f"{type(error).__name__}: {error}"[:2000],
                due_at=db_now() + backoff_s,
                lease_until=0.0,
            )
        )
        if changed.rowcount != 1:  # type: ignore[attr-defined]
            raise LeaseLost(f"run {run.id} has gone on without this worker")


def request_abort(session: Session, run_id: int, reason: str, by: str, abortable: list[str]) -> bool:
    """Ask an open run to end early; False when it is past the point, has been asked already, or is over. Abort and settle
    meet on this one row: whoever writes first wins."""
    changed = session.execute(
        sa.update(RunRow)
        .where(
            RunRow.id == run_id,
            RunRow.ended_at.is_(None),
            RunRow.abort_reason.is_(None),
            RunRow.phase.in_(abortable),
        )
        .values(abort_reason=reason, abort_by=by, due_at=db_now())
    )
    return bool(changed.rowcount == 1)  # type: ignore[attr-defined]


def release_leases(db: Database) -> None:
    """Forget all leases. Only for a process that is the only one on this database (embedded SQLite at its start)."""
    with db.begin() as session:
        session.execute(
            sa.update(RunRow).where(RunRow.ended_at.is_(None)).values(lease_until=0.0, epoch=RunRow.epoch + 1)
        )


def _due(kinds: list[str]) -> list[sa.ColumnElement[bool]]:
    now = db_now()
    return [RunRow.ended_at.is_(None), RunRow.kind.in_(kinds), RunRow.due_at <= now, RunRow.lease_until <= now]


def _through_the_gate(
    session: Session, oldest: sa.Select[RunRow], budgets: Budgets, db: Database
) -> RunRow | None:
    if not db.is_sqlite:
        session.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _GATE_LOCK})
    inside = (RunRow.ended_at.is_(None), RunRow.holds_budget.is_(True))
    if (session.scalar(sa.select(sa.func.count()).select_from(RunRow).where(*inside)) or 0) >= budgets.total:
        return None
    for column, limit in ((RunRow.rack, budgets.per_rack), (RunRow.power_feed, budgets.per_power_feed)):
        full = sa.select(column).where(*inside, column.is_not(None)).group_by(column).having(sa.func.count() >= limit)
        oldest = oldest.where(column.is_(None) | column.not_in(full.scalar_subquery()))
    row = session.scalar(oldest)
    if row is not None:
        row.holds_budget = True
    return row


def _view(row: RunRow, now: float) -> Run:
    data: dict[str, Any] = dict(row.data)
    return Run(
        id=row.id,
        kind=row.kind,
        subject=row.subject,
        ref=row.ref,
        phase=row.phase,
        phase_since=row.phase_since,
        epoch=row.epoch,
        attempts=row.attempts,
        abort_reason=row.abort_reason,
        abort_by=row.abort_by,
        data=data,
        created_at=row.created_at,
        now=now,
    )
