"""/v1/inspections: who may ask for one, and what an order means while another is open."""

from typing import Any

import pytest

from fleet.service.access import Role
from fleet.store import inspections
from tests.integration.api.conftest import Api


@pytest.mark.parametrize("state", ["available", "allocated"])
def test_a_machine_may_be_looked_at_whoever_is_on_it(api: Api, state: str) -> None:
    api.add("m1", state)
    made = api.post("/v1/inspections", {"machine": "m1"}, 202)
    assert (made["machine"], made["kind"], made["outcome"], made["taken_up"]) == ("m1", "check", None, False)
    assert api.get(f"/v1/inspections/{made['id']}")["result"] == {}
    assert api.machine("m1").state == state
    (entry,) = [e for e in api.audit("m1") if e["action"] == "machine.inspect"]
    assert (entry["object"], entry["detail"]) == (made["id"], {"kind": "check"})


def test_an_order_while_one_is_open_is_that_one(api: Api) -> None:
    api.add("m1")
    first = api.post("/v1/inspections", {"machine": "m1"}, 202)
    assert api.post("/v1/inspections", {"machine": "m1", "kind": "check"}, 202)["id"] == first["id"]
    refused = api.post("/v1/inspections", {"machine": "m1", "kind": "discover"}, 409)
    assert first["id"] in refused["detail"]


def test_what_was_found_is_listed_newest_first(api: Api) -> None:
    for name in ("m1", "m2"):
        api.add(name)
    made = api.post("/v1/inspections", {"machine": "m1"}, 202)["id"]
    with api.db.begin() as session:
        inspections.finish(session, made, "met", {"rows": [{"name": "kvm"}]})
    other = api.post("/v1/inspections", {"machine": "m2"}, 202)["id"]
    assert [row["id"] for row in api.get("/v1/inspections")["items"]] == [other, made]
    (row,) = api.get("/v1/inspections?machine=m1")["items"]
    assert (row["outcome"], "result" in row) == ("met", False)
    shown = api.get(f"/v1/inspections/{made}")
    assert shown["result"] == {"rows": [{"name": "kvm"}]}
    assert shown["ended_at"] is not None


@pytest.mark.parametrize(
    ("role", "status"),
    [
        (Role.VIEWER, 403),
        (Role.CONTROL_PLANE, 403),
        (Role.AGENT, 403),
        (Role.HARDWARE, 202),
        (Role.OPERATOR, 202),
        (Role.ADMIN, 202),
    ],
)
def test_who_may_ask(api: Api, role: Role, status: int) -> None:
    api.add("m1")
    api.post("/v1/inspections", {"machine": "m1"}, status, role)


@pytest.mark.parametrize(
    "body", [{}, {"machine": "m1", "kind": "repair"}, {"machine": "../m1"}, {"machine": "m1", "x": 1}]
)
def test_an_order_that_is_none(api: Api, body: Any) -> None:
    api.add("m1")
    api.post("/v1/inspections", body, 422)


def test_what_there_is_not(api: Api) -> None:
    assert "no machine 'm9'" in api.post("/v1/inspections", {"machine": "m9"}, 404)["detail"]
    assert "fleet machine check" in api.get("/v1/inspections/insp-none", 404)["detail"]
