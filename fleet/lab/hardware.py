"""What a simulated machine is made of: the layout of a DGX A100 (PCI addresses, eight HDR rails), with serials, GUIDs and
switch ports made from the machine's number, so that they are the same at every start."""

import hashlib
from dataclasses import dataclass

SKU = "sim-a100x8"
MOST_MACHINES = 64  # of one process; a matter of what it can carry
SCRATCH_DISK = "/dev/vdb"  # in the guest
GPU_NAME = "NVIDIA A100-SXM4-40GB"
GPU_MEMORY_MIB = 40960
GPU_ID = (0x10DE, 0x20B0)  # PCI vendor and device
RAIL_ID = (0x15B3, 0x101B)  # ConnectX-6
DRIVER_VERSION = "550.54.15"

_GPU_BUSES = (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)
_RAIL_BUSES = (0x0C, 0x12, 0x4B, 0x54, 0x8D, 0x94, 0xBA, 0xCC)
_GUEST_GPU_SLOT, _GUEST_RAIL_SLOT = 0x08, 0x10  # q35 keeps 0x1f for itself


@dataclass(frozen=True)
class Device:
    """One row of the slot map."""

    slot: str
    kind: str
    pci: str
    guest_pci: str
    serial: str | None = None
    guid: str | None = None
    switch_port: str | None = None

    @property
    def pci_id(self) -> tuple[int, int]:
        return GPU_ID if self.kind == "gpu" else RAIL_ID


def devices(number: int) -> tuple[Device, ...]:
    """Of machine `number` (1 and up): eight GPUs, then eight rails."""
    gpus = tuple(
        Device(
            f"gpu{i}",
            "gpu",
            f"0000:{bus:02x}:00.0",
            f"0000:00:{_GUEST_GPU_SLOT + i:02x}.0",
            serial=f"165{number:04d}{i:06d}",
        )
        for i, bus in enumerate(_GPU_BUSES)
    )
    rails = tuple(
        Device(
            f"rail{i}",
            "rail",
            f"0000:{bus:02x}:00.0",
            f"0000:00:{_GUEST_RAIL_SLOT + i:02x}.0",
            guid=f"b83f:d203:{number:04x}:{i:04x}",
            switch_port=f"lab-leaf-{i + 1}/{number}",
        )
        for i, bus in enumerate(_RAIL_BUSES)
    )
    return gpus + rails


def gpu_uuid(serial: str) -> str:
    """In NVML's form, derived from the serial."""
    digits = hashlib.sha256(serial.encode()).hexdigest()
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


def suspect(devices_: tuple[Device, ...], kind: str) -> Device:
    """The device that a fault hits: always the same one, neither the first nor the last of its kind."""
    return [d for d in devices_ if d.kind == kind][3]
