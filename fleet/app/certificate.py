"""The TLS certificate that the API shows: read from its files, and read again when they change, without a restart."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import structlog

from fleet.core.errors import InvalidInput

log = structlog.get_logger(__name__)

_LOOK_S = 60.0
_Stamp = tuple[tuple[int, int, int], ...]


class Certificate:
    """`context` is what a listener is given once and for all; every handshake takes the newest pair that was good."""

    def __init__(self, chain: Path, key: Path) -> None:
        """Raises InvalidInput for files that are missing, are no certificate and key, or do not belong together."""
        self._chain, self._key = chain, key
        self._seen = self._stamp()
        self._newest = self._load()
        self.context = self._load()
        self.context.sni_callback = self._choose  # called without a server name too

    def refresh(self) -> bool:
        """Take up files that have changed; True when that was done. A pair that is not good (a renewal that is half written,
        or went wrong) is only logged: the one in use stays, and the next look tries again."""
        try:
            if (seen := self._stamp()) == self._seen:
                return False
            self._newest = self._load()
        except InvalidInput as exc:
            log.warning("tls.not_renewed", reason=str(exc))
            return False
        self._seen = seen  # taken before the files were read: what changed since is seen by the next look
        log.info("tls.renewed", certificate=str(self._chain))
        return True

    @contextmanager
    def watched(self, every_s: float = _LOOK_S) -> Iterator[None]:
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(every_s):
                self.refresh()

        thread = threading.Thread(target=watch, name="certificate", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._newest

    def _stamp(self) -> _Stamp:
        stamps = []
        for path, field in ((self._chain, "network.certificate"), (self._key, "network.key")):
            try:
                found = path.stat()
            except OSError as exc:
                raise InvalidInput(f"{field}: {path}: {exc.strerror}", field) from exc
            stamps.append((found.st_ino, found.st_mtime_ns, found.st_size))
        return tuple(stamps)

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._chain, self._key, password=_nobody_is_asked)
        except ssl.SSLError as exc:
            why = "the key is not that of the certificate" if exc.reason == "KEY_VALUES_MISMATCH" else _words(exc)
            raise InvalidInput(
                f"network.certificate: {self._chain} and {self._key} cannot be used: {why}. Both are PEM files; the first "
                "has the certificate and then its intermediates",
                "network.certificate",
            ) from exc
        except OSError as exc:
            raise InvalidInput(f"network.key: {self._key}: {exc.strerror}", "network.key") from exc
        return context


def _nobody_is_asked() -> NoReturn:
    """OpenSSL would ask for it on a terminal, and a service would hang there."""
    raise InvalidInput("network.key: the key has a passphrase; give the service one without", "network.key")


def _words(exc: ssl.SSLError) -> str:
    return exc.reason.replace("_", " ").lower() if exc.reason else "they are not PEM"
