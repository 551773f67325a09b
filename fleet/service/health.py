"""How the service itself is, for a load balancer and for whoever watches: read from the database when asked, so that every
process says the same."""

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.service.listing import Json
from fleet.store import workers
from fleet.store.database import db_now
from fleet.store.tables import RunRow
from fleet.workflows import begin

LATE_S = 30.0
"""A run that is due for longer than this has no worker: one takes up what is due within a second."""


def health(session: Session) -> Json:
    """`status` is `ok`; `late` while the workers do not take up what is due, `no-worker` where there is none to do it.
    `worker_lag_s` says for how long. A service without work is healthy without workers too."""
    lag_s, up = worker_lag_s(session), workers.up(session)
    status = "ok" if lag_s < LATE_S else "late" if up else "no-worker"
    return {"status": status, "database": "ok", "worker_lag_s": round(lag_s, 3), "workers": up}


def worker_lag_s(session: Session) -> float:
    """Seconds by which the oldest due run is overdue. Validations that wait for the site's budgets are not late."""
    now = db_now()
    due = (RunRow.ended_at.is_(None), RunRow.due_at <= now, RunRow.lease_until <= now)
    waits_for_budget = sa.and_(RunRow.kind == begin.KIND, RunRow.phase == begin.FIRST)
    oldest = sa.select(now - sa.func.min(RunRow.due_at))
    return max(0.0, session.scalar(oldest.where(*due, sa.not_(waits_for_budget))) or 0.0)
