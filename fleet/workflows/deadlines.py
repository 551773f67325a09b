"""How long everything may take that is on its way: each state that is not stable, each phase of a run, each wait.

These are backstops. A phase has its own deadline, which ends it by itself; what is here says when a person must hear that
even this did not happen. No rule ends anything, or guesses how it would have ended."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import aliased

from fleet.core.states import STABLE, State
from fleet.store import events
from fleet.store.database import db_now
from fleet.store.tables import AttentionRow, EventRow, MachineRow, NoticeRow, RunRow, SiteRow, TicketRow
from fleet.workflows import begin, inspection
from fleet.workflows.world import World

_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86400.0
_SLACK_S = 15 * _MINUTE_S  # beyond a phase's own deadline: tries, a host that is away, a service that was restarted
_UNTAKEN_S = 10 * _MINUTE_S
_HOPELESS_ATTEMPTS = 20  # far beyond any phase's patience: giving up fails as well, such as on a record nobody can read

PHASES: Mapping[tuple[str, str], Callable[[World], float]] = {
    ("validation", "withdrawal"): lambda world: world.policy.withdrawal_deadline_s + _SLACK_S,
    ("validation", "preflight"): lambda world: world.policy.device_return_s + _SLACK_S,
    ("validation", "hooks"): lambda world: sum(hook.deadline_s for hook in world.hooks) + _SLACK_S,
    ("validation", "place"): lambda world: world.policy.place_deadline_s + _SLACK_S,
    ("validation", "boot"): lambda world: world.policy.boot_deadline_s + _SLACK_S,
    ("validation", "start"): lambda _world: _SLACK_S,
    ("validation", "checks"): lambda _world: _DAY_S,  # by the deadlines of the plan's checks; hours for a soak
    ("validation", "collect"): lambda _world: _SLACK_S,
    ("validation", "teardown"): lambda world: world.policy.teardown_deadline_s + _SLACK_S,
    ("validation", "settle"): lambda _world: _SLACK_S,
    ("inspection", "look"): lambda _world: _SLACK_S,
    ("inspection", "image"): lambda _world: inspection.IMAGE_S + _SLACK_S,
}
"""Seconds that a run may be in a phase (rule `overdue`)."""

GATES: Mapping[tuple[str, str], float] = {("validation", "queued"): _DAY_S}
"""Phases that wait for the site's budgets, and how long they may be due before that counts as `untaken`, seconds."""

TELLS_ITSELF: Mapping[tuple[str, str], str] = {("vacancy", "await_clear"): "vacancy"}
"""Phases that end by somebody else's doing, and the kind of the record by which their own handler tells of it."""

PERPETUAL = frozenset({"sweep", "watchdog", "delivery", "retention"})
"""Kinds whose one run goes round for ever. They are late when they are not taken, or fail again and again."""


Late = sa.Select[*tuple[Any, ...]]


@dataclass(frozen=True)
class Rule:
    """`late` selects what waits too long: the columns `subject`, `machine` and `since`, and whatever else `sentence` and
    `next_step` name. `kind` is the attention record's."""

    kind: str
    late: Callable[[World], Late]
    sentence: str
    next_step: str


def _longer_than(since: sa.ColumnElement[float] | Any, seconds: float) -> sa.ColumnElement[bool]:
    return since <= db_now() - seconds


def _held() -> sa.ColumnElement[bool]:
    until = MachineRow.hold["expires_at"].as_float()
    return sa.and_(MachineRow.hold.is_not(None), sa.or_(until.is_(None), until > db_now()))


def _nothing_under_way() -> sa.ColumnElement[bool]:
    kinds = RunRow.kind.in_((begin.KIND, begin.VACANCY))
    return ~sa.exists().where(kinds, RunRow.subject == MachineRow.name, RunRow.ended_at.is_(None))


def _not_told(machine: Any, but_by: str) -> sa.ColumnElement[bool]:
    """Nobody has the machine in hand: there is no open record on it, but of this kind."""
    open_ = (AttentionRow.machine == machine, AttentionRow.resolved_at.is_(None))
    return ~sa.exists().where(*open_, AttentionRow.kind != but_by)


def _never_moved() -> sa.ColumnElement[bool]:
    """It was added, and nothing has become of it: it waits for a person's first validation, as do all of the same file."""
    return MachineRow.state_since == MachineRow.created_at


def _stuck(_world: World) -> Late:
    return sa.select(
        MachineRow.name.label("subject"),
        MachineRow.name.label("machine"),
        MachineRow.state_since.label("since"),
        MachineRow.state.label("state"),
        MachineRow.state_why.label("why"),
    ).where(
        MachineRow.state.in_([state for state in State if state not in STABLE]),
        ~_never_moved(),
        ~_held(),
        _nothing_under_way(),
        _not_told(MachineRow.name, but_by="stuck"),
    )


def _never_validated(_world: World) -> Late:
    return (
        sa.select(
            sa.literal("fleet").label("subject"),
            sa.null().label("machine"),
            sa.func.min(MachineRow.state_since).label("since"),
            sa.func.count().label("count"),
            sa.func.min(MachineRow.name).label("first"),
        )
        .where(
            MachineRow.state == State.VACATED,
            _never_moved(),
            _longer_than(MachineRow.state_since, _HOUR_S),
            ~_held(),
            _nothing_under_way(),
            _not_told(MachineRow.name, but_by="never validated"),
        )
        .group_by(MachineRow.state)
    )


def _runs(since: Any, *where: sa.ColumnElement[bool]) -> Late:
    """Open runs, with the machine where they are about one."""
    return (
        sa.select(
            (RunRow.kind + " " + RunRow.subject).label("subject"),
            MachineRow.name.label("machine"),
            since.label("since"),
            RunRow.phase.label("phase"),
            RunRow.why.label("why"),
            RunRow.attempts.label("attempts"),
            sa.func.coalesce(RunRow.ref, RunRow.subject).label("ref"),
            sa.func.coalesce(RunRow.last_error, "no error").label("error"),
        )
        .outerjoin(MachineRow, MachineRow.name == RunRow.subject)
        .where(RunRow.ended_at.is_(None), *where)
    )


def _of_phase(kind: str, phase: str, more: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return sa.and_(RunRow.kind == kind, RunRow.phase == phase, more)


def _overdue(world: World) -> Late:
    late = [_of_phase(*of, _longer_than(RunRow.phase_since, limit(world))) for of, limit in PHASES.items()]
    return _runs(RunRow.phase_since, sa.or_(*late), _not_told(RunRow.subject, but_by="overdue"))


def _untaken(_world: World) -> Late:
    at_gates = [_of_phase(*of, RunRow.holds_budget.is_(False)) for of in GATES]
    late = [_of_phase(*of, _longer_than(RunRow.due_at, limit_s)) for of, limit_s in GATES.items()]
    due = sa.and_(_longer_than(RunRow.due_at, _UNTAKEN_S), ~sa.or_(*at_gates))
    return _runs(RunRow.due_at, sa.or_(due, *late), _longer_than(RunRow.lease_until, _UNTAKEN_S))


def _failing(_world: World) -> Late:
    return _runs(RunRow.phase_since, RunRow.attempts >= _HOPELESS_ATTEMPTS)


def _waiting_event(_world: World) -> Late:
    return sa.select(
        EventRow.id.label("subject"),
        EventRow.machine.label("machine"),
        EventRow.received_at.label("since"),
        EventRow.kind.label("kind"),
        EventRow.instance.label("instance"),
    ).where(EventRow.state == events.WAITING, _longer_than(EventRow.received_at, 2 * _HOUR_S))


def _fixed(_world: World) -> Late:
    other = aliased(TicketRow)
    unfixed = sa.exists().where(other.machine == TicketRow.machine, other.closed_at.is_(None), other.state != "fixed")
    return (
        sa.select(
            TicketRow.id.label("subject"), TicketRow.machine.label("machine"), TicketRow.updated_at.label("since")
        )
        .join(MachineRow, MachineRow.name == TicketRow.machine)
        .where(
            TicketRow.state == "fixed",
            TicketRow.closed_at.is_(None),
            _longer_than(TicketRow.updated_at, _HOUR_S),
            ~unfixed,
            ~_held(),
            _nothing_under_way(),
            _not_told(TicketRow.machine, but_by="fixed"),
        )
    )


def _hold(_world: World) -> Late:
    since = MachineRow.hold["since"].as_float()
    return sa.select(
        MachineRow.name.label("subject"),
        MachineRow.name.label("machine"),
        since.label("since"),
        MachineRow.hold["owner"].as_string().label("owner"),
        MachineRow.hold["reason"].as_string().label("reason"),
    ).where(_held(), _longer_than(since, 7 * _DAY_S))


def _notices(_world: World) -> Late:
    return (
        sa.select(
            NoticeRow.destination.label("subject"),
            sa.null().label("machine"),
            sa.func.min(NoticeRow.created_at).label("since"),
            sa.func.count().label("count"),
            sa.func.coalesce(sa.func.max(NoticeRow.last_error), "not acknowledged").label("error"),
        )
        .where(NoticeRow.acknowledged_at.is_(None), _longer_than(NoticeRow.created_at, 15 * _MINUTE_S))
        .group_by(NoticeRow.destination)
    )


def _pause(_world: World) -> Late:
    since = SiteRow.paused["since"].as_float()
    return sa.select(
        sa.literal("fleet").label("subject"),
        sa.null().label("machine"),
        since.label("since"),
        SiteRow.paused["by"].as_string().label("owner"),
        SiteRow.paused["reason"].as_string().label("reason"),
    ).where(SiteRow.paused.is_not(None), _longer_than(since, _DAY_S))


RULES = (
    Rule(
        "stuck",
        _stuck,
        "{machine} is {state} since {since} ({why}) and nothing gets on with it",
        "`fleet validation list --machine {machine}` shows what came before; then `fleet revalidate {machine}`",
    ),
    Rule(
        "never validated",
        _never_validated,
        "{count} machines have not been validated since they were added, the first of them at {since}: nobody can claim them",
        "`fleet revalidate {first}`, and so on; `fleet machine list --state vacated` shows them",
    ),
    Rule(
        "overdue",
        _overdue,
        "{subject} is in phase {phase} since {since}, longer than it may: {why}; last error: {error}",
        "the service's log has more of {ref}; a validation: `fleet validation show {ref}`, `fleet abort {ref} --reason ...`",
    ),
    Rule(
        "untaken",
        _untaken,
        "{subject} is due in phase {phase} since {since}, and no worker takes it: {why}",
        "see that a `fleet worker` of the present version runs, and that budgets (`budgets:` in the settings) leave room",
    ),
    Rule(
        "failing",
        _failing,
        "{subject} has failed {attempts} times in phase {phase}: {error}",
        "the service's log has the error in full; a validation whose record cannot be mended: `fleet abort {ref} --reason ...`",
    ),
    Rule(
        "event waiting",
        _waiting_event,
        "{kind} of {instance} waits since {since}: {machine} is not free for it, or its domain was not seen",
        "`fleet machine show {machine}`; report how the instance before it left with `fleet event vacated {machine} ...`",
    ),
    Rule(
        "fixed",
        _fixed,
        "ticket {subject} of {machine} is fixed since {since}, and no validation has shown it",
        "`fleet revalidate {machine}`",
    ),
    Rule(
        "hold",
        _hold,
        "{machine} is held by {owner} since {since}: {reason}",
        "ask {owner}; `fleet machine unhold {machine}` gives it back, `fleet machine hold` renews it",
    ),
    Rule(
        "notices",
        _notices,
        "{count} notices to the receiver {subject} are not acknowledged, the oldest since {since}: {error}",
        "see that what `{subject}.url` in the settings names is up and has the secret; `fleet notice list` shows what waits,"
        " `fleet notice ack ID` says for the receiver that it knows",
    ),
    Rule(
        "pause",
        _pause,
        "the fleet is paused by {owner} since {since}: {reason}",
        "ask {owner}; `fleet resume` lets automation go on",
    ),
)
"""All of them. A state, phase or wait without a row here fails `test_deadlines_walk`."""
