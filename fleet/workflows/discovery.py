"""The record that a host's own words propose for its machine. Nothing is made up: what cannot be seen from outside a VM is
left out, and said to be."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from fleet.core.clock import Deadline
from fleet.core.errors import FleetError
from fleet.core.model import Machine, Slot, SlotKind
from fleet.engine.workflow import Work
from fleet.hypervisor.inspected_devices import Found, Function
from fleet.hypervisor.inspector import Inspector
from fleet.workflows.prerequisites import access
from fleet.workflows.prerequisites.row import Status
from fleet.workflows.world import World

_NVIDIA, _MELLANOX = "10de", "15b3"
_VFIO = "vfio-pci"
_KEPT = ("name", "sku", "guest_address", "guest_port", "scratch_disk", "rack", "power_feed", "capacity")


def discover(world: World, inspector: Inspector, work: Work, machine: Machine) -> tuple[dict[str, Any], bool]:
    """What goes onto the inspection's record, and whether the host could be asked."""
    if not machine.ssh.address:
        return {"error": f"no SSH address is recorded for {machine.name}: `fleet machine import FILE --update`"}, False
    steps = inspector.knock(machine, Deadline.after(world.policy.call_deadline_s))
    rows = list(access.rows(machine, steps))
    if wrong := next((row for row in rows if row.status is Status.MISSING and row.name != "ssh forwarding"), None):
        return {"error": f"{wrong.seen}. To mend it: {wrong.mend}"}, False
    work.guard()
    try:
        found = inspector.devices(machine, Deadline.after(world.policy.call_deadline_s))
    except FleetError as exc:
        return {"error": str(exc)}, False
    return propose(machine, found), True


def propose(machine: Machine, found: Found) -> dict[str, Any]:
    """`machine` is a row that an import with `update` takes; `notes` are for the person who reads it first."""
    slots = [slot for kind in SlotKind for slot in _slots(machine, found, kind)]
    kept = {key: value for key in _KEPT if (value := getattr(machine, key)) is not None}
    if machine.handed_over_at is not None:
        kept["handed_over_at"] = datetime.fromtimestamp(machine.handed_over_at, UTC).isoformat()
    row = {**kept, "ssh": asdict(machine.ssh), "slots": [_plain(slot) for slot in slots]}
    return {"machine": row, "notes": list(_notes(machine, found, slots))}


def _slots(machine: Machine, found: Found, kind: SlotKind) -> Iterator[Slot]:
    """By PCI address. A device that the record has keeps its name there, and what cannot be seen from here."""
    recorded = {slot.pci: slot for slot in machine.slots if slot.kind is kind}
    taken = {slot.slot for slot in machine.slots}
    free = (name for n in range(len(found.functions) + len(taken) + 1) if (name := f"{kind}{n}") not in taken)
    guids = {port.address: port.guid for port in found.ports if port.guid is not None}
    for function in sorted(found.functions, key=lambda function: function.address):
        if _kind(function) is not kind:
            continue
        old = recorded.get(function.address)
        yield Slot(
            slot=old.slot if old else next(free),
            kind=kind,
            pci=function.address,
            guest_pci=old.guest_pci if old else None,
            serial=found.serials.get(function.address) or (old.serial if old else None),
            guid=guids.get(function.address) or (old.guid if old else None),
            switch_port=found.switch_ports.get(function.address) or (old.switch_port if old else None),
        )


def _kind(function: Function) -> SlotKind | None:
    """What a tenant's VM would get. An Ethernet card or a disk may be the host's own: only one that is set aside for VMs is."""
    base, vendor, aside = function.pci_class[:4], function.vendor, function.driver == _VFIO
    if vendor == _NVIDIA and base in ("0300", "0302"):
        return SlotKind.GPU
    if vendor == _NVIDIA and base == "0680":
        return SlotKind.NVSWITCH
    if vendor == _MELLANOX and (base == "0207" or (base == "0200" and aside)):
        return SlotKind.RAIL
    if base == "0108" and aside:
        return SlotKind.NVME
    return None


def _notes(machine: Machine, found: Found, slots: Sequence[Slot]) -> Iterator[str]:
    by_address = {slot.pci: slot for slot in slots}
    for old in machine.slots:
        if old.pci not in by_address:
            yield f"{old.slot} of the record ({old.pci}) is not on the host"
    drivers: Mapping[str, str | None] = {function.address: function.driver for function in found.functions}
    blind = [s.slot for s in slots if s.kind is SlotKind.GPU and s.serial is None]
    if blind:
        yield f"no serial of {', '.join(blind)}: only NVIDIA's driver tells it, and {_drivers(drivers, slots, SlotKind.GPU)}"
    blind = [s.slot for s in slots if s.kind is SlotKind.RAIL and s.guid is None]
    if blind:
        yield f"no GUID of {', '.join(blind)}: only mlx5_core tells it, and {_drivers(drivers, slots, SlotKind.RAIL)}"
    if unplaced := [s.slot for s in slots if s.guest_pci is None]:
        yield f"no guest_pci of {', '.join(unplaced)}: take the addresses of your tenants' VMs, so that a finding names its slot"
    ethernet = [
        f"{f.address} ({found.nets.get(f.address, f.driver or 'no driver')})" for f in found.functions if _left_out(f)
    ]
    if ethernet:
        yield f"left out, as the host seems to use them: {', '.join(ethernet)}; add those that a tenant gets"


def _left_out(function: Function) -> bool:
    return _kind(function) is None and (function.vendor == _MELLANOX or function.pci_class.startswith("0108"))


def _drivers(drivers: Mapping[str, str | None], slots: Sequence[Slot], kind: SlotKind) -> str:
    bound = sorted({drivers.get(slot.pci) or "no driver" for slot in slots if slot.kind is kind})
    return f"they have {', '.join(bound)}"


def _plain(slot: Slot) -> dict[str, Any]:
    return {key: str(value) for key, value in asdict(slot).items() if value is not None}
