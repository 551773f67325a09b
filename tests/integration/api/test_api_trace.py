"""The name of a request: in its answer, in the lines logged for it."""

from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from fastapi import FastAPI
from fastapi.testclient import TestClient

from fleet.api.app import create_app
from fleet.service.services import Services


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    """What is logged meanwhile, with what is bound to it."""
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as seen:
        yield seen  # type: ignore[misc]


def test_a_callers_name_is_kept_and_logged(api: Any, lines: list[dict[str, Any]]) -> None:
    answer = api.http.get("/v1/machines", headers={**api.headers(), "X-Request-Id": "order-17.a"})
    assert answer.headers["x-request-id"] == "order-17.a"
    [line] = [line for line in lines if line["event"] == "api.request"]
    assert (line["request"], line["method"], line["path"], line["status"], line["source"]) == (
        "order-17.a",
        "GET",
        "/v1/machines",
        200,
        "127.0.0.1",
    )


@pytest.mark.parametrize("given", [None, "", "two words", "x" * 65, "a\tb", "ü".encode()])
def test_a_name_that_is_none_is_replaced(api: Any, given: str | bytes | None) -> None:
    sent = {} if given is None else {"X-Request-Id": given}
    made = [api.http.get("/healthz", headers=sent).headers["x-request-id"] for _ in range(2)]
    assert made[0] != made[1]
    assert all(name.isalnum() and len(name) == 32 for name in made)


def test_the_answer_to_a_failure_has_a_name_too(services: Services, lines: list[dict[str, Any]]) -> None:
    app = create_app(services)
    _break(app)
    answer = TestClient(app, raise_server_exceptions=False).get("/broken", headers={"X-Request-Id": "r1"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (500, "r1")
    assert {line["event"]: line["request"] for line in lines} == {"api.internal": "r1", "api.request": "r1"}


def test_a_secret_in_the_query_is_not_logged(api: Any, lines: list[dict[str, Any]]) -> None:
    api.http.get("/v1/machines?token=flt_secret", headers=api.headers())
    assert "flt_secret" not in str(lines)


@pytest.fixture
def services(api: Any) -> Services:
    return api.services  # type: ignore[no-any-return]


def _break(app: FastAPI) -> None:
    @app.get("/broken")
    def broken() -> None:
        raise ZeroDivisionError
