import pytest

from tests.unit.validators.machine import SKU, capture, failures, gaps, judge, loopback, subject, without
from validators import CHECKS
from validators.base import Ended, Outcome
from validators.tools import ib_loopback, perftest
from validators.tools.errors import ParseError

OK = capture("perftest/ib-write-bw-loopback-8m.txt")
SLOW = OK.replace("24056.72", "9056.72")


@pytest.mark.parametrize(
    ("name", "size", "average", "peak", "device"),
    [
        # 24056.72 MB of 2^20 bytes a second
        ("ib-write-bw-loopback-8m", 8388608, 201.802, 201.803, "ib0"),
        ("ib-write-bw-loopback-all-sizes", 8388608, 194.957, 194.957, "ib0"),
        ("ib-write-bw-a-gdr-h200-degraded-140g", 8388608, 140.40, 140.55, "mlx5_3"),
        ("ib-write-bw-duration-mode-peak-zero", 1048576, 99.61, None, "roceP2p1s0f1"),
    ],
)
def test_bandwidth_is_read_in_gigabits(name: str, size: int, average: float, peak: float | None, device: str) -> None:
    run = perftest.parse(capture(f"perftest/{name}.txt"))
    largest = run.largest
    assert (largest.size_bytes, largest.average_gbps, largest.peak_gbps) == (size, average, peak)
    assert run.device == device


def test_row_printed_by_both_sides_counts_once() -> None:
    assert len(perftest.parse(OK).rows) == 1
    assert len(perftest.parse(capture("perftest/ib-write-bw-loopback-all-sizes.txt")).rows) == 23


@pytest.mark.parametrize(
    ("name", "average", "p99"), [("ib-send-lat-cpu-frequency-noise", 2.69, 2.75), ("ib-write-lat-spark", 1.47, 1.57)]
)
def test_latency_is_read_past_noise(name: str, average: float, p99: float) -> None:
    (row,) = perftest.parse(capture(f"perftest/{name}.txt")).latency
    assert (row.size_bytes, row.average_us, row.p99_us) == (2, average, p99)


def test_eight_fast_rails_pass_with_their_numbers() -> None:
    result = judge("ib_bandwidth", loopback(OK))
    assert result.outcome is Outcome.PASSED
    assert [result.facts[f"rail{i}_gbps"] for i in range(8)] == [201.802] * 8
    assert result.limits["min_gbps"]["value"] == 180


def test_one_slow_rail_fails_by_name() -> None:
    result = judge("ib_bandwidth", loopback({i: SLOW if i == 5 else OK for i in range(8)}))
    assert failures(result) == {("rail5", "slow")}
    assert result.reason == "rail5: mlx5_5: 75.973 Gb/s at 8388608 B, limit 180"


def test_rail_that_was_not_measured_is_a_gap() -> None:
    result = judge("ib_bandwidth", loopback(dict.fromkeys(range(7), OK), done=7))
    assert (result.outcome, gaps(result), failures(result)) == (Outcome.NOT_RUN, {"not_measured"}, set())
    assert "7 of 8" in result.reason


@pytest.mark.parametrize(
    ("output", "ended", "code"),
    [
        (capture("perftest/couldnt-listen-and-connect-retry.txt"), "exited", "no_rows"),
        (capture("perftest/rem-op-err-status9-cross-tool.txt"), "exited", "no_rows"),
        (OK, "deadline", "incomplete"),
        ("", "not_found", "not_found"),
        ("sh: nonsense", "exited", "unparsable"),
        (OK.replace("24056.72", "0.00"), "exited", "no_rows"),
    ],
)
def test_tool_trouble_on_a_rail_is_not_run(output: str, ended: str, code: str) -> None:
    result = judge("ib_bandwidth", loopback(output, ended=ended))
    assert (result.outcome, gaps(result)) == (Outcome.NOT_RUN, {code})


def test_sweep_that_was_cut_is_not_slow() -> None:
    sweep = capture("perftest/ib-write-bw-loopback-all-sizes.txt").partition("\n131072")[0]
    result = judge("ib_bandwidth", loopback(sweep))
    assert (result.outcome, gaps(result)) == (Outcome.NOT_RUN, {"incomplete"})


def test_no_port_and_no_last_marker_are_not_run() -> None:
    assert judge("ib_bandwidth", loopback({}, done=0)).outcome is Outcome.NOT_RUN
    assert gaps(judge("ib_bandwidth", loopback(OK, done=None))) == {"no_trailer"}
    assert judge("ib_bandwidth", loopback(OK), ended=Ended.DEADLINE).outcome is Outcome.NOT_RUN


def test_cut_between_markers_keeps_what_was_measured() -> None:
    cut = loopback(OK).partition("=== fleet ib_bandwidth end")[0]
    run = ib_loopback.parse(cut)
    assert (len(run.ports), run.ports[0].ended, run.ports_tried) == (1, None, None)
    assert judge("ib_bandwidth", cut).outcome is Outcome.NOT_RUN


@pytest.mark.parametrize("line", ["=== fleet ib_bandwidth begin {broken", '=== fleet ib_bandwidth begin {"port": 1}'])
def test_broken_marker_is_refused(line: str) -> None:
    with pytest.raises(ParseError):
        ib_loopback.parse(line + "}\n")


def test_no_limit_is_not_run() -> None:
    result = judge("ib_bandwidth", loopback(OK), of=subject(without(SKU, "ib_bandwidth")))
    assert result.reason == "SKU sim-a100x8 has no limit for ib_bandwidth"


def test_command_names_link_layer_and_load() -> None:
    argv = CHECKS["ib_bandwidth"].argv
    assert argv is not None
    wanted = ("--link-layer", "InfiniBand", "--size", "8388608", "--seconds", "2", "--qps", "2", "--gid-index", "3")
    assert tuple(argv(subject(seconds=2, gid_index=3))) == ("@measure", "ib_bandwidth", *wanted)
