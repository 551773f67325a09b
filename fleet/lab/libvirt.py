"""What stands behind virsh on a simulated host: creates and destroys domains, and refuses what libvirt would refuse."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from fleet.lab import domain_xml
from fleet.lab.chassis import Chassis
from fleet.lab.domain_xml import DomainXml
from fleet.lab.records import DomainRecord, MachineRecord
from fleet.lab.virsh import CreateRefused

_CREATE_S, _DESTROY_S = 0.3, 0.1
_VFIO_BUSY = (
    "internal error: qemu unexpectedly closed the monitor: qemu-system-x86_64: -device vfio-pci,host={0}: "
    "vfio {0}: failed to open /dev/vfio/42: Device or resource busy"
)


class Libvirt:
    """`files` are the places in which a domain's files may lie: directories and single files. `begin` is called with a
    domain that was created, `end` with one that is about to go."""

    def __init__(
        self,
        record: MachineRecord,
        chassis: Chassis,
        files: tuple[Path, ...],
        begin: Callable[[DomainRecord], None],
        end: Callable[[DomainRecord], None],
    ) -> None:
        self._record, self._chassis = record, chassis
        self._files = tuple(file.resolve() for file in files)
        self._begin, self._end = begin, end
        self._job = asyncio.Lock()  # one at a time, so that two creates cannot both find a device free

    @property
    def domains(self) -> list[DomainRecord]:
        return self._record.domains

    async def create(self, text: str) -> DomainRecord:
        """Raises XmlRefused, CreateRefused."""
        wanted = domain_xml.parse(text)
        async with self._job:
            self._check_names(wanted)
            self._check_files(wanted)
            self._check_devices(wanted)
            self._chassis.attach(wanted.hostdevs)
            await asyncio.sleep(_CREATE_S)
            if not self._chassis.up:
                raise CreateRefused("Cannot recv data: Input/output error")
            if "vm-not-placed" in self._record.faults:
                raise CreateRefused(_VFIO_BUSY.format(wanted.hostdevs[0] if wanted.hostdevs else "0000:00:00.0"))
            domain = DomainRecord(
                uuid=wanted.uuid,
                name=wanted.name,
                xml=text,
                hostdevs=list(wanted.hostdevs),
                console=wanted.console,
                seed=wanted.seed,
            )
            self._record.domains.append(domain)
            self._begin(domain)
        return domain

    async def destroy(self, domain: DomainRecord) -> None:
        async with self._job:
            if domain not in self._record.domains:
                return
            self._end(domain)
            await asyncio.sleep(_DESTROY_S)
            if domain in self._record.domains:  # it may have gone down with its host meanwhile
                self._record.domains.remove(domain)
                self._chassis.release(domain.hostdevs)

    def _check_names(self, wanted: DomainXml) -> None:
        for domain in self._record.domains:
            if domain.uuid == wanted.uuid and domain.name != wanted.name:
                raise CreateRefused(
                    f"operation failed: domain '{domain.name}' is already defined with uuid {domain.uuid}"
                )
            if domain.uuid == wanted.uuid:
                raise CreateRefused(f"Requested operation is not valid: domain '{domain.name}' is already active")
            if domain.name == wanted.name:
                raise CreateRefused(f"operation failed: domain '{domain.name}' already exists with uuid {domain.uuid}")

    def _check_files(self, wanted: DomainXml) -> None:
        for file in filter(None, (*wanted.disks, wanted.seed)):
            if not self._is_ours(file) or not Path(file).is_file():
                raise CreateRefused(f"Cannot access storage file '{file}': No such file or directory")
        console = wanted.console
        if console is not None and not (self._is_ours(console) and Path(console).parent.is_dir()):
            raise CreateRefused(f"Unable to open file: {console}: No such file or directory")

    def _is_ours(self, file: str) -> bool:
        """The rest of the real machine is none of a simulated host's business."""
        resolved = Path(file).resolve()
        return Path(file).is_absolute() and any(resolved.is_relative_to(place) for place in self._files)

    def _check_devices(self, wanted: DomainXml) -> None:
        there = {device.pci for device in self._chassis.devices} - self._chassis.missing
        for pci in wanted.hostdevs:
            if pci not in there:
                where = f"/sys/bus/pci/devices/{pci}/config"
                raise CreateRefused(f"Device {pci} not found: could not access {where}: No such file or directory")
            if pci in self._record.lost:
                raise CreateRefused(f"internal error: Unknown PCI header type '127' for device '{pci}'")
            if holder := next((d for d in self._record.domains if pci in d.hostdevs), None):
                used = f"PCI device {pci} is in use by driver QEMU, domain {holder.name}"
                raise CreateRefused(f"Requested operation is not valid: {used}")
