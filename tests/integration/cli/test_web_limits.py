"""How often one client may ask, and who a client behind a proxy is."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from fleet.store import tokens
from tests.integration.cli.web_server import Answered, WebServer, running

Serve = Callable[..., WebServer]
WRONG = "Bearer flt_wrong"


@pytest.fixture
def serve(sqlite_url: str, tmp_path: Any) -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda **sections: stack.enter_context(running(sqlite_url, tmp_path, sections))


def codes(*answers: Answered) -> list[int]:
    return [each.status for each in answers]


def test_a_token_may_ask_so_often(serve: Serve) -> None:
    server = serve(rates={"per_token": 3})
    good = [server.get("/v1/site", Authorization=server.bearer) for _ in range(5)]
    assert codes(*good) == [200, 200, 200, 429, 429]
    said = good[-1]
    assert (said.headers["content-type"], said.json["code"]) == ("application/problem+json", "rate-limited")
    assert 1 <= int(said.headers["retry-after"]) <= 60
    assert f"again in {said.headers['retry-after']} s" in said.json["detail"]
    with server.db.begin() as session:
        other = tokens.create(session, "other", "viewer")[1]
    assert server.get("/v1/site", Authorization=f"Bearer {other}").status == 200


def test_an_address_may_ask_so_often(serve: Serve) -> None:
    server = serve(rates={"per_address": 3})
    assert codes(*(server.get("/v1/site") for _ in range(5))) == [401, 401, 401, 429, 429]
    assert server.get("/v1/site", "127.0.0.2").status == 401


def test_health_and_metrics_are_always_told(serve: Serve) -> None:
    server = serve(rates={"per_address": 1, "per_token": 1})
    for path in ("/readyz", "/metrics"):
        assert codes(*(server.get(path, Authorization=server.bearer) for _ in range(4))) == [200] * 4


def test_failed_logins_are_bounded_harder(serve: Serve) -> None:
    server = serve(rates={"failed_logins_per_address": 2})
    assert codes(*(server.get("/v1/site", Authorization=WRONG) for _ in range(4))) == [401, 401, 429, 429]
    late = server.get("/v1/site", Authorization=server.bearer)  # never seen here before: it could be the next guess
    assert (late.status, "2 failed logins from this address" in late.json["detail"]) == (429, True)
    assert server.get("/v1/site", "127.0.0.2", Authorization=server.bearer).status == 200


def test_whoever_guesses_locks_nobody_out_who_is_known(serve: Serve) -> None:
    server = serve(rates={"failed_logins_per_address": 2})
    assert server.get("/v1/site", Authorization=server.bearer).status == 200
    assert codes(*(server.get("/v1/site", Authorization=WRONG) for _ in range(3))) == [401, 401, 429]
    assert server.get("/v1/site", Authorization=server.bearer).status == 200


def sources(server: WebServer) -> list[str]:
    """Newest first, of the attempts that were turned away."""
    got = server.get("/v1/audit", Authorization=server.bearer)
    return [row["source"] for row in got.json["items"] if not row["allowed"]]


def test_without_a_proxy_nobody_chooses_its_own_address(serve: Serve) -> None:
    server = serve()
    assert server.get("/v1/site", Authorization=WRONG, X_Forwarded_For="203.0.113.9").status == 401
    assert sources(server) == ["127.0.0.1"]


def test_a_trusted_proxy_says_for_whom_it_asks(serve: Serve) -> None:
    server = serve(network={"trusted_proxies": ["127.0.0.0/30"]})
    assert server.get("/v1/site", Authorization=WRONG, X_Forwarded_For="evil, 203.0.113.9, 127.0.0.2").status == 401
    assert server.get("/v1/site", "127.0.0.9", Authorization=WRONG, X_Forwarded_For="203.0.113.10").status == 401
    assert sources(server) == ["127.0.0.9", "203.0.113.9"]


def test_behind_a_proxy_everybody_has_limits_of_their_own(serve: Serve) -> None:
    server = serve(network={"trusted_proxies": ["127.0.0.1"]}, rates={"per_address": 1})
    asked = [server.get("/v1/site", X_Forwarded_For=f"2001:db8:0:{net}::{host}") for net in (1, 2) for host in (1, 2)]
    assert codes(*asked) == [401, 429, 401, 429]  # of IPv6, a network of 64 bits is one


def test_metrics_ask_for_a_token_where_a_proxy_may_be_the_one_who_asks(serve: Serve) -> None:
    assert serve().get("/metrics").status == 200
    behind = serve(network={"trusted_proxies": ["192.0.2.1"]})
    assert behind.get("/metrics").status == 401
    assert behind.get("/metrics", Authorization=behind.bearer).status == 200
