"""The line on which stand-ins ask the lab: one JSON object each way over a Unix socket in the lab's directory."""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fleet.lab.virsh import Answer

REQUEST_LIMIT = 256 << 10
Handle = Callable[[dict[str, Any]], Awaitable[Answer]]


async def listen(path: Path, handle: Handle) -> asyncio.Server:
    """The socket is reached through its directory's descriptor, since a path may be too long for a socket's address."""
    path.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bound.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            request = json.loads(await reader.readuntil(b"\n"))
            answer = await _unless_gone(handle(request), reader)
            if answer is not None:
                writer.write(json.dumps(asdict(answer)).encode())
                await writer.drain()
        writer.close()

    return await asyncio.start_unix_server(serve, sock=bound, limit=REQUEST_LIMIT)


async def _unless_gone(answering: Awaitable[Answer], reader: asyncio.StreamReader) -> Answer | None:
    """What was begun is finished although nobody waits for it any more, as libvirt does."""
    answer = asyncio.ensure_future(answering)
    gone = asyncio.ensure_future(reader.read(1))
    await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
    if answer.done():
        gone.cancel()
        return answer.result()
    _unwatched.add(answer)
    answer.add_done_callback(_unwatched.discard)
    return None


_unwatched: set[asyncio.Future[Answer]] = set()
