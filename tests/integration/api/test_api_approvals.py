"""The two-person rule: the first asks, a second carries out, by the state of then."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from fleet.service.access import Role
from fleet.service.services import Services
from fleet.store import approvals, tokens
from fleet.store.database import Database
from fleet.store.tables import ApprovalRow, RunRow, TokenRow, ValidationRow
from tests.integration.api.conftest import Api

OVERRIDE = {"instance": "vm-9", "reason": "customer insists"}
RETIRE = "/v1/machines/gpu-1/retire"


class People:
    """anna and ben are operators, carla is an admin, and all were there before anything was asked for."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.tokens = {
            name: self.make(name, role)
            for name, role in (
                ("anna", Role.OPERATOR),
                ("ben", Role.OPERATOR),
                ("carla", Role.ADMIN),
                ("dan", Role.HARDWARE),
            )
        }

    def make(self, name: str, role: Role) -> str:
        with self.api.db.begin() as session:
            return tokens.create(session, name, role)[1]

    def post(self, who: str, path: str, body: Any = None, status: int = 200) -> Any:
        said = {} if body is None else {"json": body}
        answer = self.api.http.post(path, headers={"Authorization": f"Bearer {self.tokens[who]}"}, **said)
        assert answer.status_code == status, answer.text
        return answer.json()

    def asks(self, who: str, path: str = RETIRE, body: Any = None) -> str:
        return str(self.post(who, path, body or {"reason": "sold"}, 202)["id"])

    def approves(self, who: str, id_: str, status: int = 200) -> Any:
        return self.post(who, f"/v1/approvals/{id_}/approve", None, status)


@pytest.fixture
def people(db: Database, services_on: Callable[[Database], Services]) -> People:
    api = Api(replace(services_on(db), two_person_rule=True))
    api.add("gpu-1", "vacated")
    return People(api)


def attention(people: People) -> list[str]:
    return [row["reason"] for row in people.api.get("/v1/attention?kind=approval")["items"]]


def test_retire_is_done_by_the_second_person(people: People) -> None:
    asked = people.post("anna", RETIRE, {"reason": "sold"}, 202)
    assert (asked["state"], asked["action"], asked["machine"]) == ("waiting", "machine.retire", "gpu-1")
    assert (asked["requested_by"], asked["reason"], asked["decided_by"]) == ("anna", "sold", None)
    assert people.api.machine("gpu-1").state == "vacated"
    assert attention(people) == ["anna asks for machine.retire of gpu-1: sold"]

    done = people.approves("ben", asked["id"])
    assert (done["state"], done["decided_by"]) == ("approved", "ben")
    assert people.api.machine("gpu-1").state == "retired"
    assert attention(people) == []
    trail = [(e["action"], e["actor"]) for e in people.api.audit("gpu-1") if e["allowed"]]
    assert trail[:3] == [
        ("approval.approved", "ben"),
        ("machine.retired", "anna, approved by ben"),
        ("approval.requested", "anna"),
    ]


def test_override_and_resume_take_two_as_well(people: People) -> None:
    people.approves("ben", people.asks("anna", "/v1/machines/gpu-1/override", OVERRIDE))
    machine = people.api.get("/v1/machines/gpu-1")
    assert (machine["state"], [i["id"] for i in machine["instances"]]) == ("allocated", ["vm-9"])
    assert "overridden by anna, approved by ben for vm-9: customer insists" in machine["why"]

    people.post("anna", "/v1/pause", {"reason": "power work"})
    id_ = people.asks("anna", "/v1/resume", {"reason": "power is back"})
    assert people.api.get("/v1/site")["paused"] is not None
    people.approves("carla", id_)
    assert people.api.get("/v1/site")["paused"] is None


def test_pause_and_hold_take_one(people: People) -> None:
    people.post("anna", "/v1/pause", {"reason": "now"})
    people.post("anna", "/v1/machines/gpu-1/hold", {"reason": "now"})


def test_nobody_is_two_people(people: People) -> None:
    id_ = people.asks("anna")
    assert "takes another person" in people.approves("anna", id_, 409)["detail"]
    people.tokens["anna's second"] = people.make("anna", Role.ADMIN)
    assert "takes another person" in people.approves("anna's second", id_, 409)["detail"]
    people.tokens["late"] = people.make("somebody", Role.ADMIN)
    assert "was made after this was asked for" in people.approves("late", id_, 409)["detail"]
    assert people.api.machine("gpu-1").state == "vacated"
    assert [e["actor"] for e in people.api.audit() if not e["allowed"]] == ["somebody", "anna", "anna"]


def test_a_role_that_may_not_do_it_may_not_approve_it(people: People) -> None:
    id_ = people.asks("anna")
    assert people.approves("dan", id_, 403)["code"] == "forbidden"


def test_what_cannot_be_done_is_not_asked_for(people: People) -> None:
    people.api.add("gpu-2", "allocated")
    assert "allocated to vm-1" in people.post("anna", "/v1/machines/gpu-2/retire", {"reason": "x"}, 409)["detail"]
    assert people.post("anna", "/v1/machines/nowhere/retire", {"reason": "x"}, 404)["code"] == "not-found"
    assert "not paused" in people.post("anna", "/v1/resume", {}, 409)["detail"]
    assert people.api.get("/v1/approvals")["items"] == []
    assert people.api.machine("gpu-2").version == 1


def test_the_state_is_looked_at_again_when_it_is_approved(people: People) -> None:
    id_ = people.asks("anna")
    people.post("ben", "/v1/validations", {"machine": "gpu-1"}, 202)
    assert "is validating since" in people.approves("ben", id_, 409)["detail"]
    assert people.api.get(f"/v1/approvals/{id_}")["state"] == "waiting"
    assert people.api.machine("gpu-1").state == "validating"


def test_a_validation_that_is_in_the_way_of_an_override_is_ended_first(people: People) -> None:
    validation = people.post("ben", "/v1/validations", {"machine": "gpu-1"}, 202)["id"]
    id_ = people.asks("anna", "/v1/machines/gpu-1/override", OVERRIDE)
    assert people.api.abort_reason(validation) is None
    waits = people.approves("ben", id_, 202)
    assert (waits["state"], waits["outcome"]) == (
        "waiting",
        "a validation is ended first: approve it again when that is over",
    )
    assert people.api.abort_reason(validation) == "overridden for vm-9: customer insists"
    with people.api.db.begin() as session:  # as the worker leaves it
        session.execute(sa.update(RunRow).values(ended_at=1.0))
        session.execute(sa.update(ValidationRow).values(ended_at=1.0, verdict="aborted"))
        session.execute(sa.text("UPDATE machine SET state = 'vacated'"))
    assert people.approves("ben", id_)["state"] == "approved"
    assert people.api.machine("gpu-1").state == "allocated"


def test_whoever_asked_must_still_be_somebody(people: People) -> None:
    id_ = people.asks("anna")
    with people.api.db.begin() as session:
        tokens.revoke(session, session.scalars(sa.select(TokenRow.id).where(TokenRow.name == "anna")).one())
    assert "'anna', which asked for this, is no longer valid" in people.approves("ben", id_, 409)["detail"]


def test_a_no_ends_it_and_may_be_the_first_persons_own(people: People) -> None:
    for who in ("ben", "anna"):
        id_ = people.asks("anna")
        done = people.post(who, f"/v1/approvals/{id_}/reject", {"reason": "not this one"})
        assert (done["state"], done["decided_by"], done["outcome"]) == ("rejected", who, "not this one")
        assert "is rejected since 20" in people.approves("ben", id_, 409)["detail"]
    assert people.api.machine("gpu-1").state == "vacated"
    assert attention(people) == []


def test_the_same_waits_once(people: People) -> None:
    id_ = people.asks("anna")
    detail = people.post("ben", RETIRE, {"reason": "me too"}, 409)["detail"]
    assert "anna asked for it" in detail
    assert id_ in detail


def test_it_expires(people: People) -> None:
    id_ = people.asks("anna")
    with people.api.db.begin() as session:
        session.execute(sa.update(ApprovalRow).values(expires_at=1.0))
    assert people.api.get(f"/v1/approvals/{id_}")["state"] == "expired"
    for state, found in (("waiting", []), ("expired", [id_])):
        assert [row["id"] for row in people.api.get(f"/v1/approvals?state={state}")["items"]] == found
    assert "expired at 1970" in people.approves("ben", id_, 409)["detail"]
    with people.api.db.begin() as session:
        approvals.expire(session)
    assert people.api.get(f"/v1/approvals/{id_}")["decided_by"] == "service:approvals"
    assert attention(people) == []
    people.approves("ben", people.asks("anna"))
    states = [row["state"] for row in people.api.get("/v1/approvals?machine=gpu-1")["items"]]
    assert states == ["approved", "expired"]


def test_of_many_that_approve_one_carries_it_out(people: People) -> None:
    id_ = people.asks("anna", "/v1/machines/gpu-1/override", OVERRIDE)
    who = ["ben", "carla"] * 4

    def approve(name: str) -> int:
        headers = {"Authorization": f"Bearer {people.tokens[name]}"}
        return int(people.api.http.post(f"/v1/approvals/{id_}/approve", headers=headers).status_code)

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(approve, who)) == [200] + [409] * 7
    moved = [e for e in people.api.audit("gpu-1") if e["action"] == "machine.overridden"]
    assert len(moved) == 1


def test_without_the_rule_one_is_enough(api: Any) -> None:
    api.add("gpu-1", "vacated")
    assert api.get("/v1/site")["two_person_rule"] is False
    assert api.post(RETIRE, {"reason": "sold"}, role=Role.OPERATOR)["state"] == "retired"
    assert "there is no approval" in api.post("/v1/approvals/apr-0/approve", None, 404)["detail"]
