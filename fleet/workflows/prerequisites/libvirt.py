"""What libvirt must offer, and who is on the host already."""

import ipaddress
from collections.abc import Iterator

from fleet.core.model import HostView, Machine
from fleet.core.states import State
from fleet.hypervisor.domain_needs import Needs
from fleet.hypervisor.inspected_libvirt import Libvirt, Network
from fleet.workflows.prerequisites.row import Row, met, missing, not_tried

_OCCUPIED = (
    State.ALLOCATED,
    State.VACATED,
)  # a machine that was vacated a moment ago may still have its tenant's domain


def rows(machine: Machine, libvirt: Libvirt, needs: Needs | None) -> Iterator[Row]:
    yield met("libvirt", libvirt.version or "answers")
    if needs is None:
        yield from (not_tried(name, "the domain template does not render") for name in ("qemu", "network"))
        return
    yield _qemu(libvirt, needs)
    if not needs.networks:
        yield met("network", "not needed: the domain template names no libvirt network")
    for name in needs.networks:
        yield network(machine, name, libvirt.networks.get(name))


def unreached(machine: Machine, why: str, asked: bool) -> Iterator[Row]:
    """`asked`: virsh was called, and that went wrong."""
    if asked:
        yield missing(
            "libvirt",
            why,
            f"systemctl enable --now libvirtd.socket virtlogd.socket; usermod -aG libvirt {machine.ssh.user}",
        )
    else:
        yield not_tried("libvirt", why)
    yield from (not_tried(name, "libvirt is in its way" if asked else why) for name in ("qemu", "network"))


def domains(machine: Machine, view: HostView | str) -> Row:
    """`view` is a sentence where the host could not be looked at."""
    if isinstance(view, str):
        return not_tried("domains", view)
    tenants, ours = ", ".join(d.name for d in view.tenants), [d.name for d in view.domains if d.validation is not None]
    if not tenants:
        return met("domains", f"none but ours: {', '.join(ours)}" if ours else "none")
    if machine.state in _OCCUPIED:
        return met("domains", f"{tenants}, and the machine is {machine.state}")
    return missing(
        "domains",
        f"{tenants} is there, and the machine is {machine.state}",
        f"`fleet event placed {machine.name} --instance ID` if it is a tenant's, else shut it down on the host",
    )


def _qemu(libvirt: Libvirt, needs: Needs) -> Row:
    emulators = libvirt.kinds.get(needs.kind)
    if emulators is None:
        known = ", ".join(sorted(libvirt.kinds)) or "none"
        return missing(
            "qemu",
            f"libvirt makes no x86_64 domains of type {needs.kind} here, only: {known}",
            "apt-get install qemu-system-x86; with /dev/kvm there: `systemctl restart libvirtd`",
        )
    if needs.emulator is not None and needs.emulator not in emulators:
        return missing(
            "qemu",
            f"the template's emulator {needs.emulator} is not one of {', '.join(sorted(emulators))}",
            f"install it on the host, or correct <emulator> in {needs.emulator}'s template",
        )
    return met("qemu", f"type {needs.kind} by {needs.emulator or ', '.join(sorted(emulators))}")


def network(machine: Machine, name: str, seen: Network | None) -> Row:
    row = f"network {name}"
    if seen is None:
        return missing(
            row, f"libvirt has no network {name}", f"`virsh net-define {name}.xml` (the XML is in docs/first-host.md)"
        )
    if seen.forward is not None:
        return missing(
            row,
            f"it leads elsewhere: <forward mode='{seen.forward}'/>",
            f"`virsh net-edit {name}`: remove <forward>; then `virsh net-destroy {name}` and `virsh net-start {name}`",
        )
    if not seen.active:
        return missing(row, "it is not active", f"`virsh net-start {name}` and `virsh net-autostart {name}`")
    if not seen.autostart:
        return missing(row, "it is active, and will not be after a boot", f"`virsh net-autostart {name}`")
    guest = ipaddress.ip_address(machine.guest_address)
    if not any(guest in subnet for subnet in seen.addresses):
        subnets = ", ".join(str(subnet) for subnet in seen.addresses) or "none"
        return missing(
            row,
            f"the test VM's address {guest} is not in its subnets: {subnets}",
            f"`virsh net-edit {name}`: an <ip> of that subnet; or `guest_address` of {machine.name} by an import",
        )
    return met(row, f"active, isolated, {guest} is in it")
