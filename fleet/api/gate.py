"""What every request passes before its endpoint runs: token, role, query, body. The route's name is the action it needs."""

import dataclasses
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Concatenate, ParamSpec
from urllib.parse import quote

from fastapi import Depends, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.types import Message

from fleet.api import redaction
from fleet.api.document import parse, read_body
from fleet.api.limits import Limits
from fleet.api.problem import Unreadable
from fleet.core.errors import InvalidInput, Unauthenticated
from fleet.service import writing
from fleet.service.access import Action, Permit, admit, check_bound
from fleet.service.document import document
from fleet.service.listing import Json
from fleet.service.services import Services
from fleet.service.writing import Answer, Key

BODY_LIMIT_BYTES = {Action.MACHINE_IMPORT: 4 << 20}
DEFAULT_BODY_LIMIT_BYTES = 1 << 20
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")

P = ParamSpec("P")


@dataclasses.dataclass(frozen=True)
class Call:
    """One admitted request, and the way from it to a use case."""

    services: Services
    permit: Permit
    key: Key | None = None
    said: str = ""

    def read(self, use: Callable[Concatenate[Session, P], Json], *args: P.args, **kwargs: P.kwargs) -> Response:
        with self.services.db.read() as session:
            return Response(document(use(session, *args, **kwargs)), media_type="application/json")

    def write(
        self, use: Callable[Concatenate[Session, Permit, P], Answer], *args: P.args, **kwargs: P.kwargs
    ) -> Response:
        def work(session: Session) -> Answer:
            return use(session, self.permit, *args, **kwargs)

        answered = writing.perform(self.services.db, self.permit, work, key=self.key, said=self.said)
        return Response(answered.response, answered.status, media_type="application/json")


async def _admitted(request: Request, services: Services, action: Action) -> Permit:
    limits: Limits = request.app.state.limits
    token, source = bearer_token(request), request.client.host if request.client else None
    machine = request.path_params.get("machine")
    await limits.take(source, token)
    try:
        permit = await run_in_threadpool(
            admit,
            services.db,
            token,
            action,
            source=source,
            strangers=services.strangers,
            target=f"{request.method} {quote(request.scope['path'])}",
            machine=machine if machine and _NAME.fullmatch(machine) else None,
        )
    except Unauthenticated:
        await limits.failed(source)
        raise
    limits.good(token)
    return permit


def _call(request: Request) -> Call:
    call: Call = request.state.call
    return call


Admitted = Annotated[Call, Depends(_call)]


class Gate(APIRoute):
    """A route whose `name` is an Action. It admits the request, then reads its body strictly, then lets FastAPI validate."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        handle = super().get_route_handler()
        action = Action(self.name)
        asked = _query_names(self.dependant)

        async def admitted(request: Request) -> Response:
            services: Services = request.app.state.services
            permit = await _admitted(request, services, action)
            _check_query(request, asked)
            if request.method == "GET":
                await run_in_threadpool(check_bound, services.db, permit)
                request.state.call = Call(services, permit)
                return await handle(request)
            body = await read_body(request, BODY_LIMIT_BYTES.get(action, DEFAULT_BODY_LIMIT_BYTES))
            said = parse(body, request.headers.get("content-type")) if body else None
            permit = permit.about(_machine_in(said))
            await run_in_threadpool(check_bound, services.db, permit)
            request.state.call = Call(services, permit, _key(request, permit, body), redaction.kept(body))
            return await handle(Request(request.scope, _replay(body)))

        return admitted


def bearer_token(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def _query_names(dependant: Dependant) -> set[str]:
    return {p.alias for p in dependant.query_params}.union(*map(_query_names, dependant.dependencies))


def _check_query(request: Request, asked: set[str]) -> None:
    seen: set[str] = set()
    for name, _value in request.query_params.multi_items():
        if name not in asked:
            known = ", ".join(sorted(asked)) or "none"
            raise InvalidInput(f"there is no query parameter {name[:100]!a} here; known: {known}", name[:100])
        if name in seen:
            raise InvalidInput(f"the query parameter {name} is given twice", name)
        seen.add(name)


def _key(request: Request, permit: Permit, body: bytes) -> Key | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        raise Unreadable(400, "invalid-key", "use 1 to 200 printable ASCII characters, no spaces", "Idempotency-Key")
    return writing.key_of(permit, key, body)


def _machine_in(said: Any) -> str | None:
    named = said.get("machine") if isinstance(said, dict) else None
    return named if isinstance(named, str) and _NAME.fullmatch(named) else None


def _replay(body: bytes) -> Callable[[], Awaitable[Message]]:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
