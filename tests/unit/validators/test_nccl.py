import pytest

from tests.unit.validators.machine import SKU, capture, failures, gaps, judge, subject, without
from validators import CHECKS
from validators.base import Ended, Measurement, Outcome
from validators.tools import nccl_tests
from validators.tools.errors import ParseError

OK = capture("nccl-tests/allreduce-a100x8-ok.txt")


@pytest.mark.parametrize(
    ("name", "size", "busbw", "in_place", "average"),
    [
        ("allreduce-a100x8-ok", 1073741824, 231.72, 231.70, 210.99),
        ("allgather-old-format-1e0-error-4-failed", 8589934560, 73.75, 112.34, 30.2993),
        ("allgather-old-format", 8589934592, 223.39, 230.07, 58.2651),
        ("allreduce-old-format-c0-na-8gpu", 8589934592, 235.26, 235.03, 68.4048),
        ("allreduce-wrong-scientific-notation", 536870912, 7.41, 7.35, 3.02663),
        ("alltoall-old-format", 8589934592, 224.31, 226.16, 58.6481),
        ("broadcast-old-format-root0", 8589934592, 122.15, 122.07, 41.2456),
        ("broadcast-old-format", 8589934592, 232.81, 234.70, 64.8653),
        ("reduce-old-format", 8589934592, 228.38, 228.83, 65.018),
        ("reducescatter-old-format", 8589934592, 231.52, 231.25, 60.168),
        ("mpirun-tag-output-p5-2node-elided", 2147483648, 437.79, 437.89, 52.9753),
        ("srun-label-prefix-p4de-2node", 2147483648, 78.33, 78.33, None),
        ("srun-label-prefix-p5-2node", 17179869184, 487.09, 487.26, None),
    ],
)
def test_every_layout_gives_the_largest_size(
    name: str, size: int, busbw: float, in_place: float, average: float | None
) -> None:
    run = nccl_tests.parse(capture(f"nccl-tests/{name}.txt"))
    largest = run.largest
    assert (largest.size_bytes, largest.busbw_gbs, largest.in_place_busbw_gbs) == (size, busbw, in_place)
    assert run.average_busbw_gbs == average


def test_wrong_counts_in_scientific_notation_are_counts() -> None:
    run = nccl_tests.parse(capture("nccl-tests/allreduce-wrong-scientific-notation.txt"))
    assert len(run.wrong) == 27
    assert max(row.wrong or 0 for row in run.rows) > 1e6
    assert run.out_of_bounds == 108


def test_slow_bus_fails_with_number_and_limit() -> None:
    result = judge("nccl", OK.replace("231.72", "91.02"))
    assert failures(result) == {(None, "slow")}
    assert result.reason == "91.02 GB/s at 1073741824 B, limit 220 GB/s"
    assert result.limits["busbw_gbs"]["value"] == 220
    assert result.facts["nccl_version"] == "2.16.2+cuda11.6"
    assert "gcm" in result.limits["busbw_gbs"]["source"]


def test_one_wrong_value_fails_even_when_the_output_is_cut() -> None:
    wrong = OK.replace("127.46  223.05      0", "127.46  223.05      2").partition("# Out of bounds")[0]
    result = judge("nccl", wrong, ended=Ended.DEADLINE)
    assert failures(result) == {(None, "wrong_data")}
    assert result.outcome is Outcome.FAILED


def test_smaller_largest_size_than_asked_for_is_no_measurement() -> None:
    result = judge("nccl", OK.replace("maxBytes 1073741824", "maxBytes 8589934592"))
    assert (result.outcome, gaps(result)) == (Outcome.NOT_RUN, {"sizes_missing"})


def test_one_gpu_listed_twice_is_not_eight_gpus() -> None:
    result = judge("nccl", OK.replace("device  7 ", "device  6 "))
    assert (result.outcome, gaps(result)) == (Outcome.NOT_RUN, {"rank_count"})


def test_uncorrectable_memory_error_of_the_tool_is_a_failure() -> None:
    result = judge("nccl", "node1: Test CUDA failure common.cu:292 'uncorrectable ECC error encountered'\n")
    assert failures(result) == {(None, "gpu_error")}


def test_a_run_counts_only_when_it_ended_by_itself() -> None:
    for ended in Ended:
        result = judge("nccl", OK, ended=ended)
        assert (result.outcome is Outcome.PASSED) == (ended is Ended.EXITED)
    assert judge("nccl", OK, truncated=True).outcome is Outcome.NOT_RUN


def test_sku_without_limit_is_not_run_and_says_so() -> None:
    result = judge("nccl", OK, of=subject(without(SKU, "nccl")))
    assert result.outcome is Outcome.NOT_RUN
    assert result.reason == "SKU sim-a100x8 has no limit for nccl"
    assert result.facts["busbw_gbs"] == 231.72


def test_only_the_sku_skips() -> None:
    sku = SKU.model_copy(update={"skip": {"nccl": "no NVLink"}})
    result = judge("nccl", "anything", of=subject(sku))
    assert (result.outcome, result.reason) == (Outcome.SKIPPED, "SKU sim-a100x8: no NVLink")


def test_missing_tool_and_missing_measurement_are_not_run() -> None:
    measured = Measurement("nccl", "", "sh: 1: all_reduce_perf: not found", exit_status=127)
    result = CHECKS["nccl"].judge([measured], subject())
    assert result.outcome is Outcome.NOT_RUN
    assert "exit status 127" in result.reason
    assert CHECKS["nccl"].judge([], subject()).outcome is Outcome.NOT_RUN


def test_command_comes_from_sku_and_plan() -> None:
    argv = CHECKS["nccl"].argv
    assert argv is not None
    assert tuple(argv(subject(end="2G"))) == (
        ("all_reduce_perf", "-b", "32M", "-e", "2G", "-f", "2", "-c", "1", "-g", "8")
    )


def test_warning_of_nccl_in_a_good_run_is_no_error() -> None:
    assert judge("nccl", f"node:1:2 [0] net.cc:626 NCCL WARN something minor\n{OK}").outcome is Outcome.PASSED


def test_no_number_is_not_zero() -> None:
    run = nccl_tests.parse(OK.replace("231.72", "nan"))
    assert run.largest.size_bytes == 536870912
    with pytest.raises(ParseError):
        nccl_tests.parse("hello\n")


def test_a_row_cut_anywhere_is_never_read_as_wrong_values() -> None:
    start = OK.index("67108864")
    for end in range(start, OK.index("\n", start) + 1):
        assert nccl_tests.parse(OK[:end]).wrong == ()
