"""Telling systemd (or whatever else set NOTIFY_SOCKET) that the service is up, and that it ends: sd_notify(3)."""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def told(environment: Mapping[str, str] = os.environ) -> Iterator[None]:
    """The block is the time in which everything is up."""
    _say("READY=1", environment)
    try:
        yield
    finally:
        _say("STOPPING=1", environment)


def _say(words: str, environment: Mapping[str, str]) -> None:
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):  # nobody asked, or by a family that only a virtual machine has
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
        line.connect("\0" + address[1:] if address.startswith("@") else address)
        line.sendall(words.encode())
