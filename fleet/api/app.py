"""The API: routes by noun over the use cases, behind one gate."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from fleet.api import approvals, health, inspections, lab, machines, notices, problem, site, tickets, validations
from fleet.api.limits import Limits
from fleet.api.trace import Trace
from fleet.service.services import Services

_ROUTERS = (
    health.router,
    machines.router,
    validations.router,
    inspections.router,
    tickets.router,
    approvals.router,
    notices.router,
    site.router,
    lab.router,
)


def create_app(
    services: Services, version: str = "0.1.0", limits: Limits | None = None, open_metrics: bool = True
) -> FastAPI:
    """The ASGI application. It starts and owns nothing: the database and the worker are the caller's. `open_metrics`:
    /metrics asks this machine itself for no token."""
    app = FastAPI(
        title="fleet",
        version=version,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.endpoint.__name__,
    )
    app.state.services = services
    app.state.limits = limits or Limits()
    app.state.open_metrics = open_metrics
    problem.install(app)
    for router in _ROUTERS:
        app.include_router(router)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    _traced(app)
    return app


def create_probes(services: Services) -> FastAPI:
    """What a process without an API shows of itself: health and metrics."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.services = services
    app.state.open_metrics = True
    problem.install(app)
    app.include_router(health.router)
    _traced(app)
    return app


def _traced(app: FastAPI) -> None:
    """Outside of everything: middleware that is added stands inside of what answers for a failure."""
    inner = app.build_middleware_stack
    app.build_middleware_stack = lambda: Trace(inner())  # type: ignore[method-assign]


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document, and what it cannot know: tokens, the key of writes, the shape of errors."""
    if app.openapi_schema is not None:
        return app.openapi_schema
    schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
    components = schema.setdefault("components", {})
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    components["schemas"]["Problem"] = _PROBLEM
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            operation["responses"] = {k: v for k, v in operation["responses"].items() if k != "422"}
            operation["responses"]["default"] = _ERROR
            if path.startswith("/v1/"):
                operation["security"] = [{"token": []}]
            if method == "post":
                operation.setdefault("parameters", []).append(_IDEMPOTENCY_KEY)
    app.openapi_schema = schema
    return schema


_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "for programs"},
        "detail": {"type": "string", "description": "one sentence: who or what, since when, and why"},
        "field": {"type": "string"},
        "errors": {"type": "array", "items": {"type": "object"}},
    },
}
_ERROR = {
    "description": "An error",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 200},
    "description": "The same key with the same request is done once and answered the same for 24 hours.",
}
