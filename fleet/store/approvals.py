"""Writes that wait for a second person. At most one waits per action and target."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import NotFound, Refused
from fleet.core.ids import new_id
from fleet.store import attention, audit
from fleet.store.audit import By
from fleet.store.database import db_now
from fleet.store.page import Page, page
from fleet.store.tables import ApprovalRow

WAITING = "waiting"
APPROVED = "approved"
REJECTED = "rejected"
EXPIRED = "expired"
STATES = (WAITING, APPROVED, REJECTED, EXPIRED)

ATTENTION = "approval"
"""The kind of the attention record that each waiting one has."""
_CLOCK = By("service:approvals")


def request(
    session: Session,
    action: str,
    target: str,
    by: By,
    *,
    token: str,
    machine: str | None,
    order: Mapping[str, Any],
    expires_in_s: float,
) -> ApprovalRow:
    """Write down what `by` asks for. Raises Refused where the same already waits, saying who asked for it."""
    expire(session)
    same = (ApprovalRow.action == action, ApprovalRow.target == target, ApprovalRow.state == WAITING)
    if (row := session.scalar(sa.select(ApprovalRow).where(*same))) is not None:
        raise Refused(
            f"{action} of {target} waits for a second person already: {row.requested_by} asked for it; "
            f"`fleet approval show {row.id}`"
        )
    at = session.scalar(sa.select(db_now())) or 0.0
    row = ApprovalRow(
        id=new_id("apr"),
        action=action,
        machine=machine,
        target=target,
        request=dict(order),
        reason=order.get("reason"),
        state=WAITING,
        requested_by=by.actor,
        requested_token=token,
        requested_at=at,
        expires_at=at + expires_in_s,
    )
    session.add(row)
    session.flush()
    detail = {"action": action, "target": target, **order}
    audit.write(session, by, "approval.requested", machine=machine, object_=row.id, detail=detail)
    attention.need(
        session,
        ATTENTION,
        row.id,
        machine=None,  # a machine's records are settled when it passes: this one must stay
        reason=f"{by.actor} asks for {action} of {target}: {row.reason or 'no reason given'}",
        next_step=f"another person: `fleet approval approve {row.id}` or `fleet approval reject {row.id} --reason ...`",
    )
    return row


def get(session: Session, id_: str, *, lock: bool = False) -> ApprovalRow:
    """`lock`: nobody else decides on it until the transaction ends. Raises NotFound."""
    row = session.get(ApprovalRow, id_, with_for_update=lock or None)
    if row is None:
        raise NotFound(f"there is no approval {id_!r}; `fleet approval list` shows all")
    return row


def decide(session: Session, row: ApprovalRow, state: str, by: By, outcome: str) -> None:
    row.state, row.decided_by, row.outcome = state, by.actor, outcome
    row.decided_at = session.scalar(sa.select(db_now()))
    detail = {"action": row.action, "target": row.target, "requested_by": row.requested_by, "outcome": outcome}
    audit.write(session, by, f"approval.{state}", machine=row.machine, object_=row.id, detail=detail)
    attention.settle(session, by.actor, kind=ATTENTION, subject=row.id)


def expire(session: Session) -> None:
    """Close what nobody decided on in time."""
    late = (ApprovalRow.state == WAITING, ApprovalRow.expires_at <= db_now())
    for row in session.scalars(sa.select(ApprovalRow).where(*late).with_for_update(skip_locked=True)).all():
        decide(session, row, EXPIRED, _CLOCK, "no second person decided in time")


def listed(
    session: Session,
    *,
    machine: str | None = None,
    state: str | None = None,
    after: list[Any] | None = None,
    limit: int = 100,
) -> Page[ApprovalRow]:
    """Newest first. One that is late counts as expired also before anybody has written that down."""
    wanted = sa.select(ApprovalRow)
    if machine is not None:
        wanted = wanted.where(ApprovalRow.machine == machine)
    late = sa.and_(ApprovalRow.state == WAITING, ApprovalRow.expires_at <= db_now())
    if state == WAITING:
        wanted = wanted.where(ApprovalRow.state == WAITING, ApprovalRow.expires_at > db_now())
    elif state == EXPIRED:
        wanted = wanted.where(sa.or_(ApprovalRow.state == EXPIRED, late))
    elif state is not None:
        wanted = wanted.where(ApprovalRow.state == state)
    return page(session, wanted, (ApprovalRow.requested_at, ApprovalRow.id), after, limit, newest_first=True)
