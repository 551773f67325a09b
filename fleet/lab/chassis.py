"""A simulated host below its software: power, PCI devices, kernel log."""

import time
import uuid
from pathlib import Path

from fleet.lab import hardware, trees
from fleet.lab.records import MachineRecord


class Chassis:
    """Everything is on the record and in the files under `root`; `refresh` brings the files in line."""

    def __init__(self, record: MachineRecord, root: Path) -> None:
        self.devices = hardware.devices(record.number)
        self.suspect_gpu = hardware.suspect(self.devices, "gpu").pci
        self._record, self._root = record, root
        root.mkdir(parents=True, exist_ok=True)
        if not (root / "var/log/kmsg").exists():
            self._greet()

    @property
    def up(self) -> bool:
        return "host-dies" not in self._record.faults

    @property
    def missing(self) -> set[str]:
        """PCI addresses of the slot map that are not on the bus."""
        return {self.suspect_gpu} if "missing-gpu" in self._record.faults else set()

    def boot_again(self) -> None:
        self._record.boot_id, self._record.booted_at = str(uuid.uuid4()), time.time()
        self._record.lost.clear()
        trees.clear_kernel_log(self._root)
        self._greet()

    def repair(self) -> None:
        """Lost devices answer again, as after a power cycle by a technician."""
        self._record.lost.clear()

    def log(self, *lines: str) -> None:
        for line in lines:
            trees.log_kernel(self._root, self._record.booted_at, line, time.time())

    def attach(self, hostdevs: tuple[str, ...]) -> None:
        self.log(*(f"vfio-pci {pci}: enabling device (0400 -> 0402)" for pci in hostdevs))

    def release(self, hostdevs: list[str]) -> None:
        """A VM is gone: its devices are reset, and most of the time they come back."""
        for pci in hostdevs:
            self.log(f"vfio-pci {pci}: resetting", f"vfio-pci {pci}: reset done")
        if "device-not-back" in self._record.faults and self.suspect_gpu in hostdevs:
            self.lose(self.suspect_gpu)

    def lose(self, pci: str) -> None:
        self.log(
            f"pcieport {pci[:-4]}01.0: AER: Uncorrected (Fatal) error received: {pci}",
            f"vfio-pci {pci}: not ready 65535ms after FLR; giving up",
            f"vfio-pci {pci}: Unable to change power state from D0 to D3hot, device inaccessible",
        )
        if pci not in self._record.lost:
            self._record.lost.append(pci)
        self.refresh()

    def refresh(self) -> None:
        trees.write_boot_id(self._root, self._record.boot_id)
        trees.write_board(self._root)
        trees.write_host_devices(self._root, self.devices, self.missing, self._record.lost)

    def _greet(self) -> None:
        self.log("Linux version 6.1.0-lab (simulated host) #1 SMP PREEMPT_DYNAMIC")
