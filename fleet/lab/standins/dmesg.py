"""dmesg of util-linux, of the simulated host or guest in whose session it runs."""

import os
import time
from datetime import UTC, datetime

from fleet.lab.standins.stage import complain, read_text, say

_FORMATS = ("ctime", "reltime", "delta", "notime", "iso", "raw")


def main(words: list[str]) -> int:
    style = "raw"
    rest = list(words)
    while rest:
        word, _, value = rest.pop(0).partition("=")
        if word == "--time-format" and (value or rest):
            style = value or rest.pop(0)
            if style not in _FORMATS:
                complain(f"dmesg: unknown time format: {style}\n")
                return 1
        elif word in ("-T", "--ctime"):
            style = "ctime"
        elif word not in ("-P", "--nopager", "-k", "--kernel"):
            complain(f"dmesg: unrecognized option '{word}'\nTry 'dmesg --help' for more information.\n")
            return 1
    for line in read_text(os.environ["FLEET_ROOT"] + "/var/log/kmsg").splitlines():
        wall, since_boot, text = line.split("\t", 2)
        say(f"{_stamp(style, float(wall), float(since_boot))}{text}\n")
    return 0


def _stamp(style: str, wall: float, since_boot: float) -> str:
    if style == "iso":
        return datetime.fromtimestamp(wall, UTC).isoformat(timespec="microseconds").replace(".", ",") + " "
    if style == "ctime":
        return time.strftime("[%a %b %e %H:%M:%S %Y] ", time.gmtime(wall))
    if style == "notime":
        return ""
    return f"[{since_boot:12.6f}] "
