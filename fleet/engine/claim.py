"""Taking a due run and putting it back: the two transactions around every handler."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from fleet.core.errors import LeaseLost, StoreBusy
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


def idle(db: Database, workflows: Mapping[str, Workflow]) -> bool:
    """Is nothing due? Reads without a lock, so that an idle worker costs no writes."""
    with db.read() as session:
        if session.scalar(sa.select(RunRow.id).where(*_due(workflows)).limit(1)) is not None:
            return False
        awake = _asleep_no_more(workflows)
        return awake is None or session.scalar(awake.limit(1)) is None


def claim(
    db: Database, workflows: Mapping[str, Workflow], worker: str, lease_s: float, budgets: Budgets = Budgets()
) -> Run | None:
    """Take the oldest due run: epoch + 1, lease from now. Gate phases only within the budgets. A run in a phase that
    these workflows do not have is left to a worker of the version that has it."""
    with db.begin() as session:
        _wake(session, workflows)
        oldest = sa.select(RunRow, db_now()).where(*_due(workflows)).order_by(RunRow.due_at, RunRow.id).limit(1)
        if not db.is_sqlite:
            # Whoever waits for a row that another worker is claiming would only find it gone; PostgreSQL looks at the
            # condition again after it has the lock, so a row claimed a moment ago is not claimed twice.
            oldest = oldest.with_for_update(skip_locked=True)
        at_gate = _at_gate(workflows)
        found = session.execute(oldest.where(~at_gate)).first()
        if found is None:
            found = _through_the_gate(session, oldest.where(at_gate), budgets, db)
        if found is None:
            return None
        row, now = found
        row.epoch += 1
        row.worker = worker
        row.lease_until = now + lease_s
        return _view(row, now)


def save(db: Database, workflow: Workflow, run: Run, then: Next, lease_s: float) -> Run | None:
    """Write what a handler answered, only while our epoch is the row's; raises LeaseLost. When the next phase is due at
    once, the lease is kept and the fresh row returned, so that going on costs no second transaction.

    An abort that was accepted while the handler was at work has won: an answer that leads out of what can be aborted is
    dropped, as if the worker had died before it wrote, and the same phase is returned with the abort on it."""
    if then.phase is not None and then.phase not in workflow.phases:
        raise KeyError(f"{workflow.kind} has no phase {then.phase!r}, which {run.phase!r} answered")
    goes_to = workflow.phases[then.phase] if then.phase is not None else None
    with db.begin() as session:
        found = session.execute(sa.select(RunRow, db_now()).where(*_ours(run)).with_for_update()).first()
        if found is None:
            raise LeaseLost(f"run {run.id} has gone on without this worker")
        row, now = found
        abort_won = row.abort_reason is not None and run.abort_reason is None and workflow.phases[run.phase].abortable
        if abort_won and not (goes_to is not None and goes_to.abortable):
            row.lease_until = now + lease_s
            return _view(row, now)
        if then.within is not None:
            then.within(session)
        row.why = then.why
        row.data = {**row.data, **then.data}
        row.attempts, row.last_error = 0, None
        if goes_to is None or then.phase is None:
            row.ended_at, row.lease_until, row.holds_budget = now, 0.0, False
            return None
        if then.phase != row.phase:
            row.phase, row.phase_since = then.phase, now
        row.due_at = now if abort_won else now + then.after_s
        waits = row.due_at > now or (goes_to.gate and not row.holds_budget and not abort_won)
        row.lease_until = 0.0 if waits else now + lease_s
        return None if waits else _view(row, now)


def put_back(db: Database, run: Run, error: Exception, backoff_s: float) -> None:
    """The handler raised: same phase, one attempt more, later. An abort asked for meanwhile does not wait. A busy
    database says nothing about the run: it is not counted. Raises LeaseLost."""
    counted = 0 if isinstance(error, StoreBusy) else 1
    aborted = sa.and_(RunRow.abort_reason.is_not(None), sa.literal(run.abort_reason is None))
    _change(
        db,
        run,
        _ours(run),
        attempts=run.attempts + counted,
        last_error=f"{type(error).__name__}: {error}"[:2000],
        due_at=sa.case((aborted, db_now()), else_=db_now() + backoff_s),
        lease_until=0.0,
    )


def let_go(db: Database, run: Run) -> None:
    """Give a claimed run back, in whatever phase it is, so that another worker need not wait for the lease. Raises
    LeaseLost."""
    _change(db, run, _owned(run), lease_until=0.0)


def _change(db: Database, run: Run, where: list[sa.ColumnElement[bool]], **values: Any) -> None:
    with db.begin() as session:
        changed = session.execute(sa.update(RunRow).where(*where).values(**values))
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


def _ours(run: Run) -> list[sa.ColumnElement[bool]]:
    """The row as we know it. The phase too: when an answer was committed but the connection broke before we heard of it,
    nothing that belongs to the phase before may be written over it."""
    return [*_owned(run), RunRow.phase == run.phase]


def _owned(run: Run) -> list[sa.ColumnElement[bool]]:
    return [RunRow.id == run.id, RunRow.epoch == run.epoch, RunRow.ended_at.is_(None)]


def _due(workflows: Mapping[str, Workflow]) -> list[sa.ColumnElement[bool]]:
    now = db_now()
    known = [sa.and_(RunRow.kind == kind, RunRow.phase.in_(w.phases)) for kind, w in workflows.items()]
    return [RunRow.ended_at.is_(None), sa.or_(*known), RunRow.due_at <= now, RunRow.lease_until <= now]


def _asleep_no_more(workflows: Mapping[str, Workflow]) -> sa.Select[int] | None:
    """Runs that are due before their time. Whose last step failed sleeps on: its backoff is not for nothing."""
    conditions = [
        sa.and_(RunRow.kind == kind, RunRow.phase.in_(w.phases), w.awake)
        for kind, w in workflows.items()
        if w.awake is not None
    ]
    if not conditions:
        return None
    now = db_now()
    asleep = (RunRow.ended_at.is_(None), RunRow.attempts == 0, RunRow.due_at > now, RunRow.lease_until <= now)
    return sa.select(RunRow.id).where(*asleep, sa.or_(*conditions))


def _wake(session: Session, workflows: Mapping[str, Workflow]) -> None:
    """Due from now on, and so in turn with all others. Whoever is at work on one looks again anyhow."""
    awake = _asleep_no_more(workflows)
    if awake is not None and (woken := session.scalars(awake.with_for_update(skip_locked=True)).all()):
        session.execute(sa.update(RunRow).where(RunRow.id.in_(woken)).values(due_at=db_now()))


def _at_gate(workflows: Mapping[str, Workflow]) -> sa.ColumnElement[bool]:
    """Waits for the budgets: not who has passed already (and came back after an error or a crash), nor who only has to
    be told of its abort."""
    gates = [(w.kind, name, phase) for w in workflows.values() for name, phase in w.phases.items() if phase.gate]
    gated = [
        sa.and_(
            RunRow.kind == kind,
            RunRow.phase == name,
            RunRow.abort_reason.is_(None) if phase.abortable else sa.true(),
        )
        for kind, name, phase in gates
    ]
    return sa.and_(RunRow.holds_budget.is_(False), sa.or_(sa.false(), *gated))


def _through_the_gate(
    session: Session, oldest: sa.Select[RunRow, float], budgets: Budgets, db: Database
) -> sa.Row[RunRow, float] | None:
    # SQLite has one writer at a time anyway. On PostgreSQL whoever finds another at the gate comes again: one that was frozen
    # there must not keep the others from what waits at no gate.
    if not db.is_sqlite and not session.scalar(sa.select(sa.func.pg_try_advisory_xact_lock(_GATE_LOCK))):
        return None
    other = aliased(RunRow)
    inside = (other.ended_at.is_(None), other.holds_budget.is_(True))
    if (session.scalar(sa.select(sa.func.count()).select_from(other).where(*inside)) or 0) >= budgets.total:
        return None
    for mine, theirs, limit in (
        (RunRow.rack, other.rack, budgets.per_rack),
        (RunRow.power_feed, other.power_feed, budgets.per_power_feed),
    ):
        full = sa.select(theirs).where(*inside, theirs.is_not(None)).group_by(theirs).having(sa.func.count() >= limit)
        oldest = oldest.where(mine.is_(None) | mine.not_in(full))
    found = session.execute(oldest).first()
    if found is not None:
        found[0].holds_budget = True
    return found


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
