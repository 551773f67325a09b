"""The devices that the test VM gets: there, answering, and alone in their IOMMU groups."""

from collections.abc import Iterator

from fleet.core.model import DeviceState, HostView, Machine, Slot
from fleet.hypervisor.domain_needs import Needs
from fleet.hypervisor.inspected_host import Device, Host
from fleet.workflows.prerequisites.row import Row, met, missing, not_tried

_BRIDGE = "0x0604"  # class of PCI bridges: the kernel does not ask for them to be passed through
_VFIO = "vfio-pci"


def rows(machine: Machine, host: Host, view: HostView | str, needs: Needs | None) -> Iterator[Row]:
    """`view` is a sentence where the host could not be looked at."""
    passed = {slot.pci for slot in machine.slots}
    for slot in machine.slots:
        state = None if isinstance(view, str) else view.devices.get(slot.pci)
        yield _device(slot, host.devices.get(slot.pci), state, passed, needs is not None and needs.passthrough)


def unreached(machine: Machine, why: str) -> Iterator[Row]:
    return (not_tried(f"device {slot.slot}", why) for slot in machine.slots)


def _device(slot: Slot, device: Device | None, state: DeviceState | None, passed: set[str], passthrough: bool) -> Row:
    name, pci = f"device {slot.slot}", slot.pci
    if device is None or state is DeviceState.MISSING:
        return missing(
            name,
            f"nothing is at {pci}, or its config space cannot be read",
            f"`lspci -s {pci}` on the host; seat the card, or correct `pci` of slot {slot.slot} (`fleet machine discover`)",
        )
    if state is DeviceState.ALL_ONES:
        return missing(
            name,
            f"{pci} answers all ones: it has fallen off the bus",
            "power the host off and on, look at its kernel log",
        )
    driver = f"driver {device.driver}" if device.driver else "no driver"
    if not passthrough:
        return met(name, f"{pci}, {driver}")
    if device.group is None:
        return missing(name, f"{pci} is in no IOMMU group", "see row iommu")
    strangers = [
        m
        for m in device.members
        if m.address not in passed and not m.pci_class.startswith(_BRIDGE) and m.driver not in ("-", _VFIO)
    ]
    if strangers:
        told = ", ".join(f"{m.address} ({m.driver})" for m in strangers)
        return missing(
            name,
            f"{pci} shares IOMMU group {device.group} with {told}",
            f"add {strangers[0].address} to the slot map, or on the host "
            f"`driverctl set-override {strangers[0].address} {_VFIO}`; else another PCIe slot, or ACS switched on in the BIOS",
        )
    return met(name, f"{pci}, {driver}, IOMMU group {device.group}")
