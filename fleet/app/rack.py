"""The simulated rack beside the service: its machines in the fleet's records, its tenants where the records say, its faults
behind the API. It stands in for the provider's control plane and hardware, and nothing else knows that it is one."""

import hashlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import structlog

from fleet.core.errors import FleetError, InvalidInput
from fleet.core.model import EventKind
from fleet.lab.client import LabClient
from fleet.lab.manifest import MachineEntry, Manifest
from fleet.lab.process import LabProcess
from fleet.service.machine_record import NewMachine
from fleet.settings import HypervisorSettings
from fleet.store import events, machines, validations
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import EventRow, InstanceRow, MachineRow
from fleet.workflows.playbook import Playbook
from fleet.workflows.test_image import as_seen
from playbooks.loader import Library

log = structlog.get_logger(__name__)

BY = By("service:lab")
_PLAIN = re.compile(r"/[A-Za-z0-9/._-]+")  # as the service asks of FLEET_STATE on any host
_FOLLOW_S = 0.2  # a tenant's domain is gone about a second after its event: this much of it may be ours


@contextmanager
def running(directory: Path, count: int) -> Iterator[Manifest]:
    """The rack's process, ended with us. Raises InvalidInput for a directory that its hosts could not name in a script."""
    if not _PLAIN.fullmatch(str(directory)):
        raise InvalidInput(
            f"{directory}: a simulated rack works in a directory of letters, digits, / . _ and - only. "
            "Choose another with FLEET_HOME=/PATH",
            "data_dir",
        )
    lab = LabProcess(directory, machines=count)
    try:
        yield lab.start()
    finally:
        lab.stop()


def client(manifest: Manifest) -> LabClient:
    return LabClient(manifest.control.url, manifest.control.secret)


def hypervisor(site: HypervisorSettings, manifest: Manifest) -> HypervisorSettings:
    """The site's settings with the rack's test image."""
    digest = hashlib.sha256(Path(manifest.image).read_bytes()).hexdigest()
    return site.model_copy(update={"image": manifest.image, "image_format": "raw", "image_digest": digest})


def register(db: Database, manifest: Manifest) -> None:
    """Machines that the records lack are added; of those that are there, what has changed is written (its ports may)."""
    with db.begin() as session:
        for entry in manifest.machines:
            order = _order(entry)
            machine = order.machine("came with the simulated rack")
            if session.get(MachineRow, order.name) is None:
                machines.add(session, machine, BY)
                continue
            seen = machines.get(session, order.name)
            if (seen.ssh, seen.guest_port) != (machine.ssh, machine.guest_port):
                machines.refresh(session, seen, machine, BY)


def prove(db: Database, library: Library, manifest: Manifest, image: Mapping[str, Any]) -> None:
    """What the rack ships with counts as having passed: it may condemn from the start, by any plan."""
    shipped = {**image, **as_seen({"image": image["image_digest"]})}
    with db.begin() as session:
        for sku in {entry.sku for entry in manifest.machines}:
            for plan in library.plan_names():
                for digest in Playbook.load(library, plan, sku).proofs(shipped).values():
                    validations.prove(session, sku, digest, None)


def _order(entry: MachineEntry) -> NewMachine:
    row = asdict(entry)
    ssh = {name: row.pop(name) for name in ("address", "port", "user", "host_key", "key_ref")}
    state = "allocated" if entry.instances else "available"
    lists = {name: list(row[name]) for name in ("slots", "instances")}
    return NewMachine.model_validate({**row, **lists, "ssh": ssh, "state": state})


@contextmanager
def tenants_following(db: Database, manifest: Manifest) -> Iterator[None]:
    """Tenants' domains come and go as the records say, which is as the events said."""
    stop = threading.Event()
    names = [entry.name for entry in manifest.machines]
    thread = threading.Thread(target=_follow, args=(db, client(manifest), names, stop), name="tenants", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(15)


def _follow(db: Database, rack: LabClient, names: list[str], stop: threading.Event) -> None:
    told: dict[str, set[str]] = {}
    while not stop.wait(_FOLLOW_S):
        try:
            for name, tenants in _tenants(db, names).items():
                if told.get(name) != tenants:
                    rack.reconcile({name: sorted(tenants)})
                    told[name] = tenants
        except Exception as exc:  # the next look may do better, and without looks no tenant would ever leave
            log.warning("rack.tenants", error=str(exc), exc_info=not isinstance(exc, FleetError))


def _tenants(db: Database, names: list[str]) -> dict[str, set[str]]:
    """Who is on each machine by the records, and who is said to stay there: a migration that is rolled back puts the VM
    back where it was, and only then the records believe it."""
    there = sa.select(InstanceRow.machine, InstanceRow.id)
    kept = sa.select(EventRow.machine, EventRow.instance).where(
        EventRow.kind == EventKind.KEPT, EventRow.state == events.WAITING
    )
    found: dict[str, set[str]] = {name: set() for name in names}
    with db.read() as session:
        for name, instance in session.execute(sa.union(there, kept)):
            if name in found:
                found[name].add(instance)
    return found


class RackControl:
    """`fleet.service.lab.LabControl` over the rack's own client."""

    def __init__(self, client: LabClient) -> None:
        self._client = client

    def faults(self) -> Sequence[Mapping[str, Any]]:
        having = self._client.machines()
        return [
            {
                **fault,
                "description": fault["title"],
                "machines": [m["name"] for m in having if fault["name"] in m["faults"]],
            }
            for fault in self._client.faults()
        ]

    def machines(self) -> Sequence[Mapping[str, Any]]:
        return self._client.machines()

    def break_(self, machine: str, fault: str) -> None:
        self._client.break_(machine, fault)

    def mend(self, machine: str, fault: str) -> None:
        self._client.mend(machine, fault)
