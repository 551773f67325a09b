"""Starts one stand-in by its name: `python -I -S launch.py TOOL ARGUMENT...`."""

import os
import signal
import sys
from importlib import import_module

TOOLS = ("all_reduce_perf", "dmesg", "fio", "gpu_burn", "ib_write_bw", "virsh")


def main(words: list[str]) -> int:
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))
    if words[0] not in TOOLS:
        raise SystemExit(f"{words[0]}: not found")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # ends with its reader, as programs do
    status: int = import_module(f"fleet.lab.standins.{words[0]}").main(words[1:])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
