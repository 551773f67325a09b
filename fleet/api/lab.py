"""/v1/lab: the simulated rack, where there is one."""

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from fleet.api.gate import Admitted, Gate
from fleet.api.parameters import MachinePath, Part
from fleet.service import lab, shapes
from fleet.service.access import Action
from fleet.service.body import Body

router = APIRouter(prefix="/v1/lab", route_class=Gate, tags=["lab"])


class Fault(Body):
    fault: Annotated[str, Field(pattern=shapes.FAULT)]


@router.get("/faults", name=Action.READ)
def list_faults(call: Admitted, part: Part) -> Response:
    return call.read(lambda _session: lab.faults(call.services.lab, part))


@router.get("/machines", name=Action.READ)
def list_lab_machines(call: Admitted, part: Part) -> Response:
    return call.read(lambda _session: lab.machines(call.services.lab, part))


@router.post("/{machine}/break", name=Action.LAB_BREAK)
def break_machine(call: Admitted, machine: MachinePath, body: Fault) -> Response:
    return call.write(lab.break_, call.services.lab, machine, body.fault)


@router.post("/{machine}/mend", name=Action.LAB_MEND)
def mend_machine(call: Admitted, machine: MachinePath, body: Fault) -> Response:
    return call.write(lab.mend, call.services.lab, machine, body.fault)
