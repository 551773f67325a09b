"""Every route of the API against the same mistakes: a problem document in plain words, whatever the route."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from fleet.service.access import Role

PYDANTIC = ("should", "Input ", "Field required", "Extra inputs", "Value error", "pattern '")
PLACES = {"measurement": "gpu_burn", "stream": "stdout"}
BODIES: tuple[Any, ...] = (
    *({}, [], None, "text", 5, True),
    {"bogus": 1},
    {
        "reason": 5,
        "name": [],
        "machine": {},
        "kind": None,
        "instance": "",
        "role": "king",
        "machines": "all",
        "note": {},
    },
    {"reason": "x" * 10_000, "name": "x" * 10_000, "machine": "x" * 10_000, "instance": "\u202e", "note": "a\tb"},
    {"expires_in_s": -1, "lock_power": "yes", "abort": 1, "update": "no", "mode": "on", "plan": "../x", "slots": [5]},
)


def filled(path: str, record: str, machine: str) -> str:
    for name, value in {"machine": machine, **PLACES}.items():
        path = path.replace(f"{{{name}}}", value)
    while "{" in path:
        path = path[: path.index("{")] + record + path[path.index("}") + 1 :]
    return path


def routes(api: Any) -> Iterator[tuple[str, str, list[str]]]:
    for path, operations in api.http.get("/openapi.json").json()["paths"].items():
        for method, operation in operations.items():
            if path.startswith("/v1/"):
                asked = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
                yield method.upper(), path, asked


def said(answer: Any, where: str) -> str:
    assert answer.status_code < 500, f"{where}: {answer.text}"
    if answer.status_code < 400:
        return ""
    assert answer.headers["content-type"] == "application/problem+json", where
    problem = answer.json()
    details = [problem["detail"], *(error["detail"] for error in problem.get("errors", ()))]
    for detail in details:
        assert detail, where
        assert "\n" not in detail, where
        assert not any(word in detail for word in PYDANTIC), f"{where}: {detail}"
    return str(problem["detail"])


@pytest.mark.parametrize("body", BODIES, ids=lambda body: json.dumps(body)[:30])
def test_a_body_that_is_wrong_is_answered_in_plain_words(api: Any, body: Any) -> None:
    api.add("lab-01")
    for method, path, _ in routes(api):
        if method == "POST":
            to = filled(path, "val-1", "lab-01")
            said(api.http.post(to, headers=api.headers(Role.ADMIN), json=body), f"POST {path}")


@pytest.mark.parametrize("record", ["ID", "a%0Ab", "%F0%9F%92%A3", "x" * 300, "val-nope", "..%2F..%2Fetc", "%20"])
def test_an_id_that_is_wrong_is_answered_in_plain_words(api: Any, record: str) -> None:
    for method, path, _ in routes(api):
        if "{" in path:
            answer = api.http.request(method, filled(path, record, record), headers=api.headers(Role.ADMIN))
            assert said(answer, f"{method} {path}"), f"{method} {path} was done"


@pytest.mark.parametrize("value", ["", "%00", "x" * 600, "%1B[2J", "-1", "1e9", "null", "2026-13-45"])
def test_a_query_that_is_wrong_is_answered_in_plain_words(api: Any, value: str) -> None:
    for method, path, asked in routes(api):
        for name in [*asked, "bogus"] if method == "GET" else ["bogus"]:
            to = f"{filled(path, 'val-1', 'lab-01')}?{name}={value}"
            detail = said(api.http.request(method, to, headers=api.headers(Role.ADMIN)), f"{method} {to}")
            assert name in detail or name != "bogus"
