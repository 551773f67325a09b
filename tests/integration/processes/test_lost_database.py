"""Two API and two worker processes whose PostgreSQL goes away under them: restarts, hangs, or loses the answer to a COMMIT."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from fleet.store.tables import AuditRow, EventRow
from tests import postgres
from tests.integration.processes.deployment import Deployment, running
from tests.needs import need

pytestmark = pytest.mark.real

STEP_SAVED = "UPDATE run SET phase="
EVENT_TAKEN = "INSERT INTO event"
PROBES = ("/healthz", "/metrics")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    binaries = postgres.find_binaries()
    need("PostgreSQL (Debian: apt-get install postgresql)", binaries)
    assert binaries is not None
    with running(tmp_path_factory.mktemp("lost"), binaries, machines=5) as made:
        yield made


def test_a_restart_in_the_middle_of_validations_costs_time_only(site: Deployment) -> None:
    ids = [site.validate(machine, api=number % 2) for number, machine in enumerate(("lab-02", "lab-03", "lab-04"))]
    site.in_checks(ids[0])
    site.server.end(signal.SIGQUIT)
    statuses = [api.ask("GET", path).status_code for api in site.apis for path in ("/healthz", "/readyz")]
    assert statuses == [503] * 4
    refused = site.apis[0].ask("POST", "/v1/pause", {"reason": "nobody hears it"})
    assert (refused.status_code, refused.json()["code"]) == (503, "store-busy")
    site.server.start()
    site.all_passed(ids)
    site.until(lambda: all(api.ask("GET", "/healthz").status_code == 200 for api in site.apis))
    assert [part.process.poll() for part in (*site.apis, *site.workers)] == [None] * 4


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "lost"])
def test_an_event_whose_commit_was_not_answered_is_taken_in_once(site: Deployment, committed: bool) -> None:
    """Nobody can say whether it was; who sends it again, to whichever process, gets the first answer or makes it come true."""
    id_, key = f"evt-{committed}", f"key-{committed}"
    kind = "instance.placed" if committed else "instance.migrated"
    event = {"id": id_, "kind": kind, "machine": "lab-05", "instance": "vm-1"}
    cut = site.proxy.cut(EVENT_TAKEN, committed=committed)
    unsure = site.apis[0].ask("POST", "/v1/events", event, key)
    assert cut.done.wait(10)
    assert (unsure.status_code, unsure.json()["code"]) == (503, "store-unconfirmed")
    assert taken(site, id_) == ([("evt", 1)] if committed else [])
    again = [api.ask("POST", "/v1/events", event, key) for api in site.apis]
    assert [(answer.status_code, answer.json()["state"]) for answer in again] == [(202, "applied")] * 2
    assert taken(site, id_) == [("evt", 1)]


def taken(site: Deployment, event: str) -> list[tuple[str, int]]:
    """The event's rows, each with the number of audit entries that tell of it."""
    with site.db.read() as session:
        rows = session.scalars(sa.select(EventRow.id).where(EventRow.id == event)).all()
        told = sa.select(sa.func.count()).where(AuditRow.action == "event.accepted", AuditRow.object == event)
        return [("evt", session.scalar(told) or 0) for _ in rows]


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "lost"])
def test_a_step_whose_commit_was_not_answered_is_not_done_twice(site: Deployment, committed: bool) -> None:
    cuts = [site.proxy.cut(STEP_SAVED, committed=committed) for _ in range(2)]
    ids = [site.validate("lab-02"), site.validate("lab-03")]
    site.all_passed(ids)
    assert all(cut.done.is_set() for cut in cuts)
    phases = [[entry["phase"] for entry in site.validation(id_).phases] for id_ in ids]
    assert all(len(seen) == len(set(seen)) for seen in phases), phases


def test_a_server_that_says_nothing_is_found_out_and_nothing_is_lost(site: Deployment) -> None:
    id_ = site.validate("lab-04")
    site.in_checks(id_)
    site.proxy.hang()
    try:
        with ThreadPoolExecutor() as pool:
            asked = [pool.submit(api.ask, "GET", path) for api, path in zip(site.apis, PROBES, strict=True)]
            health, metrics = (each.result() for each in asked)
        assert (health.status_code, health.json()["status"]) == (503, "down")
        assert "answer" in health.json()["database"]
        assert (metrics.status_code, b"fleet_database_up 0.0" in metrics.content) == (200, True)
        site.until(lambda: all(hung(worker.lines) for worker in site.workers))
    finally:
        site.proxy.flow()
    site.all_passed([id_])
    site.until(lambda: all(api.ask("GET", "/healthz").status_code == 200 for api in site.apis))


def hung(lines: list[dict[str, Any]]) -> bool:
    """The worker's loop has noticed, and goes on asking."""
    return any(line["event"] == "worker.store" and "answer" in line["error"] for line in lines)


def test_a_failover_to_the_standby_goes_on_where_the_primary_ended(site: Deployment) -> None:
    """The last of these tests: the deployment's own view of the database is the old primary's until here."""
    binaries = postgres.find_binaries()
    assert binaries is not None
    with postgres.standby(binaries, site.server) as standby:
        ids = [site.validate("lab-02"), site.validate("lab-03", api=1)]
        site.in_checks(ids[0])
        site.server.end(signal.SIGQUIT)
        postgres.promote(standby)
        site.proxy.lead_to(standby.socket)
        site.follow(standby)
        site.all_passed(ids)
        assert all(api.ask("GET", "/healthz").status_code == 200 for api in site.apis)
        site.end()
