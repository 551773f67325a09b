"""/v1/notices"""

from fastapi import APIRouter, Response

from fleet.api.gate import Admitted, Gate
from fleet.api.parameters import OfMachine, Part, RecordPath
from fleet.service import notices
from fleet.service.access import Action
from fleet.service.body import Nothing

router = APIRouter(prefix="/v1/notices", route_class=Gate, tags=["notices"])


@router.get("", name=Action.READ)
def list_notices(
    call: Admitted,
    part: Part,
    machine: OfMachine = None,
    destination: notices.Destination | None = None,
    state: notices.Standing | None = None,
) -> Response:
    return call.read(notices.listed, part, machine, destination, state)


@router.get("/{notice}", name=Action.READ)
def show_notice(call: Admitted, notice: RecordPath) -> Response:
    return call.read(notices.show, notice)


@router.post("/{notice}/acknowledge", name=Action.NOTICE_ACKNOWLEDGE)
def acknowledge_notice(call: Admitted, notice: RecordPath, body: Nothing | None = None) -> Response:
    return call.write(notices.acknowledge, notice)
