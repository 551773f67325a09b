"""Mode `observe` from end to end on the rack: the verdict is on record, a person is told, and nobody is condemned."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from fleet.core.states import State
from fleet.store import site
from fleet.store.tables import MachineRow, NoticeRow
from tests.integration.rack.records import BY, Settled
from tests.integration.rack.stage import Stage, staged

HEALTHY, IN_POOL, VACATED, SWITCHED = "lab-02", "lab-03", "lab-04", "lab-05"
FAULTY = (IN_POOL, VACATED, SWITCHED)
PRIOR = {HEALTHY: State.VACATED, IN_POOL: State.AVAILABLE, VACATED: State.VACATED, SWITCHED: State.AVAILABLE}


def set_mode(stage: Stage, mode: str) -> None:
    with stage.db.begin() as session:
        site.set_mode(session, mode, BY)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("observe"), len(PRIOR) + 1) as stage:
        yield stage


@pytest.fixture(scope="module")
def settled(stage: Stage) -> dict[str, Settled]:
    """How each machine's validation ended. The site is switched to `enforce` while that of lab-05 runs."""
    set_mode(stage, "observe")
    for machine, state in PRIOR.items():
        with stage.db.begin() as session:
            session.execute(sa.update(MachineRow).where(MachineRow.name == machine).values(state=state))
    for machine in FAULTY:
        stage.lab.break_(machine, "rail-down")
    stop = stage.stop(SWITCHED, "checks", "before")
    asked = {machine: stage.validate(machine, "short-all") for machine in PRIOR}
    stop.wait()
    set_mode(stage, "enforce")
    stop.go_on()
    return {machine: stage.settled(id_) for machine, id_ in asked.items()}


@pytest.mark.parametrize("machine", FAULTY)
def test_a_failure_is_recorded_and_told_and_the_machine_gets_its_prior_state(
    settled: dict[str, Settled], machine: str
) -> None:
    found = settled[machine]
    assert found.verdict == "failed"
    assert "ib_links" in found.reason
    assert (found.state, found.tickets) == (PRIOR[machine], ())
    assert len(found.told) == 1
    assert found.reason in found.told[0]
    assert f"fleet revalidate {machine}" in found.next_steps[0]


def test_a_pass_returns_the_machine(settled: dict[str, Settled]) -> None:
    found = settled[HEALTHY]
    assert (found.verdict, found.state, found.tickets, found.told) == ("passed", "available", (), ())


def test_nobody_is_said_to_be_condemned_and_no_vm_is_left(stage: Stage, settled: dict[str, Settled]) -> None:
    assert set(settled) == set(PRIOR)
    with stage.db.read() as session:
        kinds = set(session.scalars(sa.select(NoticeRow.kind).where(NoticeRow.destination == "scheduler")))
    assert kinds
    assert "pool.condemned" not in kinds
    assert stage.test_vms() == {}


def test_the_same_fault_condemns_once_the_site_enforces(stage: Stage, settled: dict[str, Settled]) -> None:
    assert settled[IN_POOL].state == State.AVAILABLE
    id_ = stage.validate(IN_POOL, "short-all")
    found = stage.settled(id_)
    assert (found.verdict, found.state, found.tickets) == ("failed", "failed", (id_,))
