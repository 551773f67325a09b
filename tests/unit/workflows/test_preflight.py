"""Before a test VM is placed: a record that cannot be true condemns nothing, and a host that was not seen is not clean."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from fleet.core.model import Machine, Slot, SlotKind, SshTarget, Trigger
from fleet.core.states import State
from fleet.engine.claim import request_abort
from fleet.engine.worker import Worker
from fleet.store import machines, site
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import AttentionRow, RunRow, ValidationRow
from fleet.workflows import begin, revalidation
from fleet.workflows.playbook import Playbook
from fleet.workflows.world import Policy
from tests.unit.validators.machine import SLOTS
from tests.unit.workflows.hosts import Hosts, tenant, vm_of, world

BY = By("test")
SSH = SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")
PATIENT = Policy(host_patience=2)
ALL = tuple(Slot(**{**s, "kind": SlotKind(s["kind"])}) for s in SLOTS)


class Case:
    """A validation of the available machine m1, and a worker that is turned by hand."""

    def __init__(self, db: Database, folder: Path, slots: tuple[Slot, ...] = ALL, policy: Policy = PATIENT) -> None:
        self.db, self.hosts = db, Hosts()
        outside = world(db, self.hosts, folder, policy)
        self.worker = Worker(db, [revalidation.workflow(outside)], threads=1)
        with db.begin() as session:
            site.set_mode(session, "enforce", BY)
            machines.add(session, Machine("m1", "sim-a100x8", State.AVAILABLE, 1, 0.0, "imported", SSH, slots), BY)
            playbook = Playbook.load(outside.library, "quick", "sim-a100x8")
            begin.start_validation(session, machines.get(session, "m1"), playbook, Trigger.MANUAL, BY, image={})

    def to_preflight(self) -> None:
        with self.db.begin() as session:
            session.execute(sa.update(RunRow).values(phase="preflight"))

    def abort(self) -> None:
        with self.db.begin() as session:
            run = session.scalars(sa.select(RunRow)).one()
            assert request_abort(session, run.id, "enough", "anna", list(begin.ABORTABLE))

    def turn(self) -> None:
        with self.db.begin() as session:
            session.execute(sa.update(RunRow).values(due_at=0.0))
        assert self.worker.step()

    @property
    def state(self) -> State:
        with self.db.read() as session:
            return machines.get(session, "m1").state

    @property
    def verdict(self) -> tuple[str | None, str]:
        with self.db.read() as session:
            row = session.scalars(sa.select(ValidationRow)).one()
            return row.verdict, row.reason or ""

    def told(self) -> list[str]:
        with self.db.read() as session:
            return list(session.scalars(sa.select(AttentionRow.kind)))


@pytest.mark.parametrize(
    ("slots", "said"),
    [
        ((), "0 slots of kind gpu, SKU sim-a100x8 has 8"),
        (ALL[1:], "7 slots of kind gpu, SKU sim-a100x8 has 8"),
        (ALL[:-7], "1 slot of kind rail, SKU sim-a100x8 has 8"),
        ((*ALL, replace(ALL[0], slot="gpu8", pci="0000:ff:00.0", guest_pci=None)), "9 slots of kind gpu"),
    ],
)
def test_a_slot_map_that_is_not_the_skus_condemns_nothing(
    db: Database, tmp_path: Path, slots: tuple[Slot, ...], said: str
) -> None:
    case = Case(db, tmp_path, slots)
    case.turn()
    verdict, reason = case.verdict
    assert verdict == "aborted"
    assert said in reason
    assert case.state is State.AVAILABLE


@pytest.mark.parametrize(("gone", "verdict"), [(ALL, "aborted"), (ALL[1:], "failed")])
def test_a_map_of_which_nothing_is_there_is_a_wrong_map(
    db: Database, tmp_path: Path, gone: tuple[Slot, ...], verdict: str
) -> None:
    """Or the host lacks the tool that looks."""
    case = Case(db, tmp_path, policy=Policy(device_return_s=0.0))
    case.to_preflight()
    case.hosts.missing |= {slot.pci for slot in gone}
    case.turn()
    assert case.verdict[0] == verdict
    assert "is not on the host's PCI bus" in case.verdict[1]
    assert case.state is not State.AVAILABLE


def away(case: Case) -> None:
    case.hosts.away.add("m1")


def silent(case: Case) -> None:
    case.hosts.lost.add(ALL[0].pci)


def occupied(case: Case) -> None:
    case.hosts.domains["m1"] = [vm_of("val-other")]


@pytest.mark.parametrize("trouble", [away, silent, occupied])
def test_an_abort_gives_a_host_back_only_as_it_is_seen(
    db: Database, tmp_path: Path, trouble: Callable[[Case], None]
) -> None:
    case = Case(db, tmp_path)
    case.to_preflight()
    trouble(case)
    case.abort()
    case.turn()
    assert case.verdict == ("aborted", "enough")
    assert (case.state, case.told()) == (State.VACATED, ["aborted"])


def test_an_abort_gives_a_clean_host_back(db: Database, tmp_path: Path) -> None:
    case = Case(db, tmp_path)
    case.to_preflight()
    case.abort()
    case.turn()
    assert (case.state, case.told()) == (State.AVAILABLE, [])


def test_an_abort_finds_the_tenant_that_is_there(db: Database, tmp_path: Path) -> None:
    case = Case(db, tmp_path)
    case.to_preflight()
    case.hosts.domains["m1"] = [tenant()]
    case.abort()
    case.turn()
    assert (case.state, case.told()) == (State.ALLOCATED, ["tenant appeared"])


def test_a_host_that_stays_away_does_not_go_back_to_the_pool(db: Database, tmp_path: Path) -> None:
    case = Case(db, tmp_path)
    case.to_preflight()
    case.hosts.away.add("m1")
    case.turn()
    case.turn()
    verdict, reason = case.verdict
    assert verdict == "aborted"
    assert "m1 does not answer" in reason
    assert (case.state, case.told()) == (State.VACATED, ["aborted"])
