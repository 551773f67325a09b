import json
from typing import Any

import pytest

from tests.unit.validators.machine import SKU, capture, failures, gaps, judge, subject, without
from validators import CHECKS
from validators.base import Ended, Outcome
from validators.tools import fio

OK = capture("fio/fio-json-superbench.json")


def report(**job: Any) -> str:
    document = json.loads(OK)
    document["jobs"][0] |= job
    return json.dumps(document)


def test_numbers_are_read_with_their_units() -> None:
    (job,) = fio.parse(OK).jobs
    assert (job.jobname, job.error) == ("rand_read_write", 0)
    assert (round(job.reading.iops, 2), job.reading.mib_s) == (85138.89, 332.588)
    assert (round(job.writing.iops, 2), job.writing.mib_s) == (85066.13, 332.308)


def test_slow_disk_fails_with_number_and_limit() -> None:
    result = judge("storage", report(read={"iops": 1200.5, "bw": 4802, "total_ios": 36000}))
    assert failures(result) == {(None, "slow")}
    assert result.reason == "read_iops is 1200.5, limit 68000"


@pytest.mark.parametrize("ended", [Ended.DEADLINE, Ended.STOPPED])
def test_a_run_that_was_ended_early_has_no_rate(ended: Ended) -> None:
    """fio reports also when it is ended: on what it has done so far, perhaps without the job that a limit is for."""
    slow = report(read={"iops": 1200.5, "bw": 4802, "total_ios": 36000})
    result = judge("storage", slow, ended=ended)
    assert (failures(result), gaps(result)) == (set(), {str(ended)})
    assert failures(judge("storage", report(error=5), ended=ended)) == {(None, "io_error")}


@pytest.mark.parametrize(
    ("errno", "outcome"), [(5, Outcome.FAILED), (84, Outcome.FAILED), (28, Outcome.NOT_RUN), (22, Outcome.NOT_RUN)]
)
def test_error_of_the_disk_condemns_and_of_the_command_does_not(errno: int, outcome: Outcome) -> None:
    result = judge("storage", report(error=errno))
    assert result.outcome is outcome
    assert f"error {errno}" in result.reason


def test_io_error_line_condemns_without_a_report() -> None:
    result = judge("storage", "fio: io_u error on file /dev/vdb: Input/output error: write offset=4096, buflen=4096\n")
    assert failures(result) == {(None, "io_error")}
    assert gaps(result) == {"unparsable"}


def test_one_direction_without_io_is_no_pass() -> None:
    result = judge("storage", report(write={"iops": 0, "bw": 0, "total_ios": 0}))
    assert (result.outcome, gaps(result)) == (Outcome.NOT_RUN, {"no_io"})


def test_sku_without_limits_is_judged_by_errors_alone() -> None:
    result = judge("storage", OK, of=subject(without(SKU, "storage")))
    assert (result.outcome, result.limits) == (Outcome.PASSED, {})


def test_no_scratch_disk_means_no_command_and_says_so() -> None:
    argv = CHECKS["storage"].argv
    assert argv is not None
    assert tuple(argv(subject())) == ()
    result = CHECKS["storage"].judge([], subject())
    assert (result.outcome, result.reason) == (Outcome.NOT_RUN, "no scratch disk is declared for this machine")


@pytest.mark.parametrize("disk", ["vdb", "--output=/etc/passwd", "/dev/vdb:/dev/vda", "", None, 7])
def test_disk_that_is_no_path_is_never_written(disk: object) -> None:
    argv = CHECKS["storage"].argv
    assert argv is not None
    assert tuple(argv(subject(scratch_disk=disk))) == ()


def test_command_writes_only_the_scratch_disk() -> None:
    argv = CHECKS["storage"].argv
    assert argv is not None
    command = tuple(argv(subject(scratch_disk="/dev/vdb", runtime_s=10, size="512M")))
    assert command[:3] == ("fio", "--output-format=json", "--filename=/dev/vdb")
    assert {"--runtime=10", "--size=512M"} < set(command)
    assert sum(word.startswith("--filename=") for word in command) == 1


def test_cut_report_is_not_run() -> None:
    assert judge("storage", OK[: len(OK) // 2]).outcome is Outcome.NOT_RUN
    assert judge("storage", OK, ended=Ended.DISK_FULL).reason == "fio could not be stored: the guest's disk is full"
