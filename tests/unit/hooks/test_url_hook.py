"""A service as a hook: its status is the answer, it can neither stay, flood, nor send us elsewhere."""

import base64
import json
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme
from standardwebhooks.webhooks import Webhook

from fleet.core.clock import Deadline
from fleet.hooks.base import Answer, Reply
from fleet.hooks.url import UrlHook

QUESTION = {"hook": "wipe", "machine": {"name": "m1"}}
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


class Site(ThreadingHTTPServer):
    """The site's service: answers each request as it was told, and remembers what it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        self.status, self.headers, self.body = 200, {}, b"{}"
        self.asked: list[tuple[dict[str, str], bytes]] = []
        super().__init__(("127.0.0.1", 0), Desk)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/wipe"


class Desk(BaseHTTPRequestHandler):
    server: Site

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(({k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(self.server.status)
        for name, value in {"Content-Length": str(len(self.server.body)), **self.server.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        """Nothing: the test's output is not a log."""


@contextmanager
def served(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    server = Site()
    with served(server):
        yield server


def ask(url: str, within_s: float = 10.0, **more: object) -> Answer:
    return UrlHook("wipe", url, 60.0, **more).ask(QUESTION, "val-1/wipe", Deadline.after(within_s))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "body", "answer"),
    [
        (200, b'{"disks": 8}', Answer(Reply.YES, receipt={"disks": 8})),
        (200, b"", Answer(Reply.YES, receipt="")),
        (200, b"x" * 20_000, Answer(Reply.NO, "its receipt has more than 16 KiB")),
        (202, b"3 of 8\x1b[2J", Answer(Reply.NOT_YET, "3 of 8 [2J")),
        (204, b"", Answer(Reply.NO, "HTTP 204")),
        (302, b"", Answer(Reply.NO, "HTTP 302")),
        (404, b"no such disk", Answer(Reply.NO, "HTTP 404: no such disk")),
        (429, b"", Answer(Reply.NONE, "HTTP 429")),
        (503, b"down", Answer(Reply.NONE, "HTTP 503: down")),
    ],
)
def test_the_status_is_the_answer(site: Site, status: int, body: bytes, answer: Answer) -> None:
    site.status, site.body, site.headers = status, body, {"Location": site.url}
    assert ask(site.url) == answer
    assert len(site.asked) == 1


def test_what_is_sent_is_signed_and_names_the_question(site: Site, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    ask(site.url, secret_ref=f"file:{tmp_path}/secret")
    headers, body = site.asked[0]
    assert Webhook(SECRET).verify(body, headers) == QUESTION
    assert headers["idempotency-key"] == headers["webhook-id"] == "val-1/wipe"


@pytest.mark.parametrize("secret", ["hunter2", "whsec_", "ümlaut"])
def test_a_secret_that_is_none_is_said_without_being_shown(site: Site, tmp_path: Path, secret: str) -> None:
    (tmp_path / "secret").write_text(secret)
    answer = ask(site.url, secret_ref=f"file:{tmp_path}/secret")
    assert answer.reply is Reply.NONE
    assert answer.words == "hooks.wipe.secret_ref: is not a secret of Standard Webhooks (whsec_ and base64)"
    assert site.asked == []


def test_a_service_that_is_not_there_gives_no_answer(site: Site) -> None:
    url = site.url
    site.server_close()
    answer = ask(url)
    assert answer.reply is Reply.NONE
    assert answer.words


def drip(connection: socketserver.StreamRequestHandler) -> None:
    """A byte of a header now and then, for ever."""
    connection.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while not connection.server.stop.wait(0.05):  # type: ignore[attr-defined]
        connection.wfile.write(b"x")


def drip_content(connection: socketserver.StreamRequestHandler) -> None:
    connection.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while not connection.server.stop.wait(0.05):  # type: ignore[attr-defined]
        connection.wfile.write(b"x")


def say_nothing(connection: socketserver.StreamRequestHandler) -> None:
    connection.server.stop.wait(60.0)  # type: ignore[attr-defined]


@pytest.mark.parametrize("manner", [drip, drip_content, say_nothing])
def test_a_service_that_never_comes_to_an_end_is_left(
    manner: Callable[[socketserver.StreamRequestHandler], None],
) -> None:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                manner(self)
            except OSError:
                return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.stop = threading.Event()  # type: ignore[attr-defined]
        with served(server):
            answer = ask(f"http://127.0.0.1:{server.server_address[1]}/", 1.0)
            server.stop.set()  # type: ignore[attr-defined]
    assert answer == Answer(Reply.NONE, "one call took too long")


def test_only_the_stated_authority_is_trusted(site: Site, tmp_path: Path) -> None:
    ours, other = trustme.CA(), trustme.CA()
    ours.cert_pem.write_to_path(tmp_path / "ca.pem")
    other.cert_pem.write_to_path(tmp_path / "other.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.issue_cert("127.0.0.1").configure_cert(context)
    site.socket = context.wrap_socket(site.socket, server_side=True)
    url = site.url.replace("http://", "https://")
    assert ask(url, ca=tmp_path / "ca.pem") == Answer(Reply.YES, receipt={})
    assert "certificate" in ask(url, ca=tmp_path / "other.pem").words.lower()
    assert ask(url, ca=tmp_path / "none.pem").words == f"hooks.wipe.ca: {tmp_path}/none.pem: No such file or directory"
    assert json.loads(site.asked[0][1]) == QUESTION
    assert len(site.asked) == 1
