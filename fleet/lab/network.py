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
        try:
            self._socket = self._hold(number)
        except OSError:
            self._socket = self._hold(0)
        self.number: int = self._socket.getsockname()[1]
        self._serve: Serve | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._answers = asyncio.Event()
        self._answers.set()
        self._lifetimes: Iterator[float] | None = None

    def open(self, serve: Serve) -> None:
        if self._serve:
            return
        self._serve = serve
        self._socket.listen(64)
        asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Refuse connections from now on, and cut what there is."""
        if self._serve:
            self._serve = None
            asyncio.get_running_loop().remove_reader(self._socket)
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
        if breaking == (self._lifetimes is not None):
            return
        self._lifetimes = itertools.cycle(_LIFETIMES_S) if breaking else None
        if breaking:
            self.cut()

    def _hold(self, number: int) -> socket.socket:
        """Raises OSError where the port is taken."""
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # For a port that was ours: connections of its last time may linger. A new one must be nobody's, not even held.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(number != 0))
            held.bind((self._address, number))
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # inherited by its connections
        except OSError:
            held.close()
            raise
        held.setblocking(False)
        return held

    def _accept(self) -> None:
        try:
            client, _ = self._socket.accept()
        except OSError:
            return  # it went away before it was taken up
        assert self._serve
        task = asyncio.get_running_loop().create_task(self._carry(client, self._serve))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _carry(self, client: socket.socket, serve: Serve) -> None:
        ours, theirs = socket.socketpair()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for end in (client, ours, theirs):
            end.setblocking(False)
        lifetime = next(self._lifetimes) if self._lifetimes else None
        server = asyncio.create_task(serve(theirs))
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
