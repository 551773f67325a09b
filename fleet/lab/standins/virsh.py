"""virsh of a simulated host: passes its arguments to the lab, which answers for libvirt."""

import os

from fleet.lab.standins.lab import ask
from fleet.lab.standins.stage import complain, say


def main(words: list[str]) -> int:
    try:
        answer = ask({"host": os.environ["LAB_HOST"], "argv": words, "cwd": os.getcwd()})
    except (OSError, ValueError):
        complain(
            "error: failed to connect to the hypervisor\n"
            "error: Failed to connect socket to '/var/run/libvirt/libvirt-sock': Connection refused\n"
        )
        return 1
    say(answer["stdout"])
    complain(answer["stderr"])
    return int(answer["status"])
