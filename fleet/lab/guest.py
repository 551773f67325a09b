"""A test VM of the simulated rack: boots, answers SSH with the keys of its seed disk, and runs real processes."""

import asyncio
import contextlib
import json
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

from fleet.lab import hardware, processes, programs, seed, trees
from fleet.lab.hardware import Device
from fleet.lab.network import Port
from fleet.lab.places import GuestPlaces, Places, write_atomic
from fleet.lab.records import DomainRecord, MachineRecord
from fleet.lab.sessions import Login

_NVML = Path(__file__).parent / "nvml"
_RECORDINGS = Path(__file__).parent / "recordings"
_FIRMWARE_S, _KERNEL_S = 0.2, 0.3


@dataclass(frozen=True)
class Board:
    """What a guest stands on: the machine's record and devices, its own port, the lab's places."""

    record: MachineRecord
    devices: tuple[Device, ...]
    port: Port
    places: Places
    changed: Callable[[], None]  # saves the records


class Guest:
    def __init__(self, board: Board, domain: DomainRecord) -> None:
        self.domain = domain
        self._board = board
        self._places: GuestPlaces = board.places.host(board.record.name).guest(domain.uuid)
        self._booting: asyncio.Task[Any] | None = None

    def start(self) -> None:
        """Boot, or, after a restart of the lab, go on where it was."""
        if "virsh-lies" in self._board.record.faults:
            return
        self._booting = asyncio.create_task(self._go_on() if self.domain.booted else self._boot())

    def disconnect(self) -> None:
        """Out of reach, and a boot that is under way ends."""
        if self._booting:
            self._booting.cancel()
        self._board.port.close()

    def stop(self) -> None:
        """Power off: its port and its processes go at once. Files stay."""
        self.disconnect()
        processes.end({"LAB_SOCKET": str(self._board.places.socket), "LAB_GUEST": self.domain.uuid})

    def forget(self) -> None:
        shutil.rmtree(self._places.base, ignore_errors=True)

    def refresh(self) -> None:
        """Faults or devices changed: let the guest see it."""
        record, devices = self._board.record, self._board.devices
        rails = [d for d in devices if d.kind == "rail" and d.pci in self.domain.hostdevs]
        down = {hardware.suspect(devices, "rail").slot} if "rail-down" in record.faults else set()
        trees.write_rails(self._places.root, rails, down)
        programs.write_guest(self._places.bin, record.faults, self._board.places.wrong_clock)
        write_atomic(self._places.scene, json.dumps(self._scene(rails, down)).encode())
        self._board.port.break_connections("ssh-drops" in record.faults)
        self._board.port.silence(self.domain.hung)

    def happens(self, event: str) -> None:
        """What a tool says has happened to the hardware under it: the kernel says it too."""
        gpu = hardware.suspect(self._board.devices, "gpu").guest_pci.rpartition(".")[0]
        if event in ("hangs", "gpu-lost"):
            self._kernel(*_recorded("dmesg-xid-79.txt", "0000:02:00", gpu))
        elif event == "disk-errors":
            self._kernel(*_recorded("dmesg-disk-errors.txt", "nvme2n1", hardware.SCRATCH_DISK.rpartition("/")[2]))
        if event == "hangs":
            self.domain.hung = True

    def _scene(self, rails: Sequence[Device], down: set[str]) -> dict[str, Any]:
        record, devices = self._board.record, self._board.devices
        passed = [d for d in devices if d.kind == "gpu" and d.pci in self.domain.hostdevs]
        suspect_gpu, suspect_rail = (hardware.suspect(devices, kind) for kind in ("gpu", "rail"))
        return {
            "faults": record.faults,
            "driver_version": hardware.DRIVER_VERSION,
            "clock_shift_s": programs.clock_shift_s(record.faults),
            "scratch_disk": hardware.SCRATCH_DISK,
            "suspect_gpu": passed.index(suspect_gpu) if suspect_gpu in passed else 0,
            "suspect_rail": f"mlx5_{rails.index(suspect_rail)}" if suspect_rail in rails else "mlx5_0",
            "gpus": [
                {
                    "index": index,
                    "name": hardware.GPU_NAME,
                    "memory_mib": hardware.GPU_MEMORY_MIB,
                    "uuid": hardware.gpu_uuid(gpu.serial or gpu.slot),
                    "serial": gpu.serial,
                    "pci": gpu.guest_pci,
                    "pci_id": gpu.pci_id,
                    "lost": gpu.pci in record.lost,
                }
                for index, gpu in enumerate(passed)
            ],
            "rails": [{"device": f"mlx5_{i}", "down": rail.slot in down} for i, rail in enumerate(rails)],
        }

    async def _boot(self) -> None:
        domain = self.domain
        domain.boot_id, domain.booted_at, domain.hung = str(uuid.uuid4()), time.time(), False
        self._console("SeaBIOS (version 1.16.2-debian-1.16.2-1)\r\nBooting from Hard Disk...\r\n")
        await asyncio.sleep(_FIRMWARE_S)
        trees.clear_kernel_log(self._places.root)
        self._kernel("Linux version 6.8.0-lab (simulated) #1 SMP PREEMPT_DYNAMIC")
        if "guest-never-boots" in self._board.record.faults:
            panic = "Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)"
            self._kernel('VFS: Cannot open root device "vda1" or unknown-block(0,0): error -6', panic)
            return
        self._kernel("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15")
        await asyncio.sleep(_KERNEL_S)
        domain.booted = True
        self._board.changed()
        if await self._go_on():
            self._console("\r\nfleet-test login: ")

    async def _go_on(self) -> bool:
        """Bring SSH up with the keys of the seed; False where it has none."""
        try:
            keys = seed.read(Path(self.domain.seed or ""))
            host_key = asyncssh.import_private_key(keys.host_key_private)
            accepted = frozenset(asyncssh.import_public_key(key).public_data for key in keys.login_keys)
        except (seed.SeedRefused, asyncssh.KeyImportError, OSError) as exc:
            self._console(f"cloud-init: no usable seed: {exc}\r\n")
            return False
        self._places.home.mkdir(parents=True, exist_ok=True)
        trees.write_boot_id(self._places.root, self.domain.boot_id)
        trees.write_image_manifest(self._places.root, {"nvidia-driver": hardware.DRIVER_VERSION})
        self.refresh()
        self._board.port.open(Login("root", host_key, accepted, self._environment, self._places.home).serve)
        return True

    def _environment(self) -> Mapping[str, str]:
        places = self._board.places
        return {
            "PATH": f"{self._places.bin}:{places.programs}",
            "HOME": str(self._places.home),
            "USER": "root",
            "LANG": "C.UTF-8",
            "FLEET_ROOT": str(self._places.root),
            "FLEET_PYNVML": str(_NVML),
            "LAB_SOCKET": str(places.socket),
            "LAB_HOST": self._board.record.name,
            "LAB_GUEST": self.domain.uuid,
            "LAB_SCENE": str(self._places.scene),
        }

    def _kernel(self, *lines: str) -> None:
        """To the guest's kernel log, and so to its console."""
        booted_at = self._now(self.domain.booted_at)
        for line in lines:
            self._console(trees.log_kernel(self._places.root, booted_at, line, self._now(time.time())))

    def _now(self, wall: float) -> float:
        """By the guest's clock."""
        return wall + programs.clock_shift_s(self._board.record.faults)

    def _console(self, text: str) -> None:
        if self.domain.console:
            with contextlib.suppress(OSError), Path(self.domain.console).open("a") as console:
                console.write(text)


def _recorded(name: str, device: str, ours: str) -> list[str]:
    """A kernel's lines without their stamps, about our device."""
    lines = (_RECORDINGS / name).read_text().splitlines()
    return [line.partition("] ")[2].replace(device, ours) for line in lines]
