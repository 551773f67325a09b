"""TLS: what is spoken, what is refused, and a certificate that is renewed while the service is up."""

import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from structlog.testing import capture_logs

from fleet.app import web
from fleet.app.certificate import Certificate
from fleet.core.errors import InvalidInput
from fleet.settings import NetworkSettings
from tests.integration.cli.web_server import HEALTH, WebServer, answer, is_closed, running


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


class Pair:
    """The two files, as a renewal writes them: beside the old ones, then in their place."""

    def __init__(self, ca: trustme.CA, folder: Path) -> None:
        self._ca, self.chain, self.key = ca, folder / "fleet.crt", folder / "fleet.key"

    def issue(self, *names: str) -> None:
        made = self._ca.issue_cert(*names)
        self._put(self.chain, b"".join(blob.bytes() for blob in made.cert_chain_pems))
        self._put(self.key, made.private_key_pem.bytes())

    def _put(self, file: Path, content: bytes) -> None:
        fresh = file.with_suffix(".new")
        fresh.write_bytes(content)
        fresh.replace(file)


@pytest.fixture
def pair(ca: trustme.CA, tmp_path: Path) -> Pair:
    made = Pair(ca, tmp_path)
    made.issue("127.0.0.1", "localhost", "old.example")
    return made


@pytest.fixture
def certificate(pair: Pair) -> Certificate:
    return Certificate(pair.chain, pair.key)


@pytest.fixture
def server(sqlite_url: str, tmp_path: Path, certificate: Certificate) -> Iterator[WebServer]:
    with running(sqlite_url, tmp_path, {}, certificate) as made:
        yield made


def trusting(ca: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    return context


def names(server: WebServer, context: ssl.SSLContext, name: str = "127.0.0.1") -> set[str]:
    """What the certificate that the service shows is for."""
    with context.wrap_socket(server.connect(), server_hostname=name) as line:
        line.sendall(HEALTH)
        assert answer_over(line) == 200
        shown = line.getpeercert()
    assert shown is not None
    return {str(value) for _, value in shown["subjectAltName"]}


def answer_over(line: ssl.SSLSocket) -> int:
    return answer(line).status


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])  # an address sends no server name, a name does
def test_the_newest_certificate_is_shown_without_a_restart(
    server: WebServer, certificate: Certificate, ca: trustme.CA, pair: Pair, name: str
) -> None:
    context = trusting(ca)
    assert "old.example" in names(server, context, name)
    assert not certificate.refresh()
    pair.issue("127.0.0.1", "localhost", "new.example")
    assert certificate.refresh()
    assert "new.example" in names(server, context, name)
    assert not certificate.refresh()


def test_a_connection_outlives_the_certificate_it_began_with(
    server: WebServer, certificate: Certificate, ca: trustme.CA, pair: Pair
) -> None:
    with trusting(ca).wrap_socket(server.connect(), server_hostname="127.0.0.1") as line:
        line.sendall(HEALTH)
        assert answer_over(line) == 200
        pair.issue("127.0.0.1", "new.example")
        assert certificate.refresh()
        line.sendall(HEALTH)
        assert answer_over(line) == 200


@pytest.mark.parametrize("spoiled", ["half", "other-key", "gone", "unreadable"])
def test_a_renewal_that_went_wrong_changes_nothing(
    server: WebServer, certificate: Certificate, ca: trustme.CA, pair: Pair, spoiled: str
) -> None:
    good = pair.key.read_bytes()
    match spoiled:
        case "half":
            pair.key.write_bytes(good[: len(good) // 2])
        case "other-key":
            pair.key.write_bytes(ca.issue_cert("127.0.0.1").private_key_pem.bytes())
        case "gone":
            pair.key.unlink()
        case "unreadable":
            pair.key.unlink()
            pair.key.mkdir()
    with capture_logs() as logged:
        assert not certificate.refresh()
    assert [line["event"] for line in logged] == ["tls.not_renewed"]
    assert "old.example" in names(server, trusting(ca))
    if pair.key.is_dir():
        pair.key.rmdir()
    pair.issue("127.0.0.1", "new.example")
    assert certificate.refresh()
    assert "new.example" in names(server, trusting(ca))


def test_files_are_looked_at_again_and_again(certificate: Certificate, pair: Pair) -> None:
    with capture_logs() as logged, certificate.watched(every_s=0.02):
        pair.issue("127.0.0.1")
        while not logged:
            os.sched_yield()
    assert logged[0]["event"] in ("tls.renewed", "tls.not_renewed")  # the look may fall between the two files


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_what_is_older_than_tls_1_2_is_refused(server: WebServer, ca: trustme.CA, version: ssl.TLSVersion) -> None:
    context = trusting(ca)
    context.set_ciphers("ALL:@SECLEVEL=0")  # or this side would refuse first
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = context.maximum_version = version
    with pytest.raises(ssl.SSLError, match=r"PROTOCOL_VERSION|UNEXPECTED_EOF"):
        context.wrap_socket(server.connect(), server_hostname="127.0.0.1")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_newer_ones_are_spoken(server: WebServer, ca: trustme.CA, version: ssl.TLSVersion) -> None:
    context = trusting(ca)
    context.minimum_version = context.maximum_version = version
    assert "old.example" in names(server, context)


def test_clear_text_gets_no_answer(server: WebServer) -> None:
    with server.connect() as line:
        line.sendall(HEALTH)
        assert is_closed(line)


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ({"key": None}, "network.key: missing"),
        ({"certificate": None}, "network.certificate: missing"),
        ({"key": Path("/no/such")}, "network.key: /no/such: No such file"),
        ({"certificate": Path("/no/such")}, "network.certificate: /no/such: No such file"),
        ({"certificate": Path(__file__)}, "Both are PEM files"),
    ],
)
def test_files_that_cannot_be_used_are_named_at_the_start(pair: Pair, lacking: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        web.certificate(NetworkSettings(**{"certificate": pair.chain, "key": pair.key, **lacking}))


def test_a_key_of_another_certificate_is_named(pair: Pair, ca: trustme.CA) -> None:
    pair.key.write_bytes(ca.issue_cert("127.0.0.1").private_key_pem.bytes())
    with pytest.raises(InvalidInput, match="the key is not that of the certificate"):
        Certificate(pair.chain, pair.key)


def test_nobody_is_asked_for_a_passphrase(pair: Pair) -> None:
    from cryptography.hazmat.primitives import serialization as form

    key = form.load_pem_private_key(pair.key.read_bytes(), None)
    sealed = form.BestAvailableEncryption(b"open sesame")
    pair.key.write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, sealed))
    with pytest.raises(InvalidInput, match="has a passphrase"):
        Certificate(pair.chain, pair.key)


def test_no_settings_no_tls() -> None:
    assert web.certificate(NetworkSettings()) is None
