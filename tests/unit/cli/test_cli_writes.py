"""What the commands send, and what becomes of a write whose answer is lost."""

from itertools import pairwise

import pytest

from tests.unit.cli.stub import DROPPED, Answer


def test_events_are_sent_as_the_control_plane_would(fleet, service):
    service.on("POST", "/v1/events", {"id": "ev-1", "state": "applied"}, status=202)
    words = ("event", "vacated", "lab-03", "--instance", "tenant-3", "--cause", "migrate", "--event-id", "ev-1")
    ran = fleet(*words, "--signal", "Xid 79", "--signal", "ECC", "--why", "GPU fell off")
    assert (ran.status, ran.err) == (0, "")
    sent = service.requests[0]
    assert sent.body == {
        "id": "ev-1",
        "kind": "instance.migrated",
        "machine": "lab-03",
        "instance": "tenant-3",
        "why": "GPU fell off",
        "signals": ["Xid 79", "ECC"],
    }
    assert sent.headers["authorization"] == "Bearer flt_test"
    assert sent.headers["idempotency-key"]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("placed",), "instance.placed"),
        (("kept",), "instance.kept"),
        (("vacated", "--cause", "remove"), "instance.removed"),
    ],
)
def test_every_event_has_its_kind_and_an_id_of_its_own(fleet, service, words, kind):
    service.on("POST", "/v1/events", {"id": "ev-1", "state": "applied"}, status=202)
    verb, *rest = words
    for _ in range(2):
        fleet("event", verb, "lab-03", "--instance", "i", *rest)
    first, second = (request.body for request in service.requests)
    assert first["kind"] == kind
    assert first["id"] != second["id"]


@pytest.mark.parametrize(
    ("words", "path", "body"),
    [
        (
            ("machine", "hold", "m", "--reason", "r", "--lock-power"),
            "machines/m/hold",
            {"reason": "r", "lock_power": True, "abort": False},
        ),
        (("machine", "withdraw", "m", "--reason", "r"), "machines/m/withdraw", {"reason": "r"}),
        (("machine", "retire", "m", "--reason", "r"), "machines/m/retire", {"reason": "r"}),
        (("abort", "val-1", "--reason", "r"), "validations/val-1/abort", {"reason": "r"}),
        (("ticket", "fixed", "t-1", "--note", "new GPU"), "tickets/t-1/fixed", {"note": "new GPU"}),
        (("attention", "resolve", "a-1"), "attention/a-1/resolve", {}),
        (("pause", "--reason", "r"), "pause", {"reason": "r"}),
        (("resume",), "resume", {}),
        (("token", "revoke", "tok-1"), "tokens/tok-1/revoke", {}),
        (("lab", "break", "m", "rail-down"), "lab/m/break", {"fault": "rail-down"}),
        (("lab", "mend", "m", "rail-down"), "lab/m/mend", {"fault": "rail-down"}),
        (("revalidate", "m", "--plan", "quick"), "validations", {"machine": "m", "plan": "quick"}),
    ],
)
def test_verbs_post_to_their_noun(fleet, service, words, path, body):
    service.on("POST", f"/v1/{path}", {"id": "x", "machine": "m", "plan": "quick", "state": "s"})
    assert fleet(*words, "--json").status == 0
    assert (service.requests[0].path, service.requests[0].body) == (f"/v1/{path}", body)


@pytest.mark.parametrize(
    ("words", "ssh"),
    [
        ((), None),
        (("--user", "ops"), {"address": "gpu-1", "user": "ops"}),
        (("--user", "ops", "--address", "10.0.0.1"), {"address": "10.0.0.1", "user": "ops"}),
    ],
)
def test_a_machine_is_reached_by_its_name_where_nothing_else_is_said(fleet, service, words, ssh):
    service.on("POST", "/v1/machines", {"id": "gpu-1", "state": "vacated"}, status=201)
    assert fleet("machine", "add", "gpu-1", "--sku", "s", *words).status == 0
    assert service.requests[0].body.get("ssh") == ssh


def test_a_new_token_is_all_of_stdout(fleet, service):
    service.on("POST", "/v1/tokens", {"id": "tok-1", "name": "ci", "role": "viewer", "token": "flt_secret"}, status=201)
    ran = fleet("token", "create", "--name", "ci", "--role", "viewer")
    assert ran.out == "flt_secret\n"


def test_a_write_is_sent_again_under_the_same_key(fleet, service):
    service.on("POST", "/v1/resume", DROPPED, DROPPED, {"id": "site"})
    assert fleet("resume").status == 0
    keys = [request.headers["idempotency-key"] for request in service.requests]
    assert len(keys) == 3
    assert all(a == b for a, b in pairwise(keys))


def test_a_write_that_nobody_confirms_exits_3_and_names_its_key(fleet, service):
    service.on("POST", "/v1/resume", DROPPED)
    ran = fleet("resume")
    assert ran.status == 3
    assert service.requests[0].headers["idempotency-key"] in ran.err


def test_a_read_that_nobody_answers_exits_5(fleet, service):
    service.on("GET", "/v1/machines", DROPPED)
    assert fleet("machine", "list").status == 5


def test_a_busy_service_is_asked_again(fleet, service):
    busy = Answer(503, {"code": "store-busy", "detail": "locked"})
    service.on("GET", "/v1/machines", busy, {"items": [], "next": None})
    assert fleet("machine", "list").status == 0
