"""A stand-in fleet: one append-only file per machine. Every line is an effect that cannot be undone."""

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Act:
    at: float
    what: str
    epoch: int  # the fencing token of who did it


@dataclass(frozen=True)
class World:
    root: Path

    def history(self, machine: str) -> list[Act]:
        try:
            lines = (self.root / machine).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [Act(float(at), what, int(epoch)) for at, what, epoch in map(str.split, lines)]

    def boots(self, machine: str) -> int:
        return sum(act.what == "power_cycle" for act in self.history(machine))

    def vm_is_up(self, machine: str) -> bool:
        return vm_is_up(self.history(machine))

    def act(self, machine: str, what: str, epoch: int) -> None:
        with (self.root / machine).open("ab", buffering=0) as file:  # one write: a line is there or not
            file.write(f"{time.time():.3f} {what} {epoch}\n".encode())


def vm_is_up(history: list[Act]) -> bool:
    changes = [act.what for act in history if act.what in ("place_vm", "teardown")]
    return bool(changes) and changes[-1] == "place_vm"
