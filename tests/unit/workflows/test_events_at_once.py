"""Events that two processes take in at the same time, on a server: neither counts what the other has changed."""

import threading
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from fleet.core.clock import Deadline
from fleet.core.errors import Conflict
from fleet.core.model import Instance, Machine, SshTarget
from fleet.core.states import State
from fleet.store import machines
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import InstanceRow
from fleet.workflows.events import Event, EventKind, apply

pytestmark = pytest.mark.real
BY = By("scheduler")
SSH = SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")
WAITING = sa.text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@pytest.fixture
def shared(postgresql_url: str) -> Iterator[Database]:
    """m1 with two tenants and room for two."""
    db = Database(postgresql_url)
    tenants = tuple(Instance(id_, "tenant", 0.0) for id_ in "ab")
    with db.begin() as session:
        machine = Machine("m1", "sku", State.ALLOCATED, 1, 0.0, "", SSH, capacity=2, instances=tenants)
        machines.add(session, machine, BY)
    yield db
    db.close()


def report(db: Database, event: Event) -> None:
    """As the service does: again when somebody changed the record in between."""
    try:
        with db.begin() as session:
            apply(session, event, BY)
    except Conflict:
        report(db, event)


def until_waiting(db: Database, count: int) -> None:
    for left_s in Deadline.after(30.0).poll(0.02):
        with db.read() as session:
            if session.scalar(WAITING) == count:
                return
        assert left_s > 0.0


def test_two_last_tenants_that_leave_at_once_leave_a_vacated_machine(shared: Database) -> None:
    """Else it would stay allocated to nobody, and take the next tenant without a validation."""
    leaving = [Event(id_, EventKind.REMOVED, "m1", id_) for id_ in "ab"]
    threads = [threading.Thread(target=report, args=(shared, event)) for event in leaving]
    with shared.begin() as session:  # both have read the machine before either may write
        session.execute(sa.select(InstanceRow).with_for_update())
        for thread in threads:
            thread.start()
        until_waiting(shared, 2)
    for thread in threads:
        thread.join()
    with shared.read() as session:
        machine = machines.get(session, "m1")
    assert (machine.state, machine.instances) == (State.VACATED, ())
