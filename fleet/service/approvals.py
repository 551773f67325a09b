"""The two-person rule: where the site has it, some acts are only asked for by the first person and carried out by a second.

What is asked for is tried at once and undone, so that nobody waits for a yes to something impossible; at the approval it is
done by the same code, on the state of then."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy.orm import Session

from fleet.core.errors import Forbidden, Refused
from fleet.service import machines, site
from fleet.service.access import MAY, Action, Actor, Permit, Role
from fleet.service.body import Body, Sentence
from fleet.service.listing import Json, Window, listing
from fleet.service.services import Services
from fleet.service.times import stamp, stamp_or_none
from fleet.service.writing import Answer
from fleet.store import approvals, tokens
from fleet.store.machines import now
from fleet.store.site import at
from fleet.store.tables import ApprovalRow

Standing = Literal["waiting", "approved", "rejected", "expired"]


@dataclass(frozen=True)
class Act:
    """A write that takes two people where the rule holds. `subject` is a machine's name, or `site`."""

    order: type[Body]
    carry_out: Callable[[Session, Permit, str, Any], Answer]


ACTS: Mapping[Action, Act] = {
    Action.MACHINE_OVERRIDE: Act(machines.Override, machines.override),
    Action.MACHINE_RETIRE: Act(machines.Reason, machines.retire),
    Action.SITE_RESUME: Act(site.Resume, lambda session, permit, _site, order: site.resume(session, permit, order)),
}


class Decision(Body):
    note: Sentence | None = None


class Rejection(Body):
    reason: Sentence


def act(session: Session, permit: Permit, services: Services, subject: str, order: Body) -> Answer:
    """Do it, or, under the two-person rule, ask for it: 202 with the approval that waits. Raises Refused where it cannot be
    done now, or waits already."""
    what = ACTS[permit.action]
    if not services.two_person_rule:
        return what.carry_out(session, permit, subject, order)
    with session.begin_nested() as tried:
        what.carry_out(session, permit, subject, order)
        tried.rollback()
    row = approvals.request(
        session,
        permit.action,
        subject,
        permit.actor.by,
        token=permit.actor.token,
        machine=permit.machine,
        order=order.model_dump(),
        expires_in_s=services.approval_expires_s,
    )
    return Answer.accepted(_view(row, now(session)))


def approve(session: Session, permit: Permit, id_: str, order: Decision) -> Answer:
    """Carry it out, by the state of now. Where that only ends a validation first, the answer is 202, and the approval still
    waits. Raises Refused, Forbidden."""
    row = approvals.get(session, id_, lock=True)
    action = Action(row.action)
    _refuse_unless_waiting(session, row)
    _refuse_same_person(session, permit, row)
    if action not in MAY[permit.actor.role]:
        raise Forbidden(f"role {permit.actor.role} may not {action}, so it cannot approve it either")
    both = Actor(
        f"{row.requested_by}, approved by {permit.actor.name}",
        _role_of_requester(session, row, action),
        permit.actor.token,
        permit.actor.source,
    )
    what = ACTS[action]
    said = what.order.model_validate(row.request)
    done = what.carry_out(session, Permit(both, action, permit.target, row.machine), row.target, said)
    if done.status == Answer.accepted({}).status:
        row.outcome = "a validation is ended first: approve it again when that is over"
        return Answer.accepted(_view(row, now(session)))
    approvals.decide(session, row, approvals.APPROVED, permit.actor.by, order.note or "done")
    return Answer.done(_view(row, now(session)))


def reject(session: Session, permit: Permit, id_: str, order: Rejection) -> Answer:
    """Nothing happens then. Whoever asked for it may take it back so."""
    row = approvals.get(session, id_, lock=True)
    _refuse_unless_waiting(session, row)
    approvals.decide(session, row, approvals.REJECTED, permit.actor.by, order.reason)
    return Answer.done(_view(row, now(session)))


def listed(session: Session, window: Window, machine: str | None = None, state: Standing | None = None) -> Json:
    """Newest first."""
    after, moment = window.after("approval", float, str), now(session)
    page = approvals.listed(session, machine=machine, state=state, after=after, limit=window.limit)
    return listing("approval", page, lambda row: _view(row, moment))


def show(session: Session, id_: str) -> Json:
    return _view(approvals.get(session, id_), now(session))


def _refuse_unless_waiting(session: Session, row: ApprovalRow) -> None:
    if row.state != approvals.WAITING:
        raise Refused(
            f"approval {row.id} is {row.state} since {at(row.decided_at or row.expires_at)}, by {row.decided_by}"
        )
    if row.expires_at <= now(session):
        raise Refused(f"approval {row.id} expired at {at(row.expires_at)}: ask for it again")


def _refuse_same_person(session: Session, permit: Permit, row: ApprovalRow) -> None:
    """A token stands for a person, and so do several of one name. One that was made after the question was put is nobody's:
    whoever makes tokens could be two people at will."""
    mine = tokens.get(session, permit.actor.token)
    if mine.id == row.requested_token or mine.name == row.requested_by:
        raise Refused(f"{row.requested_by} asked for this: it takes another person to approve it")
    if mine.created_at > row.requested_at:
        raise Refused(f"token {mine.name!r} was made after this was asked for: it takes one that was there before")


def _role_of_requester(session: Session, row: ApprovalRow, action: Action) -> Role:
    asked = tokens.get(session, row.requested_token)
    if not tokens.is_valid(session, asked) or action not in MAY[Role(asked.role)]:
        raise Refused(f"token {asked.name!r}, which asked for this, is no longer valid: reject it and ask again")
    return Role(asked.role)


def _view(row: ApprovalRow, moment: float) -> Json:
    late = row.state == approvals.WAITING and row.expires_at <= moment
    return {
        "id": row.id,
        "action": row.action,
        "machine": row.machine,
        "target": row.target,
        "request": row.request,
        "reason": row.reason,
        "state": approvals.EXPIRED if late else row.state,
        "requested_by": row.requested_by,
        "requested_at": stamp(row.requested_at),
        "expires_at": stamp(row.expires_at),
        "decided_by": row.decided_by,
        "decided_at": stamp_or_none(row.decided_at),
        "outcome": row.outcome,
    }
