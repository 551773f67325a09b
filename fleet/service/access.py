"""Who may do what: one table. Every request of the API passes `admit`, and every denial leaves an audit entry."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import structlog

from fleet.core.clock import SYSTEM, Clock
from fleet.core.errors import Forbidden, Refused, StoreError, Unauthenticated
from fleet.store import audit, tokens
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import TokenRow

log = structlog.get_logger(__name__)


NOBODY = "nobody"
"""The actor of what was tried without a token that is known here."""


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
    MACHINE_INSPECT = "machine.inspect"
    EVENT_REPORT = "event.report"
    VALIDATION_START = "validation.start"
    VALIDATION_ABORT = "validation.abort"
    TICKET_FIXED = "ticket.fixed"
    ATTENTION_RESOLVE = "attention.resolve"
    NOTICE_ACKNOWLEDGE = "notice.acknowledge"
    SITE_PAUSE = "site.pause"
    SITE_RESUME = "site.resume"
    SITE_MODE = "site.mode"
    APPROVAL_APPROVE = "approval.approve"
    APPROVAL_REJECT = "approval.reject"
    LAB_BREAK = "lab.break"
    LAB_MEND = "lab.mend"
    TOKEN_LIST = "token.list"
    TOKEN_CREATE = "token.create"
    TOKEN_REVOKE = "token.revoke"


_TOKENS = frozenset({Action.TOKEN_LIST, Action.TOKEN_CREATE, Action.TOKEN_REVOKE})

MAY: Mapping[Role, frozenset[Action]] = {
    Role.VIEWER: frozenset({Action.READ}),
    Role.OPERATOR: frozenset(Action) - _TOKENS,
    Role.HARDWARE: frozenset({Action.READ, Action.TICKET_FIXED, Action.MACHINE_INSPECT}),
    Role.CONTROL_PLANE: frozenset({Action.READ, Action.EVENT_REPORT, Action.MACHINE_CLAIM, Action.NOTICE_ACKNOWLEDGE}),
    Role.AGENT: frozenset(),
    Role.ADMIN: frozenset(Action),
}


@dataclass(frozen=True)
class Actor:
    """Who asks: a token's name and id, its role, the network address the request came from, and the one machine that an
    agent speaks for."""

    name: str
    role: Role
    token: str
    source: str | None
    machine: str | None = None

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


class Strangers:
    """Which attempts without a token of ours are written down: one a minute from each address, and so many in all. The
    log has the others. Without a bound anybody could fill the database."""

    def __init__(self, per_minute: int = 30, clock: Clock = SYSTEM) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._lock = threading.Lock()
        self._seen: dict[str | None, float] = {}

    def take(self, source: str | None) -> bool:
        """Is this one to be written down?"""
        now = self._clock.monotonic()
        with self._lock:
            self._seen = {each: at for each, at in self._seen.items() if now - at < 60.0}
            if source in self._seen or len(self._seen) >= self._per_minute:
                return False
            self._seen[source] = now
            return True


def admit(
    db: Database,
    token: str | None,
    action: Action,
    *,
    source: str | None,
    target: str,
    strangers: Strangers,
    machine: str | None = None,
) -> Permit:
    """Raises Unauthenticated, Forbidden. Every denial is in the audit log; those of strangers as far as `strangers` takes
    them."""
    if token is None:
        why = "a token is needed: send `Authorization: Bearer flt_...`"
        raise _turned_away(db, strangers, action, source, target, why)
    with db.read() as session:
        row, valid = tokens.find(session, token)
        use_due = row is not None and valid and tokens.is_use_due(session, row)
    if row is None:
        raise _turned_away(db, strangers, action, source, target, "this token is not known here")
    if use_due:
        _note_use(db, row, source)
    actor = Actor(row.name, Role(row.role), row.id, source, row.machine)
    permit = Permit(actor, action, target, machine)
    if not valid:
        ended = "was revoked" if row.revoked_at is not None else "has expired"
        raise _denied(db, permit, Unauthenticated(f"token {row.name!r} {ended}; ask an admin for a new one"))
    if action not in MAY[actor.role]:
        allowed = ", ".join(role for role in Role if action in MAY[role])
        raise _denied(db, permit, Forbidden(f"role {actor.role} may not {action}; it takes one of: {allowed}"))
    return permit


def check_bound(db: Database, permit: Permit) -> None:
    """Once it is known what a request is about. Raises Forbidden where a token that is bound to one machine speaks of
    another, or of all."""
    bound = permit.actor.machine
    if bound is not None and permit.machine != bound:
        raise _denied(db, permit, Forbidden(f"token {permit.actor.name!r} is the agent's of {bound} and of no other"))


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


def _turned_away(
    db: Database, strangers: Strangers, action: Action, source: str | None, target: str, why: str
) -> Unauthenticated:
    log.warning("access.stranger", action=action, source=source, target=target, reason=why)
    if strangers.take(source):
        detail = {"code": Unauthenticated.code, "reason": why}
        with db.begin() as session:
            audit.write(session, By(NOBODY, source), action, object_=target[:200], allowed=False, detail=detail)
    return Unauthenticated(why)


def _note_use(db: Database, row: TokenRow, source: str | None) -> None:
    """What it serves is worth more than the note: a database that can only be read still answers."""
    try:
        with db.begin() as session:
            tokens.used(session, row.id, source)
    except StoreError as exc:
        log.warning("access.use_not_noted", token=row.id, error=str(exc))


def _denied(db: Database, permit: Permit, why: Refused) -> Refused:
    refused(db, permit, why)
    return why
