"""`start`: begins the run once, and tells the truth about a run that was begun before.

Whoever holds the lock on runner.lock owns the directory. The supervisor inherits it, so that a state of "running" under a
free lock means that its supervisor is dead. Such a run is closed, never begun again: nobody knows what a burn did to the
machine when its guest fell over.
"""

from __future__ import annotations

import fcntl
import os
from typing import Any, Dict

from . import leftovers, plan
from .state import BROKEN, RUNNING, Record, StateFile, Unreadable, boot_id, read
from .supervisor import Supervisor

ALREADY = "running already"


def start(directory: str) -> str:
    """Returns the run's state, or ALREADY, when a supervisor (or another start) is at work."""
    os.umask(0o077)
    lock = os.open(os.path.join(directory, "runner.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return ALREADY
    try:
        seen = read(directory)
    except Unreadable as exc:
        return _close(directory, {}, str(exc))
    if seen is None:
        return _begin(directory, lock)
    if seen.get("state") == RUNNING:
        return _close(directory, seen["checks"], _why_dead(seen))
    return str(seen.get("state"))


def _begin(directory: str, lock: int) -> str:
    try:
        stages = plan.load(directory)
        steps = [step for stage in stages for step in stage]
        os.makedirs(os.path.join(directory, "work"), exist_ok=True)
        for step in steps:  # now, while there is room on the disk
            os.makedirs(os.path.join(directory, "out", step.name + ".part"), exist_ok=True)
            for output in step.outputs:
                output.create()
    except (plan.Unusable, OSError) as exc:
        StateFile(directory, {}).write(BROKEN, str(exc))
        return BROKEN
    file = StateFile(directory, {step.name: step.record for step in steps})
    file.write(RUNNING)
    if _detach(lock):
        try:
            Supervisor(directory, stages, file).run()
        finally:
            os._exit(0)
    return RUNNING


def _detach(lock: int) -> bool:
    """Fork; True in the child, which has a session of its own and holds nothing open but the lock, so that the SSH
    channel that started it can close."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return False
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != lock:
            try:
                os.close(int(name))
            except OSError:  # the listing's own
                pass
    return True


def _why_dead(seen: Dict[str, Any]) -> str:
    now = boot_id()
    if seen.get("boot_id") != now:
        return "the guest was rebooted while the run was on: boot id {} is now {}".format(seen.get("boot_id"), now)
    return "the runner died while the run was on"


def _close(directory: str, checks: Dict[str, Any], reason: str) -> str:
    """Write the state of a dead run, with what was running or waiting as lost, and kill what it left behind."""
    killed = leftovers.kill(directory)
    records = {}
    for name, seen in checks.items():
        record = records[name] = Record()
        vars(record).update((key, seen[key]) for key in vars(record) if key in seen)
        if record.state != "ended":
            record.end("lost")
            _publish(os.path.join(directory, "out", name), record)
    StateFile(directory, records).write(BROKEN, reason + ("; {} processes killed".format(killed) if killed else ""))
    return BROKEN


def _publish(out: str, record: Record) -> None:
    """Give a lost step's output its final name."""
    if not os.path.isdir(out):
        os.rename(out + ".part", out)
    record.stdout_bytes = os.path.getsize(os.path.join(out, "stdout"))
    record.stderr_bytes = os.path.getsize(os.path.join(out, "stderr"))
