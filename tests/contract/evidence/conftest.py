"""An S3-compatible server on loopback, in this process: real HTTP and real signatures, objects in memory."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from moto.server import ThreadedMotoServer

from fleet.store.evidence.bucket import EvidenceBucket, connect

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def s3(s3_url: str) -> "S3Client":
    return connect(s3_url, "us-east-1", lambda: ("access", "secret"))


@pytest.fixture
def bucket(s3: "S3Client") -> EvidenceBucket:
    name = f"evidence-{next(_numbers)}"
    s3.create_bucket(Bucket=name)
    return EvidenceBucket(s3, name, "site-a/", limit_bytes=1 << 20)
