"""Who may do what: every route, every role."""

from pathlib import Path
from typing import Any

import pytest

from fleet.api.gate import Gate
from fleet.core.clock import SystemClock
from fleet.service.access import MAY, Role, Strangers
from fleet.service.tokens import ensure_first_token
from fleet.store.database import Database
from tests.integration.api.routes import guarded, routes

DENIED = ("unauthenticated", "forbidden")


def denials(api: Any) -> list[tuple[str, ...]]:
    """Actor, source, action, target and code of what was refused, oldest first."""
    entries = api.get("/v1/audit?limit=500&allowed=false&order=oldest")["items"]
    return [
        (e["actor"], e["source"], e["action"], e["object"], e["detail"]["code"])
        for e in entries
        if e["detail"]["code"] in DENIED
    ]


def test_every_route_but_health_is_behind_the_gate(api: Any) -> None:
    open_ = {route.path for route in routes(api) if not isinstance(route, Gate)}
    assert open_ == {"/healthz", "/readyz", "/metrics"}
    assert len(guarded(api)) > 30


@pytest.mark.parametrize("role", list(Role))
def test_a_role_reaches_what_the_table_says_and_nothing_else(api: Any, role: Role) -> None:
    for method, path, action in guarded(api):
        before = denials(api)
        answer = api.http.request(method, path, headers=api.headers(role), json=None)
        refused = answer.status_code == 403
        assert refused == (action not in MAY[role]), f"{role} {method} {path}: {answer.text}"
        assert answer.status_code not in (401, 500), answer.text
        if refused:
            [entry] = denials(api)[len(before) :]
            assert entry == (f"{role}-test", "127.0.0.1", action, f"{method} {path}", "forbidden")


@pytest.mark.parametrize("state", ["expired", "revoked"])
@pytest.mark.parametrize("role", list(Role))
def test_a_token_that_has_ended_reaches_nothing_in_any_role(api: Any, role: Role, state: str) -> None:
    headers = {"Authorization": f"Bearer {api.ended(role, state)}"}
    asked = guarded(api)
    for method, path, _action in asked:
        answer = api.http.request(method, path, headers=headers, content=b"{not even json")
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        assert ("was revoked" if state == "revoked" else "has expired") in answer.json()["detail"]
    who = (f"{role}-{state}", "127.0.0.1")
    assert denials(api) == [(*who, action, f"{method} {path}", "unauthenticated") for method, path, action in asked]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer flt_nobody-ever-had-this"}], ids=["none", "wrong"])
def test_a_stranger_is_told_nothing_and_written_down_once_a_minute(api: Any, headers: dict[str, str]) -> None:
    for method, path, _action in guarded(api):
        answer = api.http.request(method, path, headers=headers, content=b"{not even json")
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    first, path, action = guarded(api)[0]
    assert denials(api) == [("nobody", "127.0.0.1", action, f"{first} {path}", "unauthenticated")]


class Turned(SystemClock):
    now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_strangers_fill_no_database() -> None:
    clock = Turned()
    strangers = Strangers(per_minute=3, clock=clock)
    assert [strangers.take(source) for source in ("a", "a", "b", None, None, "c")] == [
        True,
        False,
        True,
        True,
        False,
        False,
    ]
    clock.now += 61.0
    assert strangers.take("c")
    assert strangers.take("a")


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic Zm9v", "Bearer flt_unknown", "Bearer \xe9"])
def test_what_is_not_a_token_is_refused(api: Any, header: str) -> None:
    answer = api.http.get("/v1/machines", headers={b"Authorization": header.encode("latin-1")})
    assert answer.status_code == 401


def test_a_revoked_token_is_refused_and_audited(api: Any) -> None:
    made = api.post("/v1/tokens", {"name": "night-shift", "role": "operator"}, 201)
    mine = {"Authorization": f"Bearer {made['token']}"}
    assert api.http.get("/v1/site", headers=mine).status_code == 200

    api.post(f"/v1/tokens/{made['id']}/revoke")
    answer = api.http.post("/v1/pause", headers=mine, json={"reason": "mischief"})
    assert answer.status_code == 401
    assert "was revoked" in answer.json()["detail"]
    [entry] = [e for e in api.audit() if not e["allowed"]]
    assert (entry["actor"], entry["source"], entry["action"]) == ("night-shift", "127.0.0.1", "site.pause")
    assert api.get("/v1/site")["paused"] is None


def test_an_expired_token_is_refused(api: Any) -> None:
    token = api.token(Role.ADMIN, expires_in_s=-1.0)
    answer = api.http.get("/v1/machines", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 401
    assert "has expired" in answer.json()["detail"]


def test_a_denied_write_is_audited_with_actor_source_and_target(api: Any) -> None:
    api.add("lab-01")
    problem = api.post("/v1/machines/lab-01/hold", {"reason": "mine"}, 403, role=Role.VIEWER)
    assert problem["code"] == "forbidden"
    assert "operator" in problem["detail"]
    [entry] = [e for e in api.audit("lab-01") if not e["allowed"]]
    assert (entry["actor"], entry["source"]) == ("viewer-test", "127.0.0.1")
    assert (entry["action"], entry["object"]) == ("machine.hold", "POST /v1/machines/lab-01/hold")
    assert api.machine("lab-01").hold is None


def test_the_first_token_is_made_once_and_again_when_no_admin_is_left(sqlite_url: str) -> None:
    db = Database(sqlite_url)
    first = ensure_first_token(db)
    assert first is not None
    assert first.startswith("flt_")
    assert ensure_first_token(db) is None
    db.close()


def test_a_token_is_shown_once_and_kept_only_as_a_hash(api: Any, sqlite_url: str) -> None:
    made = api.post("/v1/tokens", {"name": "ci", "role": "viewer", "expires_in_s": 60}, 201)
    assert set(made) - {"token"} == set(api.get("/v1/tokens")["items"][0])
    assert all("token" not in row for row in api.get("/v1/tokens")["items"])
    api.http.close()
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    on_disk = b"".join(p.read_bytes() for p in path.parent.glob("fleet.sqlite*"))
    assert made["token"].encode() not in on_disk
    assert made["id"].encode() in on_disk
