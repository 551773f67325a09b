"""What survives a restart of the lab: domains, faults, lost devices, boot ids, ports. One JSON file, replaced whole."""

import json
import time
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fleet.lab.places import write_atomic


@dataclass
class DomainRecord:
    """A VM on a host. `instance` names a tenant's; a test VM has none. `booted`: its guest reached SSH; `hung`: and then
    stopped answering. `leaving`: a tenant that is about to go."""

    uuid: str
    name: str
    xml: str
    hostdevs: list[str]
    instance: str | None = None
    console: str | None = None
    seed: str | None = None
    booted: bool = False
    boot_id: str = ""
    booted_at: float = 0.0
    hung: bool = False
    leaving: bool = False


@dataclass
class MachineRecord:
    """`lost`: PCI addresses whose config space reads all ones until mended. Ports are 0 until one was chosen."""

    name: str
    number: int
    port: int = 0
    guest_port: int = 0
    boot_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    booted_at: float = field(default_factory=time.time)
    faults: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    domains: list[DomainRecord] = field(default_factory=list)


class Records:
    """Every machine's record; `save` after each change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.machines: dict[str, MachineRecord] = {}
        self.control_port = 0
        if path.exists():
            self._load(json.loads(path.read_bytes()))

    def machine(self, number: int) -> tuple[MachineRecord, bool]:
        """The record of machine `number`, and whether it was made just now."""
        name = f"lab-{number:02d}"
        if found := self.machines.get(name):
            return found, False
        self.machines[name] = MachineRecord(name, number)
        return self.machines[name], True

    def save(self) -> None:
        rows = [asdict(record) for record in self.machines.values()]
        document = {"version": 1, "control_port": self.control_port, "machines": rows}
        write_atomic(self._path, json.dumps(document).encode())

    def _load(self, document: dict[str, Any]) -> None:
        self.control_port = document["control_port"]
        for row in document["machines"]:
            domains = [DomainRecord(**domain) for domain in row.pop("domains")]
            self.machines[row["name"]] = MachineRecord(**row, domains=domains)
