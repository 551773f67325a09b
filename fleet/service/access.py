"""Who may do what: one table. Every request of the API passes `admit`, and every denial leaves an audit entry."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import structlog

from fleet.core.errors import Forbidden, Refused, Unauthenticated
from fleet.store import audit, tokens
from fleet.store.audit import By
from fleet.store.database import Database

log = structlog.get_logger(__name__)


class Role(StrEnum):
    VIEWER = "viewer"  # reads
    OPERATOR = "operator"  # runs the fleet
    HARDWARE = "hardware"  # repairs machines: works on tickets
    CONTROL_PLANE = "control-plane"  # the provider's software: reports events, claims machines
    AGENT = "agent"  # the host agent: reports facts of its machine, reads nothing
    ADMIN = "admin"  # everything, tokens too


class Action(StrEnum):
    """What can be asked for; the name of the route in the API and of the entry in the audit log."""

    READ = "read"
    AUDIT_READ = "audit.read"
    MACHINE_ADD = "machine.add"
    MACHINE_IMPORT = "machine.import"
    MACHINE_HOLD = "machine.hold"
    MACHINE_UNHOLD = "machine.unhold"
    MACHINE_WITHDRAW = "machine.withdraw"
    MACHINE_RETIRE = "machine.retire"
    MACHINE_CLAIM = "machine.claim"
    MACHINE_OVERRIDE = "machine.override"
    EVENT_REPORT = "event.report"
    VALIDATION_START = "validation.start"
    VALIDATION_ABORT = "validation.abort"
    TICKET_FIXED = "ticket.fixed"
    ATTENTION_RESOLVE = "attention.resolve"
    SITE_PAUSE = "site.pause"
    SITE_RESUME = "site.resume"
    LAB_BREAK = "lab.break"
    LAB_MEND = "lab.mend"
    TOKEN_LIST = "token.list"
    TOKEN_CREATE = "token.create"
    TOKEN_REVOKE = "token.revoke"


_TOKENS = frozenset({Action.TOKEN_LIST, Action.TOKEN_CREATE, Action.TOKEN_REVOKE})

MAY: Mapping[Role, frozenset[Action]] = {
    Role.VIEWER: frozenset({Action.READ}),
    Role.OPERATOR: frozenset(Action) - _TOKENS,
    Role.HARDWARE: frozenset({Action.READ, Action.TICKET_FIXED}),
    Role.CONTROL_PLANE: frozenset({Action.READ, Action.EVENT_REPORT, Action.MACHINE_CLAIM}),
    Role.AGENT: frozenset(),
    Role.ADMIN: frozenset(Action),
}


@dataclass(frozen=True)
class Actor:
    """Who asks: a token's name and id, its role, and the network address the request came from."""

    name: str
    role: Role
    token: str
    source: str | None

    @property
    def by(self) -> By:
        return By(self.name, self.source)


@dataclass(frozen=True)
class Permit:
    """Proof that `actor` may do `action`; the use cases ask for one. `target` is what the request was addressed to."""

    actor: Actor
    action: Action
    target: str
    machine: str | None = None

    def about(self, machine: str | None) -> "Permit":
        return replace(self, machine=self.machine or machine)


def admit(
    db: Database, token: str | None, action: Action, *, source: str | None, target: str, machine: str | None = None
) -> Permit:
    """Raises Unauthenticated, Forbidden. Denials of a token that we know are in the audit log; a token that nobody ever
    had is only logged, or anybody could fill the database."""
    if token is None:
        raise Unauthenticated("a token is needed: send `Authorization: Bearer flt_...`")
    with db.read() as session:
        row, valid = tokens.find(session, token)
    if row is None:
        log.warning("access.unknown_token", action=action, source=source, target=target)
        raise Unauthenticated("this token is not known here")
    actor = Actor(row.name, Role(row.role), row.id, source)
    permit = Permit(actor, action, target, machine)
    if not valid:
        ended = "was revoked" if row.revoked_at is not None else "has expired"
        raise _denied(db, permit, Unauthenticated(f"token {row.name!r} {ended}; ask an admin for a new one"))
    if action not in MAY[actor.role]:
        allowed = ", ".join(role for role in Role if action in MAY[role])
        raise _denied(db, permit, Forbidden(f"role {actor.role} may not {action}; it takes one of: {allowed}"))
    return permit


def refused(db: Database, permit: Permit, why: Exception, said: str = "") -> None:
    """Write down that a request was turned away, with the start of what it said."""
    detail = {"code": getattr(why, "code", "error"), "reason": str(why)[:1000]}
    if said:
        detail["request"] = said[:2000]
    with db.begin() as session:
        audit.write(
            session,
            permit.actor.by,
            permit.action,
            machine=permit.machine,
            object_=permit.target[:200],
            allowed=False,
            detail=detail,
        )


def _denied(db: Database, permit: Permit, why: Refused) -> Refused:
    refused(db, permit, why)
    return why
