"""The reaper's round over all hosts: it removes test VMs that no live validation owns, and tells a person of domains that
nobody reported."""

from collections.abc import Callable

from sqlalchemy.orm import Session

from fleet.core.clock import Deadline
from fleet.core.errors import FleetError
from fleet.core.model import Machine
from fleet.core.states import State
from fleet.engine.workflow import Next, Phase, Work, Workflow, ensure_run
from fleet.store import attention, machines, site, validations
from fleet.workflows.record import fence
from fleet.workflows.world import World

KIND = "sweep"
REAP = "reap"
_STRANGER = "domain nobody reported"


def ensure(session: Session) -> None:
    """One sweep for the whole fleet, whichever process starts first."""
    ensure_run(session, KIND, REAP, "fleet", why="first round")


def workflow(world: World) -> Workflow:
    def reap(work: Work) -> Next:
        return _reap(world, work)

    def give_up(_work: Work, error: Exception) -> Next:
        return Next(REAP, f"round broken off: {error}", world.policy.sweep_s, data={"after": ""})

    return Workflow(KIND, {REAP: Phase(reap, abortable=False, max_attempts=2)}, abort=reap, give_up=give_up)


def _reap(world: World, work: Work) -> Next:
    """One machine a step: the one after the last."""
    with world.db.read() as session:
        following = machines.listed(session, after=str(work.run.data.get("after", "")), limit=1)
    if not following:
        return Next(REAP, "round complete", world.policy.sweep_s, data={"after": ""})
    machine = following[0]
    if machine.state is State.RETIRED:
        return _onward(machine.name, "retired")
    try:
        removed, tenants = _reap_host(world, work, machine)
    except FleetError as exc:
        return _onward(machine.name, f"{machine.name} could not be looked at: {exc}")
    why = f"{machine.name}: {removed} test VMs without an owner removed"
    return _onward(machine.name, why, within=lambda session: _tell_of_strangers(session, machine.name, tenants))


def _reap_host(world: World, work: Work, machine: Machine) -> tuple[int, list[str]]:
    """How many were removed, none while the fleet is paused, and the names of the domains that are not ours. The list of
    live validations is read after the look: one that began in between is in it."""
    view = world.hypervisor.look(machine, Deadline.after(world.policy.call_deadline_s))
    with world.db.read() as session:
        live, paused = validations.live_ids(session), site.get_paused(session)
    ours = [] if paused is not None else [d for d in view.domains if d.validation is not None]
    orphans = [d for d in ours if d.validation not in live]
    for domain in orphans:
        assert domain.validation is not None
        work.guard()
        deadline = Deadline.after(world.policy.call_deadline_s)
        world.hypervisor.remove_domain(machine, domain.uuid, domain.validation, fence(work), deadline)
    return len(orphans), [d.name for d in view.tenants]


def _onward(name: str, why: str, within: Callable[[Session], None] | None = None) -> Next:
    """To the next machine; a host that could not be looked at is left to the next round."""
    return Next(REAP, why, data={"after": name}, within=within)


def _tell_of_strangers(session: Session, name: str, tenants: list[str]) -> None:
    """Somebody runs on a machine that by its record nobody is on. It may be an event that is late: then the next round
    takes the word back. A machine on its way is looked at by its own run."""
    machine = machines.get(session, name)
    if not tenants or machine.state not in (State.AVAILABLE, State.FAILED):
        attention.settle(session, "service:sweep", machine=name, kind=_STRANGER)
        return
    attention.need(
        session,
        _STRANGER,
        name,
        machine=name,
        reason=f"{name} is {machine.state}, but the domain {', '.join(tenants)} is on its host",
        next_step="report `instance.placed` if it is a tenant's, else remove the domain; hold the machine meanwhile",
    )
