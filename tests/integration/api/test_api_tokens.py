"""Tokens: who made them, how long they last, who uses them, and the one machine of an agent's."""

from typing import Any

import pytest
import sqlalchemy as sa

from fleet.core.errors import Forbidden
from fleet.service.access import Action, Actor, Permit, Role, check_bound
from fleet.store.tables import TokenRow

NEW = {"name": "ci", "role": "viewer"}


def listed(api: Any, name: str) -> Any:
    [row] = [row for row in api.get("/v1/tokens")["items"] if row["name"] == name]
    return row


def test_a_token_says_who_made_it_and_until_when_it_is_good(api: Any) -> None:
    made = api.post("/v1/tokens", {**NEW, "expires_in_s": 30 * 86400}, 201)
    assert (made["created_by"], made["machine"], made["last_used_at"]) == ("admin-test", None, None)
    assert made["created_at"] < made["expires_at"]
    [entry] = [e for e in api.audit() if e["action"] == "token.created" and e["object"] == made["id"]]
    assert entry["detail"] == {"name": "ci", "role": "viewer", "machine": None, "expires_at": made["expires_at"]}


def test_the_last_use_is_noted_to_the_minute(api: Any) -> None:
    made = api.post("/v1/tokens", NEW, 201)
    mine = {"Authorization": f"Bearer {made['token']}"}
    assert api.http.get("/v1/site", headers=mine).status_code == 200
    row = listed(api, "ci")
    assert (row["last_used_from"], row["last_used_at"] > made["created_at"]) == ("127.0.0.1", True)

    for age_s, is_noted in ((30.0, False), (61.0, True)):
        with api.db.begin() as session:
            at = session.scalars(sa.select(TokenRow).where(TokenRow.name == "ci")).one()
            at.last_used_at = before = (at.last_used_at or 0.0) - age_s
        api.http.get("/v1/site", headers=mine)
        with api.db.read() as session:
            now = session.scalars(sa.select(TokenRow.last_used_at).where(TokenRow.name == "ci")).one()
        assert (now != before) == is_noted


def test_a_refused_token_was_not_used(api: Any) -> None:
    token = api.ended(Role.VIEWER, "expired")
    assert api.http.get("/v1/site", headers={"Authorization": f"Bearer {token}"}).status_code == 401
    assert listed(api, "viewer-expired")["last_used_at"] is None


def test_an_agents_token_is_made_for_a_machine_that_there_is(api: Any) -> None:
    api.add("lab-01")
    made = api.post("/v1/tokens", {"name": "agent-1", "role": "agent", "machine": "lab-01"}, 201)
    assert made["machine"] == "lab-01"
    assert "nowhere" in api.post("/v1/tokens", {"name": "a", "role": "agent", "machine": "nowhere"}, 404)["detail"]


@pytest.mark.parametrize("body", [{"role": "agent"}, {"role": "viewer", "machine": "lab-01"}, {"role": "boss"}])
def test_only_an_agent_has_a_machine_and_each_has_one(api: Any, body: dict[str, str]) -> None:
    api.add("lab-01")
    before = len(api.get("/v1/tokens")["items"])
    assert api.post("/v1/tokens", {"name": "a", **body}, 422)["code"] == "invalid-input"
    assert len(api.get("/v1/tokens")["items"]) == before


@pytest.mark.parametrize(("machine", "good"), [("lab-01", True), ("lab-02", False), (None, False)])
def test_an_agent_speaks_for_its_machine_only(api: Any, machine: str | None, good: bool) -> None:
    agent = Actor("agent-1", Role.AGENT, "tok-1", "192.0.2.9", "lab-01")
    permit = Permit(agent, Action.EVENT_REPORT, "POST /v1/events", machine)
    if good:
        check_bound(api.db, permit)
        return
    with pytest.raises(Forbidden, match="agent's of lab-01 and of no other"):
        check_bound(api.db, permit)
    [entry] = [e for e in api.audit() if not e["allowed"]]
    assert (entry["actor"], entry["source"], entry["machine"]) == ("agent-1", "192.0.2.9", machine)


def test_what_a_body_says_of_a_machine_counts_for_a_bound_token(api: Any) -> None:
    """Whatever such a token may do one day: the machine is looked for in the path and in the body."""
    for name in ("lab-01", "lab-02"):
        api.add(name, "allocated")
    with api.db.begin() as session:
        session.execute(sa.update(TokenRow).where(TokenRow.role == "control-plane").values(machine="lab-01"))
    event = {"kind": "instance.removed", "instance": "vm-1"}
    for name, status in (("lab-02", 403), ("lab-01", 202)):
        api.post("/v1/events", {**event, "id": f"e-{name}", "machine": name}, status, role=Role.CONTROL_PLANE)
    for path, status in (("/v1/machines/lab-01", 200), ("/v1/machines/lab-02", 403), ("/v1/machines", 403)):
        api.get(path, status, role=Role.CONTROL_PLANE)
    assert api.machine("lab-02").state == "allocated"
