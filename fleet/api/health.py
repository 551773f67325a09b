"""/healthz and /metrics, for load balancers and Prometheus."""

import ipaddress

from fastapi import APIRouter, Request, Response

from fleet.api.gate import bearer_token
from fleet.core.errors import StoreError
from fleet.service import access, health
from fleet.service.access import Action
from fleet.service.document import document
from fleet.service.services import Services

router = APIRouter(tags=["health"])


@router.get("/healthz")
def healthz(request: Request) -> Response:
    """200 while the database answers; `status` is `late` when no worker takes up what is due."""
    services: Services = request.app.state.services
    try:
        with services.db.read() as session:
            return Response(document(health.health(session)), media_type="application/json")
    except StoreError as exc:
        down = {"status": "down", "database": str(exc)}
        return Response(document(down), 503, {"Retry-After": "1"}, "application/json")


@router.get("/metrics")
def metrics(request: Request) -> Response:
    """Needs no token from this machine itself; from elsewhere any that may read."""
    services: Services = request.app.state.services
    source = request.client.host if request.client else None
    if not _is_loopback(source):
        access.admit(services.db, bearer_token(request), Action.READ, source=source, target="GET /metrics")
    with services.db.read() as session:
        return Response(health.metrics(session), media_type="text/plain; version=0.0.4; charset=utf-8")


def _is_loopback(source: str | None) -> bool:
    try:
        return ipaddress.ip_address(source or "").is_loopback
    except ValueError:
        return False
