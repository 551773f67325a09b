"""An abort in each phase, asked for before the phase's act and while it is under way: one verdict, the prior state, no test
VM. Where it comes too late, the answer says so and the verdict stands."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import get_args

import pytest
import sqlalchemy as sa

from fleet.core.states import State
from fleet.store.tables import MachineRow
from fleet.workflows.begin import ABORTABLE
from tests.integration.rack.records import Settled
from tests.integration.rack.stage import Stage, Stop, When, staged
from tests.unit.workflows.receiving import Desk

LATE = ("collect", "teardown", "settle")
PRIOR = (State.AVAILABLE, State.VACATED, State.FAILED)
IN_TIME = [(phase, when) for phase in ABORTABLE for when in get_args(When)]
MACHINES = {
    case: f"lab-{number:02}" for number, case in enumerate([*IN_TIME, *LATE, "failed", "tenant"], 2)
}  # 01: a tenant's
BEFORE = {
    case: State.AVAILABLE if case[0] == "withdrawal" else PRIOR[number % 3] for number, case in enumerate(IN_TIME)
}
HOOKS = [{"name": "wipe", "command": ["/bin/true"], "deadline_s": 60}]


@dataclass
class Outcomes:
    stage: Stage
    settled: dict[object, Settled]
    answers: Mapping[object, str | None]  # None: the abort was accepted


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    scheduler = Desk()
    with staged(tmp_path_factory.mktemp("aborts"), len(MACHINES) + 1, hooks=HOOKS, scheduler=scheduler) as stage:
        for case, state in BEFORE.items():
            with stage.db.begin() as session:
                session.execute(sa.update(MachineRow).where(MachineRow.name == MACHINES[case]).values(state=state))
        stage.lab.break_(MACHINES["failed"], "rail-down")
        stops: dict[object, Stop] = {case: stage.stop(MACHINES[case], *case) for case in IN_TIME}
        withdrawn = [stops["withdrawal", when] for when in get_args(When)]
        scheduler.while_it_is_told = lambda: [stop.wait() for stop in withdrawn]  # slow: it is waited for
        stops |= {phase: stage.stop(MACHINES[phase], phase, "before") for phase in LATE}
        asked: dict[object, str] = {}
        stops["failed"] = stage.stop(
            MACHINES["failed"], "checks", "before", once=lambda: _ib_links_failed(stage, asked["failed"])
        )
        stops["tenant"] = stage.stop(MACHINES["tenant"], "teardown", "before")
        for each, machine in MACHINES.items():
            asked[each] = stage.validate(machine, "short-all" if each == "failed" else "short")

        def met(case: object) -> str | None:
            stops[case].wait()
            try:
                if case != "tenant":
                    return stage.abort(asked[case], f"a test of {case}")
                stage.lab.place_tenant(MACHINES[case], "uninvited")
                return None
            finally:
                stops[case].go_on()

        with ThreadPoolExecutor(len(stops)) as pool:
            answers = dict(zip(stops, pool.map(met, stops), strict=True))
        yield Outcomes(stage, {case: stage.settled(id_) for case, id_ in asked.items()}, answers)


def _ib_links_failed(stage: Stage, validation: str) -> bool:
    return bool(stage.progress(validation).get("ib_links", {}).get("outcome") == "failed")


@pytest.mark.parametrize("case", IN_TIME, ids="-".join)
def test_an_abort_in_time_restores_the_prior_state(outcomes: Outcomes, case: tuple[str, When]) -> None:
    assert outcomes.answers[case] is None
    settled = outcomes.settled[case]
    assert (settled.verdict, settled.reason) == ("aborted", f"a test of {case}")
    assert settled.state == BEFORE[case]
    assert settled.tickets == ()
    assert bool(settled.told) == (BEFORE[case] is State.VACATED)  # it waits for a person now
    assert settled.phases.count("settled") == 1


@pytest.mark.parametrize("phase", LATE)
def test_an_abort_that_comes_too_late_is_told_so(outcomes: Outcomes, phase: str) -> None:
    answer = outcomes.answers[phase]
    assert answer is not None
    assert f"is past the point of an abort: {phase} since " in answer
    assert (outcomes.settled[phase].verdict, outcomes.settled[phase].state) == ("passed", "available")


def test_what_has_failed_already_stays_failed(outcomes: Outcomes) -> None:
    settled = outcomes.settled["failed"]
    assert outcomes.answers["failed"] is None
    assert settled.verdict == "failed"
    assert settled.state == "failed"
    assert len(settled.tickets) == 1


def test_a_tenant_ends_even_a_validation_whose_checks_have_passed(outcomes: Outcomes) -> None:
    settled = outcomes.settled["tenant"]
    assert (settled.verdict, settled.reason) == ("aborted", "tenant domain on the host: uninvited")
    assert (settled.state, settled.tickets) == ("allocated", ())
    assert "appeared while the machine was being validated" in settled.told[0]


def test_no_test_vm_is_left(outcomes: Outcomes) -> None:
    assert outcomes.stage.test_vms() == {}
