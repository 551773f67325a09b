"""One receiver of signed calls, and one call to it: a deadline for the whole of it, a bounded answer, no redirects."""

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx

from fleet.core.clock import Deadline
from fleet.core.errors import ConnectionBroken, DeadlinePassed, InvalidInput, Unreachable
from fleet.remote.printable import printable
from fleet.webhook.signature import signature

ANSWER_LIMIT_BYTES = 16 << 10  # at least as much as a hook may say
CALL_S = 10.0
"""One call, from start to end: well within the engine's lease of 20 s."""
NOT_NOW = frozenset({408, 425, 429, 502, 503, 504})
"""The receiver, or a proxy before it, cannot answer at the moment: says nothing of what was sent."""


@dataclass(frozen=True)
class Answer:
    """`content` is the start of what came back: more than ANSWER_LIMIT_BYTES when there was more than that."""

    status: int
    content: bytes

    @property
    def words(self) -> str:
        """For people: one printable line."""
        words = printable(self.content)
        return f"HTTP {self.status}: {words}" if words else f"HTTP {self.status}"


class Receiver(Protocol):
    def post(self, id_: str, message: Mapping[str, Any], deadline: Deadline) -> Answer:
        """Send one message; whatever HTTP status comes back is an answer. Raises InvalidInput (the settings name no secret
        or certificate that can be had), Unreachable, DeadlinePassed and ConnectionBroken (it may have arrived)."""


@dataclass(frozen=True)
class Webhook:
    """A receiver by URL. `secret_ref` names the secret that signs what is sent, `ca` a file of the certificates to trust
    (PEM), `setting` the place in the settings that errors name."""

    url: str
    setting: str
    secret_ref: str | None = None
    ca: Path | None = None

    def post(
        self, id_: str, message: Mapping[str, Any], deadline: Deadline, headers: Mapping[str, str] | None = None
    ) -> Answer:
        body = json.dumps(message)
        said = {"Content-Type": "application/json", "Accept-Encoding": "identity", **(headers or {})}
        try:
            return _post(self.url, body, {**said, **self._signed(id_, body)}, self._trust(), deadline)
        except (TimeoutError, httpx.TimeoutException) as exc:
            raise DeadlinePassed("one call took too long") from exc
        except httpx.ConnectError as exc:
            raise Unreachable(printable(str(exc) or "no connection")) from exc
        except (httpx.HTTPError, OSError) as exc:
            raise ConnectionBroken(printable(str(exc) or type(exc).__name__)) from exc

    def check(self) -> None:
        """Can a call be made at all? Raises InvalidInput where secret or certificates cannot be had."""
        self._signed("check", "")
        self._trust()

    def _signed(self, id_: str, body: str) -> Mapping[str, str]:
        return {} if self.secret_ref is None else signature(self.secret_ref, f"{self.setting}.secret_ref", id_, body)

    def _trust(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError as exc:
            field = f"{self.setting}.ca"
            raise InvalidInput(f"{field}: {self.ca}: {exc.strerror or 'holds no certificate in PEM'}", field) from exc


def _post(url: str, body: str, headers: Mapping[str, str], trust: ssl.SSLContext, deadline: Deadline) -> Answer:
    """On a loop of its own, since only that ends the whole call in time: a receiver may send one byte a second. Raises
    TimeoutError, httpx.HTTPError, OSError."""

    async def post() -> Answer:
        async with (
            asyncio.timeout(deadline.left_s),
            httpx.AsyncClient(verify=trust, trust_env=False, timeout=deadline.left_s) as client,
            client.stream("POST", url, content=body, headers=headers) as response,
        ):
            content = b""
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) > ANSWER_LIMIT_BYTES:
                    break
            return Answer(response.status_code, content)

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(post())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()  # and not asyncio.run: that would wait for a name that is still being looked up
