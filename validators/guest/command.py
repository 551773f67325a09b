"""The zipapp's command line: `start`, or `measure NAME [ARGUMENT...]`."""

from __future__ import annotations

import os
import sys


def main(argv: list[str]) -> int:
    if argv == ["start"]:
        from .launch import start

        print(start(os.getcwd()))
        return 0
    if len(argv) >= 2 and argv[0] == "measure":
        return measure(argv[1], argv[2:])
    print("usage: runner.pyz start | measure NAME [ARGUMENT...]", file=sys.stderr)
    return 2


def measure(name: str, arguments: list[str]) -> int:
    """Modules are imported late: a poll of a machine's links need not load the NVML binding."""
    if name == "gpu_inventory":
        from .measure import gpu_inventory

        return gpu_inventory.main(arguments)
    if name == "ib_links":
        from .measure import ib_links

        return ib_links.main(arguments)
    if name == "ib_bandwidth":
        from .measure import ib_bandwidth

        return ib_bandwidth.main(arguments)
    print("no measurement {!r} with arguments {!r}".format(name, arguments), file=sys.stderr)
    return 2
