"""The API's server in a thread of this process: what the network may do to it is bounded here."""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI

from fleet.api.app import create_app
from fleet.api.limits import Limits, Rates
from fleet.app.certificate import Certificate
from fleet.app.connections import HANDSHAKE_S, HEADER_BYTES, Bounds, Connection
from fleet.core.clock import Deadline
from fleet.core.errors import InvalidInput
from fleet.service.services import Services
from fleet.settings import NetworkSettings, Settings

_START_S = 15.0
_STOP_S = 3  # requests that are still at work get this long


def api(settings: Settings, services: Services) -> FastAPI:
    rates = settings.rates
    limits = Limits(Rates(rates.per_token, rates.per_address, rates.failed_logins_per_address))
    return create_app(services, limits=limits, open_metrics=not settings.network.trusted_proxies)


def certificate(network: NetworkSettings) -> Certificate | None:
    """None where the settings name none. Raises InvalidInput."""
    chain, key = network.certificate, network.key
    if chain is None and key is None:
        return None
    if chain is None or key is None:
        lacking = "certificate" if chain is None else "key"
        raise InvalidInput(f"network.{lacking}: missing; TLS needs a certificate and its key", f"network.{lacking}")
    return Certificate(chain, key)


@contextmanager
def serving(
    api: FastAPI, bound: socket.socket, network: NetworkSettings, certificate: Certificate | None = None
) -> Iterator[None]:
    """`api` answers on `bound` until the end. Outside the main thread uvicorn leaves the signals alone."""
    bounds = Bounds(
        connections=network.connections,
        per_address=network.connections_per_address,
        request_s=network.request_deadline_s,
        stalled_s=network.stalled_answer_s,
        shared=network.trusted_proxies,
    )
    connection: Any = partial(Connection, bounds=bounds, counts=Counter())  # called as the class would be
    config = uvicorn.Config(
        api,
        http=connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # without a proxy that is known, X-Forwarded-For would let anybody choose the address in the audit trail
        proxy_headers=bool(network.trusted_proxies),
        forwarded_allow_ips=[str(proxy) for proxy in network.trusted_proxies],
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_graceful_shutdown=_STOP_S,
        ssl_context_factory=None if certificate is None else lambda *_: certificate.context,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=_run, args=(server, bound), name="api", daemon=True)
    with ExitStack() as stack:
        if certificate is not None:
            stack.enter_context(certificate.watched())
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


def _run(server: uvicorn.Server, bound: socket.socket) -> None:
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(server.serve(sockets=[bound]))


class _Loop(asyncio.SelectorEventLoop):
    """Gives up on a TLS handshake sooner: until it is through, a client is nobody whose connections could be counted."""

    async def create_server(self, *arguments: Any, **more: Any) -> asyncio.Server:
        if more.get("ssl") is not None:
            more["ssl_handshake_timeout"] = HANDSHAKE_S
        return await super().create_server(*arguments, **more)
