"""A simulated host: its domains, its PCI devices, its SSH, and what the faults make of them."""

import asyncio
import re
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import asyncssh

from fleet.core.errors import InvalidInput, Refused
from fleet.lab import domain_xml, hardware, processes, trees
from fleet.lab.domain_xml import DomainXml
from fleet.lab.faults import known
from fleet.lab.guest import Board, Guest
from fleet.lab.network import Port
from fleet.lab.places import Places
from fleet.lab.records import DomainRecord, MachineRecord
from fleet.lab.sessions import Login
from fleet.lab.virsh import Answer, CreateRefused, answer

USER = "fleet"
_CREATE_S, _DESTROY_S, _TENANT_LEAVES_S = 0.3, 0.1, 1.0
_INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_KVM = "internal error: qemu unexpectedly closed the monitor: qemu-system-x86_64: -device vfio-pci,host={0}: vfio {0}: "


class Host:
    def __init__(
        self,
        places: Places,
        record: MachineRecord,
        address: str,
        accepted: frozenset[bytes],
        changed: Callable[[], None],
    ) -> None:
        self.record = record
        self.devices = hardware.devices(record.number)
        self._lab, self._places, self._changed = places, places.host(record.name), changed
        for folder in (self._places.root, self._places.state, self._places.home, self._places.guests):
            folder.mkdir(parents=True, exist_ok=True)
        self.host_key = _host_key(self._places.host_key)
        self.port = Port(address, record.port)
        self._guest_port = Port(address, record.guest_port)
        record.port, record.guest_port = self.port.number, self._guest_port.number
        tunnel = (address, record.guest_port)
        self._login = Login(USER, self.host_key, accepted, self._environment, self._places.home, tunnel)
        self._board = Board(record, self.devices, self._guest_port, places, changed)
        self._guests: dict[str, Guest] = {}
        self._libvirt = asyncio.Lock()  # libvirt does one job at a time on a device
        self._virsh_answers = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def domains(self) -> list[DomainRecord]:
        return self.record.domains

    @property
    def up(self) -> bool:
        return "host-dies" not in self.record.faults

    def start(self) -> None:
        """Boot, or, after a restart of the lab, go on where it was."""
        if not (self._places.root / "var/log/kmsg").exists():
            self._kernel("Linux version 6.1.0-lab (simulated host) #1 SMP PREEMPT_DYNAMIC")
        for domain in self.record.domains:
            if domain.leaving:
                self._later(self._leave(domain))
            if domain.instance is None:
                self._start_guest(domain)
        self._refresh()

    def stop(self) -> None:
        """The lab ends: every process goes, and the guests boot anew at the next start."""
        self.port.close()
        self._guest_port.close()
        for guest in self._guests.values():
            guest.stop()
            guest.domain.booted = False

    # --- libvirt

    async def virsh(self, words: list[str], cwd: Path) -> Answer:
        await self._virsh_answers.wait()
        return await answer(self, words, cwd)

    async def create(self, text: str) -> DomainRecord:
        wanted = domain_xml.parse(text)
        async with self._libvirt:
            self._check(wanted)
            for pci in wanted.hostdevs:
                self._kernel(f"vfio-pci {pci}: enabling device (0400 -> 0402)")
            await asyncio.sleep(_CREATE_S)
            if "vm-not-placed" in self.record.faults:
                device = wanted.hostdevs[0] if wanted.hostdevs else "0000:00:00.0"
                raise CreateRefused(_KVM.format(device) + "failed to open /dev/vfio/42: Device or resource busy")
            domain = DomainRecord(
                uuid=wanted.uuid,
                name=wanted.name,
                xml=text,
                hostdevs=list(wanted.hostdevs),
                console=wanted.console,
                seed=wanted.seed,
            )
            self.record.domains.append(domain)
            self._changed()
            self._start_guest(domain)
        return domain

    async def destroy(self, domain: DomainRecord) -> None:
        async with self._libvirt:
            if domain not in self.record.domains:
                return
            if guest := self._guests.pop(domain.uuid, None):
                guest.stop()
                guest.forget()
            await asyncio.sleep(_DESTROY_S)
            self.record.domains.remove(domain)
            self._release(domain)
            self._changed()

    def _check(self, wanted: DomainXml) -> None:
        for domain in self.record.domains:
            if domain.uuid == wanted.uuid and domain.name != wanted.name:
                raise CreateRefused(
                    f"operation failed: domain '{domain.name}' is already defined with uuid {domain.uuid}"
                )
            if domain.uuid == wanted.uuid:
                raise CreateRefused(f"Requested operation is not valid: domain '{domain.name}' is already active")
            if domain.name == wanted.name:
                raise CreateRefused(f"operation failed: domain '{domain.name}' already exists with uuid {domain.uuid}")
        for file in filter(None, (*wanted.disks, wanted.seed)):
            if not self._owns(file) or not Path(file).is_file():
                raise CreateRefused(f"Cannot access storage file '{file}': No such file or directory")
        if wanted.console is not None and (not self._owns(wanted.console) or not Path(wanted.console).parent.is_dir()):
            raise CreateRefused(f"Unable to open file: {wanted.console}: No such file or directory")
        missing = self._missing()
        known_devices = {device.pci for device in self.devices}
        for pci in wanted.hostdevs:
            if pci in missing or pci not in known_devices:
                where = f"/sys/bus/pci/devices/{pci}/config"
                raise CreateRefused(f"Device {pci} not found: could not access {where}: No such file or directory")
            if pci in self.record.lost:
                raise CreateRefused(f"internal error: Unknown PCI header type '127' for device '{pci}'")
            if holder := next((d for d in self.record.domains if pci in d.hostdevs), None):
                used = f"PCI device {pci} is in use by driver QEMU, domain {holder.name}"
                raise CreateRefused(f"Requested operation is not valid: {used}")

    def _owns(self, file: str) -> bool:
        """A domain's files are the host's own, or the image; the rest of the real machine is none of its business."""
        path = Path(file)
        resolved = path.resolve()
        state = self._places.state.resolve()
        return path.is_absolute() and (resolved.is_relative_to(state) or resolved == self._lab.image.resolve())

    def _release(self, domain: DomainRecord) -> None:
        suspect = hardware.suspect(self.devices, "gpu").pci
        for pci in domain.hostdevs:
            self._kernel(f"vfio-pci {pci}: resetting", f"vfio-pci {pci}: reset done")
        if "device-not-back" in self.record.faults and suspect in domain.hostdevs:
            self._lose(suspect)

    def _lose(self, pci: str) -> None:
        self._kernel(
            f"pcieport {pci[:-4]}01.0: AER: Uncorrected (Fatal) error received: {pci}",
            f"vfio-pci {pci}: not ready 65535ms after FLR; giving up",
            f"vfio-pci {pci}: Unable to change power state from D0 to D3hot, device inaccessible",
        )
        if pci not in self.record.lost:
            self.record.lost.append(pci)
        self._refresh()

    # --- what tools in a guest say has happened

    def happens(self, uuid_: str, event: str) -> None:
        guest = self._guests.get(uuid_)
        if guest is None:
            return
        guest.happens(event)
        if event == "gpu-lost":
            self._lose(hardware.suspect(self.devices, "gpu").pci)
        guest.refresh()
        self._changed()

    # --- tenants

    def place(self, instance: str) -> None:
        """A tenant's VM starts, with every device that is free. Raises Refused, InvalidInput."""
        if not _INSTANCE.fullmatch(instance):
            raise InvalidInput(f"{instance[:40]!r} is no instance id", "instance")
        if not self.up:
            raise Refused(f"{self.name} is down: nothing can be placed on it")
        if any(d.instance == instance for d in self.record.domains):
            return
        held = {pci for d in self.record.domains for pci in d.hostdevs}
        free = [d.pci for d in self.devices if d.pci not in held and d.pci not in self._missing()]
        identity = str(uuid.uuid5(uuid.NAMESPACE_URL, f"lab:{self.name}:{instance}:{time.time()}"))
        xml = domain_xml.tenant(instance, identity, free)
        self.record.domains.append(DomainRecord(identity, instance, xml, free, instance=instance))
        self._changed()

    def leave(self, instance: str) -> None:
        """The tenant's VM is told to go, and is gone a moment later."""
        for domain in self.record.domains:
            if domain.instance == instance and not domain.leaving:
                domain.leaving = True
                self._changed()
                self._later(self._leave(domain))

    def reconcile(self, instances: list[str]) -> None:
        """Exactly these tenants, at once."""
        for domain in [d for d in self.record.domains if d.instance and d.instance not in instances]:
            self.record.domains.remove(domain)
        for instance in instances:
            self.place(instance)
        self._changed()

    async def _leave(self, domain: DomainRecord) -> None:
        await asyncio.sleep(_TENANT_LEAVES_S)
        await self.destroy(domain)

    # --- faults

    def break_(self, fault: str) -> None:
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
        """As if a technician had been there: what the fault did to the hardware is repaired too."""
        if known(fault).name not in self.record.faults:
            return
        self.record.faults.remove(fault)
        if fault == "host-dies":
            self._power_on()
        if fault in ("device-not-back", "gpu-lost-under-load"):
            self.record.lost.clear()
        self._refresh()
        self._changed()

    def _power_off(self) -> None:
        for guest in self._guests.values():
            guest.stop()
            guest.forget()
        self._guests.clear()
        self.record.domains[:] = [d for d in self.record.domains if d.instance and not d.leaving]
        processes.end({"LAB_SOCKET": str(self._lab.socket), "LAB_HOST": self.name})

    def _power_on(self) -> None:
        """Transient domains are gone; a tenant's starts with its host."""
        self.record.boot_id, self.record.booted_at = str(uuid.uuid4()), time.time()
        self.record.lost.clear()
        trees.clear_kernel_log(self._places.root)
        self._kernel("Linux version 6.1.0-lab (simulated host) #1 SMP PREEMPT_DYNAMIC")

    def _refresh(self) -> None:
        """Bring files, ports and guests in line with the record."""
        faults = self.record.faults
        trees.write_boot_id(self._places.root, self.record.boot_id)
        trees.write_host_devices(self._places.root, self.devices, self._missing(), self.record.lost)
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

    def _missing(self) -> set[str]:
        return {hardware.suspect(self.devices, "gpu").pci} if "missing-gpu" in self.record.faults else set()

    # --- parts

    def _start_guest(self, domain: DomainRecord) -> None:
        self._guests[domain.uuid] = Guest(self._board, domain)
        self._guests[domain.uuid].start()

    def _kernel(self, *lines: str) -> None:
        for line in lines:
            trees.log_kernel(self._places.root, self.record.booted_at, line, time.time())

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


def _host_key(path: Path) -> asyncssh.SSHKey:
    if not path.exists():
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(path))
        path.chmod(0o600)
    return asyncssh.read_private_key(str(path))
