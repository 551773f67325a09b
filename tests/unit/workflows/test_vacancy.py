"""A vacated machine on its way to a validation: what is waited for, and where it ends when it never comes."""

from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from fleet.core.model import Hold, Machine, SshTarget
from fleet.core.states import State
from fleet.engine.worker import Worker
from fleet.store import machines, site
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import AttentionRow, EventRow, RunRow, ValidationRow
from fleet.workflows import vacancy
from fleet.workflows.events import Event, EventKind, apply
from fleet.workflows.world import Policy
from tests.unit.workflows.hosts import Hosts, tenant, world

BY = By("scheduler")
SSH = SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")


class Vacated:
    """One machine whose tenant has just migrated away, and a worker that is turned by hand."""

    def __init__(self, db: Database, hosts: Hosts, folder: Path, policy: Policy) -> None:
        self.db, self.hosts = db, hosts
        self.worker = Worker(db, [vacancy.workflow(world(db, hosts, folder, policy))], threads=1)
        with db.begin() as session:
            machines.add(session, Machine("m1", "sim-a100x8", State.AVAILABLE, 1, 0.0, "imported", SSH), BY)
        self.send(EventKind.PLACED, "a")
        self.send(EventKind.MIGRATED, "a")

    def send(self, kind: EventKind, instance: str) -> str:
        with self.db.begin() as session:
            return apply(session, Event(f"{kind}-{instance}", kind, "m1", instance), BY).state

    def turn(self) -> str:
        """Make the run due, take one step, return what the row says of it."""
        with self.db.begin() as session:
            session.execute(sa.update(RunRow).where(RunRow.kind == vacancy.KIND).values(due_at=0.0))
        assert self.worker.step()
        with self.db.read() as session:
            return session.scalars(sa.select(RunRow.why).where(RunRow.kind == vacancy.KIND)).one()

    @property
    def state(self) -> State:
        with self.db.read() as session:
            return machines.get(session, "m1").state

    def attention(self) -> list[str]:
        with self.db.read() as session:
            return list(session.scalars(sa.select(AttentionRow.reason).where(AttentionRow.resolved_at.is_(None))))


@pytest.fixture
def vacated(db: Database, tmp_path: Path) -> Callable[..., Vacated]:
    def make(policy: Policy = Policy()) -> Vacated:
        return Vacated(db, Hosts(), tmp_path, policy)

    return make


def test_a_validation_starts_when_no_tenant_domain_is_left(vacated: Callable[..., Vacated]) -> None:
    case = vacated()
    case.hosts.domains["m1"] = [tenant()]
    assert case.turn() == "tenant domain still there: tenant-a"
    assert case.state is State.VACATED
    case.hosts.domains["m1"] = []
    assert case.turn() == "no tenant domain is left: validation started"
    assert case.state is State.VALIDATING
    with case.db.read() as session:
        row = session.scalars(sa.select(ValidationRow)).one()
        assert (row.trigger, row.prior_state, row.verdict) == ("vacated", "vacated", None)


def test_an_unreachable_host_is_looked_at_again_and_ends_at_a_person(vacated: Callable[..., Vacated]) -> None:
    case = vacated(Policy(departure_deadline_s=0.0))
    case.hosts.away.add("m1")
    assert "m1 does not answer" in case.turn()
    assert case.state is State.VACATED
    assert case.attention() == ["the host cannot be looked at: m1 does not answer"]
    case.turn()
    assert len(case.attention()) == 1  # told once


def test_attention_ends_by_itself_when_the_host_is_back(vacated: Callable[..., Vacated]) -> None:
    case = vacated(Policy(departure_deadline_s=0.0))
    case.hosts.away.add("m1")
    case.turn()
    case.hosts.away.clear()
    case.turn()
    assert case.state is State.VALIDATING
    assert case.attention() == []


def test_a_hold_keeps_automation_off(vacated: Callable[..., Vacated]) -> None:
    case = vacated()
    with case.db.begin() as session:
        machines.set_hold(session, machines.get(session, "m1"), Hold("anna", "cable swap", 1.0), BY)
    assert case.turn() == "held by anna: cable swap"
    assert case.state is State.VACATED


def test_an_expired_hold_binds_nobody(vacated: Callable[..., Vacated]) -> None:
    case = vacated()
    with case.db.begin() as session:
        machines.set_hold(session, machines.get(session, "m1"), Hold("anna", "cable swap", 1.0, expires_at=2.0), BY)
    case.turn()
    assert case.state is State.VALIDATING


def test_a_pause_keeps_automation_off(vacated: Callable[..., Vacated]) -> None:
    case = vacated()
    with case.db.begin() as session:
        site.pause(session, "maintenance of the fabric", By("ben"))
    assert case.turn() == "the fleet is paused by ben"
    with case.db.begin() as session:
        site.resume(session, By("ben"))
    case.turn()
    assert case.state is State.VALIDATING


def test_a_migration_that_was_rolled_back_gives_the_machine_back_once_the_domain_is_seen(
    vacated: Callable[..., Vacated],
) -> None:
    case = vacated()
    assert case.send(EventKind.KEPT, "a") == "waiting"
    assert case.turn() == "a is said to stay, but its domain is not there"
    case.hosts.domains["m1"] = [tenant()]
    assert case.turn() == "the tenant's domain is there"
    with case.db.read() as session:
        machine = machines.get(session, "m1")
        kept = session.get(EventRow, f"{EventKind.KEPT}-a")
    assert machine.state is State.ALLOCATED
    assert [i.id for i in machine.instances] == ["a"]
    assert kept is not None
    assert kept.state == "applied"


def test_a_domain_that_never_shows_up_is_overtaken_at_the_deadline(vacated: Callable[..., Vacated]) -> None:
    case = vacated(Policy(departure_deadline_s=0.0))
    case.send(EventKind.KEPT, "a")
    case.turn()
    assert case.state is State.VALIDATING
    with case.db.read() as session:
        kept = session.get(EventRow, f"{EventKind.KEPT}-a")
    assert kept is not None
    assert kept.state == "dropped"
