"""Hostile requests: none is half done, none makes the service stumble."""

import json
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fleet.service.access import Role

MIB = 1 << 20
HOLD = "/v1/machines/lab-01/hold"


@pytest.fixture
def one(api: Any) -> Any:
    api.add("lab-01")
    return api


def raw(api: Any, body: bytes, path: str = HOLD, **headers: str) -> Any:
    return api.http.post(path, content=body, headers={**api.headers(), "Content-Type": "application/json", **headers})


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid-json"),
        (b"\xff\xfe", 400, "invalid-json"),
        (b'{"reason": NaN}', 400, "invalid-json"),
        (b'{"reason": "a", "reason": "b"}', 400, "duplicate-field"),
        (b'{"reason": "half \\ud800 pair"}', 400, "invalid-json"),
        (b'{"reason": "nul \\u0000"}', 400, "invalid-json"),
        (b'{"\\u0000": 1}', 400, "invalid-json"),
        (b'{"expires_in_s": ' + b"9" * 5000 + b"}", 400, "invalid-json"),
        (b"[" * 30 + b"]" * 30, 400, "invalid-json"),
        (b"[" * 100_000 + b"]" * 100_000, 400, "invalid-json"),
        (b'{"reason": "' + b"x" * MIB + b'"}', 413, "too-large"),
        (b"null", 422, "invalid-input"),
        (b"[]", 422, "invalid-input"),
        (b'"reason"', 422, "invalid-input"),
        (b"{}", 422, "invalid-input"),
        (b"", 422, "invalid-input"),
        (b'{"reason": ""}', 422, "invalid-input"),
        (b'{"reason": "   "}', 422, "invalid-input"),
        (b'{"reason": 5}', 422, "invalid-input"),
        (b'{"reason": "\\u001b[2J"}', 422, "invalid-input"),
        (b'{"reason": "\\u202eevil"}', 422, "invalid-input"),
        (b'{"reason": "x", "lock_power": "yes"}', 422, "invalid-input"),
        (b'{"reason": "x", "expires_in_s": -1}', 422, "invalid-input"),
        (b'{"reason": "x", "expires_in_s": 1e300}', 422, "invalid-input"),
        (b'{"reason": "x", "owner": "root"}', 422, "invalid-input"),
    ],
)
def test_a_bad_body_is_refused_and_nothing_is_done(one: Any, body: bytes, status: int, code: str) -> None:
    answer = raw(one, body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]
    assert one.machine("lab-01").hold is None


def test_a_body_without_an_end_is_cut_while_it_comes_in(one: Any) -> None:
    taken, answered = 0, []

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 65_536
        return {"type": "http.request", "body": b" " * 65_536, "more_body": True}

    async def send(message: Any) -> None:
        answered.append(message)

    headers = [(name.lower().encode(), value.encode()) for name, value in one.headers().items()]
    scope = {"type": "http", "method": "POST", "path": HOLD, "headers": headers, "query_string": b"", "client": None}
    anyio.run(one.http.app, scope, receive, send)
    assert answered[0]["status"] == 413
    assert taken <= MIB + 65_536


def test_a_client_that_leaves_in_the_middle_is_no_fault_of_ours(one: Any) -> None:
    parts = [{"type": "http.request", "body": b'{"reason"', "more_body": True}, {"type": "http.disconnect"}]
    answered = []

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        answered.append(message)

    headers = [(name.lower().encode(), value.encode()) for name, value in one.headers().items()]
    scope = {"type": "http", "method": "POST", "path": HOLD, "headers": headers, "query_string": b"", "client": None}
    with capture_logs() as logged:
        anyio.run(one.http.app, scope, receive, send)
    assert (answered[0]["status"], [line["event"] for line in logged]) == (400, ["api.request"])


def test_a_field_that_may_be_one_of_two_things_is_named_as_it_was_sent(one: Any) -> None:
    event = {"id": "e-1", "kind": "instance.placed", "machine": "lab-01", "instance": "i", "signals": ["\x1b]0;x\x07"]}
    assert one.post("/v1/events", event, 422)["field"] == "signals.0"


def test_an_import_may_be_larger_than_other_bodies(one: Any) -> None:
    pad = b" " * (2 * MIB)
    body = json.dumps({"machines": [{"name": "gpu-1", "sku": "x"}]}).encode()
    assert raw(one, body + pad, "/v1/machines/import").status_code == 201
    assert raw(one, body + pad * 2, "/v1/machines/import").status_code == 413


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"])
def test_only_json_is_taken(one: Any, kind: str) -> None:
    answer = raw(one, b'{"reason": "x"}', **{"Content-Type": kind})
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported-media-type")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("stat=available", "stat"),
        ("state=available&state=vacated", "state"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=ten", "limit"),
        ("cursor=abc", "cursor"),
        ("cursor=WyJhdWRpdCIsIDFd", "cursor"),
        ("cursor=" + "A" * 501, "cursor"),
        ("machine=../x", "machine"),
        ("machine=%00", "machine"),
    ],
)
def test_a_bad_query_parameter_is_named(one: Any, query: str, field: str) -> None:
    assert one.get(f"/v1/machines?{query}", 422)["field"] == field


def test_query_parameters_do_not_belong_on_writes(one: Any) -> None:
    assert one.post(f"{HOLD}?force=1", {"reason": "x"}, 422)["field"] == "force"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not-found"),
        ("GET", "/docs", 404, "not-found"),
        ("GET", "/v1/machines/", 404, "not-found"),
        ("DELETE", "/v1/machines/lab-01", 405, "method-not-allowed"),
        ("GET", "/v1/machines/LAB", 422, "invalid-input"),
        ("GET", "/v1/machines/a%0Ab", 422, "invalid-input"),
        ("GET", "/v1/tickets/%00", 422, "invalid-input"),
    ],
)
def test_every_error_is_a_problem_document(one: Any, method: str, path: str, status: int, code: str) -> None:
    answer = one.http.request(method, path, headers=one.headers())
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"


def test_an_error_of_ours_says_nothing_of_the_inside(one: Any) -> None:
    class Broken:
        def faults(self) -> Any:
            raise RuntimeError("secret path /srv/fleet")

    object.__setattr__(one.services, "lab", Broken())
    with capture_logs() as logged:
        answer = one.http.get("/v1/lab/faults", headers=one.headers())
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret" not in answer.text
    [line] = [line for line in logged if line["event"] != "api.request"]
    assert (line["event"], line["path"], str(line["exc_info"])) == (
        "api.internal",
        "/v1/lab/faults",
        "secret path /srv/fleet",
    )


WRITES = [
    "/v1/machines",
    "/v1/machines/import",
    *(f"/v1/machines/lab-01/{act}" for act in ("hold", "unhold", "withdraw", "retire", "claim", "override")),
    "/v1/events",
    "/v1/validations",
    "/v1/validations/val-0/abort",
    "/v1/tickets/tkt-0/fixed",
    "/v1/attention/att-0/resolve",
    "/v1/tokens",
    "/v1/tokens/tok-0/revoke",
    "/v1/pause",
    "/v1/resume",
    "/v1/lab/lab-01/break",
]
FIELDS = [
    "reason",
    "name",
    "sku",
    "machine",
    "machines",
    "instance",
    "kind",
    "id",
    "role",
    "plan",
    "ssh",
    "slots",
    "fault",
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=40)
    | st.sampled_from(["lab-01", "vm-1", "instance.placed", "admin", "sim-a100x8", "standard"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=8), inner, max_size=6)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(WRITES), body=VALUES, role=st.sampled_from([Role.ADMIN, Role.CONTROL_PLANE]))
def test_whatever_is_sent_the_service_stands(one: Any, path: str, body: Any, role: Role) -> None:
    answer = one.http.post(path, headers=one.headers(role), json=body)
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.json()["detail"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(WRITES), body=st.binary(max_size=60))
def test_whatever_bytes_are_sent_the_service_stands(one: Any, path: str, body: bytes) -> None:
    assert raw(one, body, path).status_code < 500


@pytest.mark.parametrize("path", ["/v1/tickets/%00/fixed", "/v1/machines/a%0A%1B[2J/hold"])
def test_a_denied_path_is_audited_without_its_control_characters(api_on_both: Any, path: str) -> None:
    api_on_both.post(path, {}, 403, role=Role.AGENT)
    [entry] = [e for e in api_on_both.audit() if not e["allowed"]]
    assert entry["object"].isprintable()
