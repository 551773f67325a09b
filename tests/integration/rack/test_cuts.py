"""The network to the host is cut, or the host goes down, in each phase: for some seconds, and until long after the validation
gave up. One verdict and never a wrong one, no ticket, and no test VM left once the host is back."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import pytest

from fleet.core.clock import SYSTEM
from tests.integration.rack.records import Settled
from tests.integration.rack.stage import Stage, Stop, staged, until

PHASES = ("preflight", "place", "boot", "start", "checks", "collect", "teardown", "settle")
Case = tuple[Literal["network-cut", "host-dies"], str, Literal["briefly", "for good"]]
CASES: list[Case] = [
    *(("network-cut", phase, "briefly") for phase in PHASES),
    *(("host-dies", phase, "briefly") for phase in PHASES),
    *(("network-cut", phase, "for good") for phase in ("place", "boot", "checks", "teardown")),
]
MACHINES = {case: f"lab-{number:02}" for number, case in enumerate(CASES, 2)}  # lab-01 has a tenant
CUT_S = 2.5
CALL_S = 2.0
RULES = {"call_deadline_s": CALL_S, "teardown_deadline_s": 4.0, "guest_silence_s": 6.0, "boot_deadline_s": 10.0}


@dataclass
class Outcomes:
    stage: Stage
    settled: dict[Case, Settled]
    left: dict[str, list[str]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    with staged(tmp_path_factory.mktemp("cuts"), len(CASES) + 1, RULES, host_patience=3, sweep_s=1.0) as stage:
        stops = {case: stage.stop(MACHINES[case], case[1], "before") for case in CASES}
        asked = {case: stage.validate(MACHINES[case]) for case in CASES}
        with ThreadPoolExecutor(len(CASES)) as pool:
            list(pool.map(lambda case: _cut(stage, stops[case], case), CASES))
        settled = {case: stage.settled(asked[case]) for case in CASES}
        for case in CASES:
            stage.lab.mend(MACHINES[case], case[0])
        until(lambda: not stage.test_vms(), 60.0, lambda: str(stage.test_vms()))
        yield Outcomes(stage, settled, stage.test_vms())


def _cut(stage: Stage, stop: Stop, case: Case) -> None:
    stop.wait()
    stage.lab.break_(MACHINES[case], case[0])
    stop.go_on()
    if case[2] == "briefly":
        SYSTEM.sleep(CUT_S)
        stage.lab.mend(MACHINES[case], case[0])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_a_cut_condemns_nothing_and_proves_nothing(outcomes: Outcomes, case: Case) -> None:
    settled = outcomes.settled[case]
    assert settled.verdict in ("passed", "aborted")
    assert settled.phases.count("settled") == 1
    assert settled.tickets == ()
    if settled.verdict == "passed":
        assert (settled.state, settled.told) == ("available", ())
    else:
        assert settled.state in ("available", "vacated")
        assert bool(settled.told) == (settled.state == "vacated")


@pytest.mark.parametrize("case", [case for case in CASES if case[2] == "for good" and case[1] != "place"], ids="-".join)
def test_a_machine_whose_test_vm_was_not_seen_gone_stays_out(outcomes: Outcomes, case: Case) -> None:
    settled = outcomes.settled[case]
    assert (settled.verdict, settled.state) == ("aborted", "vacated")
    assert "see that no test VM is left" in settled.next_steps[0]


@pytest.mark.parametrize("phase", ["place", "boot", "start", "checks", "collect", "teardown"])
def test_a_host_that_went_down_in_the_middle_proves_nothing(outcomes: Outcomes, phase: str) -> None:
    """Also when all checks had passed before: what its log said, and why it went down, nobody knows."""
    assert outcomes.settled["host-dies", phase, "briefly"].verdict == "aborted"


def test_what_was_left_on_a_host_is_removed_when_it_is_back(outcomes: Outcomes) -> None:
    assert outcomes.left == {}
