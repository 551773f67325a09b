"""A TCP port of the rack's network, with what a network can do to it: not there, silent, breaking."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

Serve = Callable[[socket.socket], Coroutine[Any, Any, None]]

# How long connections live while the network breaks them. Not all the same, so that long transfers get through at last.
_LIFETIMES_S = (0.4, 0.9, 1.8)


class Port:
    """Held from the start, so that nobody else takes it, but answering only while `open`. Each connection is carried to
    the server over a socket pair, so that it can be stalled or cut in the middle of anything."""

    def __init__(self, address: str, number: int) -> None:
        """Takes `number`, or another one where it is 0 or taken."""
        self._address = address
        self._socket = self._hold(number)
        self.number: int = self._socket.getsockname()[1]
        self._serve: Serve | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._answers = asyncio.Event()
        self._answers.set()
        self._lifetimes: Iterator[float] | None = None

    @property
    def is_open(self) -> bool:
        return self._accepting is not None

    def open(self, serve: Serve) -> None:
        if self._accepting:
            return
        self._serve = serve
        self._socket.listen(64)
        self._accepting = asyncio.create_task(self._accept())

    def close(self) -> None:
        """Refuse connections from now on, and cut what there is."""
        if self._accepting:
            self._accepting.cancel()
            self._accepting = None
            self._socket.close()
            self._socket = self._hold(self.number)
        self.cut()

    def cut(self) -> None:
        for connection in self._connections:
            connection.cancel()

    def silence(self, silent: bool) -> None:
        """Accept connections, but let nothing through in either direction."""
        if silent:
            self._answers.clear()
        else:
            self._answers.set()

    def break_connections(self, breaking: bool) -> None:
        """Cut every connection a moment after it was made."""
        if breaking and self._lifetimes is None:
            self.cut()
        self._lifetimes = itertools.cycle(_LIFETIMES_S) if breaking else None

    def _hold(self, number: int) -> socket.socket:
        for wanted in (number, 0):
            held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.setblocking(False)
            try:
                held.bind((self._address, wanted))
                if wanted:
                    self._probe(held)
            except OSError:
                held.close()
                continue
            return held
        raise OSError(f"no free TCP port on {self._address}")

    @staticmethod
    def _probe(held: socket.socket) -> None:
        """SO_REUSEADDR lets two sockets bind one port as long as none listens: see that another one does not."""
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.settimeout(0.2)
            if probe.connect_ex(held.getsockname()) == 0:
                raise OSError("taken")

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            client, _ = await loop.sock_accept(self._socket)
            task = asyncio.create_task(self._carry(client))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _carry(self, client: socket.socket) -> None:
        assert self._serve
        ours, theirs = socket.socketpair()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for end in (client, ours, theirs):
            end.setblocking(False)
        lifetime = next(self._lifetimes) if self._lifetimes else None
        server = asyncio.create_task(self._serve(theirs))
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._both_ways(client, ours), lifetime)
        finally:
            server.cancel()

    async def _both_ways(self, client: socket.socket, server: socket.socket) -> None:
        ways = [asyncio.create_task(self._pass(*ends)) for ends in ((client, server), (server, client))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)  # the loop must let go of a socket before it is closed
            client.close()
            server.close()

    async def _pass(self, source: socket.socket, to: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(source, 1 << 16):
                await self._answers.wait()
                await loop.sock_sendall(to, data)
