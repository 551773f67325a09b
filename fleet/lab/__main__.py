"""`python -m fleet.lab --dir DIR --machines N`: a simulated rack, until SIGTERM ends it in order or its standard input ends."""

import argparse
import asyncio
import fcntl
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from fleet.lab.hardware import MOST_MACHINES
from fleet.lab.places import Places
from fleet.lab.rack import Rack


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fleet.lab", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="where the rack keeps its files")
    parser.add_argument("--machines", type=int, required=True, help=f"1 to {MOST_MACHINES}")
    parser.add_argument("--listen", default="127.0.0.1", help="a loopback address")
    arguments = parser.parse_args()
    if not 1 <= arguments.machines <= MOST_MACHINES:
        parser.error(f"--machines must be 1 to {MOST_MACHINES}")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    places = Places(arguments.dir.resolve())
    places.base.mkdir(parents=True, exist_ok=True, mode=0o700)
    with places.lock.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another simulated rack runs in {places.base}", file=sys.stderr)
            return 1
        return asyncio.run(_run(Rack(places, arguments.machines, arguments.listen)))


async def _run(rack: Rack) -> int:
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    for which in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(which, ending.set)
    await rack.start()
    print("ready", flush=True)
    threading.Thread(target=_leave_at_the_end_of_input, daemon=True, name="stdin").start()
    await ending.wait()
    await rack.stop()
    return 0


def _leave_at_the_end_of_input() -> None:
    """Whoever started us has died without ending us: a service's death is no rack's, so the guests' processes go on as on
    real hosts, and a rack that is started again in this directory finds them. In a thread: standard input may be a file or
    /dev/null, which the loop cannot wait for."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
