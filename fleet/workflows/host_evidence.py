"""What a look at the host says of the machine's devices, as stored evidence: before the test VM and after it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fleet.core.model import DeviceState, HostView, Machine, Slot
from fleet.engine.workflow import Work
from fleet.workflows.world import Policy

_FACT = {
    DeviceState.MISSING: "is not on the host's PCI bus",
    DeviceState.ALL_ONES: "answers all ones in its PCI config space: it has fallen off the bus",
}


def not_answering(machine: Machine, view: HostView) -> list[tuple[Slot, DeviceState]]:
    """The slots whose device is not there or does not answer. An address that was not looked at counts as missing: no
    data is not healthy."""
    states = ((slot, view.devices.get(slot.pci, DeviceState.MISSING)) for slot in machine.slots)
    return [(slot, state) for slot, state in states if state is not DeviceState.ANSWERS]


ANSWERED: Mapping[str, Any] = {"silent_devices_since": None}
"""The run's data when all devices answer, or have been judged."""


def may_answer_yet(work: Work, policy: Policy) -> Mapping[str, Any] | None:
    """The run's data for waiting a little more, None when the devices have had `device_return_s`. Counted from the first
    look that missed them: the phase may be much older (a VM that took minutes to go, a host that was away)."""
    since = float(work.run.data.get("silent_devices_since") or work.run.now)
    return {"silent_devices_since": since} if work.run.now - since < policy.device_return_s else None


def as_text(machine: Machine, view: HostView, when: str) -> bytes:
    """One line per device: outcome, code, device, reason, by tabs (judging.host_result reads it back).

    A slot map of which nothing at all is on the bus is a wrong map, or a look that went wrong, not so many lost devices."""
    bad = {slot.slot: state for slot, state in not_answering(machine, view)}
    nothing = len(bad) == len(machine.slots) > 1 and set(bad.values()) == {DeviceState.MISSING}
    return "".join(_lines(machine.slots, bad, when, "not_run" if nothing else "failed")).encode()


def _lines(slots: Iterable[Slot], bad: dict[str, DeviceState], when: str, outcome: str) -> Iterator[str]:
    for slot in slots:
        device = f"{slot.kind} {slot.slot} ({slot.pci})"
        if state := bad.get(slot.slot):
            yield f"{outcome}\tdevice_{state}\t{device}\t{_FACT[state]} {when}\n"
        else:
            yield f"passed\tdevice_answers\t{device}\tanswers on the host's PCI bus {when}\n"
