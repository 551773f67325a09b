"""/v1/approvals"""

from fastapi import APIRouter, Response

from fleet.api.gate import Admitted, Gate
from fleet.api.parameters import OfMachine, Part, RecordPath
from fleet.service import approvals
from fleet.service.access import Action

router = APIRouter(prefix="/v1/approvals", route_class=Gate, tags=["approvals"])


@router.get("", name=Action.READ)
def list_approvals(
    call: Admitted, part: Part, machine: OfMachine = None, state: approvals.Standing | None = None
) -> Response:
    return call.read(approvals.listed, part, machine, state)


@router.get("/{approval}", name=Action.READ)
def show_approval(call: Admitted, approval: RecordPath) -> Response:
    return call.read(approvals.show, approval)


@router.post("/{approval}/approve", name=Action.APPROVAL_APPROVE)
def approve(call: Admitted, approval: RecordPath, body: approvals.Decision | None = None) -> Response:
    return call.write(approvals.approve, approval, body or approvals.Decision())


@router.post("/{approval}/reject", name=Action.APPROVAL_REJECT)
def reject(call: Admitted, approval: RecordPath, body: approvals.Rejection) -> Response:
    return call.write(approvals.reject, approval, body)
