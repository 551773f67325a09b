"""What the guest's measuring code read through NVML: our own JSON, one entry per GPU index, `null` for what NVML refused."""

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, model_validator

from validators.tools.json_document import read

Text = Annotated[str, Field(max_length=200)]
_MAX_GPUS = 64  # the measuring code lists no more
_BUS_ID = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class NvmlError(_Model):
    call: Text
    code: int | None = None
    name: Text


class RemappedRows(_Model):
    correctable: NonNegativeInt | None = None
    uncorrectable: NonNegativeInt | None = None
    pending: bool | None = None
    failure: bool | None = None


class PcieLink(_Model):
    """As the GPU sees it; in a guest the other end is virtual, so this is information and no evidence."""

    gen: NonNegativeInt | None = None
    width: NonNegativeInt | None = None
    max_gen: NonNegativeInt | None = None
    max_width: NonNegativeInt | None = None


class GpuProcess(_Model):
    pid: NonNegativeInt
    kind: Text = "compute"
    used_mib: NonNegativeFloat | None = None


class Gpu(_Model):
    index: Annotated[int, Field(ge=0, lt=_MAX_GPUS)]
    error: NvmlError | None = None
    uuid: Text | None = None
    serial: Text | None = None
    name: Text | None = None
    pci_bus_id: Text | None = None
    pci_device_id: Text | None = None
    memory_total_mib: NonNegativeFloat | None = None
    ecc_enabled: bool | None = None
    ecc_volatile_uncorrected: NonNegativeInt | None = None
    ecc_aggregate_uncorrected: NonNegativeInt | None = None
    remapped_rows: RemappedRows | None = None
    nvlinks_active: NonNegativeInt | None = None
    pcie: PcieLink | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle_reasons: NonNegativeInt | None = None
    processes: Annotated[tuple[GpuProcess, ...], Field(max_length=256)] | None = None
    unsupported: dict[Text, Text] = {}

    @property
    def pci(self) -> str | None:
        """`0000:1b:00.0` out of NVML's `00000000:1B:00.0`."""
        found = _BUS_ID.fullmatch((self.pci_bus_id or "").lower())
        return found[1] if found else None


class GpuInventory(_Model):
    tool: Literal["gpu_inventory"]
    driver_version: Text | None = None
    nvml_version: Text | None = None
    error: NvmlError | None = None
    device_count: NonNegativeInt | None = None
    gpus: Annotated[tuple[Gpu, ...], Field(max_length=_MAX_GPUS)]

    @model_validator(mode="after")
    def _whole(self) -> "GpuInventory":
        if self.error is None and (self.device_count is None or len(self.gpus) != min(self.device_count, _MAX_GPUS)):
            raise ValueError(f"{len(self.gpus)} GPUs are listed, device_count is {self.device_count}")
        return self

    @model_validator(mode="after")
    def _told_apart(self) -> "GpuInventory":
        for what in ("index", "uuid", "pci"):
            seen = [value for gpu in self.gpus if (value := getattr(gpu, what)) is not None]
            if len(seen) != len(set(seen)):
                raise ValueError(f"two GPUs have the same {what}")
        return self


def parse(output: str) -> GpuInventory:
    """Raises ParseError."""
    return read(GpuInventory, output)
