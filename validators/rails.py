"""Which InfiniBand port is which rail of the machine."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from validators.base import Subject
from validators.record import Slot, same_pci, slots


class PortLike(Protocol):
    """A port as some tool shows it."""

    @property
    def device(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def pci(self) -> str | None: ...
    @property
    def port_guid(self) -> str | None: ...


Port = TypeVar("Port", bound=PortLike)


def label(port: PortLike) -> str:
    return port.device if port.port == 1 else f"{port.device}/{port.port}"


def match(ports: Sequence[Port], subject: Subject) -> dict[str, Port | None]:
    """Rails by name with their port; None where no port fits the slot.

    With a slot map that tells all rails apart, by port GUID or guest PCI address, the map decides; without, every port is a
    rail and is called by its device. Ports that the map does not have are left out."""
    expected = subject.sku.rails.count if subject.sku.rails else 0
    mapped = [slot for slot in slots(subject, "rail") if slot.get("guid") or slot.get("guest_pci")]
    if len(mapped) != expected:
        return {label(port): port for port in ports}
    left = list(ports)
    rails: dict[str, Port | None] = {}
    for slot in mapped:
        found = next((port for port in left if _is_at(slot, port)), None)
        rails[str(slot["slot"])] = found
        if found is not None:
            left.remove(found)
    if not any(rails.values()) and left:  # a map without a single hit is a wrong map, not eight missing rails
        return {label(port): port for port in ports}
    return rails


def _is_at(slot: Slot, port: PortLike) -> bool:
    mine, its = _guid(slot.get("guid")), _guid(port.port_guid)
    return bool(mine and mine == its) or same_pci(slot.get("guest_pci"), port.pci)


def _guid(value: object) -> str:
    """The 16 hex digits of a GUID, however it is written: `0xb83f...`, `b83f:d203:...`."""
    text = value.lower().removeprefix("0x").replace(":", "") if isinstance(value, str) else ""
    return text if text.strip("0") else ""
