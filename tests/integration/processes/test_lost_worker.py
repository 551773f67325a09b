"""Of two worker processes one is frozen for longer than its lease, or ended in order: what it had in hand is done once."""

import os
import signal
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from fleet.core.clock import Deadline
from fleet.store.tables import AuditRow, RunRow, ValidationRow, WorkerRow
from tests import postgres
from tests.integration.processes.deployment import Deployment, Part, running
from tests.needs import need

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    binaries = postgres.find_binaries()
    need("PostgreSQL (Debian: apt-get install postgresql)", binaries)
    assert binaries is not None
    with running(tmp_path_factory.mktemp("frozen"), binaries, machines=3) as made:
        yield made


def test_a_worker_that_wakes_up_late_writes_nothing(site: Deployment) -> None:
    id_ = site.validate("lab-02", "short-all")
    site.in_checks(id_)
    frozen = freeze_in_step(site, id_)
    site.all_passed([id_])  # the other one took it up when the lease was over
    before = everything(site, id_)
    seen = seen_at(site, frozen)
    os.kill(frozen.process.pid, signal.SIGCONT)
    site.until(lambda: seen_at(site, frozen) > seen)
    run = site.run(id_)
    site.until(lambda: given_up(frozen, run.id))
    assert everything(site, id_) == before
    assert frozen.process.poll() is None
    assert len(site.workers_up()) == 2


def test_a_worker_that_is_ended_in_order_leaves_nobody_waiting(site: Deployment) -> None:
    ids = [site.validate(machine, "short-all") for machine in ("lab-03", "lab-04")]
    site.in_checks(ids[0])
    ending = site.worker_of(site.run(ids[0]).worker)
    names = {name for name in site.workers_up() if str(ending.process.pid) in name.split("-")}
    assert ending.end(signal.SIGTERM) == 0
    with site.db.read() as session:
        left = sa.select(RunRow.id).where(RunRow.worker.in_(names), RunRow.lease_until > 0.0)
        assert session.scalars(left).all() == []
    assert site.workers_up().isdisjoint(names)
    site.all_passed(ids)


def test_an_api_process_that_is_ended_in_order_leaves_the_other(site: Deployment) -> None:
    assert site.apis[0].end(signal.SIGTERM) == 0
    assert site.apis[1].ask("GET", "/v1/machines").status_code == 200


def freeze_in_step(site: Deployment, validation: str) -> Part:
    """The worker that is at work on it, stopped before it could save what it is doing."""
    for _ in Deadline.after(30).poll(0.005):
        run = site.run(validation)
        if not run.lease_until:
            continue
        worker = site.worker_of(run.worker)
        os.kill(worker.process.pid, signal.SIGSTOP)
        since = site.db.now()
        for _ in Deadline.after(0.3).poll(0.1):  # a commit that was on its way is through by then
            still = site.run(validation)
        if still.lease_until > since and still.worker == run.worker:
            return worker
        os.kill(worker.process.pid, signal.SIGCONT)
    raise AssertionError("no step was ever caught at work")


def given_up(worker: Part, run: int) -> bool:
    """It says that its step came too late, or that its connection was ended by the server while it was frozen."""
    return any(
        line.get("run") == run and line["event"] in ("worker.lease_lost", "worker.store", "worker.handler")
        for line in worker.lines
    )


def seen_at(site: Deployment, worker: Part) -> float:
    with site.db.read() as session:
        names = {name for name in site.workers_up() if str(worker.process.pid) in name.split("-")}
        return session.scalar(sa.select(sa.func.max(WorkerRow.seen_at)).where(WorkerRow.name.in_(names))) or 0.0


def everything(site: Deployment, validation: str) -> list[object]:
    """All that is on record of it, the machine's audit trail too."""
    with site.db.read() as session:
        row = session.get_one(ValidationRow, validation)
        run = session.get_one(RunRow, row.run)
        told = session.scalars(sa.select(AuditRow.id).where(AuditRow.machine == row.machine)).all()
        columns = [
            {column.key: getattr(each, column.key) for column in sa.inspect(each).mapper.column_attrs}
            for each in (row, run)
        ]
        return [*columns, list(told)]
