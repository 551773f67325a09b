"""Calls to a receiver: signed so that the public library verifies them, and every way to fail by its own name. How long and
how much it may answer, redirects and certificates: `tests/unit/hooks/test_url_hook.py`, over the same class."""

import base64
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from fleet.core.clock import Deadline
from fleet.core.errors import ConnectionBroken, InvalidInput, Unreachable
from fleet.webhook.receiver import Answer, Webhook

OLD, NEW, OTHER = ("whsec_" + base64.b64encode(letter * 32).decode() for letter in (b"o", b"n", b"x"))


class Desk(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers), body))  # type: ignore[attr-defined]
        if self.path == "/hang-up":
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"taken\x1b[2J")

    def log_message(self, *_: object) -> None:
        """Nothing: the test's output is not a log."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Desk) as server:
        server.got = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def url(server: HTTPServer, path: str = "/") -> str:
    return f"http://127.0.0.1:{server.server_address[1]}{path}"


def post(url: str, secret_ref: str | None = None) -> Answer:
    return Webhook(url, "scheduler", secret_ref).post("ntc-1", {"type": "pool.changed"}, Deadline.after(10.0))


def test_while_a_secret_is_changed_both_verify_what_is_sent_and_no_other(server: HTTPServer, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{OLD}\n{NEW}\n")
    answer = post(url(server), f"file:{tmp_path}/secret")
    headers, body = server.got[0]  # type: ignore[attr-defined]
    for secret in (OLD, NEW):
        assert Verifier(secret).verify(body, headers) == {"type": "pool.changed"}
    with pytest.raises(WebhookVerificationError):
        Verifier(OTHER).verify(body, headers)
    assert (answer.status, answer.words) == (200, "HTTP 200: taken [2J")


def test_a_secret_that_is_none_is_said_without_being_shown(server: HTTPServer, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{OLD} hunter2")
    with pytest.raises(InvalidInput) as caught:
        post(url(server), f"file:{tmp_path}/secret")
    assert caught.value.field == "scheduler.secret_ref"
    assert "hunter2" not in str(caught.value)
    assert server.got == []  # type: ignore[attr-defined]


def test_a_receiver_that_is_away_was_certainly_told_nothing() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # ours, and nobody listens
        with pytest.raises(Unreachable) as caught:
            post(f"http://127.0.0.1:{nobody.getsockname()[1]}/")
    assert not caught.value.effect_unknown


def test_a_receiver_that_hangs_up_may_have_heard(server: HTTPServer) -> None:
    with pytest.raises(ConnectionBroken) as caught:
        post(url(server, "/hang-up"))
    assert caught.value.effect_unknown
    assert len(server.got) == 1  # type: ignore[attr-defined]
