"""Every GPU that the driver lists, as NVML tells it, one JSON document. A GPU that cannot be asked is an entry too."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any, Dict, List

MAX_GPUS = 64
MAX_PROCESSES = 64
MAX_CHARS = 200
AGAIN_S = 1.0
MIB = 1 << 20

FIELDS = (
    *("uuid", "serial", "name", "pci_bus_id", "pci_device_id", "memory_total_mib", "ecc_enabled"),
    *("ecc_volatile_uncorrected", "ecc_aggregate_uncorrected", "remapped_rows", "nvlinks_active"),
    *("pcie", "temperature_c", "power_w", "throttle_reasons", "processes"),
)


class Refused(Exception):
    """NVML has no answer to this call."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(call)
        self.code, self.name = code, name
        self.report = {"call": call, "code": code, "name": name}


class Nvml:
    """NVML's calls by name."""

    def __init__(self, binding: Any) -> None:
        self.binding = binding
        self._gone = (binding.NVML_ERROR_GPU_IS_LOST, binding.NVML_ERROR_RESET_REQUIRED)
        self._names = {getattr(binding, name): name for name in dir(binding) if name.startswith("NVML_ERROR_")}

    def ask(self, call: str, *arguments: Any) -> Any:
        """Raises Refused, also for what an older binding does not have and for text that is none."""
        try:
            return _text(getattr(self.binding, call)(*arguments))
        except self.binding.NVMLError as exc:
            code = exc.value
            raise Refused(call, code, self._names.get(code, "NVML_ERROR_{}".format(code))) from None
        except AttributeError:
            raise Refused(call, 13, "NVML_ERROR_FUNCTION_NOT_FOUND") from None
        except UnicodeDecodeError:
            raise Refused(call, 14, "NVML_ERROR_CORRUPTED_INFOROM") from None

    def try_to(self, unsupported: Dict[str, str], field: str, call: str, *arguments: Any) -> Any:
        """None, and the error's name under `field`, where there is no value. Raises Refused when the GPU is gone."""
        try:
            return self.ask(call, *arguments)
        except Refused as refused:
            if refused.code in self._gone:
                raise
            unsupported[field] = refused.name
            return None


def main(words: List[str]) -> int:
    """The driver brings GPUs up one after the other, and the guest's SSH does not wait for it: with `--expect N`, the
    reading is the one in which there are so many, or the last one within `--settle-s`."""
    parser = argparse.ArgumentParser(prog="gpu_inventory")
    parser.add_argument("--expect", type=int, default=0)
    parser.add_argument("--settle-s", type=float, default=0.0)
    options = parser.parse_args(words)
    print(json.dumps(settled(_binding(), options.expect, options.settle_s)))
    return 0


def settled(binding: Any, expect: int, settle_s: float) -> Dict[str, Any]:
    end_at = time.monotonic() + settle_s
    document = measure(binding)
    while (document["device_count"] or 0) < expect and time.monotonic() < end_at:
        Nvml(binding).try_to({}, "", "nvmlShutdown")  # what it lists is what was there at its start
        time.sleep(AGAIN_S)
        document = measure(binding)
    return document


def _binding() -> Any:
    if os.environ.get("FLEET_PYNVML"):
        sys.path.insert(0, os.environ["FLEET_PYNVML"])
    import pynvml

    return pynvml


def measure(binding: Any) -> Dict[str, Any]:
    nvml = Nvml(binding)
    document: Dict[str, Any] = {
        "format": 1,
        "tool": "gpu_inventory",
        "driver_version": None,
        "nvml_version": None,
        "error": None,
        "device_count": None,
        "gpus": [],
    }
    try:
        nvml.ask("nvmlInit")
        document["driver_version"] = nvml.try_to({}, "", "nvmlSystemGetDriverVersion")
        document["nvml_version"] = nvml.try_to({}, "", "nvmlSystemGetNVMLVersion")
        document["device_count"] = count = nvml.ask("nvmlDeviceGetCount")
        document["gpus"] = [read_gpu(nvml, index) for index in range(min(count, MAX_GPUS))]
    except Refused as refused:
        document["error"] = refused.report
    return document


def read_gpu(nvml: Nvml, index: int) -> Dict[str, Any]:
    gpu: Dict[str, Any] = {"index": index, "error": None}
    gpu.update(dict.fromkeys(FIELDS))
    gpu["unsupported"] = {}
    try:
        _fill(nvml, index, gpu, gpu["unsupported"])
    except Refused as refused:
        gpu["error"] = refused.report
    return gpu


def _fill(nvml: Nvml, index: int, gpu: Dict[str, Any], unsupported: Dict[str, str]) -> None:
    """In this order, so that a GPU that dies half-way is at least known by name and address."""
    handle = nvml.ask("nvmlDeviceGetHandleByIndex", index)
    gpu["name"] = nvml.ask("nvmlDeviceGetName", handle)
    pci = nvml.ask("nvmlDeviceGetPciInfo", handle)
    gpu["pci_bus_id"] = _text(pci.busId)
    gpu["pci_device_id"] = "{:04x}:{:04x}".format(pci.pciDeviceId & 0xFFFF, pci.pciDeviceId >> 16)

    def ask(field: str, call: str, *arguments: Any) -> Any:
        return nvml.try_to(unsupported, field, call, handle, *arguments)

    binding = nvml.binding
    gpu["uuid"] = ask("uuid", "nvmlDeviceGetUUID")
    gpu["serial"] = ask("serial", "nvmlDeviceGetSerial")
    if (memory := ask("memory_total_mib", "nvmlDeviceGetMemoryInfo")) is not None:
        gpu["memory_total_mib"] = memory.total // MIB
    if (mode := ask("ecc_enabled", "nvmlDeviceGetEccMode")) is not None:
        gpu["ecc_enabled"] = bool(mode[0])
    for field, counter in (
        ("ecc_volatile_uncorrected", binding.NVML_VOLATILE_ECC),
        ("ecc_aggregate_uncorrected", binding.NVML_AGGREGATE_ECC),
    ):
        kind = binding.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        gpu[field] = ask(field, "nvmlDeviceGetTotalEccErrors", kind, counter)
    if (rows := ask("remapped_rows", "nvmlDeviceGetRemappedRows")) is not None:
        correctable, uncorrectable, pending, failure = rows
        gpu["remapped_rows"] = {
            "correctable": correctable,
            "uncorrectable": uncorrectable,
            "pending": bool(pending),
            "failure": bool(failure),
        }
    gpu["nvlinks_active"] = _active_links(nvml, handle, unsupported)
    gpu["pcie"] = {
        "gen": ask("pcie.gen", "nvmlDeviceGetCurrPcieLinkGeneration"),
        "width": ask("pcie.width", "nvmlDeviceGetCurrPcieLinkWidth"),
        "max_gen": ask("pcie.max_gen", "nvmlDeviceGetMaxPcieLinkGeneration"),
        "max_width": ask("pcie.max_width", "nvmlDeviceGetMaxPcieLinkWidth"),
    }
    gpu["temperature_c"] = ask("temperature_c", "nvmlDeviceGetTemperature", binding.NVML_TEMPERATURE_GPU)
    if (milliwatts := ask("power_w", "nvmlDeviceGetPowerUsage")) is not None:
        gpu["power_w"] = milliwatts / 1000
    gpu["throttle_reasons"] = ask("throttle_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    gpu["processes"] = _processes(ask)


def _active_links(nvml: Nvml, handle: Any, unsupported: Dict[str, str]) -> Any:
    """How many links are up; None when no link has a state. Numbers past a GPU's last link are an invalid argument."""
    refused: Dict[str, str] = {}
    states = [
        nvml.try_to(refused, "nvlinks_active", "nvmlDeviceGetNvLinkState", handle, link)
        for link in range(nvml.binding.NVML_NVLINK_MAX_LINKS)
    ]
    known = [state for state in states if state is not None]
    if not known:
        unsupported.update(refused)
        return None
    return sum(1 for state in known if state)


def _processes(ask: Any) -> Any:
    found: List[Dict[str, Any]] = []
    for kind, field, call in (
        ("compute", "processes", "nvmlDeviceGetComputeRunningProcesses"),
        ("graphics", "processes.graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ):
        listed = ask(field, call)
        if listed is None and kind == "compute":
            return None
        for process in listed or []:
            used = process.usedGpuMemory
            found.append({"pid": process.pid, "kind": kind, "used_mib": None if used is None else used // MIB})
    return found[:MAX_PROCESSES]


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        value = value.decode()
    return value[:MAX_CHARS] if isinstance(value, str) else value
