"""The main job, phase by phase. Each handler looks at the world, does at most one act, and names the next phase.

queued (-> withdrawal) -> preflight (-> hooks -> preflight) -> place -> boot -> start -> checks -> collect -> teardown -> settle

An abort, an error that persists, or a deadline before `collect` leads into the last three: whatever was started is
cleaned up, whatever was measured is judged. The handlers up to `checks` are here; ``closing`` has the way out."""

from collections.abc import Callable
from dataclasses import replace

from sqlalchemy.orm import Session

from fleet.core.clock import Deadline
from fleet.core.errors import EvidenceError, FleetError, HypervisorBusy, RemoteError
from fleet.core.model import TestVm, Trigger
from fleet.engine.workflow import Next, Phase, Work, Workflow
from fleet.hypervisor.base import Placement
from fleet.store import site, validations
from fleet.workflows import begin, closing, following, hooks, keeping, preflight, test_image, withdrawal
from fleet.workflows.guest import GuestError, GuestRun
from fleet.workflows.record import Record, ended_early, fence
from fleet.workflows.world import World

_SOON_S = 0.15  # between two looks at something that takes about a second
_PROBE_S = 3.0  # for a guest that accepts connections before its SSH is up
_LOOK_S = 2.0  # between two looks at something that takes minutes


def workflow(world: World) -> Workflow:
    handlers: dict[str, Callable[[World, Work, Record], Next]] = {
        "queued": _queued,
        "withdrawal": withdrawal.withdrawal,
        "preflight": preflight.preflight,
        "hooks": hooks.hooks,
        "place": _place,
        "boot": _boot,
        "start": _start,
        "checks": following.checks,
        "collect": closing.collect,
        "teardown": closing.teardown,
        "settle": closing.settle,
    }
    phases = {
        name: Phase(
            _bound(world, handler),
            abortable=name in begin.ABORTABLE,
            gate=name == begin.FIRST,
            max_attempts=world.policy.host_patience,
            backoff_s=1.0,
        )
        for name, handler in handlers.items()
    }
    return Workflow(begin.KIND, phases, abort=_bound(world, _abort), give_up=_give_up(world))


def _bound(world: World, handler: Callable[[World, Work, Record], Next]) -> Callable[[Work], Next]:
    def step(work: Work) -> Next:
        record = Record.load(world, work)
        try:
            return recorded(work, handler(world, work, record))
        except EvidenceError as exc:
            return recorded(work, keeping.unkept(world, work, record, exc))
        except HypervisorBusy as exc:  # eight GPUs take longer to start or to go than one call may wait: no error yet
            if work.run.in_phase_s > world.policy.teardown_deadline_s:
                raise
            return Next(work.run.phase, str(exc), _SOON_S * 4)

    return step


def recorded(work: Work, then: Next) -> Next:
    """The validation's record shows each change of phase, in the transaction that makes it."""
    if then.phase is None or then.phase == work.run.phase:
        return then
    inner, phase, id_ = then.within, then.phase, work.run.ref
    assert id_ is not None

    def within(session: Session) -> None:
        if inner is not None:
            inner(session)
        validations.set_phase(session, id_, phase, then.why)

    return replace(then, within=within)


def _abort(world: World, work: Work, record: Record) -> Next:
    """Before a VM is placed nobody takes one down later: this is the last look. While checks run, what has ended in the
    guest is evidence, also of a failure."""
    phase = work.run.phase
    data = preflight.last_look(world, record) if phase in ("withdrawal", "preflight", "hooks") else {}
    then = ended_early(record, phase, work.run.abort_reason or "aborted", data, by=work.run.abort_by)
    return replace(then, within=following.last_outputs(world, record)) if phase == "checks" else then


def _give_up(world: World) -> Callable[[Work, Exception], Next]:
    """A phase kept failing. On the way in that ends the validation; on the way out a person is told and it goes on."""

    def give_up(work: Work, error: Exception) -> Next:
        why = str(error) if isinstance(error, FleetError) else f"internal error: {type(error).__name__}: {error}"
        if work.run.phase in begin.ABORTABLE:
            record = Record.load(world, work)
            return recorded(work, ended_early(record, work.run.phase, f"{work.run.phase}: {why}"))
        return recorded(work, closing.stuck(world, work, why))

    return give_up


def _queued(world: World, work: Work, record: Record) -> Next:
    """What a person started goes through a pause; what started by itself waits for its end, and gives its place in the
    budgets to the others meanwhile."""
    with world.db.read() as session:
        paused = site.get_paused(session)
    if paused is not None and record.trigger != Trigger.MANUAL:
        why = f"the fleet is paused by {paused['by']}"
        return Next("queued", why, begin.PAUSED_LOOK_S, within=lambda s: begin.return_to_gate(s, work.run.id))
    if record.playbook.sku is None:
        return ended_early(record, "queued", record.playbook.sku_error)
    if not record.machine.ssh.address:
        return ended_early(record, "queued", f"no SSH address is recorded for {record.machine.name}")
    if gap := record.playbook.slot_gap(record.machine):
        return ended_early(record, "queued", gap)
    if withdrawal.is_awaited(world, record):
        return Next(withdrawal.PHASE, "its turn has come; the scheduler must know first")
    return Next("preflight", "its turn has come")


def _place(world: World, work: Work, record: Record) -> Next:
    vm, policy = record.test_vm, world.policy
    seen = world.hypervisor.placement(vm, Deadline.after(policy.call_deadline_s))
    if seen.placement is Placement.RUNNING:
        return Next("boot", "the test VM is running")
    if seen.placement is Placement.ABSENT:
        work.guard()
        world.hypervisor.place(vm, fence(work), Deadline.after(policy.call_deadline_s))
        return Next("place", "the start was ordered", _SOON_S, data={"placed": True})
    if seen.placement is Placement.STARTING:
        if work.run.in_phase_s < policy.place_deadline_s:
            return Next("place", "the host is starting the test VM", _pace(work))
        return ended_early(record, "place", f"the test VM was not started within {policy.place_deadline_s:.0f} s")
    return ended_early(record, "place", f"the test VM could not be placed ({seen.placement}): {seen.reason}")


def _boot(world: World, work: Work, record: Record) -> Next:
    """Wait for the VM's SSH. Its host key was made for it, so nobody else can answer in its place."""
    vm, policy = record.test_vm, world.policy
    guest = GuestRun(world.hypervisor.guest(vm), record.id)
    try:
        boot_id = guest.boot_id(Deadline.after(min(_PROBE_S, policy.call_deadline_s)))
    except RemoteError as exc:
        if work.run.in_phase_s > policy.boot_deadline_s:
            return ended_early(record, "boot", f"the test VM did not boot within {policy.boot_deadline_s:.0f} s: {exc}")
        if work.run.in_phase_s > 5.0 and (gone := _vm_gone(world, vm)):
            return ended_early(record, "boot", gone)
        return Next("boot", f"not up yet: {exc}", _pace(work))
    return Next("start", "the test VM answers", data={"guest_boot_id": boot_id})


def _start(world: World, work: Work, record: Record) -> Next:
    guest = GuestRun(world.hypervisor.guest(record.test_vm), record.id)
    plan = record.playbook.runner_plan(record.id, record.machine)
    note_versions = test_image.noted_versions(guest, record.id, Deadline.after(world.policy.call_deadline_s))
    work.guard()
    try:
        guest.begin(plan, Deadline.after(world.policy.call_deadline_s))
    except GuestError as exc:  # it answered: no Python there, a full disk
        return ended_early(record, "start", f"the runner could not be started in the test VM: {exc}")
    return Next("checks", "the checks are running", _SOON_S, within=note_versions)


def _vm_gone(world: World, vm: TestVm) -> str | None:
    seen = world.hypervisor.placement(vm, Deadline.after(world.policy.call_deadline_s))
    if seen.placement is Placement.RUNNING:
        return None
    return f"the test VM ended before it could be reached ({seen.placement}): {seen.reason}".rstrip(": ")


def _pace(work: Work) -> float:
    """Look often at first, then every few seconds: a lab's VM is there in a second, a real one in minutes."""
    return _SOON_S if work.run.in_phase_s < 20.0 else _LOOK_S
