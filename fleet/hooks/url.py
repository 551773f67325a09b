"""A hook that is a service: a signed POST, the answer in its status.

The signature is that of Standard Webhooks, and `Idempotency-Key` is the same each time the same question is asked."""

import asyncio
import base64
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook

from fleet.core.clock import Deadline
from fleet.core.errors import InvalidInput
from fleet.hooks.base import ANSWER_LIMIT_BYTES, Answer, Reply, yes
from fleet.remote import secrets
from fleet.remote.printable import printable

_PREFIX = "whsec_"
ASK_AGAIN = frozenset({408, 425, 429, *range(500, 600)})
"""The service, or a proxy before it, is not able to answer now. Every other status is its answer."""


@dataclass(frozen=True)
class UrlHook:
    """`secret_ref` names the secret that signs what is sent, `ca` a file of the certificates to trust (PEM)."""

    name: str
    url: str
    deadline_s: float
    secret_ref: str | None = None
    ca: Path | None = None

    def ask(self, question: Mapping[str, Any], key: str, deadline: Deadline) -> Answer:
        body = json.dumps(question)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "Idempotency-Key": key}
        try:
            status, content = _post(self.url, body, headers | self._signature(key, body), self._trust(), deadline)
        except (TimeoutError, httpx.TimeoutException):
            return Answer(Reply.NONE, "one call took too long")
        except InvalidInput as exc:
            return Answer(Reply.NONE, str(exc))
        except (httpx.HTTPError, OSError) as exc:
            return Answer(Reply.NONE, printable(str(exc) or type(exc).__name__))
        if status == httpx.codes.OK:
            return yes(content)
        words = printable(content)
        if status == httpx.codes.ACCEPTED:
            return Answer(Reply.NOT_YET, words)
        said = f"HTTP {status}: {words}" if words else f"HTTP {status}"
        return Answer(Reply.NONE if status in ASK_AGAIN else Reply.NO, said)

    def _trust(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError as exc:
            field = f"hooks.{self.name}.ca"
            raise InvalidInput(f"{field}: {self.ca}: {exc.strerror or 'holds no certificate in PEM'}", field) from exc

    def _signature(self, key: str, body: str) -> dict[str, str]:
        if self.secret_ref is None:
            return {}
        field = f"hooks.{self.name}.secret_ref"
        secret = secrets.resolve(self.secret_ref, field).strip()
        at = datetime.now(UTC)
        try:
            signer = Webhook(base64.b64decode(secret.removeprefix(_PREFIX), validate=True))
        except (ValueError, EmptyWebhookSecretError):
            signer = None
        if signer is None or not secret.startswith(_PREFIX):
            raise InvalidInput(f"{field}: is not a secret of Standard Webhooks (whsec_ and base64)", field)
        signature = signer.sign(key, at, body)
        return {"Webhook-Id": key, "Webhook-Timestamp": str(int(at.timestamp())), "Webhook-Signature": signature}


def _post(
    url: str, body: str, headers: Mapping[str, str], trust: ssl.SSLContext, deadline: Deadline
) -> tuple[int, bytes]:
    """Status and the start of the content. On a loop of its own, since only that ends the whole call in time: a service
    may send one byte a second. Raises TimeoutError, httpx.HTTPError, OSError."""

    async def post() -> tuple[int, bytes]:
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
            return response.status_code, content

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(post())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()  # and not asyncio.run: that would wait for a name that is still being looked up
