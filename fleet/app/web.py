"""The API's server in a thread of this process."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from fleet.core.clock import Deadline

_START_S = 15.0
_STOP_S = 3  # requests that are still at work get this long


@contextmanager
def serving(api: FastAPI, bound: socket.socket) -> Iterator[None]:
    """The API answers on `bound` until the end. Outside the main thread uvicorn leaves the signals alone."""
    config = uvicorn.Config(
        api,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # or X-Forwarded-For would let anybody choose the address in the audit trail
        timeout_graceful_shutdown=_STOP_S,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="api", daemon=True)
    thread.start()
    try:
        for _ in Deadline.after(_START_S).poll(0.01):
            if server.started or not thread.is_alive():
                break
        if not server.started:
            raise RuntimeError("the API did not start; the log says why")
        yield
    finally:
        server.should_exit = True
        thread.join(_STOP_S + 5)
