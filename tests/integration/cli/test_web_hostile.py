"""Clients that are slow, many, or speak no HTTP: each gets an answer that says so, or none, and the others are served."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.core.clock import Deadline
from tests.integration.cli.web_server import HEALTH, WebServer, answer, is_closed, running

Serve = Callable[..., WebServer]


@pytest.fixture
def serve(sqlite_url: str, tmp_path: Any) -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda **network: stack.enter_context(running(sqlite_url, tmp_path, {"network": network}))


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 60 + b"\r\n\r\n", 400, "invalid-request"),  # TLS
        (b"HELLO\r\n\r\n", 400, "invalid-request"),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400, "invalid-request"),  # no Host
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "invalid-request"),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nBad Name: b\r\n\r\n", 400, "invalid-request"),
        (b"POST /v1/pause HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400, "invalid-request"),
        (b"POST /v1/pause HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "not-implemented"),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 40_000 + b"\r\n\r\n", 431, "headers-too-large"),
        (b"GET /" + b"y" * 40_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431, "headers-too-large"),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 8_000 + b"\r\n", 431, "headers-too-large"),
    ],
)
def test_what_is_no_request_gets_a_problem_document(serve: Serve, raw: bytes, status: int, code: str) -> None:
    server = serve()
    got = server.say(raw)
    assert (got.status, got.headers["content-type"], got.json["code"]) == (status, "application/problem+json", code)
    assert got.json["detail"]
    assert server.say(HEALTH).json["database"] == "ok"


def test_a_body_that_turns_into_nonsense_ends_its_request(serve: Serve) -> None:
    server = serve()
    head = "POST /v1/pause HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    got = server.say(f'{head}Authorization: {server.bearer}\r\n\r\n5\r\n{{"rea\r\nnot-a-length\r\n'.encode())
    assert (got.status, got.json["code"]) == (400, "invalid-request")
    assert server.get("/v1/site", Authorization=server.bearer).json["paused"] is None


def test_a_chunked_body_is_cut_where_it_becomes_too_large(serve: Serve) -> None:
    server = serve()
    head = "POST /v1/pause HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    with server.connect() as line:
        line.sendall(f"{head}Authorization: {server.bearer}\r\n\r\n".encode() + chunk * 17)  # and it goes on for ever
        assert (got := answer(line)).status == 413
        assert got.json["code"] == "too-large"


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nHos",
        b"POST /v1/pause HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{",
        HEALTH + b"GET /heal",
    ],
)
def test_a_request_that_is_not_complete_in_time_is_over(serve: Serve, begun: bytes) -> None:
    server = serve(request_deadline_s=0.3)
    with server.connect() as line:
        line.sendall(begun)
        if begun.startswith(HEALTH):
            assert answer(line).status == 200
            assert is_closed(line)  # between two requests it is told nothing
            return
        got = answer(line)
        if begun.startswith(b"POST"):
            assert got.status in (401, 408)  # whichever comes first
        else:
            assert (got.status, got.json["code"]) == (408, "request-timeout")
        assert is_closed(line)
    assert server.say(HEALTH).status == 200


def test_a_byte_now_and_then_does_not_move_the_deadline(serve: Serve) -> None:
    server = serve(request_deadline_s=0.5)
    with server.connect() as line:
        line.settimeout(0.05)
        line.sendall(b"GET /healthz HTTP/1.1\r\n")
        got = b""
        for number in range(400):  # 20 s of dribbling, were it not ended
            try:
                line.sendall(f"X-{number}: y\r\n".encode())
                got = line.recv(1000)
                break
            except TimeoutError:
                continue
    assert b"408 Request Timeout" in got


def test_a_connection_is_kept_for_the_next_request(serve: Serve) -> None:
    server = serve(request_deadline_s=30)
    with server.connect() as line:
        for _ in range(3):
            line.sendall(HEALTH)
            assert answer(line).status == 200
        line.sendall(HEALTH + HEALTH)  # two at once
        assert (answer(line).status, answer(line).status) == (200, 200)


def test_one_address_cannot_take_every_connection(serve: Serve) -> None:
    server = serve(connections_per_address=2)
    with server.connect() as one, server.connect() as two:
        for line in (one, two):
            line.sendall(HEALTH)
            assert answer(line).status == 200
        with server.connect() as third:
            got = answer(third)
            assert (got.status, got.json["code"], is_closed(third)) == (429, "too-many-connections", True)
        assert server.say(HEALTH, source="127.0.0.2").status == 200
    again = (server.say(HEALTH).status for _ in Deadline.after(20).poll(0.02))
    assert any(status == 200 for status in again)  # the two are closed, which the server sees when it looks


def test_connections_of_a_proxy_are_many_peoples(serve: Serve) -> None:
    server = serve(connections_per_address=1, trusted_proxies=["127.0.0.1"])
    with server.connect() as one, server.connect() as two:
        for line in (one, two):
            line.sendall(HEALTH)
            assert answer(line).status == 200


def test_the_service_takes_so_many_connections_in_all(serve: Serve) -> None:
    server = serve(connections=2)
    with server.connect() as one, server.connect("127.0.0.2") as two:
        for line in (one, two):
            line.sendall(HEALTH)
            assert answer(line).status == 200
        with server.connect("127.0.0.3") as third:
            assert (answer(third).status, is_closed(third)) == (503, True)


def test_who_does_not_read_the_answer_is_cut_off(serve: Serve) -> None:
    server = serve(stalled_answer_s=0.3)
    ask = b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n"
    with server.connect() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises((ConnectionError, TimeoutError)):
            _pour(line, ask * 10)
    assert server.say(HEALTH).status == 200


@given(
    raw=st.binary(min_size=1, max_size=300)
    | st.text(max_size=100).map(lambda t: f"GET /{t} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_whatever_make_it_stumble(fuzzed: WebServer, raw: bytes) -> None:
    with fuzzed.connect() as line:
        line.sendall(raw + b"\r\n\r\n")
        line.shutdown(socket.SHUT_WR)
        got = b""
        try:
            while chunk := line.recv(65536):
                got += chunk
        except ConnectionResetError:
            pass
    assert b" 500 " not in got.partition(b"\r\n")[0]


@pytest.fixture(scope="module")
def fuzzed(sqlite_template: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    folder = tmp_path_factory.mktemp("fuzzed")
    file = folder / "fleet.sqlite"
    file.write_bytes(sqlite_template.read_bytes())
    with running(f"sqlite:///{file}", folder, {"network": {"request_deadline_s": 1}}) as server:
        yield server
        assert server.say(HEALTH).status == 200


def _pour(line: socket.socket, data: bytes) -> None:
    """Send and read nothing: answers pile up. Raises ConnectionError once the other side closed, TimeoutError never read."""
    for _ in range(5_000):
        line.sendall(data)
    while line.recv(65536):
        pass
    raise ConnectionResetError("closed in order: as good")
