"""What a worker tells of itself: that it is up, and which run a line of its log is about."""

from collections.abc import Callable

import pytest
import sqlalchemy as sa
import structlog
from prometheus_client import REGISTRY
from structlog.contextvars import merge_contextvars

from fleet.core.clock import Deadline
from fleet.core.errors import StoreBusy, Unreachable
from fleet.engine.worker import Worker
from fleet.engine.workflow import Next, Phase, Work, Workflow
from fleet.store import workers
from fleet.store.database import Database
from fleet.store.tables import WorkerRow
from tests.unit.engine.scene import add, give_up, unused

log = structlog.get_logger(__name__)


def flow(handler: Callable[[Work], Next], kind: str = "job") -> Workflow:
    return Workflow(kind, {"work": Phase(handler, max_attempts=9)}, abort=unused, give_up=give_up)


def up(db: Database) -> int:
    with db.read() as session:
        return workers.up(session)


def test_a_worker_is_up_until_it_is_stopped(db: Database) -> None:
    pair = [Worker(db, [flow(unused)], poll_s=0.01) for _ in range(2)]
    for worker in pair:
        worker.start()
    assert any(up(db) == 2 for _ in Deadline.after(20).poll(0.01))
    pair[0].stop()
    assert up(db) == 1
    with db.begin() as session:
        session.execute(sa.update(WorkerRow).values(seen_at=WorkerRow.seen_at - workers.GONE_S))
    assert up(db) == 0
    pair[1].stop()


def test_a_killed_worker_is_forgotten_in_time(db: Database) -> None:
    with db.begin() as session:
        for name in ("old", "older"):
            workers.beat(session, name, 8)
        session.execute(sa.update(WorkerRow).values(seen_at=WorkerRow.seen_at - 7200))
    with db.begin() as session:
        workers.beat(session, "new", 8)
        assert session.scalars(sa.select(WorkerRow.name)).all() == ["new"]


def test_lines_of_a_step_name_its_run_and_record(sqlite_url: str) -> None:
    db = Database(sqlite_url)
    run = add(db, "lab-02", kind="validation")
    add(db, "fleet", kind="sweep")
    with db.begin() as session:
        session.execute(sa.text("UPDATE run SET ref = 'val-9' WHERE kind = 'validation'"))

    def handler(work: Work) -> Next:
        log.info("said")
        return Next.done("done")

    worker = Worker(db, [flow(handler, "validation"), flow(handler, "sweep")], poll_s=0.01)
    with structlog.testing.capture_logs(processors=[merge_contextvars]) as lines:
        worker.start()
        assert any(len(lines) == 2 for _ in Deadline.after(20).poll(0.01))
        worker.stop()
    said = {line["kind"]: line for line in lines}
    assert {"run": run, "subject": "lab-02", "validation": "val-9"}.items() <= said["validation"].items()
    assert "validation" not in said["sweep"]
    db.close()


@pytest.mark.parametrize(
    ("error", "outcome"), [(None, "done"), (Unreachable("no route"), "error"), (StoreBusy("away"), "store")]
)
def test_steps_are_counted_by_how_they_ended(sqlite_url: str, error: Exception | None, outcome: str) -> None:
    db = Database(sqlite_url)
    add(db, "m1", kind=outcome)

    def handler(work: Work) -> Next:
        if error is not None:
            raise error
        return Next.done("done")

    assert Worker(db, [flow(handler, outcome)]).step()
    labels = {"kind": outcome, "phase": "work", "outcome": outcome}
    assert REGISTRY.get_sample_value("fleet_steps_total", labels) == 1.0
    assert REGISTRY.get_sample_value("fleet_step_seconds_count", {"kind": outcome}) == 1.0
    db.close()
