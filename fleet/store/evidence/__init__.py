"""Raw outputs of validations: what verdicts are made from, and can be made from again. A folder, or an S3-compatible store
(``fleet.store.evidence.bucket``, which is imported only where one is set up: its library takes a third of a second)."""

from fleet.store.evidence.base import EvidenceStore
from fleet.store.evidence.folder import EvidenceFolder

__all__ = ["EvidenceFolder", "EvidenceStore"]
