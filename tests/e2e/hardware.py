"""What a test VM shows as hardware (guest/etc/fleet/start.d/50-hardware makes it so): a healthy machine, and ways to break it."""

from pathlib import Path
from typing import Any

CAPTURES = Path(__file__).parent.parent / "data" / "captures"
RAIL_MAC = "52:54:00:00:01:01"
RAIL_GUID = "5054:00ff:fe00:0101"  # what soft RoCE makes of the MAC address
GPUS: tuple[dict[str, str], ...] = tuple(
    {
        "uuid": f"GPU-e2e00000-0000-4000-8000-{index:012d}",
        "serial": f"16549220065{index:02d}",
        "bus": f"0000:{index + 5:02x}:00.0",
    }
    for index in range(8)
)


def recording(name: str, seconds: float = 1, status: int = 0) -> dict[str, Any]:
    """A program that prints a capture of tests/data/captures, half of it before and half after `seconds`."""
    return {"prints": (CAPTURES / name).read_text(), "seconds": seconds, "status": status}


def hardware(**changed: Any) -> dict[str, Any]:
    """Healthy, but for `changed`: tools by name, None taking one away."""
    tools = {
        "gpu_burn": recording("gpu-burn/a100x8-ok-cr-progress.txt"),
        "all_reduce_perf": recording("nccl-tests/allreduce-a100x8-ok.txt"),
    } | changed
    return {
        "gpus": list(GPUS),
        "rails": [RAIL_MAC],
        "tools": {name: tool for name, tool in tools.items() if tool is not None},
    }
