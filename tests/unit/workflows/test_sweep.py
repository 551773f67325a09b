"""The reaper: what nobody owns is removed, what nobody reported is told, and nothing else is touched."""

from pathlib import Path

import sqlalchemy as sa

from fleet.core.model import Machine, SshTarget
from fleet.core.states import State
from fleet.engine.worker import Worker
from fleet.store import machines
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import AttentionRow, RunRow
from fleet.workflows import sweep
from tests.unit.workflows.hosts import Hosts, tenant, vm_of, world

SSH = SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")


def one_round(db: Database, hosts: Hosts, folder: Path) -> None:
    """Steps until the row says that the round is complete."""
    worker = Worker(db, [sweep.workflow(world(db, hosts, folder))], threads=1)
    with db.begin() as session:
        sweep.ensure(session)
        session.execute(sa.update(RunRow).values(due_at=0.0))
    while worker.step():
        pass
    with db.read() as session:
        assert session.scalars(sa.select(RunRow.why)).one() == "round complete"


def fleet(db: Database, *states: State) -> None:
    with db.begin() as session:
        for number, state in enumerate(states, 1):
            machine = Machine(f"m{number}", "sim-a100x8", state, 1, 0.0, "imported", SSH)
            machines.add(session, machine, By("test"))


def test_only_test_vms_without_a_live_validation_are_removed(db: Database, tmp_path: Path) -> None:
    fleet(db, State.AVAILABLE, State.ALLOCATED, State.FAILED)
    hosts = Hosts({"m1": [vm_of("val-gone")], "m2": [tenant()], "m3": [vm_of("val-old"), tenant()]})
    one_round(db, hosts, tmp_path)
    assert hosts.removed == [("m1", "val-gone"), ("m3", "val-old")]
    assert hosts.domains["m2"] == [tenant()]
    assert hosts.domains["m3"] == [tenant()]


def test_an_unreachable_host_does_not_stop_the_round(db: Database, tmp_path: Path) -> None:
    fleet(db, State.AVAILABLE, State.AVAILABLE)
    hosts = Hosts({"m2": [vm_of("val-gone")]}, away={"m1"})
    one_round(db, hosts, tmp_path)
    assert hosts.removed == [("m2", "val-gone")]


def test_a_domain_that_nobody_reported_is_told_until_it_is_gone(db: Database, tmp_path: Path) -> None:
    fleet(db, State.AVAILABLE, State.ALLOCATED, State.FAILED)
    hosts = Hosts({"m1": [tenant()], "m2": [tenant()]})
    one_round(db, hosts, tmp_path)
    with db.read() as session:
        told = session.execute(sa.select(AttentionRow.machine, AttentionRow.reason)).all()
    assert [tuple(row) for row in told] == [("m1", "m1 is available, but the domain tenant-a is on its host")]
    hosts.domains.clear()
    one_round(db, hosts, tmp_path)
    with db.read() as session:
        assert session.scalar(sa.select(AttentionRow.resolved_by)) == "service:sweep"
