"""Every error as `application/problem+json` (RFC 9457): `code` for programs, `detail` as one sentence for people."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from fleet.core.errors import (
    Conflict,
    FleetError,
    Forbidden,
    InvalidInput,
    NotFound,
    Refused,
    RemoteError,
    StoreBusy,
    StoreError,
    Unauthenticated,
)
from fleet.service.wording import explained

log = structlog.get_logger(__name__)

STATUS: Mapping[type[FleetError], int] = {
    InvalidInput: 422,
    NotFound: 404,
    Unauthenticated: 401,
    Forbidden: 403,
    Refused: 409,
    Conflict: 409,
    StoreBusy: 503,
    StoreError: 503,
    RemoteError: 502,  # the simulated rack does not answer
}
"""By the nearest class above; an error that is not listed is our fault."""

_HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": 'Bearer realm="fleet"'},
    503: {"Retry-After": "1"},
}
_MOST_ERRORS = 100


class Unreadable(InvalidInput):
    """The request itself is not what HTTP or JSON asks for; `status` says how."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        field: str | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(message, field)
        self.status, self.problem, self.headers = status, code, headers


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    field: str | None = None,
    errors: list[dict[str, Any]] | None = None,
) -> Response:
    body: dict[str, Any] = {
        "type": f"https://fleet-revalidation.invalid/problems/{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail[:4000],
    }
    if field is not None:
        body["field"] = field[:200]
    if errors is not None:
        body["errors"] = errors
    return Response(json.dumps(body), status, _HEADERS.get(status), "application/problem+json")


def install(app: FastAPI) -> None:
    app.exception_handler(FleetError)(_of_fleet)
    app.exception_handler(RequestValidationError)(_of_validation)
    app.exception_handler(HTTPException)(_of_http)
    app.exception_handler(Exception)(_of_anything)


async def _of_fleet(request: Request, exc: FleetError) -> Response:
    if isinstance(exc, Unreadable):
        response = problem(exc.status, exc.problem, str(exc), field=exc.field)
        response.headers.update(exc.headers)
        return response
    status = next((STATUS[kind] for kind in type(exc).__mro__ if kind in STATUS), None)
    if status is None:
        return await _of_anything(request, exc)
    if status == 503:
        log.warning("api.store", path=request.url.path, error=str(exc))
    rows = getattr(exc, "rows", None)
    unsure = "; it may have been done: send the same again with the same Idempotency-Key" if exc.effect_unknown else ""
    return problem(status, exc.code, f"{exc}{unsure}", field=getattr(exc, "field", None), errors=rows)


async def _of_validation(_request: Request, exc: RequestValidationError) -> Response:
    errors = []
    for error in exc.errors()[:_MOST_ERRORS]:
        field, detail = explained({**error, "loc": error["loc"][1:]})  # without "body", "query" or "path"
        errors.append({"field": field, "detail": detail})
    first = errors[0]
    named = f"{first['field']}: {first['detail']}" if first["field"] else first["detail"]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return problem(422, "invalid-input", named + more, field=first["field"] or None, errors=errors)


async def _of_http(request: Request, exc: HTTPException) -> Response:
    path = f"{request.url.path[:200]!a}"
    details = {404: f"there is nothing at the path {path}", 405: f"{path} does not take the method {request.method}"}
    detail = details.get(exc.status_code, str(exc.detail))
    response = problem(exc.status_code, HTTPStatus(exc.status_code).name.lower().replace("_", "-"), detail)
    response.headers.update(exc.headers or {})
    return response


async def _of_anything(request: Request, exc: Exception) -> Response:
    log.error("api.internal", method=request.method, path=request.url.path, exc_info=exc)
    return problem(500, "internal", "the service made a mistake; its log says more")
