"""An evidence store that is full or away: the validation waits, then is aborted; nothing is condemned without evidence."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from fleet.core.errors import EvidenceBusy, EvidenceError, EvidenceFull
from fleet.core.states import State
from fleet.store import machines
from fleet.store.database import Database
from fleet.store.evidence import EvidenceFolder
from fleet.store.tables import RunRow, ValidationRow
from fleet.workflows import revalidation
from fleet.workflows.following import within_limit
from fleet.workflows.guest import GuestOutput, GuestPoll
from fleet.workflows.world import Policy
from tests.unit.workflows.case import Case
from tests.unit.workflows.hosts import Hosts, world


@dataclass
class Refusing:
    """A folder that takes nothing while there is an `error`, and shows nothing while it is `unreadable`."""

    folder: EvidenceFolder
    error: EvidenceError | None = None
    unreadable: EvidenceError | None = None
    limit_bytes: int = 1 << 20
    asked: list[str] = field(default_factory=list)

    def put(self, validation: str, measurement: str, stream: str, content: bytes) -> dict[str, Any]:
        self.asked.append(measurement)
        if self.error is not None:
            raise self.error
        return self.folder.put(validation, measurement, stream, content)

    def get(self, stored: Mapping[str, Any]) -> bytes:
        if self.unreadable is not None:
            raise self.unreadable
        return self.folder.get(stored)

    def drop(self, validation: str) -> None:
        self.folder.drop(validation)

    def validations(self, after: str, limit: int) -> list[str]:
        return self.folder.validations(after, limit)

    def free_bytes(self) -> int | None:
        return None


def refused(db: Database, folder: Path, error: EvidenceError, policy: Policy, hosts: Hosts) -> tuple[Case, Refusing]:
    case, store = Case(db, folder, policy=policy, hosts=hosts), Refusing(EvidenceFolder(folder), error)
    outside = replace(world(db, hosts, folder, policy), evidence=store)
    case.worker.workflows = {"validation": revalidation.workflow(outside)}
    case.to_preflight()
    return case, store


@pytest.mark.parametrize("error", [EvidenceFull("no space"), EvidenceBusy("no answer"), EvidenceError("not writable")])
def test_a_validation_waits_for_the_store_and_then_restores_the_prior_state(
    db: Database, tmp_path: Path, error: EvidenceError
) -> None:
    case, _ = refused(db, tmp_path, error, Policy(evidence_patience_s=1e6), Hosts())
    case.turn()
    case.turn()
    assert (case.run.phase, case.run.attempts, case.told()) == ("preflight", 0, ["evidence"])
    with db.begin() as session:
        run = session.scalars(sa.select(RunRow)).one()
        run.data = {**run.data, "unkept": {**run.data["unkept"], "since": run.data["unkept"]["since"] - 2e6}}
    case.until(None)
    verdict, reason = case.verdict
    assert (verdict, case.state) == ("aborted", State.AVAILABLE)
    assert f"evidence cannot be stored or read: {error}" in reason


def test_it_goes_on_when_the_store_takes_evidence_again(db: Database, tmp_path: Path) -> None:
    case, store = refused(db, tmp_path, EvidenceFull("no space"), Policy(), Hosts())
    case.turn()
    store.error = None
    case.turn()
    assert case.run.phase == "place"


def test_a_missing_device_condemns_nothing_while_it_cannot_be_recorded(db: Database, tmp_path: Path) -> None:
    policy = Policy(evidence_patience_s=1e-9, device_return_s=0.0)
    hosts = Hosts()
    case, _ = refused(db, tmp_path, EvidenceFull("no space"), policy, hosts)
    with db.read() as session:
        hosts.missing = {machines.get(session, "m1").slots[0].pci}
    case.until(None)
    assert (case.verdict[0], case.state) == ("aborted", State.VACATED)


def test_a_verdict_waits_until_the_evidence_can_be_read(db: Database, tmp_path: Path) -> None:
    hosts = Hosts()
    case, store = refused(db, tmp_path, EvidenceBusy("no answer"), Policy(device_return_s=0.0), hosts)
    store.error = None
    with db.read() as session:
        hosts.missing = {machines.get(session, "m1").slots[0].pci}
    store.unreadable = EvidenceBusy("no answer")
    case.turn()
    assert (case.run.phase, case.verdict[0]) == ("settle", None)
    store.unreadable = None
    case.until(None)
    assert (case.verdict[0], case.state) == ("failed", State.FAILED)
    with db.read() as session:
        assert session.scalars(sa.select(ValidationRow.evidence_bytes)).one() > 0


def test_nothing_is_placed_while_all_evidence_is_over_the_sites_limit(db: Database, tmp_path: Path) -> None:
    policy = Policy(evidence_limit_bytes=1)
    case = Case(db, tmp_path, policy=policy)
    case.to_preflight()
    with db.begin() as session:
        session.execute(sa.update(ValidationRow).values(evidence_bytes=1))
    case.turn()
    assert case.run.phase == "preflight"
    assert "evidence.total_limit_gib" in case.run.why


def test_what_a_guest_prints_is_cut_at_the_limit_of_a_validation() -> None:
    poll = GuestPoll(None, {"a": GuestOutput(b"12345", b"678", False), "b": GuestOutput(b"9", b"", False)})
    assert within_limit(poll, [], 6).outputs == {
        "a": GuestOutput(b"12345", b"6", True),
        "b": GuestOutput(b"", b"", True),
    }
    assert within_limit(poll, [], 9).outputs == poll.outputs
