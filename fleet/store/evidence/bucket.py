"""Evidence in a bucket of an S3-compatible store, for processes on several machines."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.credentials import CredentialProvider, CredentialResolver, Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError, SSLError
from botocore.session import get_session

from fleet.core.clock import Deadline
from fleet.core.errors import EvidenceBusy, EvidenceError, EvidenceFull, NotFound
from fleet.store.evidence.base import checked, is_name, missing, name_of, verified

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

Keys = Callable[[], tuple[str, str]]
"""Access key and secret key, as they are now."""

_CONNECT_S, _ANSWER_S = 3.0, 7.0  # together the 10 s that any call outside may take
_CHUNK_BYTES = 1 << 20
_FULL = (
    "QuotaExceeded",
    "XMinioStorageFull",
    "XMinioAdminBucketQuotaExceeded",
    "InsufficientStorage",
    "EntityTooLarge",
)
_BUSY = ("SlowDown", "RequestTimeout", "Throttling", "OperationAborted")


@dataclass(frozen=True)
class EvidenceBucket:
    """Objects are `<prefix><validation>/<measurement>/<stream>.<hash>`. Safe for many threads, as its client is."""

    client: "S3Client"
    bucket: str
    prefix: str = ""
    limit_bytes: int = 32 << 20

    def put(self, validation: str, measurement: str, stream: str, content: bytes) -> dict[str, Any]:
        content = content[: self.limit_bytes]
        name, sha256 = name_of(validation, measurement, stream, content)
        with self._translated():
            self.client.put_object(
                Bucket=self.bucket, Key=self.prefix + name, Body=content, Metadata={"sha256": sha256}
            )
        return {"path": name, "sha256": sha256, "bytes": len(content)}

    def get(self, stored: Mapping[str, Any]) -> bytes:
        name = checked(*str(stored["path"]).split("/"))
        most = int(stored.get("bytes", self.limit_bytes))
        deadline, content = Deadline.after(_CONNECT_S + _ANSWER_S), bytearray()
        try:
            with self._translated():
                found = self.client.get_object(Bucket=self.bucket, Key=self.prefix + name)
                for chunk in found["Body"].iter_chunks(_CHUNK_BYTES):
                    content += chunk
                    if len(content) > most:
                        break  # it is not what was stored, whatever follows
                    if deadline.passed:
                        raise EvidenceBusy(f"{self} sends {stored['path']} too slowly")
        except NotFound:
            raise missing(stored, self) from None
        return verified(stored, bytes(content))

    def drop(self, validation: str) -> None:
        """One object at a time: a request for many needs a checksum that not every store accepts."""
        prefix = f"{self.prefix}{checked(validation)}/"
        with self._translated():
            for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix):
                for found in page.get("Contents", ()):
                    self.client.delete_object(Bucket=self.bucket, Key=found["Key"])

    def validations(self, after: str, limit: int) -> list[str]:
        with self._translated():
            pages = self.client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket,
                Prefix=self.prefix,
                Delimiter="/",
                StartAfter=f"{self.prefix}{after}0" if after else self.prefix,  # `0` comes next after `/`
                PaginationConfig={"PageSize": limit},
            )
            found: list[str] = []
            for page in pages:
                names = (row["Prefix"].removeprefix(self.prefix)[:-1] for row in page.get("CommonPrefixes", ()))
                found += [name for name in names if name > after and is_name(name)]
                if len(found) >= limit:
                    break
        return found[:limit]

    def free_bytes(self) -> int | None:
        with self._translated():
            self.client.head_bucket(Bucket=self.bucket)
        return None

    def __str__(self) -> str:
        return f"bucket {self.bucket} at {self.client.meta.endpoint_url}"

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except ClientError as exc:
            raise self._refused(exc) from exc
        except SSLError as exc:
            raise EvidenceError(f"{self}: no trust in its certificate (evidence.s3.ca): {exc}") from exc
        except BotoCoreError as exc:
            raise EvidenceBusy(f"{self} does not answer: {exc}") from exc

    def _refused(self, exc: ClientError) -> EvidenceError | NotFound:
        error, status = exc.response.get("Error", {}), exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code, said = str(error.get("Code", "")), f"{error.get('Code')}: {error.get('Message')}"[:300]
        if code == "NoSuchKey":
            return NotFound(said)
        if code in _FULL or status == 507:
            return EvidenceFull(f"{self} is full: {said}")
        if code in _BUSY or status == 429 or status >= 500:
            return EvidenceBusy(f"{self} is busy: {said}")
        return EvidenceError(f"{self} refused ({exc.operation_name}): {said}")


def connect(endpoint: str, region: str, keys: Keys, *, ca: Path | None = None, connections: int = 32) -> "S3Client":
    """A client that asks for its keys whenever it signs, and looks for none anywhere else: not in the user's own files, and
    not at a cloud's metadata address. `ca` is a file of certificates to trust instead of the system's."""
    session = get_session()
    session.register_component("credential_provider", CredentialResolver([_Given(keys)]))
    return boto3.Session(botocore_session=session).client(
        "s3",
        endpoint_url=endpoint,
        region_name=region,
        verify=str(ca) if ca is not None else None,
        config=Config(
            connect_timeout=_CONNECT_S,
            read_timeout=_ANSWER_S,
            retries={"total_max_attempts": 1},  # the engine tries again, and other workers may do so meanwhile
            max_pool_connections=connections,
            s3={"addressing_style": "path"},  # few stores outside AWS have a host name for each bucket
            # the checksums that are sent by default since 1.36 are refused by many of them (boto3 issues 4392, 4398)
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            proxies={},
        ),
    )


class _Given(CredentialProvider):
    METHOD = CANONICAL_NAME = "fleet"

    def __init__(self, keys: Keys) -> None:
        super().__init__()
        self._keys = keys

    def load(self) -> Credentials:
        return _AsTheyAreNow(self._keys)


class _AsTheyAreNow(Credentials):
    """Read at each signing: a key that was changed takes effect without a restart, and none is kept."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.method = _Given.METHOD

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        access, secret = self._keys()
        return ReadOnlyCredentials(access, secret, None, None)
