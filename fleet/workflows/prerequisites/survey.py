"""All prerequisites of one machine: each question is asked although an earlier one went wrong, as far as it still can be."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import sqlalchemy as sa

from fleet.core.clock import Deadline
from fleet.core.errors import FleetError, InvalidInput
from fleet.core.model import Machine
from fleet.engine.workflow import Work
from fleet.hypervisor.domain_needs import Needs
from fleet.hypervisor.inspected_host import Host
from fleet.hypervisor.inspected_libvirt import Libvirt
from fleet.hypervisor.inspector import Inspector
from fleet.store.database import db_now
from fleet.workflows.playbook import Playbook
from fleet.workflows.prerequisites import access, devices, files, host, libvirt, record
from fleet.workflows.prerequisites.row import Row, met, missing
from fleet.workflows.world import World

T = TypeVar("T")


def survey(
    world: World, inspector: Inspector, work: Work, machine: Machine, playbook: Playbook
) -> tuple[list[Row], bool]:
    """The rows, and whether a login on the host worked."""
    rows = list(record.rows(machine, playbook))
    needs = _needs(inspector, machine)
    rows.append(_template(needs))
    steps = inspector.knock(machine, _deadline(world)) if machine.ssh.address else []
    rows += access.rows(machine, steps) if machine.ssh.address else access.unrecorded()
    reached = any(step.name == "login" and step.error is None for step in steps)
    rows += _of_the_host(world, inspector, work, machine, needs if isinstance(needs, Needs) else None, reached)
    return rows, reached


def _of_the_host(
    world: World, inspector: Inspector, work: Work, machine: Machine, needs: Needs | None, reached: bool
) -> Iterator[Row]:
    def ask(question: Callable[[Deadline], T]) -> T | FleetError:
        """Questions are slow, and a lease is short."""
        work.guard()
        try:
            return question(_deadline(world))
        except FleetError as exc:
            return exc

    site, not_reached = inspector.site, "the host is not reached"
    if reached:
        said = ask(lambda deadline: inspector.rights(machine, deadline))
        yield access.rights(machine, site.sudo, said)
        reached, not_reached = said is None, "scripts do not run on the host"
    else:
        yield access.rights_not_tried(site.sudo, not_reached)
    if not reached:
        yield from host.unreached(not_reached)
        yield from files.unreached(site.image.files, not_reached)
        yield from libvirt.unreached(machine, not_reached, asked=False)
        yield libvirt.domains(machine, not_reached)
        yield from devices.unreached(machine, not_reached)
        return

    paths = needs.files if needs else tuple(site.image.files.values())
    networks = needs.networks if needs else ()
    at = ask(lambda deadline: inspector.host(machine, paths, deadline))
    now = _now(world)
    virt = ask(lambda deadline: inspector.libvirt(machine, networks, deadline))
    seen = ask(lambda deadline: world.hypervisor.look(machine, deadline))
    view = str(seen) if isinstance(seen, FleetError) else seen

    if isinstance(at, Host):
        busy = not isinstance(view, str) and any(d.state != "shut off" for d in view.domains)
        yield from host.rows(machine, at, now, needs, site.flavor_of(machine), busy)
        yield from files.rows(site.image, paths, at, virt.qemu if isinstance(virt, Libvirt) else None)
    else:
        yield from host.unreached(str(at))
        yield from files.unreached(site.image.files, str(at))
    if isinstance(virt, Libvirt):
        yield from libvirt.rows(machine, virt, needs)
    else:
        yield from libvirt.unreached(machine, str(virt), asked=True)
    yield libvirt.domains(machine, view)
    if isinstance(at, Host):
        yield from devices.rows(machine, at, view, needs)
    else:
        yield from devices.unreached(machine, str(at))


def _needs(inspector: Inspector, machine: Machine) -> Needs | InvalidInput:
    try:
        return inspector.needs(machine)
    except InvalidInput as exc:
        return exc


def _template(needs: Needs | InvalidInput) -> Row:
    if isinstance(needs, Needs):
        return met("domain template", f"makes a domain of type {needs.kind}")
    mend = "correct the slot map, or domain.xml.j2 in `hypervisor.template_directory`"
    return missing("domain template", str(needs), mend)


def _now(world: World) -> float:
    with world.db.read() as session:
        return session.scalar(sa.select(db_now())) or 0.0


def _deadline(world: World) -> Deadline:
    return Deadline.after(world.policy.call_deadline_s)
