"""The way out of a validation, where it can be told from fakes: what a step of many slow calls does to its lease."""

from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from fleet.core.clock import Deadline
from fleet.core.errors import DeadlinePassed, FleetError, Unreachable
from fleet.core.model import Machine, SshTarget, TestVm, Trigger
from fleet.core.states import State
from fleet.engine.worker import Worker
from fleet.remote.base import Output, Shell
from fleet.store import machines
from fleet.store.audit import By
from fleet.store.database import Database, db_now
from fleet.store.tables import RunRow, ValidationRow
from fleet.workflows import begin, revalidation
from fleet.workflows.playbook import Playbook
from tests.unit.workflows.hosts import KEYS, Hosts, world

BY = By("test")


@dataclass
class SlowHosts(Hosts):
    """Every call takes as long as a lease lasts, and then fails."""

    db: Database = field(kw_only=True)
    error: FleetError = field(kw_only=True)
    leased: list[bool] = field(default_factory=list)  # whether the caller owned its run when the call began

    def _take_long(self) -> FleetError:
        with self.db.begin() as session:
            self.leased += [session.scalars(sa.select(RunRow.lease_until > db_now())).one()]
            session.execute(sa.update(RunRow).values(lease_until=db_now()))
        return self.error

    def kernel_log(self, machine: Machine, since: float, limit_bytes: int, deadline: Deadline) -> bytes:
        raise self._take_long()

    def console(self, vm: TestVm, limit_bytes: int, deadline: Deadline) -> bytes:
        raise self._take_long()

    def guest(self, vm: TestVm) -> Shell:
        return self

    def run(self, command: str, deadline: Deadline, *, stdin: bytes = b"", limit_bytes: int = 1 << 20) -> Output:
        raise self._take_long()

    def close(self) -> None:
        """Nothing is open."""


def collected(db: Database, hosts: SlowHosts, folder: Path) -> None:
    """One try at collecting the logs of a validation whose VM runs on these hosts."""
    outside = world(db, hosts, folder)
    ssh = SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")
    with db.begin() as session:
        machines.add(session, Machine("m1", "sim-a100x8", State.AVAILABLE, 1, 0.0, "imported", ssh), BY)
        playbook = Playbook.load(outside.library, "quick", "sim-a100x8")
        begin.start_validation(session, machines.get(session, "m1"), playbook, Trigger.MANUAL, BY, image={})
        session.execute(sa.update(RunRow).values(phase="collect"))
        session.execute(sa.update(ValidationRow).values(secrets=KEYS))
    assert Worker(db, [revalidation.workflow(outside)], threads=1).step()
    with db.read() as session:
        assert session.scalars(sa.select(RunRow)).one().data["collect_tries"] == 1


def test_each_slow_call_of_a_step_begins_with_a_lease(db: Database, tmp_path: Path) -> None:
    """Or another worker takes the run in the middle of the step, and is overtaken in turn: no answer is ever saved."""
    hosts = SlowHosts(db=db, error=DeadlinePassed("no answer in time"))
    collected(db, hosts, tmp_path)
    assert hosts.leased == [True, True, True]


def test_guest_and_console_are_not_asked_for_through_a_host_that_is_away(db: Database, tmp_path: Path) -> None:
    hosts = SlowHosts(db=db, error=Unreachable("the host does not answer"))
    collected(db, hosts, tmp_path)
    assert hosts.leased == [True]
