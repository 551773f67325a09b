"""A simulated host: its SSH, its hypervisor and guests, its tenants, and what the faults make of them."""

import asyncio
import re
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import asyncssh

from fleet.core.errors import InvalidInput, Refused
from fleet.lab import domain_xml, processes
from fleet.lab.chassis import Chassis
from fleet.lab.faults import known
from fleet.lab.guest import Board, Guest
from fleet.lab.libvirt import Libvirt
from fleet.lab.network import Port
from fleet.lab.places import Places
from fleet.lab.records import DomainRecord, MachineRecord
from fleet.lab.sessions import Login
from fleet.lab.virsh import Answer, answer

USER = "fleet"
_TENANT_LEAVES_S = 1.0
_INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


class Host:
    """`changed` saves the records."""

    def __init__(
        self,
        places: Places,
        record: MachineRecord,
        address: str,
        accepted: frozenset[bytes],
        changed: Callable[[], None],
    ) -> None:
        self.record, self._changed = record, changed
        self._lab, self._places = places, places.host(record.name)
        for folder in (self._places.state, self._places.home, self._places.guests):
            folder.mkdir(parents=True, exist_ok=True)
        self.host_key = _host_key(self._places.host_key)
        self.port, self._guest_port = Port(address, record.port), Port(address, record.guest_port)
        record.port, record.guest_port = self.port.number, self._guest_port.number
        tunnel = (address, record.guest_port)
        self._login = Login(USER, self.host_key, accepted, self._environment, self._places.home, tunnel)
        self.chassis = Chassis(record, self._places.root)
        self._board = Board(record, self.chassis.devices, self._guest_port, places, changed)
        self._guests: dict[str, Guest] = {}
        files = (self._places.state, places.image)
        self._libvirt = Libvirt(record, self.chassis, files, self._start_guest, self._end_guest)
        self._virsh_answers = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def up(self) -> bool:
        return self.chassis.up

    def start(self) -> None:
        """Boot, or, after a restart of the lab, go on where it was."""
        for domain in self.record.domains:
            if domain.leaving:
                self._later(self._leave(domain))
            if domain.instance is None:
                self._start_guest(domain)
        self._refresh()

    def stop(self) -> None:
        """Out of reach from now on; the guests boot anew at the next start."""
        self.port.close()
        for guest in self._guests.values():
            guest.disconnect()
            guest.domain.booted = False

    async def virsh(self, words: list[str], cwd: Path) -> Answer:
        await self._virsh_answers.wait()
        said = await answer(self._libvirt, words, cwd)
        self._changed()
        return said

    def happens(self, identity: str, event: str) -> None:
        """What a tool in a guest says has happened to the hardware under it."""
        guest = self._guests.get(identity)
        if guest is None:
            return
        guest.happens(event)
        if event == "gpu-lost":
            self.chassis.lose(self.chassis.suspect_gpu)
        guest.refresh()
        self._changed()

    # --- tenants

    def place(self, instance: str) -> None:
        """A tenant's VM starts, with every device that is free; one that was about to leave stays. Raises Refused,
        InvalidInput."""
        check_instance(instance)
        if not self.up:
            raise Refused(f"{self.name} is down: nothing can be placed on it")
        self._keep(instance)
        self._changed()

    def leave(self, instance: str) -> None:
        """The tenant's VM is told to go, and is gone a moment later."""
        for domain in self.record.domains:
            if domain.instance == instance and not domain.leaving:
                domain.leaving = True
                self._changed()
                self._later(self._leave(domain))

    def reconcile(self, instances: list[str]) -> None:
        """Exactly these tenants, at once; where the host is down, as soon as it is up."""
        self.record.domains[:] = [d for d in self.record.domains if d.instance is None or d.instance in instances]
        for instance in instances:
            self._keep(instance)
        self._changed()

    def _keep(self, instance: str) -> None:
        for domain in self.record.domains:
            if domain.instance == instance:
                domain.leaving = False
                return
        held = {pci for d in self.record.domains for pci in d.hostdevs} | self.chassis.missing
        free = [device.pci for device in self.chassis.devices if device.pci not in held]
        identity = str(uuid.uuid5(uuid.NAMESPACE_URL, f"lab:{self.name}:{instance}:{time.time()}"))
        xml = domain_xml.tenant(instance, identity, free)
        self.record.domains.append(DomainRecord(identity, instance, xml, free, instance=instance))

    async def _leave(self, domain: DomainRecord) -> None:
        await asyncio.sleep(_TENANT_LEAVES_S)
        if domain.leaving:
            await self._libvirt.destroy(domain)
            self._changed()

    # --- faults

    def break_(self, fault: str) -> None:
        """Raises NotFound."""
        if known(fault).name in self.record.faults:
            return
        self.record.faults.append(fault)
        if fault == "host-dies":
            self._power_off()
        if fault == "virsh-lies":
            for guest in self._guests.values():
                guest.stop()
        self._refresh()
        self._changed()

    def mend(self, fault: str) -> None:
        """As if a technician had been there: what the fault did to the hardware is repaired too. Raises NotFound."""
        if known(fault).name not in self.record.faults:
            return
        self.record.faults.remove(fault)
        if fault == "host-dies":
            self.chassis.boot_again()
        if fault in ("device-not-back", "gpu-lost-under-load"):
            self.chassis.repair()
        self._refresh()
        self._changed()

    def _power_off(self) -> None:
        """Transient domains are gone with it; a tenant's starts again with its host."""
        for domain in [d for d in self.record.domains if d.instance is None or d.leaving]:
            self._end_guest(domain)
            self.record.domains.remove(domain)
        processes.end({"LAB_SOCKET": str(self._lab.socket), "LAB_HOST": self.name})

    def _refresh(self) -> None:
        """Bring files, ports and guests in line with the record."""
        faults = self.record.faults
        self.chassis.refresh()
        if self.up:
            self.port.open(self._login.serve)
        else:
            self.port.close()
        self.port.silence("network-cut" in faults)
        if "virsh-hangs" in faults:
            self._virsh_answers.clear()
        else:
            self._virsh_answers.set()
        for guest in self._guests.values():
            guest.refresh()

    # --- parts

    def _start_guest(self, domain: DomainRecord) -> None:
        self._guests[domain.uuid] = Guest(self._board, domain)
        self._guests[domain.uuid].start()

    def _end_guest(self, domain: DomainRecord) -> None:
        if guest := self._guests.pop(domain.uuid, None):
            guest.stop()
            guest.forget()

    def _later(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _environment(self) -> Mapping[str, str]:
        return {
            "PATH": f"{self._lab.host_bin}:{self._lab.programs}",
            "HOME": str(self._places.home),
            "USER": USER,
            "LANG": "C.UTF-8",
            "FLEET_ROOT": str(self._places.root),
            "FLEET_STATE": str(self._places.state),
            "LAB_SOCKET": str(self._lab.socket),
            "LAB_HOST": self.name,
        }


def check_instance(instance: str) -> None:
    """Raises InvalidInput."""
    if not _INSTANCE.fullmatch(instance):
        raise InvalidInput(f"{instance[:40]!r} is no instance id", "instance")


def _host_key(path: Path) -> asyncssh.SSHKey:
    if not path.exists():
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(path))
        path.chmod(0o600)
    return asyncssh.read_private_key(str(path))
