import json

import pytest

from tests.unit.validators.machine import CAPTURES, SLOTS, failures, gaps, judge, port, ports, subject
from validators import CHECKS
from validators.base import Measurement, Outcome, Subject
from validators.sku import Rails

MANAGEMENT = port(
    9, device="mlx5_bond_0", link_layer="Ethernet", rate="200 Gb/sec (2X NDR)", pci="0000:30:00.0", netdev="bond0"
)


def counters(rail: int, **changes: int) -> str:
    return ports({rail: {"counters": port(rail)["counters"] | changes}})


def h100_capture() -> str:
    """The tree of a real H100 host as the measuring code would print it."""
    listed: dict[str, dict[str, object]] = {}
    for line in (CAPTURES / "sysfs-infiniband/h100-8hca-plus-bond.txt").read_text(encoding="utf-8").splitlines():
        path, _, value = line.partition(": ")
        device, _, file = path.partition("/")
        found = listed.setdefault(device, {"device": device, "port": 1, "counters": {}, "hw_counters": {}})
        match file.split("/"):
            case ["ports", "1", ("counters" | "hw_counters") as kind, name] if value.isdigit():
                found[kind][name] = int(value)  # type: ignore[index]
            case ["ports", "1", ("state" | "phys_state" | "rate" | "link_layer") as name]:
                found[name] = value
            case [("fw_ver" | "hca_type") as name]:
                found[name] = value
    return json.dumps({"tool": "ib_links", "ports": list(listed.values())})


def test_real_host_has_eight_rails_and_the_bond_is_none_of_them() -> None:
    sku = subject().sku.model_copy(update={"rails": Rails(count=8, rate_gbps=400)})
    result = judge("ib_links", h100_capture(), of=Subject(sku))
    assert result.outcome is Outcome.PASSED
    assert len(result.findings) == 8
    assert "mlx5_bond_0" not in {finding.device for finding in result.findings}
    assert result.facts["ib_links"]["ports_seen"] == 9
    assert result.facts["ib_links"]["ports"][1]["counters"]["link_downed"] == 255


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"state": "1: DOWN", "phys_state": "2: Polling"}, "link_down", "1: DOWN, 2: Polling"),
        ({"state": "1: DOWN", "phys_state": "3: Disabled"}, "link_down", "3: Disabled"),
        ({"state": "5: ACTIVE_DEFER"}, "link_down", "5: ACTIVE_DEFER"),
        ({"rate": "100 Gb/sec (4X EDR)"}, "slow_link", "runs at 100 Gb/sec (4X EDR), expected 200 Gb/s"),
        ({"rate": "100 Gb/sec (2X HDR)"}, "slow_link", "2X HDR"),
    ],
)
def test_bad_port_fails_its_rail(changes: dict[str, str], code: str, said: str) -> None:
    result = judge("ib_links", ports({3: changes}, more=[MANAGEMENT]))
    assert failures(result) == {("rail3", code)}
    assert said in result.reason


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"state": "2: INIT"}, "not_configured"),
        ({"state": None, "errors": {"state": "EIO"}}, "not_measured"),
        ({"phys_state": "\x1b[31mLinkUp"}, "not_measured"),
        ({"rate": "fast"}, "not_measured"),
        ({"link_layer": None}, "not_measured"),
    ],
)
def test_unclear_port_is_not_run(changes: dict[str, object], code: str) -> None:
    result = judge("ib_links", ports({3: changes}))
    assert (result.outcome, gaps(result)) == (Outcome.NOT_RUN, {code})
    assert "\x1b" not in result.reason


def test_missing_port_fails_its_slot() -> None:
    result = judge("ib_links", ports(missing=[6]))
    assert failures(result) == {("rail6", "missing")}
    assert "7 of 8 are" in result.reason


def test_port_that_became_ethernet_is_a_missing_rail() -> None:
    assert failures(judge("ib_links", ports({6: {"link_layer": "Ethernet"}}))) == {("rail6", "missing")}


def test_rails_are_found_by_guid_when_addresses_moved() -> None:
    slots = tuple({**slot, "guest_pci": None, "guid": f"0xb83fd2030012345{n % 8}"} for n, slot in enumerate(SLOTS))
    result = CHECKS["ib_links"].judge([Measurement("ib_links", ports(missing=[1]))], Subject(subject().sku, slots))
    assert failures(result) == {("rail1", "missing")}


def test_a_port_that_the_map_does_not_have_may_be_the_one_that_is_missed() -> None:
    """A card that was replaced in a repair: its record is old, its link is up."""
    new = port(8, pci="0000:40:00.0")
    assert gaps(judge("ib_links", ports(missing=[6], more=[new]))) == {"unknown_port"}
    assert failures(judge("ib_links", ports(missing=[5, 6], more=[new]))) == {
        ("rail5", "missing"),
        ("rail6", "missing"),
    }
    lost = judge("ib_links", ports(more=[new]), ports(missing=[6], more=[new]))
    assert failures(lost) == {("rail6", "lost_under_load")}


def test_without_slot_map_ports_are_counted() -> None:
    alone = subject(slots=False)
    assert judge("ib_links", ports(more=[MANAGEMENT]), of=alone).outcome is Outcome.PASSED
    assert failures(judge("ib_links", ports(missing=[0]), of=alone)) == {(None, "missing")}
    extra = port(8, pci="0000:40:00.0")
    assert gaps(judge("ib_links", ports(more=[extra]), of=alone)) == {"ambiguous_rails"}
    assert judge("ib_links", ports(more=[extra])).outcome is Outcome.PASSED


def test_port_gone_in_the_second_reading_was_lost_under_load() -> None:
    for slots in (True, False):
        result = judge("ib_links", ports(), ports(missing=[4]), of=subject(slots=slots))
        assert failures(result) == {("rail4" if slots else "mlx5_4", "lost_under_load")}


def test_counters_count_by_their_rise_only() -> None:
    assert judge("ib_links", counters(0), counters(0)).outcome is Outcome.PASSED
    result = judge("ib_links", counters(0, link_downed=2), counters(0, link_downed=3))
    assert failures(result) == {("rail0", "counter_rose")}
    assert result.reason == "rail0: mlx5_0: link_downed rose by 1 under load"


def test_cleared_counter_starts_at_nothing() -> None:
    result = judge("ib_links", counters(0, link_downed=200), counters(0, link_downed=4))
    assert "rose by 4" in result.reason


@pytest.mark.parametrize(("minutes", "outcome"), [(0, Outcome.FAILED), (10, Outcome.PASSED), (-600, Outcome.NOT_RUN)])
def test_symbol_errors_are_judged_by_their_rate(minutes: int, outcome: Outcome) -> None:
    """By the guest's clock; one that was set back tells no rate."""
    before = Measurement("ib_links", counters(0, symbol_error=3), started_at=1e9)
    after = Measurement("ib_links.2", counters(0, symbol_error=18), started_at=1e9 + 60 * minutes)
    assert CHECKS["ib_links"].judge([before, after], subject()).outcome is outcome


def test_no_infiniband_at_all_is_not_run_and_no_ports_is_a_failure() -> None:
    missing = judge("ib_links", ports(missing=range(8), error="no /sys/class/infiniband"))
    assert (missing.outcome, gaps(missing)) == (Outcome.NOT_RUN, {"not_measured"})
    none = judge("ib_links", ports(missing=range(8)))
    assert failures(none) == {(f"rail{i}", "missing") for i in range(8)}


def test_document_without_ports_condemns_nothing() -> None:
    assert gaps(judge("ib_links", '{"tool": "ib_links"}')) == {"unparsable"}


def test_sku_without_rails_is_not_run() -> None:
    result = judge("ib_links", ports(), of=subject(subject().sku.model_copy(update={"rails": None})))
    assert gaps(result) == {"no_rails"}
