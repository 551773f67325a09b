"""What must never be seen on a rack whose workers were killed, whatever they were at: pure, from what rack and database say."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

RIGHT = {
    None: ("passed", "available"),
    "faulty-gpu": ("failed", "failed"),
    "vm-not-placed": ("aborted", "available"),
}
"""By fault: verdict of every validation, and the machine's state after each."""
ABORTED = {
    None: ("available", "vacated"),
    "faulty-gpu": ("failed", "available", "vacated"),
    "vm-not-placed": ("available", "vacated"),
}
"""By fault: states after a validation that bad weather ended."""


@dataclass(frozen=True)
class Validation:
    """`settlements`: verdict and machine state of each time that it was settled."""

    fault: str | None
    verdict: str | None
    settlements: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Machine:
    """`creates`: how often the host's kernel saw a VM take its first device. `vms`: test VMs on the host at the end."""

    fault: str | None
    validations: int
    tickets: int
    creates: int
    vms: int


def found(validations: Iterable[Validation], machines: Iterable[Machine], *, weather: bool = False) -> Counter[str]:
    """How often each kind of harm was done; empty is good. With `weather` (hosts and networks went down) a validation may
    also have been aborted."""
    seen = Counter(harm for validation in validations for harm in _of_validation(validation, weather))
    seen.update(harm for machine in machines for harm in _of_machine(machine, weather))
    return seen


def _of_validation(validation: Validation, weather: bool) -> Iterator[str]:
    verdict, state = RIGHT[validation.fault]
    states: tuple[str, ...] = (state,)
    if validation.verdict is None:
        yield "validation lost"
        return
    if weather and validation.verdict == "aborted":
        verdict, states = "aborted", ABORTED[validation.fault]
    if validation.verdict != verdict:
        yield f"verdict {validation.verdict}, not {verdict}"
    if len(validation.settlements) != 1:
        yield "not one verdict"
    elif validation.settlements[0][1] not in states:
        yield "state not restored"


def _of_machine(machine: Machine, weather: bool) -> Iterator[str]:
    if machine.vms:
        yield "VM left"
    wanted = int(machine.fault == "faulty-gpu" and machine.validations > 0)
    if machine.tickets > wanted or (machine.tickets < wanted and not weather):
        yield "not one ticket"
    if machine.fault != "vm-not-placed" and machine.creates != machine.validations and not weather:
        yield "VM not created once"
