"""DIR/lab.json: where a running rack is reached and what is in it. For the service that runs beside it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fleet.core.errors import NotFound
from fleet.lab.places import write_atomic


@dataclass(frozen=True)
class Control:
    url: str
    secret: str


@dataclass(frozen=True)
class MachineEntry:
    """One host, in the words of the service's own record. `slots` are rows with slot, kind, pci, guest_pci, serial, guid,
    switch_port; `instances` the tenants on it when the manifest was written."""

    name: str
    sku: str
    address: str
    port: int
    user: str
    host_key: str
    key_ref: str
    guest_address: str
    guest_port: int
    scratch_disk: str
    rack: str
    power_feed: str
    slots: tuple[dict[str, Any], ...]
    instances: tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """`image` is the file to name as the test image; it has no content that matters."""

    pid: int
    control: Control
    image: str
    machines: tuple[MachineEntry, ...]
    version: int = 1

    def write(self, path: Path) -> None:
        write_atomic(path, json.dumps(asdict(self), indent=1).encode() + b"\n")


def read(path: Path) -> Manifest:
    """Raises NotFound where no rack has written one."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as exc:
        raise NotFound(f"no simulated rack has run in {path.parent}: {exc.strerror}") from exc
    machines = tuple(
        MachineEntry(**{**row, "slots": tuple(row["slots"]), "instances": tuple(row["instances"])})
        for row in document["machines"]
    )
    return Manifest(document["pid"], Control(**document["control"]), document["image"], machines, document["version"])
