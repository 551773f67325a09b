"""The API's own server over real sockets, on a loopback port of a test's own."""

import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.app import listening, web
from fleet.app.certificate import Certificate
from fleet.service.services import Services
from fleet.settings import load
from fleet.store import tokens
from fleet.store.database import Database
from fleet.store.evidence import EvidenceFolder
from playbooks.loader import SHIPPED, Library

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: fleet\r\n\r\n"


@dataclass
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class WebServer:
    port: int
    db: Database
    token: str

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20, source_address=(source, 0))

    def say(self, raw: bytes, source: str = "127.0.0.1") -> Answered:
        """Send bytes as they are on a new connection; the one answer to them."""
        with self.connect(source) as line:
            line.sendall(raw)
            return answer(line)

    def get(self, path: str, source: str = "127.0.0.1", **headers: str) -> Answered:
        sent = {"Host": "fleet", "Connection": "close", **{k.replace("_", "-"): v for k, v in headers.items()}}
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
        return self.say("\r\n".join(lines).encode(), source)

    @property
    def bearer(self) -> str:
        return f"Bearer {self.token}"


def answer(line: socket.socket) -> Answered:
    """One answer with a Content-Length, or all there is until the end."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        chunk = line.recv(65536)
        assert chunk, f"no answer but {raw!r}"
        raw += chunk
    head, _, body = raw.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
    while len(body) < int(headers["content-length"]):
        chunk = line.recv(65536)
        assert chunk, "cut short"
        body += chunk
    return Answered(int(status.split(" ")[1]), headers, body)


def is_closed(line: socket.socket) -> bool:
    """Waits for the other end to close."""
    try:
        return line.recv(1) == b""
    except (ConnectionResetError, ssl.SSLEOFError):
        return True


@contextmanager
def running(
    url: str, folder: Path, settings: Mapping[str, Any], certificate: Certificate | None = None
) -> Iterator[WebServer]:
    db = Database(url)
    try:
        with db.begin() as session:
            token = tokens.create(session, "test", "admin")[1]
        chosen = load(None, settings)
        services = Services(db, EvidenceFolder(folder / "evidence"), Library([SHIPPED]))
        with (
            listening.bind("127.0.0.1:0") as bound,
            web.serving(web.api(chosen, services), bound, chosen.network, certificate),
        ):
            yield WebServer(bound.getsockname()[1], db, token)
    finally:
        db.close()
