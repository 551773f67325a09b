"""nccl: all GPUs add up large buffers together over NVLink; the sums must be right and the bus fast enough."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field

from validators.base import Check, CheckResult, Finding, Measurement, Subject, conclude, failed, not_run, passed
from validators.record import applied, everything, incomplete, no_limit, not_applicable, of_check, options, unreadable
from validators.sku import NcclLimits, Strict
from validators.tools import nccl_tests
from validators.tools.errors import ParseError

NAME = "nccl"
_HARDWARE_ERRORS = ("uncorrectable ECC", "uncorrectable NVLink", "device is lost")
Size = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,6}[KMG]?$")]


class Options(Strict):
    """`begin` and `end`: smallest and largest message, as nccl-tests reads them (`32M`, `8G`). Three buffers of `end`
    must fit into one GPU."""

    begin: Size = "32M"
    end: Size = "8G"


def argv(subject: Subject) -> tuple[str, ...]:
    wanted = options(Options, subject)
    sizes = ("-b", wanted.begin, "-e", wanted.end, "-f", "2")
    return ("all_reduce_perf", *sizes, "-c", "1", "-g", str(subject.sku.gpus.count))


def judge(measurements: Sequence[Measurement], subject: Subject) -> CheckResult:
    if skipping := not_applicable(NAME, subject):
        return skipping
    limits = subject.sku.limits.nccl
    findings: list[Finding] = [] if limits else [no_limit(NAME, subject)]
    facts: dict[str, Any] = {}
    for measurement in of_check(NAME, measurements):
        findings += incomplete(measurement, "all_reduce_perf")
        try:
            run = nccl_tests.parse(everything(measurement))
        except ParseError as exc:
            findings.append(unreadable(measurement, "all_reduce_perf", exc))
            continue
        facts |= _facts(run)
        findings += _judge(run, limits, subject)
    return conclude(NAME, findings, facts, applied(busbw_gbs=limits.busbw_gbs) if limits else {})


def _judge(run: nccl_tests.NcclRun, limits: NcclLimits | None, subject: Subject) -> Iterator[Finding]:
    """Wrong data condemns whatever else is odd about the run; a bandwidth counts only of a whole and validated one."""
    if run.wrong:
        first = run.wrong[0]
        yield failed(
            "wrong_data", f"{len(run.wrong)} of {len(run.rows)} sizes with wrong values, first at {first.size_bytes} B"
        )
    elif run.out_of_bounds:
        yield failed("wrong_data", f"{run.out_of_bounds} values out of bounds")
    if run.transport_error is not None:
        hca = f" on {run.transport_error}" if run.transport_error else ""
        yield failed("transport_error", f"InfiniBand retries exceeded{hca}", run.transport_error or None)
    for line in (*run.errors, *run.warnings):
        if any(word in line for word in _HARDWARE_ERRORS):
            yield failed("gpu_error", f"all_reduce_perf: {line}")
    if gaps := list(_gaps(run, limits, subject)):
        yield from gaps
    elif run.rows:
        yield _bandwidth(run, limits)


def _gaps(run: nccl_tests.NcclRun, limits: NcclLimits | None, subject: Subject) -> Iterator[Finding]:
    """What keeps the run from being evidence of health."""
    expected = subject.sku.gpus.count * (limits.nodes if limits else 1)
    said = next(iter((*run.warnings, *run.errors)), "")  # NCCL's own words come first and say more
    if run.errors:
        hint = "; is fabric manager running?" if "system not yet initialized" in run.errors[0] else ""
        yield not_run("tool_error", f"all_reduce_perf: {said}{hint}")
    if not run.rows:
        yield not_run("no_rows", "all_reduce_perf measured no message size" + (f': "{said}"' if said else ""))
        return
    if not run.complete:
        yield not_run("no_trailer", "the output ends before its last lines (values out of bounds, average)")
    elif run.max_bytes is not None and run.largest.size_bytes * 2 <= run.max_bytes:
        yield not_run("sizes_missing", f"largest size is {run.largest.size_bytes} B of {run.max_bytes} B asked for")
    if not run.validated:
        yield not_run("not_validated", "the values were not checked (validation is off)")
    if len(run.ranks) == 1:
        yield not_run("one_rank", "one GPU alone has no bus to measure")
    elif len(run.ranks) != expected:
        yield not_run("rank_count", f"{len(run.ranks)} GPUs are listed as taking part, expected {expected}")
    elif len({(rank.host, rank.device) for rank in run.ranks}) != expected:
        yield not_run("rank_count", "one GPU is listed as more than one rank")


def _bandwidth(run: nccl_tests.NcclRun, limits: NcclLimits | None) -> Finding:
    largest = run.largest
    measured = f"{largest.busbw_gbs:g} GB/s at {largest.size_bytes} B"
    if limits is None:
        return passed("bandwidth", measured)
    if largest.busbw_gbs < limits.busbw_gbs.value:
        return failed("slow", f"{measured}, limit {limits.busbw_gbs.value:g} GB/s")
    return passed(
        "bandwidth", f"{measured}, limit {limits.busbw_gbs.value:g} GB/s, {len(run.ranks)} GPUs, no wrong values"
    )


def _facts(run: nccl_tests.NcclRun) -> dict[str, Any]:
    largest = run.largest if run.rows else None
    return {
        "nccl_version": run.nccl_version,
        "ranks": len(run.ranks),
        "gpu_names": sorted({rank.name for rank in run.ranks}),
        "sizes": len(run.rows),
        "largest_size_bytes": largest.size_bytes if largest else None,
        "busbw_gbs": largest.busbw_gbs if largest else None,
        "in_place_busbw_gbs": largest.in_place_busbw_gbs if largest else None,
        "average_busbw_gbs": run.average_busbw_gbs,
        "out_of_bounds_values": run.out_of_bounds,
        "sizes_with_wrong_values": len(run.wrong),
        "validated": run.validated,
        "busbw_gbs_by_size_bytes": {str(row.size_bytes): row.busbw_gbs for row in run.rows[-200:]},
    }


CHECK = Check(NAME, "NCCL all-reduce", judge, argv=argv, deadline_s=600, options=Options, stress=True)
