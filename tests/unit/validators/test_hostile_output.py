"""Whatever a guest prints, a judge answers: in bounded time, without a crash, and never with a pass that has no evidence."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.validators.machine import capture, inventory, judge, loopback, ports, subject
from validators import CHECKS
from validators.base import CheckResult, Measurement, Outcome
from validators.tools import fio, gpu_burn, nccl_tests

HEALTHY = {
    "gpu_inventory": inventory(),
    "gpu_burn": capture("gpu-burn/a100x8-ok-cr-progress.txt"),
    "nccl": capture("nccl-tests/allreduce-a100x8-ok.txt"),
    "ib_links": ports(),
    "ib_bandwidth": loopback(capture("perftest/ib-write-bw-loopback-8m.txt")),
    "storage": capture("fio/fio-json-superbench.json"),
}
NAMES = {check: "kernel_log.guest" if check == "kernel_log" else check for check in CHECKS}


def measured(check: str, output: str) -> CheckResult:
    return CHECKS[check].judge([Measurement(NAMES[check], output)], subject(since=1.0))


def evidence_is_there(check: str, output: str) -> bool:
    """Whether a cut output still holds all that a pass needs, told apart from the judge's own reasoning."""
    match check:
        case "gpu_burn":
            return all(gpu.result == "OK" for gpu in gpu_burn.parse(output).gpus) and output.rstrip().endswith("OK")
        case "nccl":
            return "# Avg bus bandwidth    : " in output and nccl_tests.parse(output).average_busbw_gbs is not None
        case "ib_bandwidth":
            return "=== fleet ib_bandwidth done" in output
        case "storage":
            return bool(fio.parse(output).jobs)
        case _:
            return isinstance(json.loads(output), dict)


@pytest.mark.parametrize("check", HEALTHY)
def test_healthy_output_passes(check: str) -> None:
    assert measured(check, HEALTHY[check]).outcome is Outcome.PASSED


def every_line(whole: str, before: str = "", after: str = "") -> str:
    return "\n".join(f"{before}{line}{after}" for line in whole.split("\n"))


DRESSED = {
    "crlf": lambda whole: whole.replace("\n", "\r\n"),
    "no last line end": lambda whole: whole.rstrip(),
    "mpirun": lambda whole: every_line(whole, "[1,0]<stdout>:"),
    "srun": lambda whole: every_line(whole, "0: "),
    "colours": lambda whole: every_line(whole, "\x1b[0;32m", "\x1b[0m"),
    "blanks": lambda whole: every_line(whole, "", "   "),
    "foreign lines": lambda whole: every_line(
        whole, "", "\nnode-1:77:91 [3] NCCL INFO comm 0x55 rank 3\nWARNING: unrelated\n"
    ),
}


@pytest.mark.parametrize("check", ["gpu_burn", "nccl"])
@pytest.mark.parametrize("dress", DRESSED)
def test_output_dressed_by_launchers_and_terminals_reads_the_same(check: str, dress: str) -> None:
    plain, dressed = measured(check, HEALTHY[check]), measured(check, DRESSED[dress](HEALTHY[check]))
    assert (dressed.outcome, dressed.facts, dressed.reason) == (Outcome.PASSED, plain.facts, plain.reason)


@pytest.mark.parametrize("dress", DRESSED)
def test_dressed_perftest_output_reads_the_same(dress: str) -> None:
    raw = capture("perftest/ib-write-bw-loopback-8m.txt")
    assert (
        measured("ib_bandwidth", loopback(DRESSED[dress](raw))).facts == measured("ib_bandwidth", loopback(raw)).facts
    )


@pytest.mark.parametrize("check", HEALTHY)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_cut_output_never_passes_without_its_evidence(check: str, data: st.DataObject) -> None:
    whole = HEALTHY[check]
    keep = data.draw(st.integers(0, len(whole) - 1))
    result = measured(check, whole[:keep])
    assert result.outcome is not Outcome.SKIPPED
    if result.outcome is Outcome.PASSED:
        assert evidence_is_there(check, whole[:keep])


@pytest.mark.parametrize("check", HEALTHY)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_cut_output_of_a_healthy_machine_condemns_no_device_that_was_there(check: str, data: st.DataObject) -> None:
    keep = data.draw(st.integers(0, len(HEALTHY[check]) - 1))
    assert measured(check, HEALTHY[check][:keep]).outcome is not Outcome.FAILED


@pytest.mark.parametrize("check", HEALTHY)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_hole_in_the_output_never_crashes_a_judge(check: str, data: st.DataObject) -> None:
    whole = HEALTHY[check]
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    noise = data.draw(st.text(max_size=40))
    assert measured(check, whole[:start] + noise + whole[end:]).reason


@pytest.mark.parametrize("check", CHECKS)
@settings(max_examples=60, deadline=None)
@given(output=st.text(max_size=400))
def test_any_text_is_answered_and_passes_nothing(check: str, output: str) -> None:
    result = measured(check, output)
    if check != "kernel_log":
        assert result.outcome is Outcome.NOT_RUN
    assert all(finding.reason.isprintable() and finding.reason for finding in result.findings)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    "output",
    [
        "A" * (1 << 20),
        "\x00\x1b[2J\x9b\x07\ud7ff\ufffe" * 100_000,
        '{"a":' * 200_000,
        "[" * 1_000_000,
        '{"jobs": ' + "9" * 1_000_000 + "}",
        "\r" * 500_000,
        "0: " * 300_000,
        "50.0%  proc'd: " * 60_000,
        "NVRM: GPU EDAC XFS (mlx5_core " * 30_000,
        ("EDAC MC0: nvme nvme0 " * 40 + "\n") * 1_000,
        "=== fleet ib_bandwidth begin {}\n" * 20_000,
        "\x1b[" * 400_000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_a_megabyte_of_garbage_is_answered(check: str, output: str) -> None:
    result = measured(check, output)
    assert check == "kernel_log" or result.outcome is Outcome.NOT_RUN
    assert len(result.reason) < 1000


def test_numbers_beyond_reason_are_no_measurement() -> None:
    text = HEALTHY["nccl"].replace("231.72", "9e999")
    assert judge("nccl", text).facts["busbw_gbs"] == 226.63
