"""The inventory through a binding that answers as it is told, and through the real binding and a stand-in library."""

import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.needs import need
from tests.unit.guest.measuring import measure
from validators.guest.measure import gpu_inventory
from validators.tools import nvml

STANDIN = Path(__file__).parents[2] / "data/nvml/standin.c"


class Binding:
    """Eight healthy GPUs, as pynvml tells of them. `answers[call]` is a value, an error code, or another exception."""

    NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_UNKNOWN = 2, 3, 999
    NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED = 9, 15, 16
    NVML_VOLATILE_ECC, NVML_AGGREGATE_ECC, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1, 1
    NVML_TEMPERATURE_GPU, NVML_NVLINK_MAX_LINKS = 0, 18

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            self.value = value

    def __init__(self, **broken: Any) -> None:
        self.broken = broken

    def __getattr__(self, call: str) -> Any:
        if not call.startswith("nvml") or self.broken.get(call) == "absent":
            raise AttributeError(call)
        return lambda *arguments: self.answer(call, *arguments)

    def __dir__(self) -> list[str]:
        return [name for name in vars(Binding) if name.startswith("NVML_")]

    def answer(self, call: str, *arguments: Any) -> Any:
        how = self.broken.get(call)
        if isinstance(how, Exception):
            raise how
        if isinstance(how, int):
            raise self.NVMLError(how)
        if call == "nvmlDeviceGetNvLinkState" and arguments[1] >= 12:
            raise self.NVMLError(self.NVML_ERROR_INVALID_ARGUMENT)
        return {
            "nvmlSystemGetDriverVersion": "550.54.15",
            "nvmlSystemGetNVMLVersion": b"12.550.54.15",
            "nvmlDeviceGetCount": 8,
            "nvmlDeviceGetHandleByIndex": arguments[0] if arguments else None,
            "nvmlDeviceGetName": "NVIDIA A100-SXM4-40GB",
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"00000000:1B:00.0", pciDeviceId=0x20B010DE),
            "nvmlDeviceGetUUID": "GPU-1",
            "nvmlDeviceGetSerial": "1654922006536",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=40960 << 20),
            "nvmlDeviceGetEccMode": [1, 1],
            "nvmlDeviceGetTotalEccErrors": arguments[2] if len(arguments) > 2 else None,
            "nvmlDeviceGetRemappedRows": (3, 2, 1, 0),
            "nvmlDeviceGetNvLinkState": 1,
            "nvmlDeviceGetCurrPcieLinkGeneration": 4,
            "nvmlDeviceGetCurrPcieLinkWidth": 8,
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetTemperature": 34,
            "nvmlDeviceGetPowerUsage": 61200,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 1,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=4242, usedGpuMemory=5 << 20)],
            "nvmlDeviceGetGraphicsRunningProcesses": [SimpleNamespace(pid=7, usedGpuMemory=None)],
        }.get(call)


def first_gpu(**broken: Any) -> dict[str, Any]:
    gpu: dict[str, Any] = gpu_inventory.measure(Binding(**broken))["gpus"][0]
    return gpu


def test_every_value_of_a_healthy_gpu() -> None:
    document = gpu_inventory.measure(Binding())
    assert (document["driver_version"], document["nvml_version"]) == ("550.54.15", "12.550.54.15")
    assert (document["error"], document["device_count"], len(document["gpus"])) == (None, 8, 8)
    assert document["gpus"][3] == {
        "index": 3,
        "error": None,
        "uuid": "GPU-1",
        "serial": "1654922006536",
        "name": "NVIDIA A100-SXM4-40GB",
        "pci_bus_id": "00000000:1B:00.0",
        "pci_device_id": "10de:20b0",
        "memory_total_mib": 40960,
        "ecc_enabled": True,
        "ecc_volatile_uncorrected": 0,
        "ecc_aggregate_uncorrected": 1,
        "remapped_rows": {"correctable": 3, "uncorrectable": 2, "pending": True, "failure": False},
        "nvlinks_active": 12,
        "pcie": {"gen": 4, "width": 8, "max_gen": 5, "max_width": 16},
        "temperature_c": 34,
        "power_w": 61.2,
        "throttle_reasons": 1,
        "processes": [
            {"pid": 4242, "kind": "compute", "used_mib": 5},
            {"pid": 7, "kind": "graphics", "used_mib": None},
        ],
        "unsupported": {},
    }


def test_no_driver_is_an_error_of_the_whole() -> None:
    document = gpu_inventory.measure(Binding(nvmlInit=9))
    assert document["error"] == {"call": "nvmlInit", "code": 9, "name": "NVML_ERROR_DRIVER_NOT_LOADED"}
    assert (document["device_count"], document["gpus"]) == (None, [])


@pytest.mark.parametrize(
    ("call", "code", "name"),
    [
        ("nvmlDeviceGetHandleByIndex", 15, "NVML_ERROR_GPU_IS_LOST"),
        ("nvmlDeviceGetHandleByIndex", 999, "NVML_ERROR_UNKNOWN"),
        ("nvmlDeviceGetName", 999, "NVML_ERROR_UNKNOWN"),
        ("nvmlDeviceGetPciInfo", 777, "NVML_ERROR_777"),
        ("nvmlDeviceGetTotalEccErrors", 16, "NVML_ERROR_RESET_REQUIRED"),
        ("nvmlDeviceGetNvLinkState", 15, "NVML_ERROR_GPU_IS_LOST"),
        ("nvmlDeviceGetGraphicsRunningProcesses", 15, "NVML_ERROR_GPU_IS_LOST"),
    ],
)
def test_gpu_that_is_gone_is_an_entry_with_its_error(call: str, code: int, name: str) -> None:
    gpu = first_gpu(**{call: code})
    assert (gpu["error"]["call"], gpu["error"]["name"], gpu["processes"]) == (call, name, None)
    assert gpu["error"]["code"] == code


def test_gpu_that_dies_half_way_keeps_what_was_read() -> None:
    gpu = first_gpu(nvmlDeviceGetTotalEccErrors=15)
    assert (gpu["pci_bus_id"], gpu["serial"]) == ("00000000:1B:00.0", "1654922006536")
    assert gpu["temperature_c"] is None


def test_what_is_not_supported_is_null_and_named() -> None:
    gpu = first_gpu(
        nvmlDeviceGetNvLinkState=3,
        nvmlDeviceGetRemappedRows=3,
        nvmlDeviceGetPowerUsage="absent",
        nvmlDeviceGetCurrPcieLinkWidth=999,
        nvmlDeviceGetComputeRunningProcesses=3,
        nvmlDeviceGetSerial=UnicodeDecodeError("utf-8", b"\xff", 0, 1, "broken"),
    )
    assert gpu["error"] is None
    assert [gpu[field] for field in ("nvlinks_active", "remapped_rows", "power_w", "processes", "serial")] == [None] * 5
    assert gpu["pcie"] == {"gen": 4, "width": None, "max_gen": 5, "max_width": 16}
    assert gpu["unsupported"] == {
        "nvlinks_active": "NVML_ERROR_NOT_SUPPORTED",
        "remapped_rows": "NVML_ERROR_NOT_SUPPORTED",
        "power_w": "NVML_ERROR_FUNCTION_NOT_FOUND",
        "pcie.width": "NVML_ERROR_UNKNOWN",
        "processes": "NVML_ERROR_NOT_SUPPORTED",
        "serial": "NVML_ERROR_CORRUPTED_INFOROM",
    }
    assert gpu["temperature_c"] == 34


def test_links_that_are_down_are_counted_as_none_active() -> None:
    class Down(Binding):
        def answer(self, call: str, *arguments: Any) -> Any:
            return int(arguments[1] != 5) if call == "nvmlDeviceGetNvLinkState" else super().answer(call, *arguments)

    assert gpu_inventory.measure(Down())["gpus"][0]["nvlinks_active"] == 17


def test_long_names_and_lists_are_cut() -> None:
    class Much(Binding):
        def answer(self, call: str, *arguments: Any) -> Any:
            if call == "nvmlDeviceGetCount":
                return 1000
            if call == "nvmlDeviceGetSerial":
                return "x" * 1000
            if call == "nvmlDeviceGetComputeRunningProcesses":
                return [SimpleNamespace(pid=1, usedGpuMemory=None)] * 1000
            return super().answer(call, *arguments)

    document = gpu_inventory.measure(Much())
    assert (document["device_count"], len(document["gpus"])) == (1000, 64)
    assert (len(document["gpus"][0]["serial"]), len(document["gpus"][0]["processes"])) == (200, 64)


def test_without_a_driver_library_the_bundled_binding_says_so(tmp_path: Path) -> None:
    inventory = nvml.parse(measure(tmp_path, "gpu_inventory"))
    assert inventory.error is not None
    assert inventory.error.name == "NVML_ERROR_LIBRARY_NOT_FOUND"


def test_binding_of_a_lab_goes_first(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(
        "NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED, NVML_ERROR_DRIVER_NOT_LOADED = 15, 16, 9\n"
        "class NVMLError(Exception):\n    value = 9\n"
        "def nvmlInit(): raise NVMLError\n"
    )
    output = measure(tmp_path, "gpu_inventory", environment={"FLEET_PYNVML": str(tmp_path)})
    assert json.loads(output)["error"]["name"] == "NVML_ERROR_DRIVER_NOT_LOADED"


@pytest.mark.real
def test_real_binding_on_a_stand_in_library(tmp_path: Path) -> None:
    need("a C compiler (gcc)", shutil.which("gcc"))
    library = tmp_path / "libnvidia-ml.so.1"
    build = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", library, STANDIN]
    subprocess.run(build, check=True)
    gpus = tmp_path / "gpus"
    lines = [
        "uuid=GPU-a\tbus=0000:1b:00.0\tpid=4242",
        "uuid=GPU-b\tbus=0000:43:00.0\terror=15",
        "bus=0000:52:00.0\tlinks=0",
    ]
    gpus.write_text("".join(f"{line}\n" for line in lines))
    environment = {"LD_LIBRARY_PATH": str(tmp_path), "NVML_STANDIN": str(gpus)}
    inventory = nvml.parse(measure(tmp_path, "gpu_inventory", environment=environment))
    assert (inventory.error, inventory.device_count) == (None, 3)
    healthy, lost, third = inventory.gpus
    assert (healthy.error, healthy.unsupported) == (None, {})
    assert (healthy.uuid, healthy.pci, healthy.pci_device_id) == ("GPU-a", "0000:1b:00.0", "10de:20b0")
    assert (healthy.memory_total_mib, healthy.nvlinks_active, healthy.power_w) == (40960, 12, 61.0)
    assert [(p.pid, p.kind, p.used_mib) for p in healthy.processes or ()] == [(4242, "compute", 5)]
    assert lost.error is not None
    assert (lost.error.call, lost.error.name) == ("nvmlDeviceGetHandleByIndex", "NVML_ERROR_GPU_IS_LOST")
    assert (third.nvlinks_active, third.unsupported) == (None, {"nvlinks_active": "NVML_ERROR_NOT_SUPPORTED"})


class Waking(Binding):
    """A driver that is still bringing GPUs up: one more each time that NVML is started anew."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 6

    def answer(self, call: str, *arguments: Any) -> Any:
        if call == "nvmlShutdown":
            self.count += 1
        return self.count if call == "nvmlDeviceGetCount" else super().answer(call, *arguments)


@pytest.mark.parametrize(("settle_s", "count"), [(30.0, 7), (0.0, 6)])
def test_gpus_that_are_still_brought_up_are_waited_for(settle_s: float, count: int) -> None:
    """The guest answers before its driver is ready: a reading right then would miss good GPUs."""
    document = gpu_inventory.settled(Waking(), 7, settle_s)
    assert (document["device_count"], len(document["gpus"])) == (count, count)
