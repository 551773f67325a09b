"""A worker in a process of its own, one of several on one database. Where it is told to, it freezes: SIGSTOP to itself, once
among all workers, directly before or after a phase's handler; its parent lets it go on later.

    python -m tests.integration.rack.working LAB HOME DATABASE LEASE_S [MACHINE PHASE before|after]...
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from fleet.app import parts, rack
from fleet.engine.claim import Budgets
from fleet.engine.worker import Worker
from fleet.engine.workflow import Next, Phase, Work, Workflow
from fleet.lab.manifest import read
from fleet.settings import Settings, load
from fleet.workflows import revalidation, sweep, vacancy
from fleet.workflows.world import World
from tests.integration.rack.crashing import PLAYBOOKS, RULES

ALL = Budgets(total=64, per_rack=64, per_power_feed=64)
Freezes = Mapping[tuple[str, str], str]  # (phase, when) -> machine


def settings(home: Path, database: str | None = None) -> Settings:
    flags = {"data_dir": home, "database": database, "playbooks": {"directories": [PLAYBOOKS]}}
    return load(None, flags, RULES)


def freezing(workflow: Workflow, freezes: Freezes, home: Path) -> Workflow:
    def freeze(machine: str, phase: str, when: str) -> None:
        if freezes.get((phase, when)) != machine:
            return
        try:
            (home / f"frozen-{phase}-{when}").touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGSTOP)

    def wrapped(name: str, phase: Phase) -> Phase:
        def handler(work: Work) -> Next:
            freeze(work.run.subject, name, "before")
            answer = phase.handler(work)
            freeze(work.run.subject, name, "after")
            return answer

        return replace(phase, handler=handler)

    return replace(workflow, phases={name: wrapped(name, phase) for name, phase in workflow.phases.items()})


def work(
    lab: Path,
    home: Path,
    database: str,
    lease_s: float,
    freezes: Freezes = MappingProxyType({}),
    wait: Callable[[], object] = signal.pause,
    outside: Callable[[World], World] = lambda world: world,
    each: Callable[[Workflow], Workflow] = lambda workflow: workflow,
) -> None:
    """Until `wait` returns. On SQLite alone, as `fleet up` is. `outside` and `each`: what a test changes about the world
    and about every workflow."""
    chosen = settings(home, database)
    hypervisor = rack.hypervisor(chosen.hypervisor, read(lab / "lab.json"))
    with (
        parts.database(chosen, alone=database.startswith("sqlite")) as db,
        parts.world(chosen, db, hypervisor, parts.image(hypervisor)) as world,
    ):
        changed = outside(world)
        validating = freezing(revalidation.workflow(changed), freezes, home)
        flows = [each(flow) for flow in (validating, vacancy.workflow(changed), sweep.workflow(changed))]
        with db.begin() as session:
            sweep.ensure(session)
        worker = Worker(db, flows, lease_s=lease_s, budgets=ALL)
        worker.start()
        wait()
        worker.stop()


if __name__ == "__main__":
    words = sys.argv[5:]
    cases = zip(words[::3], words[1::3], words[2::3], strict=True)
    freezes = {(phase, when): machine for machine, phase, when in cases}
    work(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]), freezes, sys.stdin.read)
