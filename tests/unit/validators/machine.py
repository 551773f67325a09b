"""A machine of the lab's SKU, and what the measuring code and the tools would print on it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from playbooks.loader import Library
from validators import CHECKS
from validators.base import CheckResult, Ended, Measurement, Outcome, Subject
from validators.sku import Sku

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
SKU = Library().sku("sim-a100x8").value
SLOTS = tuple(
    {"kind": kind, "slot": f"{kind}{n}", "pci": f"0000:{host + n:02x}:00.0", "guest_pci": f"0000:{guest + n:02x}:00.0"}
    for kind, host, guest in (("gpu", 0x90, 0x10), ("rail", 0xA0, 0x20))
    for n in range(8)
)


def capture(name: str) -> str:
    """A recording as it was stored, line ends and all."""
    with (CAPTURES / name).open(encoding="utf-8", newline="") as stream:
        return stream.read()


def subject(sku: Sku = SKU, *, slots: bool = True, since: float | None = None, **options: Any) -> Subject:
    return Subject(sku, SLOTS if slots else (), since, options)


def judge(
    check: str, *outputs: str, of: Subject | None = None, ended: Ended = Ended.EXITED, **more: Any
) -> CheckResult:
    """The verdict on readings `check`, `check.2`..., all of which ended the same way."""
    names = [check, *(f"{check}.{n}" for n in range(2, len(outputs) + 1))]
    measured = [Measurement(name, out, ended=ended, **more) for name, out in zip(names, outputs, strict=True)]
    return CHECKS[check].judge(measured, of or subject())


def without(sku: Sku, check: str) -> Sku:
    """The SKU without the limit for one check."""
    return sku.model_copy(update={"limits": sku.limits.model_copy(update={check: None})})


def failures(result: CheckResult) -> set[tuple[str | None, str]]:
    return {(f.device, f.code) for f in result.findings if f.outcome is Outcome.FAILED}


def gaps(result: CheckResult) -> set[str]:
    return {f.code for f in result.findings if f.outcome is Outcome.NOT_RUN}


def gpu(index: int, **changes: Any) -> dict[str, Any]:
    """One healthy GPU of an inventory."""
    return {
        "index": index,
        "error": None,
        "uuid": f"GPU-0000000{index}",
        "serial": f"165492200653{index}",
        "name": "NVIDIA A100-SXM4-40GB",
        "pci_bus_id": f"00000000:1{index}:00.0",
        "pci_device_id": "10de:20b0",
        "memory_total_mib": 40960,
        "ecc_enabled": True,
        "ecc_volatile_uncorrected": 0,
        "ecc_aggregate_uncorrected": 0,
        "remapped_rows": {"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False},
        "nvlinks_active": 12,
        "pcie": {"gen": 4, "width": 16, "max_gen": 4, "max_width": 16},
        "temperature_c": 34,
        "power_w": 61.2,
        "throttle_reasons": 1,
        "processes": [],
        "unsupported": {},
        **changes,
    }


def inventory(changes: Mapping[int, Mapping[str, Any]] | None = None, missing: Sequence[int] = (), **top: Any) -> str:
    """What `@measure gpu_inventory` prints, with `changes` by GPU index."""
    gpus = [gpu(i, **(changes or {}).get(i, {})) for i in range(8) if i not in missing]
    document = {"format": 1, "tool": "gpu_inventory", "driver_version": "550.54.15", "nvml_version": "12.550.54.15"}
    return json.dumps(document | {"error": None, "device_count": len(gpus), "gpus": gpus} | top)


def port(index: int, **changes: Any) -> dict[str, Any]:
    """One healthy HDR port."""
    return {
        "device": f"mlx5_{index}",
        "port": 1,
        "pci": f"0000:2{index}:00.0",
        "node_guid": f"b83f:d203:0012:345{index}",
        "port_guid": f"b83f:d203:0012:345{index}",
        "fw_ver": "20.35.1012",
        "hca_type": "MT4123",
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "200 Gb/sec (4X HDR)",
        "link_layer": "InfiniBand",
        "netdev": f"ib{index}",
        "counters": {"link_downed": 255, "symbol_error": 3, "local_link_integrity_errors": 0},
        "hw_counters": {},
        "errors": {},
        **changes,
    }


def ports(
    changes: Mapping[int, Mapping[str, Any]] | None = None,
    missing: Sequence[int] = (),
    more: Sequence[Any] = (),
    **top: Any,
) -> str:
    """What `@measure ib_links` prints, with `changes` by rail."""
    listed = [port(i, **(changes or {}).get(i, {})) for i in range(8) if i not in missing]
    return json.dumps({"format": 1, "tool": "ib_links", "error": None, "ports": [*listed, *more]} | top)


def loopback(outputs: Mapping[int, str] | str, done: int | None = 8, ended: str = "exited") -> str:
    """What `@measure ib_bandwidth` prints: one raw output for all eight rails, or one for each."""
    by_rail = dict.fromkeys(range(8), outputs) if isinstance(outputs, str) else outputs
    text = ""
    for i, output in by_rail.items():
        begin = {"device": f"mlx5_{i}", "port": 1, "pci": f"0000:2{i}:00.0", "port_guid": None}
        end = {"device": f"mlx5_{i}", "port": 1, "ended": ended, "server_exit": 0, "client_exit": 0}
        text += f"=== fleet ib_bandwidth begin {json.dumps(begin)}\n=== fleet ib_bandwidth server\n"
        text += f"=== fleet ib_bandwidth client\n{output}\n=== fleet ib_bandwidth end {json.dumps(end)}\n"
    return text + (f'=== fleet ib_bandwidth done {{"ports": {done}}}\n' if done is not None else "")
