"""/v1/inspections"""

from fastapi import APIRouter, Response

from fleet.api.gate import Admitted, Gate
from fleet.api.parameters import OfMachine, Part, RecordPath
from fleet.service import inspections
from fleet.service.access import Action

router = APIRouter(prefix="/v1/inspections", route_class=Gate, tags=["inspections"])


@router.post("", name=Action.MACHINE_INSPECT, status_code=202)
def start_inspection(call: Admitted, body: inspections.NewInspection) -> Response:
    return call.write(inspections.start, body)


@router.get("", name=Action.READ)
def list_inspections(call: Admitted, part: Part, machine: OfMachine = None) -> Response:
    return call.read(inspections.listed, part, machine)


@router.get("/{inspection}", name=Action.READ)
def show_inspection(call: Admitted, inspection: RecordPath) -> Response:
    return call.read(inspections.show, inspection)
