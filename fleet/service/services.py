"""What the use cases work with; the composition root fills it in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.service.access import Strangers
from fleet.service.lab import LabControl
from fleet.store.database import Database
from fleet.store.evidence import EvidenceStore
from playbooks.loader import Library


@dataclass(frozen=True)
class Services:
    """`image` says what the test VM boots (digest and versions); `lab` is None where there is no simulated rack."""

    db: Database
    evidence: EvidenceStore
    library: Library
    default_plan: str = "standard"
    image: Mapping[str, Any] = field(default_factory=dict)
    lab: LabControl | None = None
    two_person_rule: bool = False
    approval_expires_s: float = 86400.0
    strangers: Strangers = field(default_factory=Strangers)
