"""The test image as it is: another file than the stated one places no VM, and what the image says of itself is noted."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from fleet.core.clock import Deadline
from fleet.core.model import Machine, Slot, SlotKind, SshTarget, Trigger
from fleet.core.states import State
from fleet.engine.worker import Worker
from fleet.hypervisor.base import ImageView
from fleet.remote.base import Output
from fleet.store import machines, site
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import RunRow, ValidationRow
from fleet.workflows import begin, revalidation, test_image
from fleet.workflows.guest import MANIFEST_LIMIT_BYTES, GuestRun
from fleet.workflows.playbook import Playbook
from fleet.workflows.world import Policy
from playbooks.loader import Library
from tests.unit.validators.machine import SLOTS
from tests.unit.workflows.hosts import Hosts, world

BY = By("test")
SSH = SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")
ALL = tuple(Slot(**{**s, "kind": SlotKind(s["kind"])}) for s in SLOTS)
ONE, OTHER = "1" * 64, "2" * 64


class Case:
    """A validation of the available machine m1 in its preflight; the settings say that its image is ONE."""

    def __init__(self, db: Database, folder: Path, stated: str = ONE, policy: Policy = Policy()) -> None:
        self.db, self.hosts = db, Hosts()
        outside = world(db, self.hosts, folder, policy)
        outside = replace(outside, image={"digest": "settings", "image_digest": stated})
        self.worker = Worker(db, [revalidation.workflow(outside)], threads=1)
        with db.begin() as session:
            site.set_mode(session, "enforce", BY)
            machines.add(session, Machine("m1", "sim-a100x8", State.AVAILABLE, 1, 0.0, "imported", SSH, ALL), BY)
            playbook = Playbook.load(outside.library, "quick", "sim-a100x8")
            begin.start_validation(session, machines.get(session, "m1"), playbook, Trigger.MANUAL, BY, image={})
            session.execute(sa.update(RunRow).values(phase="preflight"))

    def turn(self, seen: ImageView) -> str:
        """One step; the phase that follows."""
        self.hosts.image = seen
        with self.db.begin() as session:
            session.execute(sa.update(RunRow).values(due_at=0.0))
        assert self.worker.step()
        with self.db.read() as session:
            return session.scalars(sa.select(RunRow)).one().phase

    @property
    def record(self) -> ValidationRow:
        with self.db.read() as session:
            return session.scalars(sa.select(ValidationRow)).one()

    @property
    def state(self) -> State:
        with self.db.read() as session:
            return machines.get(session, "m1").state


@pytest.mark.parametrize("stated", [ONE, ""])
def test_what_the_host_has_is_on_the_record_before_a_vm_is_placed(db: Database, tmp_path: Path, stated: str) -> None:
    case = Case(db, tmp_path, stated)
    assert case.turn(ImageView({"image": ONE, "kernel": OTHER})) == "place"
    assert case.record.image == {
        "digest": "settings",
        "image_digest": stated,
        "seen_digest": ONE,
        "seen": {"image": ONE, "kernel": OTHER},
    }


def test_another_file_than_the_stated_one_aborts_and_gives_the_machine_back(db: Database, tmp_path: Path) -> None:
    case = Case(db, tmp_path)
    case.turn(ImageView({"image": OTHER}))
    assert case.record.verdict == "aborted"
    assert f"its SHA-256 is {OTHER}, hypervisor.image_digest says {ONE}" in (case.record.reason or "")
    assert case.state is State.AVAILABLE


def test_a_missing_file_aborts_with_the_hosts_words(db: Database, tmp_path: Path) -> None:
    case = Case(db, tmp_path)
    case.turn(ImageView(why="/images/test.raw on m1 cannot be read: No such file or directory"))
    assert case.record.verdict == "aborted"
    assert "/images/test.raw on m1 cannot be read" in (case.record.reason or "")
    assert case.state is State.AVAILABLE


def test_a_host_that_still_reads_is_waited_for_but_not_for_ever(db: Database, tmp_path: Path) -> None:
    case = Case(db, tmp_path)
    for _ in range(3):
        assert case.turn(ImageView(reading=True)) == "preflight"
    assert case.record.verdict is None
    with db.begin() as session:
        session.execute(sa.update(RunRow).values(phase_since=RunRow.phase_since - Policy().place_deadline_s - 1))
    case.turn(ImageView(reading=True))
    assert case.record.verdict == "aborted"
    assert "was not read on m1 within" in (case.record.reason or "")


def proof(seen: dict[str, str] | None) -> str:
    image = {"digest": "settings", **({} if seen is None else test_image.as_seen(seen))}
    return Playbook.load(Library(), "quick", "sim-a100x8").proofs(image)["gpu_inventory"]


def test_a_swapped_file_has_proven_nothing_whatever_the_settings_say() -> None:
    seen = [{"image": ONE}, {"image": OTHER}, {"image": ONE, "kernel": ONE}, {"image": ONE, "kernel": OTHER}, None]
    assert len({proof(one) for one in seen}) == len(seen)
    assert proof({"kernel": OTHER, "image": ONE}) == proof({"image": ONE, "kernel": OTHER})


GOOD: dict[str, Any] = {
    "format": 1,
    "profile": "gpu",
    "version": "2026.11",
    "recipe": "0123456789abcdef",
    "packages": {"nvidia-fabricmanager": "580.95.05-1", "fio": "3.33-3+deb12u1"},
    "tools": {"gpu-burn": "c535b677236586fdb35655cfa75156304a9cb1f6"},
}


class Guest:
    """A shell in the test VM that answers what it was told to, whatever it is asked."""

    def __init__(self, answer: bytes, exit_status: int = 0) -> None:
        self._answer, self._exit_status = answer, exit_status

    def run(self, command: str, deadline: Deadline, *, stdin: bytes = b"", limit_bytes: int = 1 << 20) -> Output:
        if self._exit_status:
            return Output(self._exit_status, b"", self._answer)
        return Output(0, self._answer[:MANIFEST_LIMIT_BYTES], b"")

    def close(self) -> None: ...


def noted(db: Database, folder: Path, guest: Guest) -> Any:
    """What the record has of the image's versions after asking this guest."""
    case = Case(db, folder)
    id_ = case.record.id
    within = test_image.noted_versions(GuestRun(guest, id_), id_, Deadline.after(5))
    with db.begin() as session:
        within(session)
    return case.record.image["versions"]


def test_an_images_own_words_are_noted(db: Database, tmp_path: Path) -> None:
    versions = noted(db, tmp_path, Guest(json.dumps(GOOD).encode()))
    assert versions == {key: value for key, value in GOOD.items() if key != "format"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({**GOOD, "packages": {"fio": "\x1b[2J"}}, "packages.fio"),
        ({**GOOD, "packages": {"fio": "1" * 81}}, "packages.fio"),
        ({**GOOD, "packages": {f"p{n}": "1" for n in range(201)}}, "packages: "),
        ({**GOOD, "more": 1}, "more: "),
        ({**GOOD, "format": 2}, "format: "),
        ({**GOOD, "version": ""}, "version: "),
        ({**GOOD, "filler": "x" * MANIFEST_LIMIT_BYTES}, "document: "),
        ([], "document: "),
        (None, "document: "),
    ],
)
def test_a_manifest_that_cannot_be_read_is_noted_as_such(db: Database, tmp_path: Path, answer: Any, said: str) -> None:
    versions = noted(db, tmp_path, Guest(json.dumps(answer).encode()))
    assert set(versions) == {"unknown"}
    assert versions["unknown"].startswith(f"/etc/fleet-image.json: {said}")
    assert versions["unknown"].isprintable()


def test_an_image_without_a_manifest_is_noted_as_such(db: Database, tmp_path: Path) -> None:
    words = b"head: cannot open '/etc/fleet-image.json' for reading: No such file or directory"
    assert "No such file or directory" in noted(db, tmp_path, Guest(words, exit_status=1))["unknown"]
