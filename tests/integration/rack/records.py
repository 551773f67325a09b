"""What the database says: begins a validation on it, reads how one ended."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.app import parts, rack
from fleet.core.model import Trigger
from fleet.lab.manifest import Manifest
from fleet.settings import Settings
from fleet.store import attention, machines, site, tickets, validations
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.workflows import begin
from fleet.workflows.playbook import Playbook
from playbooks.loader import Library

BY = By("test")


@dataclass(frozen=True)
class Settled:
    verdict: str
    reason: str
    state: str
    tickets: tuple[str, ...]  # the validation that each open one names
    told: tuple[str, ...]  # reasons of open attention records
    next_steps: tuple[str, ...]  # what these tell a person to do
    phases: tuple[str, ...]


def ready(db: Database, settings: Settings, manifest: Manifest) -> Mapping[str, Any]:
    """The rack's machines on record, its plans proven, mode `enforce`; returns the test image as it is recorded."""
    image = parts.image(rack.hypervisor(settings.hypervisor, manifest))
    library = parts.library(settings)
    rack.register(db, manifest)
    rack.prove(db, library, manifest, image)
    with db.begin() as session:
        site.set_mode(session, "enforce", BY)
    return image


def begun(db: Database, library: Library, image: Mapping[str, Any], machine: str, plan: str) -> str:
    with db.begin() as session:
        seen = machines.get(session, machine)
        playbook = Playbook.load(library, plan, seen.sku)
        return begin.start_validation(session, seen, playbook, Trigger.MANUAL, BY, image=image)


def settled(db: Database, validation: str) -> Settled | None:
    """None while it has no verdict."""
    with db.read() as session:
        row = validations.get(session, validation)
        if row.verdict is None:
            return None
        told = attention.listed(session, machine=row.machine).rows
        return Settled(
            row.verdict,
            str(row.reason),
            machines.get(session, row.machine).state,
            tuple(t.validation for t in tickets.open_of(session, row.machine)),
            tuple(t.reason for t in told),
            tuple(t.next_step for t in told),
            tuple(p["phase"] for p in row.phases),
        )
