"""gpu_burn: eight A100 under load. Faults: faulty-gpu, gpu-lost-under-load, guest-hangs-in-burn, output-flood."""

import re
import time
from typing import Any

from fleet.lab.standins.lab import tell
from fleet.lab.standins.stage import complain, recording, replay, say, scene, stamp

_SECONDS = 1.4
_PIECES = 28
_FLOOD = "0.0%  proc'd: 0 (0 Gflop/s)   errors: 0   temps: 38 C \r" * 1000
_HELP = """GPU Burn
Usage: gpu-burn [OPTIONS] [TIME]

-m X\tUse X MB of memory.
-m N%\tUse N% of the available GPU memory.  Default is 90%
-d\tUse doubles
-tc\tTry to use Tensor cores
-l\tLists all GPUs in the system
-c FILE\tUse FILE as compare kernel.  Default is compare.ptx
-stts T\tSet timeout threshold to T seconds for using SIGTERM to abort child processes before using SIGKILL.  Default is 30
-h\tShow this help message
"""


def main(words: list[str]) -> int:
    now = scene()
    seconds = 10
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "-h":
            say(_HELP)
            return 0
        if word in ("-l", "-list"):
            say("".join(f"ID {gpu['index']}: {gpu['name']}, {gpu['memory_mib']}MB\n" for gpu in now["gpus"]))
            return 0
        if word in ("-d", "-tc"):
            continue
        if word in ("-m", "-c", "-stts") and rest:
            rest.pop(0)
        elif word.isdigit() and not rest:
            seconds = int(word)
        else:
            complain(f"Syntax error near {word}\n")
            return 22
    return burn(now, seconds)


def burn(now: dict[str, Any], seconds: int) -> int:
    if any(gpu["lost"] for gpu in now["gpus"]):
        complain(
            'Couldn\'t init a GPU test: Error in "init" (gpu_burn-drv.cpp:96): no CUDA-capable device is detected\n'
        )
        return 1
    say(f"Burning for {seconds} seconds.\n")
    if "output-flood" in now["faults"]:
        while True:
            say(_FLOOD)
    text = _fit(recording("gpu-burn-a100x8.txt"), now)
    pieces = _split(text)
    half = len(pieces) * 3 // 5
    replay(pieces[:half], _SECONDS / 2)
    if "guest-hangs-in-burn" in now["faults"]:
        tell("hangs")
        while True:
            time.sleep(3600)
    if "gpu-lost-under-load" in now["faults"]:
        tell("gpu-lost")
        pieces[half:] = _split(_died("".join(pieces[half:]), now["suspect_gpu"]))
    elif "faulty-gpu" in now["faults"]:
        pieces[half:] = _split(_faulty("".join(pieces[half:]), now["suspect_gpu"]))
    replay(pieces[half:], _SECONDS / 2)
    return 0


def _split(text: str) -> list[str]:
    size = max(1, len(text) // _PIECES)
    return [text[at : at + size] for at in range(0, len(text), size)]


def _fit(text: str, now: dict[str, Any]) -> str:
    """The recording, of these GPUs and at this time."""
    for gpu in now["gpus"]:
        line = rf"GPU {gpu['index']}: NVIDIA A100-SXM4-80GB \(UUID: [^)]*\)"
        text = re.sub(line, f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})", text)
    return re.sub(r"Summary at: .*", f"Summary at:   {stamp(time.time() + now['clock_shift_s'])}", text)


def _faulty(text: str, index: int) -> str:
    def wrong(columns: list[str]) -> list[str]:
        return [*columns[:index], "30472096  (WARNING!)", *columns[index + 1 :]]

    return _trailer(_columns(text, "errors: ", wrong), index)


def _died(text: str, index: int) -> str:
    def gone(columns: list[str]) -> list[str]:
        return [*columns[:index], "-1 (0 Gflop/s)", *columns[index + 1 :]]

    def errors(columns: list[str]) -> list[str]:
        return [*columns[:index], "1573  (DIED!)", *columns[index + 1 :]]

    return _trailer(_columns(_columns(text, "proc'd: ", gone), "errors: ", errors), index)


def _columns(text: str, heading: str, change: Any) -> str:
    """Change the columns after a heading, wherever a whole row of eight stands."""

    def swap(found: re.Match[str]) -> str:
        columns = found.group(2).split(" - ")
        return found.group(1) + " - ".join(change(columns) if len(columns) == 8 else columns) + found.group(3)

    return re.sub(rf"({heading})(.*?)(   (?:errors|temps)| \r| \n)", swap, text)


def _trailer(text: str, index: int) -> str:
    return re.sub(rf"(\tGPU {index}: )OK", r"\1FAULTY", text)
