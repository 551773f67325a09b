"""Before anything is placed: the host is reachable, no tenant is on it, every device is there and answers."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from fleet.core.clock import Deadline
from fleet.core.errors import EvidenceFull, FleetError
from fleet.engine.workflow import Next, Work
from fleet.store import validations
from fleet.workflows import host_evidence
from fleet.workflows.record import Record, ended_early, fence, keep, tenant_on
from fleet.workflows.test_image import image_on_host
from fleet.workflows.world import World

_SOON_S = 0.15  # between two looks at something that takes about a second


def preflight(world: World, work: Work, record: Record) -> Next:
    machine = record.machine
    view = world.hypervisor.look(machine, Deadline.after(world.policy.call_deadline_s))
    if (
        view.tenants and work.run.in_phase_s < world.policy.device_return_s
    ):  # the last one's domain may be on its way out
        return Next("preflight", tenant_on(view)[0], _SOON_S * 4)
    if view.tenants:
        return ended_early(record, "preflight", *tenant_on(view))
    if stale := [d for d in view.domains if d.validation not in (None, record.id)]:
        with world.db.read() as session:
            live = validations.live_ids(session)
        for domain in stale:
            if domain.validation is None or domain.validation in live:
                return ended_early(record, "preflight", f"test VM {domain.name} of another validation is on the host")
            work.guard()
            deadline = Deadline.after(world.policy.call_deadline_s)
            world.hypervisor.remove_domain(machine, domain.uuid, domain.validation, fence(work), deadline)
        return Next("preflight", "removed a test VM that no live validation owns", _SOON_S)
    data = {"since": view.wall, "since_by_us": work.run.now, "boot_id": view.boot_id, **host_evidence.ANSWERED}
    text = host_evidence.as_text(machine, view, "before the test VM")
    bad = host_evidence.not_answering(machine, view)
    if bad and (waits := host_evidence.may_answer_yet(work, world.policy)) is not None:
        # the last VM's functions may still be in their reset
        return Next("preflight", f"{len(bad)} devices do not answer yet", _SOON_S * 4, data=waits)
    if bad:
        keep_look = keep(world, record, "host_inventory", "host_inventory", text)
        why = f"{len(bad)} devices do not answer on the host"
        return Next("settle", why, data={**data, "placed": False, "ended_by": why}, within=keep_look)
    if world.hooks and not record.data.get("hooks_done"):
        return Next("hooks", "asks the site's hooks", data=host_evidence.ANSWERED)
    if (not_yet := image_on_host(world, work, record)) is not None:
        return not_yet
    if record.vm is None:
        _refuse_when_full(world)
        vm = world.make_test_vm(record.id, machine)
        store_look = keep(world, record, "host_inventory", "host_inventory", text)

        def within(session: Session) -> None:
            store_look(session)
            record.store_vm(session, vm)

        return Next("place", "the host is ready", data=data, within=within)
    return Next("place", "the host is ready", data=data)


def _refuse_when_full(world: World) -> None:
    """Raises EvidenceFull: what this validation would measure could not be kept."""
    with world.db.read() as session:
        kept = validations.kept_bytes(session)
    if kept >= (limit := world.policy.evidence_limit_bytes):
        raise EvidenceFull(
            f"{kept >> 20} MiB are kept and {limit >> 20} MiB allowed (evidence.total_limit_gib, evidence.retention)"
        )


def last_look(world: World, record: Record) -> Mapping[str, Any]:
    """The run's data of a validation that is aborted here: was the host seen clean."""
    try:
        view = world.hypervisor.look(record.machine, Deadline.after(world.policy.call_deadline_s))
    except FleetError:
        return {}
    if view.tenants:
        return tenant_on(view)[1]
    left = any(domain.validation is not None for domain in view.domains)
    return {"seen_clean": not left and not host_evidence.not_answering(record.machine, view)}
