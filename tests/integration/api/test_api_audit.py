"""The audit trail: an entry for every write, and the ways to read it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from fleet.service.access import Action, Role
from fleet.store import attention, tickets
from fleet.store.tables import AuditRow
from tests.integration.api.conftest import Api
from tests.integration.api.routes import guarded

REASON = {"reason": "because"}
TENANT = {"instance": "vm-9", **REASON}
Written = tuple[str, Any]
"""A path and a body that the write is made with."""


def of(path: str, body: Any) -> Callable[[Api], Written]:
    return lambda _api: (path, body)


def machine(state: str, verb: str, body: Any) -> Callable[[Api], Written]:
    def made(api: Api) -> Written:
        api.add("lab-01", state)
        return f"/v1/machines/lab-01/{verb}", body

    return made


def unhold(api: Api) -> Written:
    api.add("lab-01")
    api.post("/v1/machines/lab-01/hold", REASON)
    return "/v1/machines/lab-01/unhold", {}


def validation(api: Api) -> str:
    api.add("lab-01", "vacated")
    return str(api.post("/v1/validations", {"machine": "lab-01"}, 202)["id"])


def start(api: Api) -> Written:
    api.add("lab-01", "vacated")
    return "/v1/validations", {"machine": "lab-01"}


def inspect(api: Api) -> Written:
    api.add("lab-01")
    return "/v1/inspections", {"machine": "lab-01"}


def event(api: Api) -> Written:
    api.add("lab-01", "allocated")
    return "/v1/events", {"id": "e1", "kind": "instance.removed", "machine": "lab-01", "instance": "vm-1"}


def fixed(api: Api) -> Written:
    of_validation = validation(api)
    with api.db.begin() as session:
        text = {"cause": "nccl", "title": "slow", "body": "", "checks": ["nccl"]}
        row = tickets.file(session, machine="lab-01", validation=of_validation, by="test", **text)
        return f"/v1/tickets/{row.id}/fixed", {}


def resolve(api: Api) -> Written:
    with api.db.begin() as session:
        attention.need(session, "stuck", "lab-01", machine=None, reason="r", next_step="n")
    return f"/v1/attention/{api.get('/v1/attention')['items'][0]['id']}/resolve", {}


def resume(api: Api) -> Written:
    api.post("/v1/pause", REASON)
    return "/v1/resume", {}


def decide(verb: str, body: Any) -> Callable[[Api], Written]:
    def made(api: Api) -> Written:
        api.add("lab-01", "vacated")
        two = Api(replace(api.services, two_person_rule=True))
        id_ = two.post("/v1/machines/lab-01/retire", REASON, 202, role=Role.OPERATOR)["id"]
        return f"/v1/approvals/{id_}/{verb}", body

    return made


def mend(api: Api) -> Written:
    api.post("/v1/lab/lab-01/break", {"fault": "faulty-gpu"})
    return "/v1/lab/lab-01/mend", {"fault": "faulty-gpu"}


def acknowledge(api: Api) -> Written:
    api.add("lab-01")
    return f"/v1/notices/{api.get('/v1/notices')['items'][0]['id']}/acknowledge", {}


def revoke(api: Api) -> Written:
    return f"/v1/tokens/{api.post('/v1/tokens', {'name': 'x', 'role': 'viewer'}, 201)['id']}/revoke", {}


WRITES: Mapping[Action, Callable[[Api], Written]] = {
    Action.MACHINE_ADD: of("/v1/machines", {"name": "gpu-1", "sku": "sim-a100x8"}),
    Action.MACHINE_IMPORT: of("/v1/machines/import", {"machines": [{"name": "gpu-1", "sku": "sim-a100x8"}]}),
    Action.MACHINE_HOLD: machine("available", "hold", REASON),
    Action.MACHINE_UNHOLD: unhold,
    Action.MACHINE_WITHDRAW: machine("available", "withdraw", REASON),
    Action.MACHINE_RETIRE: machine("vacated", "retire", REASON),
    Action.MACHINE_CLAIM: machine("available", "claim", {"instance": "vm-9"}),
    Action.MACHINE_OVERRIDE: machine("vacated", "override", TENANT),
    Action.MACHINE_INSPECT: inspect,
    Action.EVENT_REPORT: event,
    Action.VALIDATION_START: start,
    Action.VALIDATION_ABORT: lambda api: (f"/v1/validations/{validation(api)}/abort", REASON),
    Action.TICKET_FIXED: fixed,
    Action.ATTENTION_RESOLVE: resolve,
    Action.NOTICE_ACKNOWLEDGE: acknowledge,
    Action.SITE_PAUSE: of("/v1/pause", REASON),
    Action.SITE_RESUME: resume,
    Action.SITE_MODE: of("/v1/site/mode", {"mode": "enforce"}),
    Action.APPROVAL_APPROVE: decide("approve", {}),
    Action.APPROVAL_REJECT: decide("reject", REASON),
    Action.LAB_BREAK: of("/v1/lab/lab-01/break", {"fault": "faulty-gpu"}),
    Action.LAB_MEND: mend,
    Action.TOKEN_CREATE: of("/v1/tokens", {"name": "ci", "role": "viewer"}),
    Action.TOKEN_REVOKE: revoke,
}


def test_every_write_is_here(api: Api) -> None:
    assert {action for method, _path, action in guarded(api) if method != "GET"} == WRITES.keys()


@pytest.mark.parametrize("action", WRITES)
def test_every_write_leaves_who_did_it_and_from_where(api: Api, action: Action) -> None:
    path, body = WRITES[action](api)
    with api.db.read() as session:
        before = session.scalar(sa.select(sa.func.max(AuditRow.id))) or 0
    answer = api.http.post(path, json=body, headers=api.headers())
    assert answer.is_success, answer.text
    with api.db.read() as session:
        entries = session.scalars(sa.select(AuditRow).where(AuditRow.id > before)).all()
    assert entries
    assert all(entry.allowed for entry in entries)
    assert {entry.source for entry in entries} == {"127.0.0.1"}
    assert all("admin-test" in entry.actor for entry in entries)


@pytest.fixture
def told(api: Api) -> Api:
    """Some history by two people on two machines, with one refusal."""
    for name in ("gpu-1", "gpu-2"):
        api.add(name)
        api.post(f"/v1/machines/{name}/hold", REASON, role=Role.OPERATOR)
    api.post("/v1/machines/gpu-1/hold", REASON, 403, role=Role.VIEWER)
    api.post("/v1/pause", REASON, role=Role.OPERATOR)
    return api


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("machine=gpu-2", ["machine.added", "machine.held"]),
        ("actor=operator-test", ["machine.held", "machine.held", "site.paused"]),
        ("action=machine.held", ["machine.held", "machine.held"]),
        ("action=machine.", ["machine.added", "machine.held", "machine.added", "machine.held", "machine.hold"]),
        ("allowed=false", ["machine.hold"]),
        ("allowed=true&actor=viewer-test", []),
        ("since=2100-01-01T00:00:00Z", []),
        ("until=2100-01-01T00:00:00Z&machine=gpu-2", ["machine.added", "machine.held"]),
        ("until=2020-01-01T00:00:00%2B01:00", []),
    ],
)
def test_it_is_read_by_who_what_where_and_when(told: Api, query: str, found: list[str]) -> None:
    assert [e["action"] for e in told.get(f"/v1/audit?order=oldest&{query}")["items"]] == found
    assert [e["action"] for e in told.get(f"/v1/audit?{query}")["items"]] == found[::-1]


def test_pages_go_on_in_both_orders(told: Api) -> None:
    for order in ("oldest", "newest"):
        ids, cursor = [], ""
        while cursor is not None:
            page = told.get(f"/v1/audit?order={order}&limit=2" + (f"&cursor={cursor}" if cursor else ""))
            ids += [e["id"] for e in page["items"]]
            cursor = page["next"]
        assert ids == sorted(ids, reverse=order == "newest")
        assert len(ids) == 6


@pytest.mark.parametrize(
    "query",
    ["since=yesterday", "since=2026-01-01T00:00:00", "allowed=maybe", "order=best", "action=Machine%25", "who=x"],
)
def test_a_filter_that_is_none_is_named(api: Api, query: str) -> None:
    problem = api.get(f"/v1/audit?{query}", 422)
    assert problem["field"] == query.partition("=")[0]


def test_the_trail_is_for_operators_and_admins(told: Api) -> None:
    for role in Role:
        told.get("/v1/audit", 200 if role in (Role.OPERATOR, Role.ADMIN) else 403, role=role)
