"""A vacated machine on its way to a validation: wait until the hypervisor shows no tenant domain, then start one.

Opened with every departure, after a ticket is fixed, and again after an abort (within the site's bounds). What it must
not do is guess: an unreachable host or a domain that stays ends at a person's attention, while the looking goes on."""

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.clock import Deadline
from fleet.core.errors import RemoteError
from fleet.core.model import EventKind, Machine, Trigger
from fleet.core.states import Move, State
from fleet.engine.workflow import Next, Phase, Work, Workflow, open_run
from fleet.store import attention, events, machines, site, tickets
from fleet.store.audit import By
from fleet.store.tables import RunRow
from fleet.workflows import begin
from fleet.workflows.playbook import Playbook
from fleet.workflows.world import World

KIND = begin.VACANCY
AWAIT_CLEAR = "await_clear"
BY = By("service:vacancy")
_QUICK_LOOKS_S = 15.0  # right after the event the domain is about to go: look often for this long


def open_vacancy(
    session: Session,
    machine: str,
    *,
    why: str,
    trigger: Trigger = Trigger.VACATED,
    attempt: int = 1,
    after_s: float = 0.0,
) -> None:
    """Nothing happens when one is open already: there is one way from vacated to validating per machine."""
    open_ = sa.select(RunRow.id).where(RunRow.kind == KIND, RunRow.subject == machine, RunRow.ended_at.is_(None))
    if session.scalar(open_) is None:
        data = {"attempt": attempt, "trigger": trigger}
        open_run(session, KIND, AWAIT_CLEAR, machine, why=why, data=data, after_s=after_s)


def vacate_fixed(session: Session, machine: Machine, by: By, why: str) -> None:
    """A failed machine whose open tickets are all marked fixed is on its way to a validation; any other stays."""
    open_ = tickets.open_of(session, machine.name)
    if machine.state is State.FAILED and open_ and all(ticket.state == "fixed" for ticket in open_):
        machines.move(session, machine, Move.FIX, why, by)
        open_vacancy(session, machine.name, why=why, trigger=Trigger.FIXED)


def look_now(session: Session, machine: str) -> None:
    """Do not wait for the next look: something is said to have changed."""
    open_vacancy(session, machine, why="a migration was rolled back")
    mine = (RunRow.kind == KIND, RunRow.subject == machine, RunRow.ended_at.is_(None))
    session.execute(sa.update(RunRow).where(*mine).values(due_at=machines.now(session)))


def workflow(world: World) -> Workflow:
    def await_clear(work: Work) -> Next:
        return _await_clear(world, work)

    def give_up(work: Work, error: Exception) -> Next:
        return _later(work, world, f"looking at {work.run.subject} fails: {error}", "service fault")

    phase = Phase(await_clear, abortable=False)
    return Workflow(KIND, {AWAIT_CLEAR: phase}, abort=await_clear, give_up=give_up)


def _await_clear(world: World, work: Work) -> Next:
    with world.db.read() as session:
        machine = machines.get(session, work.run.subject)
        kept = events.waiting(session, machine.name, EventKind.KEPT)
        paused = site.get_paused(session)
    if machine.state is not State.VACATED:
        return Next.done(f"the machine is {machine.state} by now")
    if machine.hold is not None:
        return Next(AWAIT_CLEAR, f"held by {machine.hold.owner}: {machine.hold.reason}", world.policy.departure_poll_s)
    if paused is not None and kept is None:
        return Next(AWAIT_CLEAR, f"the fleet is paused by {paused['by']}", begin.PAUSED_LOOK_S)
    try:
        view = world.hypervisor.look(machine, Deadline.after(world.policy.call_deadline_s))
    except RemoteError as exc:
        return _later(work, world, f"the host cannot be looked at: {exc}", "look at the host and its network")
    if kept is not None and view.tenants:
        instance = kept.instance
        return Next.done("the tenant's domain is there", within=lambda s: _keep(s, machine, instance))
    if view.tenants:
        names = ", ".join(d.name for d in view.tenants)
        return _later(work, world, f"tenant domain still there: {names}", "remove the domain, or report `kept`")
    if kept is not None and work.run.in_phase_s < world.policy.departure_deadline_s:
        return _later(
            work, world, f"{kept.instance} is said to stay, but its domain is not there", "look for the domain"
        )
    return _start(world, work, machine)


def _start(world: World, work: Work, machine: Machine) -> Next:
    playbook = Playbook.load(world.library, world.policy.default_plan, machine.sku)
    trigger = Trigger(work.run.data.get("trigger", Trigger.VACATED))
    attempt = int(work.run.data.get("attempt", 1))

    def start(session: Session) -> None:
        begin.start_validation(session, machine, playbook, trigger, BY, image=world.image, attempt=attempt)
        events.drop_waiting(session, machine.name, EventKind.KEPT)  # said to stay, never seen: overtaken
        attention.settle(session, BY.actor, machine=machine.name, kind="vacancy")

    return Next.done("no tenant domain is left: validation started", within=start)


def _keep(session: Session, seen: Machine, instance: str) -> None:
    row = events.waiting(session, seen.name, EventKind.KEPT)
    machines.add_instance(session, seen.name, instance)
    machines.move(session, seen, Move.KEEP, f"the migration of {instance} was rolled back", BY)
    if row is not None:
        events.finish(session, row, events.APPLIED)
    attention.settle(session, BY.actor, machine=seen.name, kind="vacancy")


def _later(work: Work, world: World, why: str, next_step: str) -> Next:
    """Look again; past the deadline a person is told, once, and the looking goes on."""
    quick = work.run.in_phase_s < _QUICK_LOOKS_S
    wait_s = min(0.5, world.policy.departure_poll_s) if quick else world.policy.departure_poll_s
    if work.run.in_phase_s < world.policy.departure_deadline_s:
        return Next(AWAIT_CLEAR, why, wait_s)

    def tell(session: Session) -> None:
        name = work.run.subject
        attention.need(session, "vacancy", name, machine=name, reason=why, next_step=next_step)

    return Next(AWAIT_CLEAR, why, wait_s, within=tell)
