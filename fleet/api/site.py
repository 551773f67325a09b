"""Events in, and what concerns the whole site: its switches, what waits for people, who did what, tokens."""

from fastapi import APIRouter, Response

from fleet.api.gate import Admitted, Gate
from fleet.api.parameters import OfMachine, Part, RecordPath
from fleet.service import attention, audit, events, site, tokens
from fleet.service.access import Action
from fleet.service.body import Nothing

router = APIRouter(prefix="/v1", route_class=Gate, tags=["site"])


@router.post("/events", name=Action.EVENT_REPORT, status_code=202)
def report_event(call: Admitted, body: events.NewEvent) -> Response:
    return call.write(events.report, body)


@router.get("/site", name=Action.READ)
def show_site(call: Admitted) -> Response:
    return call.read(site.show)


@router.post("/pause", name=Action.SITE_PAUSE)
def pause_site(call: Admitted, body: site.Pause) -> Response:
    return call.write(site.pause, body)


@router.post("/resume", name=Action.SITE_RESUME)
def resume_site(call: Admitted, body: Nothing | None = None) -> Response:
    return call.write(site.resume)


@router.get("/attention", name=Action.READ)
def list_attention(call: Admitted, part: Part, machine: OfMachine = None) -> Response:
    return call.read(attention.listed, part, machine)


@router.post("/attention/{attention_id}/resolve", name=Action.ATTENTION_RESOLVE)
def resolve_attention(call: Admitted, attention_id: RecordPath, body: attention.Resolution | None = None) -> Response:
    return call.write(attention.resolve, attention_id, body or attention.Resolution())


@router.get("/audit", name=Action.AUDIT_READ)
def list_audit(call: Admitted, part: Part, machine: OfMachine = None) -> Response:
    return call.read(audit.listed, part, machine)


@router.get("/tokens", name=Action.TOKEN_LIST)
def list_tokens(call: Admitted, part: Part) -> Response:
    return call.read(tokens.listed, part)


@router.post("/tokens", name=Action.TOKEN_CREATE, status_code=201)
def create_token(call: Admitted, body: tokens.NewToken) -> Response:
    return call.write(tokens.create, body)


@router.post("/tokens/{token}/revoke", name=Action.TOKEN_REVOKE)
def revoke_token(call: Admitted, token: RecordPath, body: Nothing | None = None) -> Response:
    return call.write(tokens.revoke, token)
