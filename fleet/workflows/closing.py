"""The way out of every validation: collect the logs, take the test VM down and see the devices back, settle."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy.orm import Session

from fleet.core.clock import Deadline
from fleet.core.errors import EvidenceError, FleetError, HypervisorError, Unreachable
from fleet.core.model import HostView
from fleet.engine.workflow import Next, Work
from fleet.store import attention
from fleet.workflows import host_evidence
from fleet.workflows.guest import GuestRun
from fleet.workflows.record import Record, fence, in_order, keep, tenant_on
from fleet.workflows.settle import BY, settle_now
from fleet.workflows.world import World

_COLLECT_TRIES = 5
_SOON_S = 0.15
_CLOCK_SLACK_S = 60.0  # our own times are of when a step began, and its look may have taken long
_LOOK_IS_OLD_S = 60.0  # a verdict that was held up (the service was down, the disk full) looks at the host again


def collect(world: World, work: Work, record: Record) -> Next:
    """Guest log, host log, serial console: they are what a guest that hung leaves behind. Each is tried a few times; what
    cannot be had is left out, and the kernel log's judge says so."""
    vm, limit = record.test_vm, world.policy.log_limit_bytes

    def deadline() -> Deadline:
        return Deadline.after(world.policy.call_deadline_s)

    sources: dict[str, Callable[[], bytes]] = {
        "kernel_log.host": lambda: world.hypervisor.kernel_log(record.machine, record.since, limit, deadline()),
        "kernel_log.guest": lambda: GuestRun(world.hypervisor.guest(vm), record.id).kernel_log(limit, deadline()),
        "kernel_log.console": lambda: world.hypervisor.console(vm, limit, deadline()),
    }
    have, tries = set(record.data.get("collected", [])), int(record.data.get("collect_tries", 0)) + 1
    asked = set(record.data.get("asked", []))
    if record.data.get("aborted"):
        have |= asked & {"kernel_log.guest"}  # a guest that does not answer is asked once
    writes, missing = [], {}
    for name, read in sources.items():
        if name in have:
            continue
        work.guard()  # all of them together may take longer than a lease: without it nobody's answer would ever be saved
        asked.add(name)
        try:
            writes.append(_keep_log(world, record, name, read()))
            have.add(name)
        except FleetError as exc:
            if isinstance(exc, EvidenceError) and not record.data.get("aborted"):
                raise  # what is missing then is no gap in what was seen
            missing[name] = str(exc)
            if name == "kernel_log.host" and isinstance(exc, Unreachable):
                break  # the others go through the host
    data = {"collected": sorted(have), "asked": sorted(asked), "collect_tries": tries}
    if missing and tries < _COLLECT_TRIES:
        return Next("collect", f"still without {', '.join(missing)}", 0.2 * 2**tries, data, in_order(*writes))
    why = (
        "logs collected"
        if not missing
        else "logs collected, but for " + "; ".join(f"{n}: {e}" for n, e in missing.items())
    )
    return Next("teardown", why, 0.0, data, in_order(*writes))


def teardown(world: World, work: Work, record: Record) -> Next:
    """The fence is closed on the host even where no VM is seen: a start that is still under way must not come late."""
    vm, machine = record.test_vm, record.machine
    if not record.data.get("torn_down"):
        work.guard()
        world.hypervisor.tear_down(vm, fence(work), Deadline.after(world.policy.call_deadline_s))
        return Next("teardown", "the test VM was taken down", data={"torn_down": True})
    view = world.hypervisor.look(machine, Deadline.after(world.policy.call_deadline_s))
    if view.domain(vm.uuid) is not None:
        if work.run.in_phase_s > world.policy.teardown_deadline_s:  # something starts it again and again
            raise HypervisorError(f"the test VM {vm.name} is still on {machine.name} after it was taken down")
        return Next("teardown", "the test VM is still there", _SOON_S, data={"torn_down": False})
    bad = host_evidence.not_answering(machine, view)
    if bad and (waits := host_evidence.may_answer_yet(work, world.policy)) is not None:
        return Next("teardown", f"{len(bad)} devices are not back yet", _SOON_S * 4, data=waits)
    text = host_evidence.as_text(machine, view, "after the test VM")
    writes = [_keep_or_leave(world, record, "device_return", "device_return", text)]
    work.guard()  # again a lease for the calls that follow
    if bad:  # what the host's log says of it is part of the evidence
        log = world.hypervisor.kernel_log(
            machine, record.since, world.policy.log_limit_bytes, Deadline.after(world.policy.call_deadline_s)
        )
        writes.append(_keep_or_leave(world, record, "kernel_log", "kernel_log.host", log))
    world.hypervisor.forget(vm, Deadline.after(world.policy.call_deadline_s))
    data: dict[str, Any] = {
        "vm_gone": True,
        "devices_back": not bad,
        **_overtaken(record, view, work.run.now),
        **host_evidence.ANSWERED,
    }
    writes.append(lambda session: attention.settle(session, BY.actor, machine=machine.name, kind="teardown"))
    return Next("settle", "the test VM is gone", data=data, within=in_order(*writes))


def _keep_or_leave(world: World, record: Record, check: str, name: str, text: bytes) -> Callable[[Session], None]:
    """A validation that is aborted anyhow does not wait for room. Raises EvidenceError otherwise."""
    try:
        return keep(world, record, check, name, text, truncated=len(text) >= world.policy.log_limit_bytes)
    except EvidenceError:
        if not record.data.get("aborted"):
            raise
        return in_order()


def _keep_log(world: World, record: Record, name: str, log: bytes) -> Callable[[Session], None]:
    """A log that fills its limit is the end of a longer one: what was cut off may be the line that condemns."""
    return keep(world, record, "kernel_log", name, log, truncated=len(log) >= world.policy.log_limit_bytes)


def _overtaken(record: Record, view: HostView, now: float) -> Mapping[str, Any]:
    """What ends a validation whatever its checks have shown: a tenant's domain, since reality wins; a host that went down
    meanwhile, since its log up to then, and why it did, are not known; a host's clock that was set, since its log cannot be
    told from what came before."""
    reason: str | None = record.data.get("aborted")
    data: Mapping[str, Any] = {}
    if view.tenants:
        seen, data = tenant_on(view)
        reason = reason or seen
    if view.boot_id != record.data.get("boot_id", view.boot_id):
        reason = reason or "the host was restarted while it was validated"
    began = record.data.get("since_by_us")
    if began is not None and abs(set_by_s := (view.wall - record.since) - (now - began)) > _CLOCK_SLACK_S:
        reason = reason or f"the host's clock was set by {set_by_s:.0f} s while it was validated"
    return data if reason is None else {**data, "aborted": reason}


def settle(world: World, work: Work, record: Record) -> Next:
    if record.data.get("vm_gone") and work.run.in_phase_s > _LOOK_IS_OLD_S:
        return Next("teardown", "the last look at the host was long ago")
    return settle_now(world, work, record)


def stuck(world: World, work: Work, why: str) -> Next:
    """A phase on the way out keeps failing. It goes on, slower, and a person is told; a host that stays away for too long
    is settled without having seen the VM gone, which keeps the machine out of the pool."""
    phase, name = work.run.phase, work.run.subject
    if phase == "collect":
        return Next("teardown", f"logs could not be collected: {why}")
    if phase == "teardown" and work.run.in_phase_s > world.policy.teardown_deadline_s:
        reason = work.run.data.get("aborted") or f"the test VM could not be seen gone: {why}"
        return Next("settle", why, data={"vm_gone": False, "aborted": reason})
    kind, wait_s = ("teardown", 5.0) if phase == "teardown" else ("settle", 30.0)

    def tell(session: Session) -> None:
        step = "look at the host and its network; the service goes on trying"
        attention.need(session, kind, name, machine=name, reason=f"{phase} of {work.run.ref}: {why}", next_step=step)

    return Next(phase, why, wait_s, within=tell)
