"""What only a store over the network can do: be away, refuse, be full, be slow; and whose keys it sees."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from fleet.core.errors import EvidenceBusy, EvidenceError, EvidenceFull, NotFound, StoreError
from fleet.store.evidence.bucket import EvidenceBucket, connect

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

STORED = {"path": "val-1/nccl/stdout.1b1120a7f20ce609", "sha256": "", "bytes": 10}


@contextmanager
def answering(status: int, code: str, seen: list[str] | None = None) -> Iterator[EvidenceBucket]:
    """A server that has one answer to everything. `seen` gets the Authorization headers."""
    error = f"<Error><Code>{code}</Code><Message>says the server</Message></Error>".encode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            if seen is not None:
                seen.append(self.headers["Authorization"])
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(error)))
            self.end_headers()
            self.wfile.write(error)

        do_GET = do_PUT = _answer

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield evidence_at(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def evidence_at(url: str) -> EvidenceBucket:
    return EvidenceBucket(connect(url, "us-east-1", lambda: ("access", "secret")), "evidence")


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (507, "InsufficientStorage", EvidenceFull),
        (403, "QuotaExceeded", EvidenceFull),
        (400, "XMinioStorageFull", EvidenceFull),
        (503, "SlowDown", EvidenceBusy),
        (500, "InternalError", EvidenceBusy),
        (429, "TooManyRequests", EvidenceBusy),
        (403, "AccessDenied", EvidenceError),
        (403, "SignatureDoesNotMatch", EvidenceError),
        (404, "NoSuchBucket", EvidenceError),
    ],
)
def test_an_answer_says_what_is_true_of_the_store(status: int, code: str, error: type[StoreError]) -> None:
    with answering(status, code) as store:
        for act in (lambda: store.put("val-1", "nccl", "stdout", b"x"), lambda: store.get(STORED)):
            with pytest.raises(StoreError, match=f"bucket evidence at .*{code}: says the server") as raised:
                act()
            assert type(raised.value) is error


def test_one_object_that_is_gone_is_no_fault_of_the_store() -> None:
    with answering(404, "NoSuchKey") as store, pytest.raises(NotFound, match="val-1/nccl/stdout"):
        store.get(STORED)


def test_a_store_that_is_away_is_asked_again_later() -> None:
    with answering(200, "") as store:
        pass  # its port is free again
    for act in (
        lambda: store.put("val-1", "nccl", "stdout", b"x"),
        lambda: store.get(STORED),
        lambda: store.drop("val-1"),
        lambda: store.validations("", 1),
        store.free_bytes,
    ):
        with pytest.raises(EvidenceBusy, match="does not answer"):
            act()


def test_a_key_that_was_changed_takes_effect_at_once(bucket: EvidenceBucket, s3_url: str) -> None:
    seen: list[str] = []
    keys = ["first"]
    with answering(503, "SlowDown", seen) as refusing:
        url = refusing.client.meta.endpoint_url
        store = EvidenceBucket(connect(url, "us-east-1", lambda: (keys[-1], "secret")), "evidence")
        for name in ("first", "second"):
            keys.append(name)
            with pytest.raises(EvidenceBusy):
                store.put("val-1", "nccl", "stdout", b"x")
    assert [header.partition("Credential=")[2].partition("/")[0] for header in seen] == ["first", "second"]


def test_prefixes_keep_two_sites_in_one_bucket_apart(s3: "S3Client", bucket: EvidenceBucket) -> None:
    other = EvidenceBucket(s3, bucket.bucket, "site-b/")
    stored = bucket.put("val-1", "nccl", "stdout", b"of site a")
    other.drop("val-1")
    assert (bucket.validations("", 9), other.validations("", 9)) == (["val-1"], [])
    assert bucket.get(stored) == b"of site a"
