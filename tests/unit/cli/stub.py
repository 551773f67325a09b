"""A service that says what a test tells it to, over real HTTP on a free loopback port."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any


@dataclass
class Answer:
    """`drop` closes the connection in place of an answer, once the request was read."""

    status: int = 200
    body: Any = None
    drop: bool = False


@dataclass
class StubService:
    url: str = ""
    answers: dict[tuple[str, str], list[Answer]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    def on(self, method: str, path: str, *bodies: Any, status: int = 200) -> None:
        """Answer with each of `bodies` in turn; the last one stays."""
        self.answers[method, path] = [b if isinstance(b, Answer) else Answer(status, b) for b in bodies]

    def problem(self, method: str, path: str, status: int, code: str, **more: Any) -> None:
        self.on(method, path, {"title": code, "status": status, "code": code, **more}, status=status)

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        queue = self.answers.get((request.method, request.path))
        if queue is None:
            return Answer(404, {"title": "not found", "status": 404, "code": "not-found", "detail": request.path})
        return queue.pop(0) if len(queue) > 1 else queue[0]


@contextmanager
def serving() -> Iterator[StubService]:
    stub = StubService()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            request = Request(
                self.command,
                parts.path,
                parse_qs(parts.query),
                {k.lower(): v for k, v in self.headers.items()},
                json.loads(raw) if raw else None,
            )
            answer = stub.answer(request)
            if answer.drop:
                self.close_connection = True
                return
            content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self.send_response(answer.status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _serve

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


DROPPED = Answer(drop=True)
