"""One client's connection: what uvicorn's own lacks against clients that are slow, many, or speak no HTTP."""

import asyncio
import ipaddress
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from fleet.api.limits import neighbourhood
from fleet.api.problem import problem

Networks = Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]

HANDSHAKE_S = 10.0
"""For a TLS handshake; asyncio's own limit is a minute."""

HEADER_BYTES = 32 << 10
_PIECE_BYTES = 4 << 10
"""h11 holds its limit against what is incomplete: headers that arrive whole would pass it whatever their size."""

_SAID = {
    431: ("headers-too-large", f"the request line and headers have more than {HEADER_BYTES >> 10} KiB"),
    501: ("not-implemented", "this transfer encoding is not known here; send Content-Length, or chunked"),
}


@dataclass(frozen=True)
class Bounds:
    """`request_s`: from the first byte of a request (or from connecting) to its last. `stalled_s`: how long a client may
    take nothing of an answer. `shared`: proxies, whose connections are many people's."""

    connections: int = 1000
    per_address: int = 200
    request_s: float = 30.0
    stalled_s: float = 60.0
    shared: Networks = ()


class Connection(H11Protocol):
    """Closes what is too slow or too much, after an answer that says so where HTTP still allows one. `counts`, shared by all
    connections of a listener, has how many are open from where."""

    def __init__(self, *arguments: Any, bounds: Bounds, counts: Counter[str], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._bounds, self._counts = bounds, counts
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._from: str | None = None  # None: not counted

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_deadline()
        if len(self.connections) > self._bounds.connections:
            self._refuse(
                503, "too-many-connections", "the service has as many connections as it takes; try again later"
            )
        elif (source := self._source()) is not None:
            if self._counts[source] >= self._bounds.per_address:
                self._refuse(
                    429,
                    "too-many-connections",
                    f"{self._bounds.per_address} connections from this address are open already; close or reuse them",
                )
            else:
                self._from = source
                self._counts[source] += 1

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._deadline, self._stall):
            if timer is not None:
                timer.cancel()
        if self._from is not None:
            self._counts[self._from] -= 1
            if not self._counts[self._from]:
                del self._counts[self._from]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deadline is None:
            self._start_deadline()
        for start in range(0, len(data), _PIECE_BYTES):
            if not self.transport.is_closing():
                super().data_received(data[start : start + _PIECE_BYTES])
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) and self._deadline is not None:
            self._deadline.cancel()  # all of the request is in
            self._deadline = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = self.loop.call_later(self._bounds.stalled_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def send_400_response(self, msg: str) -> None:
        """uvicorn calls this where its parser gave up, and would answer in plain text."""
        hint = getattr(sys.exception(), "error_status_hint", 400)
        code, detail = _SAID.get(hint, ("invalid-request", "this is not an HTTP/1.1 request"))
        self._refuse(hint if hint in _SAID else 400, code, detail)

    def _source(self) -> str | None:
        if self.client is None:
            return None
        try:
            address = ipaddress.ip_address(self.client[0].partition("%")[0])
        except ValueError:
            return None
        return None if any(address in network for network in self._bounds.shared) else neighbourhood(str(address))

    def _start_deadline(self) -> None:
        self._deadline = self.loop.call_later(self._bounds.request_s, self._is_late)

    def _is_late(self) -> None:
        if self.flow.read_paused:  # by us: it is our turn, not the client's
            self._start_deadline()
            return
        self._deadline = None
        self._refuse(408, "request-timeout", f"the request was not complete after {self._bounds.request_s:g} s")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # nothing was answered yet
            answer = problem(status, code, detail)
            headers = [*answer.raw_headers, (b"connection", b"close")]
            for event in (
                h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode()),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # whoever works on this request is told that nobody listens any more
            self.cycle.message_event.set()
        self.transport.close()
