"""/v1/tickets"""

from fastapi import APIRouter, Response

from fleet.api.gate import Admitted, Gate
from fleet.api.parameters import OfMachine, Part, RecordPath
from fleet.service import tickets
from fleet.service.access import Action

router = APIRouter(prefix="/v1/tickets", route_class=Gate, tags=["tickets"])


@router.get("", name=Action.READ)
def list_tickets(
    call: Admitted, part: Part, machine: OfMachine = None, state: tickets.TicketState | None = None
) -> Response:
    return call.read(tickets.listed, part, machine, state)


@router.get("/{ticket}", name=Action.READ)
def show_ticket(call: Admitted, ticket: RecordPath) -> Response:
    return call.read(tickets.show, ticket)


@router.post("/{ticket}/fixed", name=Action.TICKET_FIXED)
def mark_fixed(call: Admitted, ticket: RecordPath, body: tickets.Fix | None = None) -> Response:
    return call.write(tickets.fixed, ticket, body or tickets.Fix())
