"""/v1/machines"""

from fastapi import APIRouter, Response

from fleet.api.gate import Admitted, Gate
from fleet.api.parameters import MachinePath, OfMachine, Part
from fleet.core.states import State
from fleet.service import approvals, machines
from fleet.service.access import Action
from fleet.service.body import Nothing
from fleet.service.machine_record import NewMachine

router = APIRouter(prefix="/v1/machines", route_class=Gate, tags=["machines"])


@router.get("", name=Action.READ)
def list_machines(call: Admitted, part: Part, state: State | None = None, machine: OfMachine = None) -> Response:
    return call.read(machines.listed, part, state, machine)


@router.post("", name=Action.MACHINE_ADD, status_code=201)
def add_machine(call: Admitted, body: NewMachine) -> Response:
    return call.write(machines.add, body)


@router.post("/import", name=Action.MACHINE_IMPORT, status_code=201)
def import_machines(call: Admitted, body: machines.Import) -> Response:
    return call.write(machines.import_, body)


@router.get("/{machine}", name=Action.READ)
def show_machine(call: Admitted, machine: MachinePath) -> Response:
    return call.read(machines.show, machine)


@router.post("/{machine}/hold", name=Action.MACHINE_HOLD)
def hold_machine(call: Admitted, machine: MachinePath, body: machines.HoldOrder) -> Response:
    return call.write(machines.hold, machine, body)


@router.post("/{machine}/unhold", name=Action.MACHINE_UNHOLD)
def unhold_machine(call: Admitted, machine: MachinePath, body: Nothing | None = None) -> Response:
    return call.write(machines.unhold, machine)


@router.post("/{machine}/withdraw", name=Action.MACHINE_WITHDRAW)
def withdraw_machine(call: Admitted, machine: MachinePath, body: machines.Reason) -> Response:
    return call.write(machines.withdraw, machine, body)


@router.post("/{machine}/retire", name=Action.MACHINE_RETIRE)
def retire_machine(call: Admitted, machine: MachinePath, body: machines.Reason) -> Response:
    return call.write(approvals.act, call.services, machine, body)


@router.post("/{machine}/claim", name=Action.MACHINE_CLAIM)
def claim_machine(call: Admitted, machine: MachinePath, body: machines.Claim) -> Response:
    return call.write(machines.claim, machine, body)


@router.post("/{machine}/override", name=Action.MACHINE_OVERRIDE)
def override_machine(call: Admitted, machine: MachinePath, body: machines.Override) -> Response:
    return call.write(approvals.act, call.services, machine, body)
