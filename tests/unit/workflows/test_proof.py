"""What may condemn: a check that has passed a machine of the SKU before, as it is run now."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from fleet.core.model import Machine, Slot, SlotKind, SshTarget, Trigger
from fleet.core.states import State
from fleet.engine.worker import Worker
from fleet.store import machines, site, validations
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import RunRow, ValidationRow
from fleet.workflows import begin, revalidation
from fleet.workflows.playbook import Playbook
from fleet.workflows.world import World
from playbooks.loader import SHIPPED, Library
from tests.unit.validators.machine import SLOTS, inventory, ports
from tests.unit.workflows.hosts import Hosts, world

BY = By("test")
IMAGE = {"digest": "sha256:1"}
SSH = SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")
CHECKS = "[gpu_inventory]\n  - [gpu_burn]\n  - [nccl]"


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """Beside what is shipped: a plan with fewer checks and a smaller message."""
    plans = tmp_path / "playbooks" / "plans"
    plans.mkdir(parents=True)
    small = "checks:\n  nccl:\n    with:\n      end: 64M\n"
    (plans / "small.yaml").write_text(f"plan: small\nstages:\n  - {CHECKS}\n{small}")
    return Library((tmp_path / "playbooks", SHIPPED))


def proofs(library: Library, plan: str, image: str = "sha256:1") -> dict[str, str]:
    return dict(Playbook.load(library, plan, "sim-a100x8").proofs({"digest": image}))


def test_another_image_has_proven_nothing() -> None:
    one, other = proofs(Library(), "quick"), proofs(Library(), "quick", "sha256:2")
    assert not set(one.values()) & set(other.values())


def test_options_are_part_of_the_proof_since_they_say_what_is_measured(library: Library) -> None:
    quick, small = proofs(library, "quick"), proofs(library, "small")
    assert quick["gpu_inventory"] == small["gpu_inventory"]
    assert quick["nccl"] != small["nccl"]


def test_each_check_has_a_proof_of_its_own(library: Library) -> None:
    """A pass of a plan without it says nothing of its limits."""
    small = proofs(library, "small")
    assert set(small) == {"gpu_inventory", "gpu_burn", "nccl", "kernel_log"}
    assert len(set(small.values())) == 4


def settled(db: Database, outside: World, proven: str | None) -> tuple[str, str]:
    """Verdict and reason of a run in which GPU 3 was missing, after a pass of `proven`."""
    slots = tuple(Slot(**{**s, "kind": SlotKind(s["kind"])}) for s in SLOTS)
    playbook = Playbook.load(outside.library, "quick", "sim-a100x8")
    with db.begin() as session:
        site.set_mode(session, "enforce", BY)
        machines.add(session, Machine("m1", "sim-a100x8", State.VACATED, 1, 0.0, "imported", SSH, slots), BY)
        seen = machines.get(session, "m1")
        id_ = begin.start_validation(session, seen, playbook, Trigger.VACATED, BY, image=IMAGE)
        if proven is not None:
            validations.prove(session, "sim-a100x8", playbook.proofs(IMAGE)[proven], None)
        for check, text in (("gpu_inventory", inventory(missing=[3])), ("ib_links", ports())):
            file = outside.evidence.put(id_, check, "stdout", text.encode())
            columns = {"exit_status": 0, "started_at": 1.0, "duration_s": 1.0, "truncated": False}
            validations.put_measurement(session, id_, check, check, ended="exited", files={"stdout": file}, **columns)
        session.execute(sa.update(RunRow).values(phase="settle", data={"placed": True, "ended_by": "gpu_inventory"}))
    assert Worker(db, [revalidation.workflow(outside)], threads=1).step()
    with db.read() as session:
        row = session.scalars(sa.select(ValidationRow)).one()
        judged = session.scalars(sa.select(RunRow).where(RunRow.kind == begin.KIND)).one().data["judged"]
        assert judged["proven"] == ([] if proven is None else [proven])
        assert judged["minimum"] == sorted(outside.policy.minimum_checks)
        return row.verdict or "open", row.reason or ""


@pytest.mark.parametrize(
    ("proven", "verdict"), [("gpu_inventory", "failed"), ("ib_links", "aborted"), (None, "aborted")]
)
def test_only_what_has_passed_before_condemns(db: Database, tmp_path: Path, proven: str | None, verdict: str) -> None:
    seen, reason = settled(db, world(db, Hosts(), tmp_path), proven)
    assert seen == verdict
    assert "7 of 8 GPUs" in reason
    assert ("gpu_inventory has not passed any sim-a100x8 machine yet" in reason) == (verdict == "aborted")
