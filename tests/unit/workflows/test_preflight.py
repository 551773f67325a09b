"""Before a test VM is placed: a record that cannot be true condemns nothing, and a host that was not seen is not clean."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.core.model import Slot
from fleet.core.states import State
from fleet.store.database import Database
from fleet.workflows.world import Policy
from tests.unit.workflows.case import ALL, Case
from tests.unit.workflows.hosts import tenant, vm_of


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
