"""What this worker process has done since it started, for Prometheus. Labels are kinds and phases, of which there are few."""

from prometheus_client import Counter, Histogram

STEPS = Counter("fleet_steps", "Handlers run by this worker process, by how they ended.", ("kind", "phase", "outcome"))
"""Outcomes: `done`, `error` (the phase is kept, to be tried again), `gave_up`, `lease_lost`, `store` (no answer from the
database)."""

STEP_S = Histogram(
    "fleet_step_seconds",
    "How long a handler and the saving of its answer took.",
    ("kind",),
    buckets=(0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
)

STORE_ERRORS = Counter("fleet_worker_store_errors", "Times that this worker process got no answer from the database.")
