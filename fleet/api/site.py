"""Events in, and what concerns the whole site: its switches, what waits for people, who did what, tokens."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from fleet.api.gate import Admitted, Gate
from fleet.api.parameters import OfMachine, Part, RecordPath, Time
from fleet.service import approvals, attention, audit, events, shapes, site, tokens
from fleet.service.access import Action
from fleet.service.body import Nothing

router = APIRouter(prefix="/v1", route_class=Gate, tags=["site"])


@router.post("/events", name=Action.EVENT_REPORT, status_code=202)
def report_event(call: Admitted, body: events.NewEvent) -> Response:
    return call.write(events.report, body)


@router.get("/site", name=Action.READ)
def show_site(call: Admitted) -> Response:
    return call.read(site.show, call.services.two_person_rule)


@router.post("/pause", name=Action.SITE_PAUSE)
def pause_site(call: Admitted, body: site.Pause) -> Response:
    return call.write(site.pause, body)


@router.post("/resume", name=Action.SITE_RESUME)
def resume_site(call: Admitted, body: site.Resume | None = None) -> Response:
    return call.write(approvals.act, call.services, "site", body or site.Resume())


@router.post("/site/mode", name=Action.SITE_MODE)
def set_site_mode(call: Admitted, body: site.Mode) -> Response:
    return call.write(site.set_mode, body)


@router.get("/attention", name=Action.READ)
def list_attention(
    call: Admitted,
    part: Part,
    machine: OfMachine = None,
    kind: Annotated[str | None, Query(max_length=100)] = None,
    state: attention.Standing = "open",
) -> Response:
    return call.read(attention.listed, part, machine, kind, state)


@router.get("/attention/{record}", name=Action.READ)
def show_attention(call: Admitted, record: RecordPath) -> Response:
    return call.read(attention.show, record)


@router.post("/attention/{record}/resolve", name=Action.ATTENTION_RESOLVE)
def resolve_attention(call: Admitted, record: RecordPath, body: attention.Resolution | None = None) -> Response:
    return call.write(attention.resolve, record, body or attention.Resolution())


def _audit_filter(
    machine: OfMachine = None,
    actor: Annotated[str | None, Query(max_length=300)] = None,
    action: Annotated[str | None, Query(pattern=shapes.ACTION)] = None,
    allowed: bool | None = None,
    since: Time = None,
    until: Time = None,
) -> audit.Filter:
    return audit.Filter(machine, actor, action, allowed, since, until)


@router.get("/audit", name=Action.AUDIT_READ)
def list_audit(
    call: Admitted,
    part: Part,
    wanted: Annotated[audit.Filter, Depends(_audit_filter)],
    order: audit.Order = "newest",
) -> Response:
    return call.read(audit.listed, part, wanted, order)


@router.get("/tokens", name=Action.TOKEN_LIST)
def list_tokens(call: Admitted, part: Part) -> Response:
    return call.read(tokens.listed, part)


@router.post("/tokens", name=Action.TOKEN_CREATE, status_code=201)
def create_token(call: Admitted, body: tokens.NewToken) -> Response:
    return call.write(tokens.create, body)


@router.post("/tokens/{token}/revoke", name=Action.TOKEN_REVOKE)
def revoke_token(call: Admitted, token: RecordPath, body: Nothing | None = None) -> Response:
    return call.write(tokens.revoke, token)
