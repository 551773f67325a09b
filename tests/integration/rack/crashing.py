"""One validation in a process that dies once, by SIGKILL, directly before or directly after a given phase's handler: the
act is done, the row is not saved. Started a second time it goes on from what the database and the rack say.

    python -m tests.integration.rack.crashing LAB HOME MACHINE PHASE before|after
"""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import sqlalchemy as sa

from fleet.app import parts, rack
from fleet.app.start import LAB_RULES
from fleet.core.model import Trigger
from fleet.engine.claim import release_leases
from fleet.engine.worker import Worker
from fleet.engine.workflow import Next, Phase, Work, Workflow
from fleet.lab.manifest import read
from fleet.settings import load
from fleet.store import machines
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import ValidationRow
from fleet.workflows import begin, revalidation
from fleet.workflows.playbook import Playbook
from fleet.workflows.world import World

BY = By("test")
PLAYBOOKS = Path(__file__).parent / "playbooks"
SHORT = {"default_plan": "short", "minimum_checks": ["gpu_inventory", "ib_links", "kernel_log"]}
RULES = {**LAB_RULES, "validation": {**LAB_RULES["validation"], **SHORT}}


def deadly(workflow: Workflow, phase: str, when: str, marker: Path) -> Workflow:
    """The same workflow, but the first time that the phase's handler is called the process dies."""

    def die() -> None:
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    original: Phase = workflow.phases[phase]

    def handler(work: Work) -> Next:
        if when == "before":
            die()
        answer = original.handler(work)
        die()
        return answer

    return replace(workflow, phases={**workflow.phases, phase: replace(original, handler=handler)})


def opened(db: Database, world: World, machine: str) -> str:
    """The machine's validation, begun by the first process."""
    with db.begin() as session:
        id_ = session.scalar(sa.select(ValidationRow.id))
        if id_ is not None:
            return id_
        playbook = Playbook.load(world.library, "short", machines.get(session, machine).sku)
        seen = machines.get(session, machine)
        return begin.start_validation(session, seen, playbook, Trigger.MANUAL, BY, image=world.image)


def main(lab: Path, home: Path, machine: str, phase: str, when: str) -> None:
    settings = load(None, {"data_dir": home, "playbooks": {"directories": [PLAYBOOKS]}}, RULES)
    manifest = read(lab / "lab.json")
    hypervisor = rack.hypervisor(settings.hypervisor, manifest)
    with parts.database(settings, alone=True) as db:
        release_leases(db)
        rack.register(db, manifest)
        with parts.world(settings, db, hypervisor, parts.image(hypervisor)) as world:
            id_ = opened(db, world, machine)
            flow = deadly(revalidation.workflow(world), phase, when, home / "died")
            worker = Worker(db, [flow], threads=1)
            while True:
                with db.read() as session:
                    row = session.get(ValidationRow, id_)
                    assert row is not None
                    if row.verdict is not None:
                        state = machines.get(session, machine).state
                        print(json.dumps({"verdict": row.verdict, "reason": row.reason, "state": state}))
                        return
                if not worker.step():
                    time.sleep(0.05)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:6])
