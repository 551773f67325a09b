"""What a workflow is: a table of phases over one row. A handler looks at the world, does at most one act, and names the
next phase and when. It decides from what is true now, so a crash, a retry or a second worker changes nothing.

Why rows and not a workflow library: ``docs/decisions/0001-engine.md``.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from fleet.core.errors import LeaseLost
from fleet.store.database import Database, db_now
from fleet.store.tables import RunRow


@dataclass(frozen=True)
class Next:
    """What a handler answers. `phase` None ends the run. `data` is merged into the run's. `within` runs in the very
    transaction that saves the row: what it writes is true exactly if the phase has changed."""

    phase: str | None
    why: str
    after_s: float = 0.0
    data: Mapping[str, Any] = field(default_factory=dict)
    within: Callable[[Session], None] | None = None

    @classmethod
    def done(cls, why: str, within: Callable[[Session], None] | None = None) -> "Next":
        return cls(None, why, within=within)


@dataclass(frozen=True)
class Run:
    """A frozen copy of the row. `now` is the database's time of this copy."""

    id: int
    kind: str
    subject: str
    ref: str | None
    phase: str
    phase_since: float
    epoch: int
    attempts: int
    abort_reason: str | None
    abort_by: str | None
    data: Mapping[str, Any]
    created_at: float
    now: float

    @property
    def in_phase_s(self) -> float:
        return self.now - self.phase_since


@dataclass(frozen=True)
class Phase:
    """`abortable` phases end at once when an abort is asked for. `gate` phases wait for the site's budgets: the claim
    lets a run through only while there is room. After `max_attempts` errors in a row the workflow's `give_up` decides."""

    handler: "Handler"
    abortable: bool = True
    gate: bool = False
    max_attempts: int = 5
    backoff_s: float = 2.0


@dataclass(frozen=True)
class Workflow:
    """`awake`: a condition on the run's row and whatever else is in the database, under which a run is due before its time.
    Whoever makes it true need not know the run, nor touch its row."""

    kind: str
    phases: Mapping[str, Phase]
    abort: "Handler"  # what follows an abort request in an abortable phase
    give_up: Callable[["Work", Exception], Next]
    awake: sa.ColumnElement[bool] | None = None


class Work:
    """One claimed run: what a handler may do with it."""

    def __init__(self, db: Database, run: Run, lease_s: float) -> None:
        self.db, self.run, self.lease_s = db, run, lease_s

    def guard(self) -> None:
        """Call directly before every act on the world. Renews the lease, or raises LeaseLost when it is no longer ours.

        When the answer took longer than half a lease (the process was frozen while asking), it is asked again: a right
        that was true long ago is no right."""
        started = time.monotonic() - self.lease_s
        while time.monotonic() - started > self.lease_s / 2:
            started = time.monotonic()
            with self.transaction():
                pass

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """A write transaction that happens only while this worker owns the row. Raises LeaseLost."""
        with self.db.begin() as session:
            mine = (RunRow.id == self.run.id, RunRow.epoch == self.run.epoch, RunRow.ended_at.is_(None))
            renewed = session.execute(sa.update(RunRow).where(*mine).values(lease_until=db_now() + self.lease_s))
            if renewed.rowcount != 1:  # type: ignore[attr-defined]
                raise LeaseLost(f"run {self.run.id} has gone on without this worker")
            yield session


Handler = Callable[[Work], Next]


def open_run(
    session: Session,
    kind: str,
    phase: str,
    subject: str,
    *,
    ref: str | None = None,
    after_s: float = 0.0,
    why: str,
    data: Mapping[str, Any] | None = None,
    rack: str | None = None,
    power_feed: str | None = None,
) -> int:
    """Add a row in its first `phase`, in the caller's transaction; returns its id. Raises IntegrityError when one of this
    kind is open for the subject already."""
    now = session.scalar(sa.select(db_now())) or 0.0
    row = RunRow(
        kind=kind,
        subject=subject,
        ref=ref,
        phase=phase,
        phase_since=now,
        why=why,
        due_at=now + after_s,
        data=dict(data or {}),
        rack=rack,
        power_feed=power_feed,
        created_at=now,
    )
    session.add(row)
    session.flush()
    return row.id


def ensure_run(session: Session, kind: str, phase: str, subject: str, *, why: str) -> None:
    """Open the one run of a kind that goes round for ever, unless it is open: whichever process starts first."""
    open_ = sa.select(RunRow.id).where(RunRow.kind == kind, RunRow.subject == subject, RunRow.ended_at.is_(None))
    if session.scalar(open_) is None:
        with suppress(IntegrityError), session.begin_nested():  # another process was faster
            open_run(session, kind, phase, subject, why=why)
