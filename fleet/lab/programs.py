"""The programs that a session finds: stand-ins first, then the machine's own, without those that would tell of the real
machine underneath or change it."""

import os
import shlex
import shutil
import sys
from pathlib import Path

_LAUNCH = Path(__file__).parent / "standins" / "launch.py"
_HIDDEN = frozenset(
    {"virsh", "virt-host-validate", "qemu-img", "dmesg", "journalctl", "systemctl", "sudo", "su", "reboot", "shutdown"}
    | {"poweroff", "halt", "nvidia-smi", "lspci", "ipmitool", "ibstat", "ibstatus", "perfquery", "ib_write_bw", "fio"}
    | {"gpu_burn", "all_reduce_perf"}
)
_HOST_TOOLS = ("virsh", "dmesg")
_GUEST_TOOLS = ("gpu_burn", "all_reduce_perf", "ib_write_bw", "fio", "dmesg")
_YEARS_BEHIND_S = 6 * 365 * 86400
# In blocks of 512 bytes, the unit of `ulimit -f`: a runner's state fits, a burn's output does not. A file that may not grow
# is what an unprivileged lab has for a full disk: writes fail alike, with EFBIG for ENOSPC.
_FULL_AT_BLOCKS = 32


def link_system(to: Path) -> None:
    """Links to the programs in /usr/bin and the like. Made once: processes of a guest may be using them."""
    if to.exists():
        return
    new = to.with_name(to.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for folder in (Path("/usr/bin"), Path("/bin"), Path("/usr/sbin"), Path("/sbin")):
        for entry in os.scandir(folder) if folder.is_dir() else ():
            link = new / entry.name
            if entry.name not in _HIDDEN and not entry.name.startswith("python") and not link.is_symlink():
                link.symlink_to(entry.path)
    new.rename(to)


def write_host(to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for tool in _HOST_TOOLS:
        _script(to / tool, _standin(tool))


def write_guest(to: Path, faults: list[str], wrong_clock: Path) -> None:
    """A guest's own tools under these faults; called again when they change."""
    to.mkdir(parents=True, exist_ok=True)
    for tool in _GUEST_TOOLS:
        if tool == "gpu_burn" and "tool-missing" in faults:
            (to / tool).unlink(missing_ok=True)
        else:
            _script(to / tool, _standin(tool))
    python = [f'exec {shlex.quote(_interpreter())} "$@"']
    if "disk-full" in faults:
        python = ["trap '' XFSZ", f"ulimit -f {_FULL_AT_BLOCKS}", *python]
    if "clock-wrong" in faults:
        python = [f"export PYTHONPATH={shlex.quote(str(wrong_clock))}", *python]
        _script(to / "date", [f"exec {shutil.which('date')} -d '{clock_shift_s(faults)} seconds' \"$@\""])
    else:
        (to / "date").unlink(missing_ok=True)
    _script(to / "python3", python)


def write_wrong_clock(to: Path) -> None:
    """What a Python in a guest with a wrong clock loads at its start: `time.time` of another year."""
    to.mkdir(parents=True, exist_ok=True)
    (to / "sitecustomize.py").write_text(
        f"import time\n_now = time.time\ntime.time = lambda: _now() - {_YEARS_BEHIND_S}\n"
    )


def clock_shift_s(faults: list[str]) -> int:
    """How many seconds a guest's wall clock is ahead."""
    return -_YEARS_BEHIND_S if "clock-wrong" in faults else 0


def _standin(tool: str) -> list[str]:
    return [f'exec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(_LAUNCH))} {tool} "$@"']


def _interpreter() -> str:
    """The interpreter itself, not a virtual environment's: a test image has no packages of ours."""
    return str(getattr(sys, "_base_executable", sys.executable))


def _script(path: Path, lines: list[str]) -> None:
    """Replaced at once: a tool may be started at any moment."""
    new = path.with_name(f".{path.name}.new")
    new.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    new.chmod(0o755)
    new.replace(path)
