"""One name for a request, in every line that is logged for it, in its answer, and in the caller's own log."""

import re
import time
import uuid

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from fleet.api import meters

log = structlog.get_logger(__name__)

_HEADER = b"x-request-id"
_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"})
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})  # asked every few seconds by machines
_NO_ROUTE = "none"


class Trace:
    """Around the whole application, so that the answer to a failure has a name too. An `X-Request-Id` that came with the request
    is kept where it is one (letters, digits, `._:-`, 64 at most); else one is made."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        name = _given(scope) or uuid.uuid4().hex
        status = 500
        started = time.monotonic()

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (_HEADER, name.encode())]}
            await send(message)

        with bound_contextvars(request=name):
            try:
                await self.app(scope, receive, named)
            finally:
                _told(scope, status, time.monotonic() - started)


def _given(scope: Scope) -> str | None:
    sent = [value for header, value in scope["headers"] if header == _HEADER]
    return sent[0].decode() if len(sent) == 1 and _ID.fullmatch(sent[0]) else None


def _told(scope: Scope, status: int, seconds: float) -> None:
    route = getattr(scope.get("route"), "path", _NO_ROUTE)
    method = scope["method"] if scope["method"] in _METHODS else "other"
    meters.REQUESTS.labels(method, route, status).inc()
    meters.REQUEST_S.labels(method, route).observe(seconds)
    tell = log.debug if route in _QUIET else log.info
    source = scope["client"][0] if scope.get("client") else None
    tell("api.request", method=method, path=scope["path"][:200], status=status, s=round(seconds, 4), source=source)
