"""The part of NVML's Python binding that the measuring code calls, for guests without a driver: it answers from the scene
that the simulated rack keeps for this guest, read again at each call."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

NVML_SUCCESS = 0
NVML_ERROR_UNINITIALIZED = 1
NVML_ERROR_INVALID_ARGUMENT = 2
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_DRIVER_NOT_LOADED = 9
NVML_ERROR_LIBRARY_NOT_FOUND = 12
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_RESET_REQUIRED = 16
NVML_ERROR_UNKNOWN = 999

NVML_VOLATILE_ECC, NVML_AGGREGATE_ECC = 0, 1
NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1
NVML_TEMPERATURE_GPU = 0
NVML_NVLINK_MAX_LINKS = 18

_LINKS_OF_AN_A100 = 12
_MIB = 1 << 20


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


class PciInfo(NamedTuple):
    busId: str
    pciDeviceId: int


class Memory(NamedTuple):
    total: int
    free: int
    used: int


class _Handle(NamedTuple):
    number: int

    @property
    def gpu(self) -> dict[str, Any]:
        """Raises NVMLError once the GPU has fallen off the bus."""
        gpu: dict[str, Any] = _scene()["gpus"][self.number]
        if gpu["lost"]:
            raise NVMLError(NVML_ERROR_GPU_IS_LOST)
        return gpu


def _scene() -> dict[str, Any]:
    try:
        scene: dict[str, Any] = json.loads(Path(os.environ["LAB_SCENE"]).read_bytes())
    except (KeyError, OSError):
        raise NVMLError(NVML_ERROR_DRIVER_NOT_LOADED) from None
    return scene


def nvmlInit() -> None:
    _scene()


def nvmlShutdown() -> None:
    pass


def nvmlSystemGetDriverVersion() -> str:
    return str(_scene()["driver_version"])


def nvmlSystemGetNVMLVersion() -> str:
    return f"12.{_scene()['driver_version']}"


def nvmlDeviceGetCount() -> int:
    return len(_scene()["gpus"])


def nvmlDeviceGetHandleByIndex(index: int) -> _Handle:
    if not 0 <= index < nvmlDeviceGetCount():
        raise NVMLError(NVML_ERROR_INVALID_ARGUMENT)
    handle = _Handle(index)
    assert handle.gpu
    return handle


def nvmlDeviceGetName(handle: _Handle) -> str:
    return str(handle.gpu["name"])


def nvmlDeviceGetPciInfo(handle: _Handle) -> PciInfo:
    gpu = handle.gpu
    vendor, product = gpu["pci_id"]
    return PciInfo(f"0000{gpu['pci']}".upper(), product << 16 | vendor)


def nvmlDeviceGetUUID(handle: _Handle) -> str:
    return str(handle.gpu["uuid"])


def nvmlDeviceGetSerial(handle: _Handle) -> str:
    return str(handle.gpu["serial"])


def nvmlDeviceGetMemoryInfo(handle: _Handle) -> Memory:
    total = handle.gpu["memory_mib"] * _MIB
    used = 4 * _MIB
    return Memory(total, total - used, used)


def nvmlDeviceGetEccMode(handle: _Handle) -> list[int]:
    assert handle.gpu
    return [1, 1]


def nvmlDeviceGetTotalEccErrors(handle: _Handle, kind: int, counter: int) -> int:
    assert handle.gpu
    return 0


def nvmlDeviceGetRemappedRows(handle: _Handle) -> tuple[int, int, int, int]:
    assert handle.gpu
    return (0, 0, 0, 0)


def nvmlDeviceGetNvLinkState(handle: _Handle, link: int) -> int:
    assert handle.gpu
    if link >= _LINKS_OF_AN_A100:
        raise NVMLError(NVML_ERROR_INVALID_ARGUMENT)
    return 1


def nvmlDeviceGetCurrPcieLinkGeneration(handle: _Handle) -> int:
    assert handle.gpu
    return 4


def nvmlDeviceGetCurrPcieLinkWidth(handle: _Handle) -> int:
    assert handle.gpu
    return 16


nvmlDeviceGetMaxPcieLinkGeneration = nvmlDeviceGetCurrPcieLinkGeneration
nvmlDeviceGetMaxPcieLinkWidth = nvmlDeviceGetCurrPcieLinkWidth


def nvmlDeviceGetTemperature(handle: _Handle, sensor: int) -> int:
    return 34 + handle.number if handle.gpu else 0


def nvmlDeviceGetPowerUsage(handle: _Handle) -> int:
    """Milliwatts."""
    return 61_200 + 310 * handle.number if handle.gpu else 0


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: _Handle) -> int:
    """Bit 0: the GPU is idle."""
    assert handle.gpu
    return 1


def nvmlDeviceGetComputeRunningProcesses(handle: _Handle) -> list[Any]:
    assert handle.gpu
    return []


nvmlDeviceGetGraphicsRunningProcesses = nvmlDeviceGetComputeRunningProcesses
