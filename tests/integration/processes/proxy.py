"""A PostgreSQL server seen through a TCP proxy that can lose what matters most: the answer to a COMMIT. It follows the clients'
side of the protocol, and so knows what the transaction has done that a COMMIT would end."""

import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_PROTOCOL_3 = 0x00030000
_COMMITTED = re.compile(rb"C\x00\x00\x00\x0bCOMMIT\x00")


@dataclass
class Cut:
    """Of the first COMMIT of a transaction with a statement that matches: `committed` by the server, or never seen by it."""

    statement: re.Pattern[bytes]
    committed: bool
    done: threading.Event = field(default_factory=threading.Event)


class Proxy:
    def __init__(self, server: Path) -> None:
        """`server`: its socket."""
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._flows = threading.Event()
        self._flows.set()
        self._cuts: list[Cut] = []
        self._lock = threading.Lock()
        self._lines: set[_Line] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"postgresql://fleet@127.0.0.1:{self._listener.getsockname()[1]}/postgres"

    def cut(self, statement: str, *, committed: bool) -> Cut:
        """Once, whoever's transaction it is."""
        made = Cut(re.compile(statement.encode(), re.DOTALL), committed)
        with self._lock:
            self._cuts.append(made)
        return made

    def hang(self) -> None:
        """Connections are taken in and nothing is passed on, in either direction."""
        self._flows.clear()

    def flow(self) -> None:
        self._flows.set()

    def lead_to(self, server: Path) -> None:
        """Another server from now on, as a name in DNS or an address that moves."""
        self._server = server
        self._drop()

    def close(self) -> None:
        self._flows.set()
        self._listener.close()
        self._drop()

    def _drop(self) -> None:
        for line in list(self._lines):
            line.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with socket.socket(socket.AF_UNIX) as server, client:
            line = _Line(client, server)
            self._lines.add(line)
            with suppress(OSError):
                self._flows.wait()
                server.connect(str(self._server))
                threading.Thread(target=self._answers, args=(line,), daemon=True).start()
                for raw, statement in _said(client):
                    self._flows.wait()
                    if statement is not None:
                        line.said += statement + b"\n"
                    if statement == b"COMMIT" and (cut := self._due(line.said)) is not None:
                        self._cut(line, cut, raw)
                        break
                    if statement in (b"COMMIT", b"ROLLBACK"):
                        line.said = b""
                    server.sendall(raw)
            line.close()
            self._lines.discard(line)

    def _due(self, said: bytes) -> Cut | None:
        with self._lock:
            found = next((cut for cut in self._cuts if cut.statement.search(said)), None)
            if found is not None:
                self._cuts.remove(found)
            return found

    @staticmethod
    def _cut(line: "_Line", cut: Cut, commit: bytes) -> None:
        if cut.committed:
            line.muted = True
            line.server.sendall(commit)
            line.committed.wait(10)
        line.close()
        cut.done.set()

    def _answers(self, line: "_Line") -> None:
        with suppress(OSError):
            while raw := line.server.recv(65536):
                self._flows.wait()
                if not line.muted:
                    line.client.sendall(raw)
                elif _COMMITTED.search(raw):
                    line.committed.set()
        line.close()


class _Line:
    """One client's connection, and the server's end of it. `said`: the statements of its transaction so far."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.said, self.muted, self.committed = b"", False, threading.Event()

    def close(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _said(client: socket.socket) -> Iterator[tuple[bytes, bytes | None]]:
    """Each message of a client as it came, with the SQL that it has the server run, if any."""
    read = _reader(client)
    while True:  # what comes before the first typed message: requests for TLS, which the server refuses, and the start
        head = read(8)
        yield head + read(struct.unpack("!i", head[:4])[0] - 8), None
        if struct.unpack("!i", head[4:])[0] == _PROTOCOL_3:
            break
    prepared: dict[bytes, bytes] = {}
    while True:
        head = read(5)
        body = read(struct.unpack("!i", head[1:])[0] - 4)
        statement = None
        if head[:1] == b"Q":
            statement = body.removesuffix(b"\0")
        elif head[:1] == b"P":
            name, sql, *_ = body.split(b"\0")
            prepared[name] = sql
        elif head[:1] == b"B":
            _, name, *_ = body.split(b"\0")
            statement = prepared.get(name)
        yield head + body, statement


def _reader(client: socket.socket) -> Callable[[int], bytes]:
    stream = client.makefile("rb")

    def read(count: int) -> bytes:
        raw = stream.read(count)
        if raw is None or len(raw) < count:
            raise ConnectionResetError("the client has gone")
        return raw

    return read
