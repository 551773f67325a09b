"""How the service itself is: for a load balancer, and as numbers for Prometheus. Counted in the database when asked, so that
every API process says the same. No names of tenants, no secrets."""

from typing import Any

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from sqlalchemy.orm import InstrumentedAttribute, Session

from fleet.core.model import Verdict
from fleet.core.states import State
from fleet.service.listing import Json
from fleet.store.database import db_now
from fleet.store.tables import AttentionRow, MachineRow, RunRow, TicketRow, ValidationRow
from fleet.workflows import begin

LATE_S = 30.0
"""A run that is due for longer than this has no worker: one takes up what is due within a second."""


def health(session: Session) -> Json:
    """`status` is `ok`, or `late` while no worker takes up what is due; `worker_lag_s` says for how long."""
    lag_s = worker_lag_s(session)
    return {"status": "ok" if lag_s < LATE_S else "late", "database": "ok", "worker_lag_s": round(lag_s, 3)}


def worker_lag_s(session: Session) -> float:
    """Seconds by which the oldest due run is overdue. Validations that wait for the site's budgets are not late."""
    now = db_now()
    due = (RunRow.ended_at.is_(None), RunRow.due_at <= now, RunRow.lease_until <= now)
    waits_for_budget = sa.and_(RunRow.kind == begin.KIND, RunRow.phase == begin.FIRST)
    oldest = sa.select(now - sa.func.min(RunRow.due_at))
    return max(0.0, session.scalar(oldest.where(*due, sa.not_(waits_for_budget))) or 0.0)


def metrics(session: Session) -> bytes:
    """In Prometheus' text format."""
    registry = CollectorRegistry()

    def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"fleet_{name}", text, labels, registry=registry)

    machines = gauge("machines", "Machines by state.", ("state",))
    by_state = _counts(session, sa.select(MachineRow.state, sa.func.count()).group_by(MachineRow.state))
    for state in State:
        machines.labels(state).set(by_state.get(state, 0))

    phases = gauge("validations_open", "Open validations by phase.", ("phase",))
    open_ = (RunRow.kind == begin.KIND, RunRow.ended_at.is_(None))
    by_phase = _counts(session, sa.select(RunRow.phase, sa.func.count()).where(*open_).group_by(RunRow.phase))
    for phase, count in by_phase.items():
        phases.labels(phase).set(count)

    verdicts = gauge("validations_ended", "Validations on record by verdict.", ("verdict",))
    by_verdict = _counts(session, sa.select(ValidationRow.verdict, sa.func.count()).group_by(ValidationRow.verdict))
    for verdict in Verdict:
        verdicts.labels(verdict).set(by_verdict.get(verdict, 0))

    gauge("tickets_open", "Tickets that are not closed.").set(_count(session, TicketRow.closed_at))
    gauge("attention_open", "Records that wait for a person.").set(_count(session, AttentionRow.resolved_at))
    gauge("worker_lag_seconds", "By how much the oldest due run is overdue.").set(worker_lag_s(session))
    return generate_latest(registry)


def _counts(session: Session, query: sa.Select[Any, int]) -> dict[Any, int]:
    return dict(session.execute(query).all())


def _count(session: Session, ended: InstrumentedAttribute[float | None]) -> int:
    return session.scalar(sa.select(sa.func.count()).where(ended.is_(None))) or 0
