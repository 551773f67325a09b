"""The rack's control API: HTTP on loopback with a secret, for faults and tenants. Handled in a thread, done in the loop."""

import asyncio
import hmac
import json
import secrets
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from fleet.core.errors import FleetError, InvalidInput, NotFound, Refused

_BODY_LIMIT = 256 << 10
_ANSWER_S = 10.0
_FOREVER_S = 3600.0  # between the server's looks at whether it shall end; it never does before the process


class Acts(Protocol):
    """What can be asked of the rack."""

    def faults(self) -> list[dict[str, str]]: ...
    def machines(self) -> list[dict[str, Any]]: ...
    def break_(self, machine: str, fault: str) -> dict[str, Any]: ...
    def mend(self, machine: str, fault: str) -> dict[str, Any]: ...
    def place(self, machine: str, instance: str) -> dict[str, Any]: ...
    def leave(self, machine: str, instance: str) -> dict[str, Any]: ...
    def reconcile(self, tenants: dict[str, Any]) -> list[dict[str, Any]]: ...


class Control:
    def __init__(self, acts: Acts, loop: asyncio.AbstractEventLoop, address: str, port: int) -> None:
        """Takes `port`, or another one where it is 0 or taken."""
        self.secret = secrets.token_urlsafe(32)

        class Handler(_Handler):
            rack, rack_loop, secret = acts, loop, self.secret

        try:
            self._server = ThreadingHTTPServer((address, port), Handler)
        except OSError:
            self._server = ThreadingHTTPServer((address, 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self.url = f"http://{address}:{self.port}"

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(_FOREVER_S,), daemon=True, name="control").start()


class _Handler(BaseHTTPRequestHandler):
    rack: Acts
    rack_loop: asyncio.AbstractEventLoop
    secret: str
    timeout = 30  # seconds a client may take to say what it wants

    def do_GET(self) -> None:
        self._answer(lambda: self._get(self.path))

    def do_POST(self) -> None:
        self._answer(lambda: self._post(self.path.strip("/").split("/"), self._body()))

    def do_PUT(self) -> None:
        self._answer(lambda: self._put(self.path, self._body()))

    def _get(self, path: str) -> Any:
        if path == "/faults":
            return self.rack.faults()
        if path == "/machines":
            return self._done(self.rack.machines)
        raise NotFound(f"nothing is at {path[:80]!r}")

    def _post(self, parts: list[str], body: dict[str, Any]) -> Any:
        match parts:
            case ["machines", machine, "break"]:
                return self._done(lambda: self.rack.break_(machine, _text(body, "fault")))
            case ["machines", machine, "mend"]:
                return self._done(lambda: self.rack.mend(machine, _text(body, "fault")))
            case ["tenants", machine, "place"]:
                return self._done(lambda: self.rack.place(machine, _text(body, "instance")))
            case ["tenants", machine, "leave"]:
                return self._done(lambda: self.rack.leave(machine, _text(body, "instance")))
        raise NotFound(f"nothing is at {self.path[:80]!r}")

    def _put(self, path: str, body: dict[str, Any]) -> Any:
        if path == "/tenants":
            return self._done(lambda: self.rack.reconcile(body))
        raise NotFound(f"nothing is at {path[:80]!r}")

    def _done(self, act: Callable[[], Any]) -> Any:
        """The act's result; it is done in the loop that everything else of the rack runs in."""

        async def do() -> Any:
            return act()

        return asyncio.run_coroutine_threadsafe(do(), self.rack_loop).result(_ANSWER_S)

    def _answer(self, handle: Callable[[], Any]) -> None:
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.secret}".encode()):
            self._send(401, {"detail": "the secret is missing or wrong"})
            return
        try:
            self._send(200, handle())
        except NotFound as exc:
            self._send(404, {"detail": str(exc)})
        except InvalidInput as exc:
            self._send(422, {"detail": str(exc), "field": exc.field})
        except Refused as exc:
            self._send(409, {"detail": str(exc)})
        except FleetError as exc:
            self._send(500, {"detail": str(exc)})

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > _BODY_LIMIT:
            raise InvalidInput(f"the body needs a length of at most {_BODY_LIMIT} bytes")
        try:
            body = json.loads(self.rfile.read(int(length)) or b"{}")
        except ValueError:
            raise InvalidInput("the body is no JSON") from None
        if not isinstance(body, dict):
            raise InvalidInput("the body is no JSON object")
        return body

    def _send(self, status: int, document: Any) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Not to stderr: the lab's log is for what goes wrong."""


def _text(body: dict[str, Any], field: str) -> str:
    value = body.get(field)
    if not isinstance(value, str) or set(body) != {field}:
        raise InvalidInput(f"the body must be an object with the one field {field!r}", field)
    return value
