"""The watchdog: whatever is on its way somewhere arrives in time, or a person is told. It goes by the table of deadlines,
opens an attention record for what is late, and settles it when that is over."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from fleet.engine.workflow import Next, Phase, Work, Workflow, ensure_run
from fleet.store import approvals, attention, site
from fleet.workflows.deadlines import RULES, Rule
from fleet.workflows.world import World

KIND = "watchdog"
LOOK = "look"
BY = "service:watchdog"
_AWAY_ROUNDS = 5  # this many rounds missed: the service was away, not slow


def ensure(session: Session) -> None:
    """One watchdog for the whole fleet, whichever process starts first."""
    ensure_run(session, KIND, LOOK, "fleet", why="first round")


def workflow(world: World, rules: Sequence[Rule] = RULES) -> Workflow:
    def look(work: Work) -> Next:
        return _look(world, rules, work)

    def give_up(work: Work, error: Exception) -> Next:
        number = int(work.run.data.get("rule", 0))
        why = f"rule {rules[number].kind} cannot be tried: {error}" if number < len(rules) else str(error)
        return Next(LOOK, why, data={"rule": number + 1})

    return Workflow(KIND, {LOOK: Phase(look, abortable=False, max_attempts=2)}, abort=look, give_up=give_up)


def _look(world: World, rules: Sequence[Rule], work: Work) -> Next:
    """One rule a step: one that fails stops none of the others."""
    number, now, every_s = int(work.run.data.get("rule", 0)), work.run.now, world.policy.watchdog_s
    if number >= len(rules):
        return Next(LOOK, "round complete", every_s, data={"rule": 0}, within=approvals.expire)
    was_away = now - float(work.run.data.get("looked_at", now)) > _AWAY_ROUNDS * every_s
    up_since = now if was_away else float(work.run.data.get("up_since", now))
    tells = now - up_since >= world.policy.watchdog_grace_s

    def within(session: Session) -> None:
        apply(session, world, rules[number], tells=tells)

    data = {"rule": number + 1, "up_since": up_since, "looked_at": now}
    return Next(LOOK, f"rule {rules[number].kind}", data=data, within=within)


def apply(session: Session, world: World, rule: Rule, *, tells: bool = True) -> None:
    """Bring the rule's records in line with what is late now. Not `tells`: only settle. After the whole service was away
    everything is late, and in a moment nothing is."""
    late = {str(row.subject): row for row in session.execute(rule.late(world))}
    for subject in attention.open_subjects(session, rule.kind):
        if subject not in late:
            attention.settle(session, BY, kind=rule.kind, subject=subject)
    for subject, row in late.items() if tells else ():
        words = {**row._mapping, "since": site.at(row.since)}
        attention.need(
            session,
            rule.kind,
            subject,
            machine=row.machine,
            reason=rule.sentence.format_map(words),
            next_step=rule.next_step.format_map(words),
        )
