"""Notices by the API: what waits, and the receiver's or a person's word that it is known."""

import pytest
import sqlalchemy as sa

from fleet.service.access import Role
from fleet.store import attention
from fleet.store.tables import RunRow
from fleet.workflows import delivery
from tests.integration.api.conftest import Api

REASON = {"reason": "odd noise"}


def test_every_notice_can_be_seen_with_how_far_it_is(api: Api) -> None:
    api.add("gpu-1")
    api.add("gpu-2", "vacated")
    api.post("/v1/machines/gpu-1/withdraw", REASON)
    withdrawn, added = api.get("/v1/notices?machine=gpu-1&state=pending&destination=scheduler")["items"]
    assert (withdrawn["kind"], withdrawn["version"], withdrawn["why"]) == ("pool.withdrawn", 2, "odd noise")
    assert (added["kind"], added["state"], added["delivered_at"]) == ("pool.returned", "pending", None)
    assert api.get("/v1/notices?machine=gpu-2")["items"] == []
    assert api.get(f"/v1/notices/{added['id']}")["id"] == added["id"]


def test_the_scheduler_acknowledges_once_and_for_all_before(api: Api) -> None:
    api.add("gpu-1")
    api.post("/v1/machines/gpu-1/withdraw", REASON)
    newest = api.get("/v1/notices")["items"][0]["id"]
    for _ in range(2):
        said = api.post(f"/v1/notices/{newest}/acknowledge", role=Role.CONTROL_PLANE)
        assert (said["state"], said["acknowledged_by"]) == ("acknowledged", "control-plane-test")
    assert {row["state"] for row in api.get("/v1/notices")["items"]} == {"acknowledged"}
    entries = [entry for entry in api.audit("gpu-1") if entry["action"] == "notice.acknowledged"]
    assert [(entry["object"], entry["detail"]["version"]) for entry in entries] == [(newest, 2)]


@pytest.mark.parametrize("id_", ["ntc-77", "ntc-x", "att-1", f"ntc-{'9' * 40}"])
def test_a_notice_that_there_is_not_is_named(api: Api, id_: str) -> None:
    for answer in (api.get(f"/v1/notices/{id_}", 404), api.post(f"/v1/notices/{id_}/acknowledge", status=404)):
        assert answer["code"] == "not-found"
        assert id_ in answer["detail"]


@pytest.mark.parametrize(
    "query", ["state=lost", "destination=pager", "machine=gpu%2F1", "limit=0", "cursor=x", "kind=x"]
)
def test_a_filter_that_is_none_is_named(api: Api, query: str) -> None:
    assert api.get(f"/v1/notices?{query}", 422)["field"] == query.partition("=")[0]


def test_an_acknowledgement_says_nothing_more(api: Api) -> None:
    api.add("gpu-1")
    (notice,) = api.get("/v1/notices")["items"]
    path = f"/v1/notices/{notice['id']}/acknowledge"
    assert api.post(path, {"until": "tomorrow"}, 422)["field"] == "until"
    for role in (Role.VIEWER, Role.HARDWARE, Role.AGENT):
        api.post(path, status=403, role=role)
    assert api.get(f"/v1/notices/{notice['id']}")["state"] == "pending"


def test_a_service_whose_receiver_is_away_is_healthy(api: Api) -> None:
    """What delivers sleeps between two tries: that is no lag of the workers."""
    with api.db.begin() as session:
        delivery.ensure(session)
        session.execute(sa.update(RunRow).values(phase_since=0.0, due_at=RunRow.due_at + 300.0))
    api.add("gpu-1")
    assert api.http.get("/healthz").json()["worker_lag_s"] == 0.0
    text = api.http.get("/metrics").text
    assert 'fleet_notices_pending{destination="scheduler"} 1.0' in text
    assert "fleet_worker_lag_seconds 0.0" in text


def test_records_of_attention_are_in_the_same_list(api: Api) -> None:
    with api.db.begin() as session:
        attention.need(session, "stuck", "gpu-1", machine=None, reason="it stands", next_step="look")
    (notice,) = api.get("/v1/notices?destination=attention")["items"]
    assert (notice["kind"], notice["why"]) == ("attention.opened", "it stands")


def test_a_machine_says_whether_it_can_be_claimed_and_with_which_version(api: Api) -> None:
    api.add("gpu-1")
    free = api.get("/v1/machines/gpu-1")
    held = api.post("/v1/machines/gpu-1/hold", REASON)
    assert (free["claimable"], held["claimable"]) == (True, False)
    assert free["version"] < held["version"]


def test_a_scheduler_that_believes_in_yesterdays_pool_is_refused(api: Api) -> None:
    api.add("gpu-1")
    api.post("/v1/validations", {"machine": "gpu-1"}, 202)
    refused = api.post("/v1/machines/gpu-1/claim", {"instance": "vm-1"}, 409, role=Role.CONTROL_PLANE)
    assert "gpu-1 is not available, it is validating since" in refused["detail"]
