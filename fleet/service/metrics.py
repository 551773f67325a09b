"""The fleet in numbers, in Prometheus' text format: counted in the database when asked, so that every process says the same,
and below it what this process has done itself. Labels are words of ours, of which there are few: never a machine, a tenant, a
person. What each means: ``docs/metrics.md``."""

from collections.abc import Callable, Iterable
from typing import Any

import sqlalchemy as sa
from prometheus_client import REGISTRY, CollectorRegistry, Gauge, disable_created_metrics, generate_latest
from sqlalchemy.orm import InstrumentedAttribute, Session

from fleet.core.errors import StoreError
from fleet.core.model import Verdict
from fleet.core.states import State
from fleet.service.health import worker_lag_s
from fleet.store import workers
from fleet.store.database import Database, db_now
from fleet.store.tables import (
    ApprovalRow,
    AttentionRow,
    MachineRow,
    NoticeRow,
    RunRow,
    SiteRow,
    TicketRow,
    ValidationRow,
)
from fleet.workflows import begin

_FAILING_ATTEMPTS = 3

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series beside each, of no use to anybody


def metrics(db: Database) -> bytes:
    """Without the database's part while the database does not answer: `fleet_database_up` says which it is."""
    registry = CollectorRegistry()
    up = Gauge("fleet_database_up", "Whether the database answered this very request.", registry=registry)
    fleet = CollectorRegistry()
    try:
        with db.read() as session:
            for part in _PARTS:
                part(session, fleet)
    except StoreError:
        fleet = CollectorRegistry()
    else:
        up.set(1)
    return b"".join(map(generate_latest, (registry, fleet, REGISTRY)))


def _machines(session: Session, registry: CollectorRegistry) -> None:
    machines = Gauge("fleet_machines", "Machines by state.", ("state",), registry=registry)
    _fill(machines, _by(session, MachineRow.state), State)
    held = sa.select(sa.func.count()).where(MachineRow.hold.is_not(None))
    Gauge("fleet_machines_held", "Machines that a person holds.", registry=registry).set(session.scalar(held) or 0)


def _validations(session: Session, registry: CollectorRegistry) -> None:
    open_ = (RunRow.kind == begin.KIND, RunRow.ended_at.is_(None))
    phases = Gauge("fleet_validations_open", "Open validations by phase.", ("phase",), registry=registry)
    _fill(phases, _by(session, RunRow.phase, *open_))
    oldest = Gauge("fleet_validation_oldest_seconds", "Age of the oldest open validation.", registry=registry)
    oldest.set(_age(session, RunRow.created_at, *open_))
    ended = Gauge("fleet_validations_ended", "Validations on record by verdict.", ("verdict",), registry=registry)
    _fill(ended, _by(session, ValidationRow.verdict, ValidationRow.verdict.is_not(None)), Verdict)


def _people(session: Session, registry: CollectorRegistry) -> None:
    tickets = Gauge("fleet_tickets_open", "Tickets that are not closed, by state.", ("state",), registry=registry)
    _fill(tickets, _by(session, TicketRow.state, TicketRow.closed_at.is_(None)))
    waits = AttentionRow.resolved_at.is_(None)
    attention = Gauge("fleet_attention_open", "Records that wait for a person, by kind.", ("kind",), registry=registry)
    _fill(attention, _by(session, AttentionRow.kind, waits))
    oldest = Gauge("fleet_attention_oldest_seconds", "How long the oldest of them has waited.", registry=registry)
    oldest.set(_age(session, AttentionRow.since, waits))
    waiting = sa.select(sa.func.count()).where(ApprovalRow.state == "waiting")
    approvals = Gauge("fleet_approvals_waiting", "Requests that wait for a second person.", registry=registry)
    approvals.set(session.scalar(waiting) or 0)


def _notices(session: Session, registry: CollectorRegistry) -> None:
    pending = NoticeRow.acknowledged_at.is_(None)
    count = Gauge("fleet_notices_pending", "Notices not acknowledged yet.", ("destination",), registry=registry)
    _fill(count, _by(session, NoticeRow.destination, pending))
    oldest = Gauge("fleet_notice_oldest_seconds", "Age of the oldest of them.", registry=registry)
    oldest.set(_age(session, NoticeRow.created_at, pending))


def _engine(session: Session, registry: CollectorRegistry) -> None:
    Gauge("fleet_workers", "Worker processes heard of lately.", registry=registry).set(workers.up(session))
    lag = Gauge("fleet_worker_lag_seconds", "By how much the oldest due run is overdue.", registry=registry)
    lag.set(worker_lag_s(session))
    runs = Gauge("fleet_runs_open", "Open runs of the engine by kind.", ("kind",), registry=registry)
    _fill(runs, _by(session, RunRow.kind, RunRow.ended_at.is_(None)))
    failing = sa.select(sa.func.count()).where(RunRow.ended_at.is_(None), RunRow.attempts >= _FAILING_ATTEMPTS)
    repeated = Gauge(
        "fleet_runs_failing", f"Open runs whose step has failed {_FAILING_ATTEMPTS} times or more.", registry=registry
    )
    repeated.set(session.scalar(failing) or 0)


def _site(session: Session, registry: CollectorRegistry) -> None:
    row = session.scalar(sa.select(SiteRow))
    paused = Gauge("fleet_paused", "Whether automatic acts are paused fleet-wide.", registry=registry)
    paused.set(row is not None and row.paused is not None)
    enforcing = Gauge("fleet_enforcing", "Whether verdicts condemn machines (site mode enforce).", registry=registry)
    enforcing.set(row is not None and row.mode == "enforce")


_PARTS: tuple[Callable[[Session, CollectorRegistry], None], ...] = (
    _machines,
    _validations,
    _people,
    _notices,
    _engine,
    _site,
)


def _by(session: Session, column: InstrumentedAttribute[Any], *where: sa.ColumnElement[bool]) -> dict[str, int]:
    counted = sa.select(column, sa.func.count()).where(*where).group_by(column)
    return {str(value): count for value, count in session.execute(counted)}


def _fill(gauge: Gauge, counts: dict[str, int], known: Iterable[str] = ()) -> None:
    """`known` values are there with 0 as well, so that a rate or an alert has something to begin with."""
    for value in {*known, *counts}:
        gauge.labels(value).set(counts.get(value, 0))


def _age(session: Session, since: InstrumentedAttribute[float], *where: sa.ColumnElement[bool]) -> float:
    age = session.scalar(sa.select(db_now() - sa.func.min(since)).where(*where))
    return max(0.0, age or 0.0)
