import pytest

from tests.unit.validators.machine import SKU, capture, failures, gaps, judge, subject, without
from validators import CHECKS
from validators.base import Ended, Outcome
from validators.tools import gpu_burn
from validators.tools.errors import ParseError

OK = capture("gpu-burn/a100x8-ok-cr-progress.txt")
TRAILER = "\nTested 8 GPUs:\n" + "".join(f"\tGPU {i}: OK\n" for i in range(8))


def window(gflops: float = 17000, errors: str = "0", last_gflops: float | None = None, percent: float = 100.0) -> str:
    speeds = [gflops] * 7 + [gflops if last_gflops is None else last_gflops]
    work = " - ".join(f"4522 ({speed:.0f} Gflop/s)" for speed in speeds)
    counts = " - ".join([errors, *["0"] * 7])
    return f"\r{percent}%  proc'd: {work}   errors: {counts}   temps: {' - '.join(['60 C'] * 8)} "


def test_numbers_of_every_gpu_are_read() -> None:
    run = gpu_burn.parse(OK)
    assert [gpu.gflops for gpu in run.gpus] == [16942, 17093, 16957, 16926, 16890, 16950, 17010, 16926]
    assert (run.percent, run.tested, run.mode) == (100.0, 8, "doubles_tensor")
    assert (run.gpus[0].max_temperature_c, run.gpus[7].temperature_c) == (62, 61)
    assert {gpu.uuid for gpu in run.gpus if gpu.uuid} >= {"GPU-800e6252-de91-4275-beda-28d1d0fb4a83"}


def test_error_counts_of_all_windows_are_added_up() -> None:
    text = window(errors="30  (WARNING!)") + "\n\tSummary at: now\n" + window(errors="5  (WARNING!)") + TRAILER
    result = judge("gpu_burn", text)
    assert failures(result) == {("gpu0", "wrong_results")}
    assert "35 wrong results" in result.reason


def test_dashes_are_no_temperature() -> None:
    run = gpu_burn.parse(capture("gpu-burn/two-gpus-temp-dashes-one-faulty.txt"))
    assert [gpu.temperature_c for gpu in run.gpus] == [None, 63]
    assert [gpu.errors for gpu in run.gpus] == [0, 3]


def test_number_after_died_is_no_count() -> None:
    run = gpu_burn.parse(capture("gpu-burn/h100x8-one-died-midrun-reconstructed.txt"))
    assert (run.gpus[5].died, run.gpus[5].errors) == (True, 0)


def test_one_slow_gpu_is_named_by_its_slot() -> None:
    result = judge("gpu_burn", window(last_gflops=9000) + TRAILER)
    assert failures(result) == {("gpu7", "slow")}
    assert result.reason == "gpu7: GPU 7: 9000 Gflop/s, limit 15200"


def test_ok_without_work_is_no_pass() -> None:
    assert judge("gpu_burn", TRAILER).outcome is Outcome.NOT_RUN
    result = judge("gpu_burn", window(last_gflops=0) + TRAILER)
    assert (result.outcome, gaps(result)) == (Outcome.NOT_RUN, {"no_work"})


def test_faulty_in_the_trailer_is_enough() -> None:
    result = judge("gpu_burn", window() + TRAILER.replace("GPU 3: OK", "GPU 3: FAULTY"))
    assert failures(result) == {("gpu3", "faulty")}


def test_seven_of_eight_gpus_is_not_run() -> None:
    result = judge(
        "gpu_burn", OK, of=subject(SKU.model_copy(update={"gpus": SKU.gpus.model_copy(update={"count": 9})}))
    )
    assert result.outcome is Outcome.NOT_RUN
    assert gaps(result) == {"gpu_count", "not_burned"}


@pytest.mark.parametrize("ended", [ended for ended in Ended if ended is not Ended.EXITED])
def test_killed_burn_never_passes_and_keeps_its_evidence(ended: Ended) -> None:
    assert judge("gpu_burn", OK, ended=ended).outcome is Outcome.NOT_RUN
    assert judge("gpu_burn", window(errors="7  (WARNING!)"), ended=ended).outcome is Outcome.FAILED


def test_words_of_a_lost_gpu_are_a_failure() -> None:
    result = judge("gpu_burn", "Couldn't init a GPU test: Error in load module: uncorrectable ECC error encountered\n")
    assert failures(result) == {(None, "gpu_error")}


def test_no_limit_is_not_run() -> None:
    assert (
        judge("gpu_burn", OK, of=subject(without(SKU, "gpu_burn"))).reason == "SKU sim-a100x8 has no limit for gpu_burn"
    )


def test_progress_is_the_last_percentage() -> None:
    assert gpu_burn.progress(window(percent=12.5) + window(percent=37.0)) == 37.0
    assert gpu_burn.progress("Burning for 60 seconds.") is None
    assert CHECKS["gpu_burn"].progress is gpu_burn.progress


def test_command_has_the_mode_of_the_limit() -> None:
    argv = CHECKS["gpu_burn"].argv
    assert argv is not None
    assert tuple(argv(subject(duration_s=30, scratch_disk="/dev/vdb"))) == ("gpu_burn", "-d", "-tc", "30")


def test_foreign_text_is_refused() -> None:
    with pytest.raises(ParseError):
        gpu_burn.parse("GPU burn is a nice tool\n100% sure\n")
