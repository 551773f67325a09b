"""/healthz, /readyz and /metrics, for those who watch, load balancers and Prometheus."""

import ipaddress

from fastapi import APIRouter, Request, Response

from fleet.api.gate import bearer_token
from fleet.core.errors import StoreError
from fleet.service import access, health
from fleet.service.access import Action
from fleet.service.document import document
from fleet.service.listing import Json
from fleet.service.metrics import metrics
from fleet.service.services import Services

router = APIRouter(tags=["health"])

_LATER = {"Retry-After": "1"}


@router.get("/healthz")
def healthz(request: Request) -> Response:
    """Does the service as a whole do its job? 503 when the database does not answer, and when no worker takes up what is due:
    it is the same on every process, so do not take one out of a load balancer for it."""
    services: Services = request.app.state.services
    try:
        with services.db.read() as session:
            found = health.health(session)
    except StoreError as exc:
        found = {"status": "down", "database": str(exc)}
    return _told(found, ok=found["status"] == "ok")


@router.get("/readyz")
def readyz(request: Request) -> Response:
    """Can this process answer requests? For a load balancer: events are taken in while no worker is up."""
    services: Services = request.app.state.services
    try:
        services.db.now()
    except StoreError as exc:
        return _told({"status": "down", "database": str(exc)}, ok=False)
    return _told({"status": "ok", "database": "ok"}, ok=True)


@router.get("/metrics", name="metrics")
def show_metrics(request: Request) -> Response:
    """Needs no token from this machine itself, unless that may be a proxy; from elsewhere any that may read."""
    services: Services = request.app.state.services
    source = request.client.host if request.client else None
    if not (request.app.state.open_metrics and _is_loopback(source)):
        access.admit(
            services.db,
            bearer_token(request),
            Action.READ,
            source=source,
            strangers=services.strangers,
            target="GET /metrics",
        )
    return Response(metrics(services.db), media_type="text/plain; version=0.0.4; charset=utf-8")


def _told(found: Json, *, ok: bool) -> Response:
    return Response(document(found), 200 if ok else 503, None if ok else _LATER, "application/json")


def _is_loopback(source: str | None) -> bool:
    try:
        return ipaddress.ip_address(source or "").is_loopback
    except ValueError:
        return False
