"""/v1/validations"""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from fleet.api.gate import Admitted, Gate
from fleet.api.parameters import NamePath, OfMachine, Part, RecordPath
from fleet.service import exports, validations
from fleet.service.access import Action

router = APIRouter(prefix="/v1/validations", route_class=Gate, tags=["validations"])


@router.post("", name=Action.VALIDATION_START, status_code=202)
def start_validation(call: Admitted, body: validations.NewValidation) -> Response:
    return call.write(validations.start, call.services, body)


@router.get("", name=Action.READ)
def list_validations(
    call: Admitted, part: Part, machine: OfMachine = None, state: validations.Standing | None = None
) -> Response:
    return call.read(validations.listed, part, machine, state)


@router.get("/{validation}", name=Action.READ)
def show_validation(call: Admitted, validation: RecordPath) -> Response:
    return call.read(validations.show, validation)


@router.post("/{validation}/abort", name=Action.VALIDATION_ABORT, status_code=202)
def abort_validation(call: Admitted, validation: RecordPath, body: validations.Abort) -> Response:
    return call.write(validations.abort, validation, body)


@router.get("/{validation}/logs", name=Action.READ)
def list_logs(call: Admitted, validation: RecordPath, part: Part) -> Response:
    return call.read(validations.logs, part, validation)


@router.get("/{validation}/logs/{measurement}/{stream}", name=Action.READ)
def show_log(
    call: Admitted,
    validation: RecordPath,
    measurement: NamePath,
    stream: Literal["stdout", "stderr"],
    tail: Annotated[int | None, Query(ge=1, le=1_000_000)] = None,
) -> Response:
    """Raw bytes that a guest or a host has printed: nothing is escaped, so show them with care. `tail`: the last lines."""
    with call.services.db.read() as session:
        raw = validations.log(session, call.services, validation, measurement, stream, tail)
    headers = {"X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment"}
    return Response(raw, headers=headers, media_type="text/plain; charset=utf-8")


@router.get("/{validation}/export", name=Action.READ)
def export_validation(call: Admitted, validation: RecordPath) -> Response:
    """Record, findings, limits and raw outputs as a gzipped tar. Its last member, `manifest.json`, has the hashes, and names
    what could not be had."""
    pieces = exports.export(call.services, validation)
    headers = {"Content-Disposition": f'attachment; filename="{validation}.tar.gz"'}
    return StreamingResponse(pieces, headers=headers, media_type="application/gzip")
