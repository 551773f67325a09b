"""A hook that is a service: a signed POST, the answer in its status.

The signature is that of Standard Webhooks, and `Idempotency-Key` is the same each time the same question is asked."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from fleet.core.clock import Deadline
from fleet.core.errors import InvalidInput, RemoteError
from fleet.hooks.base import Answer, Reply, yes
from fleet.remote.printable import printable
from fleet.webhook.receiver import Webhook

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
        service = Webhook(self.url, f"hooks.{self.name}", self.secret_ref, self.ca)
        try:
            answer = service.post(key, question, deadline, {"Idempotency-Key": key})
        except (InvalidInput, RemoteError) as exc:
            return Answer(Reply.NONE, str(exc))
        if answer.status == httpx.codes.OK:
            return yes(answer.content)
        if answer.status == httpx.codes.ACCEPTED:
            return Answer(Reply.NOT_YET, printable(answer.content))
        return Answer(Reply.NONE if answer.status in ASK_AGAIN else Reply.NO, answer.words)
