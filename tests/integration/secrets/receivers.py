"""A provider's own services, of the worse kind: they refuse, and say everything that they were sent in their answers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Chatty(BaseHTTPRequestHandler):
    asked: dict[str, int]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        which = self.path.split("/")[1]
        self.asked[which] = self.asked.get(which, 0) + 1
        first = self.asked[which] == 1
        status = {"hook": 500 if first else 200, "scheduler": 401 if first else 204, "attention": 401}[which]
        said = json.dumps({"path": which, "headers": dict(self.headers), "body": body.decode()}).encode()
        self.send_response(status)
        self.send_header("Content-Length", "0" if status == 204 else str(len(said)))
        self.end_headers()
        if status != 204:
            self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        """Nowhere."""


@contextmanager
def chatty() -> Iterator[tuple[str, dict[str, int]]]:
    """Its address, and how often each of its paths was asked."""
    asked: dict[str, int] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Chatty,), {"asked": asked}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
