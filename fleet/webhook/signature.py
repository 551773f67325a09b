"""The signature of Standard Webhooks: HMAC-SHA256 over id, time and body, by a secret that both sides have."""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime

from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook

from fleet.core.errors import InvalidInput
from fleet.remote import secrets

_PREFIX = "whsec_"


def signature(secret_ref: str, field: str, id_: str, body: str) -> Mapping[str, str]:
    """The three headers, of the present moment. The secret may be two, one to a line: while it is being changed both sign.
    Raises InvalidInput, naming `field`, for a reference that leads to no secret."""
    at = datetime.now(UTC)
    signers = [_signer(line, field) for line in secrets.resolve(secret_ref, field).split() or [""]]
    return {
        "Webhook-Id": id_,
        "Webhook-Timestamp": str(int(at.timestamp())),
        "Webhook-Signature": " ".join(signer.sign(id_, at, body) for signer in signers),
    }


def _signer(secret: str, field: str) -> Webhook:
    try:
        if secret.startswith(_PREFIX):
            return Webhook(base64.b64decode(secret.removeprefix(_PREFIX), validate=True))
    except (ValueError, EmptyWebhookSecretError):
        pass
    raise InvalidInput(f"{field}: is not a secret of Standard Webhooks (whsec_ and base64)", field)
