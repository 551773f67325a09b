"""nccl-tests' all_reduce_perf over eight GPUs. Faults: slow-nccl, wrong-nccl-data, garbage-output."""

import re
from typing import Any

from fleet.lab.standins.stage import complain, recording, replay, say, scene

_SECONDS = 0.6
_SLOWER = 3
_FLAGS = {
    **{"-t": "nthreads", "-g": "ngpus", "-b": "minbytes", "-e": "maxbytes", "-i": "stepbytes", "-f": "stepfactor"},
    **{
        "-n": "iters",
        "-m": "agg_iters",
        "-w": "warmup_iters",
        "-N": "run_cycles",
        "-p": "parallel_init",
        "-c": "check",
    },
    **{"-o": "op", "-d": "datatype", "-r": "root", "-z": "blocking", "-y": "stream_null", "-T": "timeout"},
    **{"-G": "cudagraph", "-C": "report_cputime", "-a": "average"},
}
_USAGE = "USAGE: all_reduce_perf \n\t" + "\n\t".join(f"[{flag},--{name} <value>] " for flag, name in _FLAGS.items())
_SIZE = re.compile(r"\d+(\.\d+)?[KMGkmg]?[bB]?")
_GARBAGE = "\x1b[2J\x1b]0;lab\x07\x00\udcff\udcfe" + "".join(chr(33 + i * 7 % 90) for i in range(400)) + "\r\n\x1b[31m"


def main(words: list[str]) -> int:
    options = _read(words)
    if options is None:
        return 0  # so does the real one, after its usage: an exit status of 0 with no result
    now = scene()
    wanted = int(options.get("-t", "1")) * int(options.get("-g", "1"))
    if wanted > len(now["gpus"]) or any(gpu["lost"] for gpu in now["gpus"]):
        complain(
            "lab: Test CUDA failure common.cu:1012 'invalid device ordinal'\n .. lab pid 1: Test failure common.cu:891\n"
        )
        return 2
    if "garbage-output" in now["faults"]:
        replay([_GARBAGE] * 20, _SECONDS)
        return 0
    text = recording("all-reduce-a100x8.txt").removesuffix('"""\n')
    text = text.replace("NVIDIA A100-SXM4-80GB", now["gpus"][0]["name"])
    text = text.replace("nThread 1 nGpus 1", f"nThread {options.get('-t', '1')} nGpus {options.get('-g', '1')}")
    if wanted < len(now["gpus"]):
        text = "".join(line for line in text.splitlines(True) if not re.match(rf"#  Rank  [{wanted}-9] ", line))
    if "slow-nccl" in now["faults"]:
        text = _change(text, _slow)
    if "wrong-nccl-data" in now["faults"]:
        text = _change(text, _wrong).replace("Out of bounds values : 0 OK", "Out of bounds values : 12 FAILED")
    if options.get("-c") == "0":
        text = _change(text, lambda row: [*row[:8], "N/A", *row[9:12], "N/A"])
    replay(text.splitlines(True), _SECONDS)
    return 1 if "wrong-nccl-data" in now["faults"] else 0


def _read(words: list[str]) -> dict[str, str] | None:
    """None after usage was printed."""
    long = {f"--{name}": flag for flag, name in _FLAGS.items()}
    options: dict[str, str] = {}
    rest = list(words)
    while rest:
        word, _, value = rest.pop(0).partition("=")
        flag = long.get(word, word)
        if flag not in _FLAGS or not (value or rest):
            say(f"invalid option '{word.lstrip('-')[:1]}'\n{_USAGE}\n")
            return None
        options[flag] = value or rest.pop(0)
    for flag in ("-t", "-g"):
        if not options.get(flag, "1").isdigit():
            say(f"invalid value for '{flag}'\n{_USAGE}\n")
            return None
    for flag in ("-b", "-e"):
        if not _SIZE.fullmatch(options.get(flag, "1")):
            complain(f"invalid size specified for '{_FLAGS[flag]}'\n")
            return None
    return options


def _change(text: str, change: Any) -> str:
    """Change each row's values: size, count, type, redop, root, then time, algbw, busbw, #wrong out of place and in place."""
    lines = []
    for line in text.splitlines(True):
        row = line.split()
        if row and row[0].isdigit() and len(row) == 13:
            a, b, c, d, e, *figures = change(row)
            left = "{:>9} {:>7} {:>6} {:>6}".format(*figures[:3], figures[3])
            right = "{:>9} {:>7} {:>6} {:>6}".format(*figures[4:7], figures[7])
            line = f"{a:>12} {b:>13} {c:>9} {d:>7} {e:>7} {left} {right}\n"
        lines.append(line)
    return "".join(lines)


def _slow(row: list[str]) -> list[str]:
    slow = list(row)
    for at in (5, 9):
        slow[at] = f"{float(row[at]) * _SLOWER:.1f}"
        slow[at + 1] = f"{float(row[at + 1]) / _SLOWER:.2f}"
        slow[at + 2] = f"{float(row[at + 2]) / _SLOWER:.2f}"
    return slow


def _wrong(row: list[str]) -> list[str]:
    count = f"{int(row[1]) / 2:g}"
    return [*row[:8], count, *row[9:12], count]
