"""A SKU: what a healthy machine of one hardware type has and does. The files are in ``playbooks/skus``; this is their
schema. Every limit names its source, because a number without one cannot be argued with."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Limit(Strict):
    """A number with the place it comes from."""

    value: PositiveFloat
    source: str = Field(min_length=3, max_length=500)


class Gpus(Strict):
    count: PositiveInt
    names: tuple[str, ...] = Field(min_length=1)  # any of these, as NVML prints them
    memory_mib: PositiveInt
    pci_ids: tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")], ...] = ()  # vendor:device
    nvlinks: NonNegativeInt = 0  # active links per GPU


class Nvswitches(Strict):
    count: NonNegativeInt
    fabric_manager: bool = True


class Rails(Strict):
    count: NonNegativeInt
    rate_gbps: PositiveInt
    link_layer: Literal["InfiniBand", "Ethernet"] = "InfiniBand"


class Nvme(Strict):
    count: NonNegativeInt


class GpuBurnLimits(Strict):
    min_gflops: Limit
    mode: Literal["float", "doubles", "tensor", "doubles_tensor"] = "tensor"


class NcclLimits(Strict):
    busbw_gbs: Limit  # all-reduce bus bandwidth, GB/s, at the largest size
    nodes: PositiveInt = 1


class IbBandwidthLimits(Strict):
    min_gbps: Limit  # average, per rail, loopback or pair


class StorageLimits(Strict):
    read_iops: Limit | None = None
    write_iops: Limit | None = None
    read_mib_s: Limit | None = None
    write_mib_s: Limit | None = None


class Limits(Strict):
    gpu_burn: GpuBurnLimits | None = None
    nccl: NcclLimits | None = None
    ib_bandwidth: IbBandwidthLimits | None = None
    storage: StorageLimits | None = None


class Sku(Strict):
    """`skip` lists checks that do not apply to this hardware, each with the reason: the only way to `skipped`."""

    sku: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    description: str = Field(default="", max_length=500)
    gpus: Gpus
    nvswitches: Nvswitches = Nvswitches(count=0)
    rails: Rails | None = None
    nvme: Nvme | None = None
    limits: Limits = Limits()
    skip: dict[str, Annotated[str, Field(min_length=3, max_length=500)]] = {}
