"""ib_bandwidth: each rail writes to itself through its card (`ib_write_bw`, server and client on one port)."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field

from validators import rails
from validators.base import Check, CheckResult, Finding, Measurement, Subject, conclude, failed, not_run, passed
from validators.record import applied, everything, incomplete, no_limit, not_applicable, of_check, options, unreadable
from validators.sku import IbBandwidthLimits, Strict
from validators.tools import ib_loopback, perftest
from validators.tools.errors import ParseError
from validators.tools.ib_loopback import Loopback, PortOutput
from validators.tools.lines import printable

NAME = "ib_bandwidth"


class Options(Strict):
    """`seconds` is for each rail; they are measured one after the other. `gid_index` is for RoCE."""

    size_bytes: Annotated[int, Field(ge=2, le=1 << 30)] = 8 << 20
    seconds: Annotated[int, Field(ge=1, le=600)] = 5
    qps: Annotated[int, Field(ge=1, le=64)] = 2
    gid_index: Annotated[int, Field(ge=0, le=255)] | None = None


def argv(subject: Subject) -> tuple[str, ...]:
    wanted = options(Options, subject)
    layer = subject.sku.rails.link_layer if subject.sku.rails else "InfiniBand"
    gid = () if wanted.gid_index is None else ("--gid-index", str(wanted.gid_index))
    load = ("--size", str(wanted.size_bytes), "--seconds", str(wanted.seconds), "--qps", str(wanted.qps))
    return ("@measure", NAME, "--link-layer", layer, *load, *gid)


def judge(measurements: Sequence[Measurement], subject: Subject) -> CheckResult:
    if skipping := not_applicable(NAME, subject):
        return skipping
    limits = subject.sku.limits.ib_bandwidth
    findings: list[Finding] = [] if limits else [no_limit(NAME, subject)]
    facts: dict[str, Any] = {}
    for measurement in of_check(NAME, measurements):
        findings += incomplete(measurement, NAME)
        try:
            run = _run(everything(measurement))
        except ParseError as exc:
            findings.append(unreadable(measurement, NAME, exc))
            continue
        if run.ports_tried is None:
            findings.append(not_run("no_trailer", "the output ends before its last marker line"))
        found = rails.match(run.ports, subject)
        findings += _rails(found, limits, subject, facts)
    return conclude(NAME, findings, facts, applied(min_gbps=limits.min_gbps) if limits else {})


def _run(text: str) -> Loopback:
    """Ports between marker lines, or one port where somebody kept the output of one run."""
    try:
        return ib_loopback.parse(text)
    except ParseError:
        device = perftest.parse(text).device or "unknown"
        return Loopback((PortOutput(device, 1, None, None, text, "exited"),), 1)


def _rails(
    found: dict[str, PortOutput | None], limits: IbBandwidthLimits | None, subject: Subject, facts: dict[str, Any]
) -> Iterator[Finding]:
    expected = subject.sku.rails.count if subject.sku.rails else 0
    measured = sum(rail is not None for rail in found.values())
    for name, rail in found.items():
        if rail is None:
            yield not_run("not_measured", f"no port of this rail was measured; {measured} of {expected} were", name)
        else:
            yield from _rail(name, rail, limits, facts)
    if len(found) < expected or not expected:
        yield not_run("not_measured", f"{measured} rails were measured, the SKU has {expected}")


def _rail(name: str, rail: PortOutput, limits: IbBandwidthLimits | None, facts: dict[str, Any]) -> Iterator[Finding]:
    where = "" if rail.device == name else f"{rail.device}: "
    try:
        run = perftest.parse(rail.text)
    except ParseError as exc:
        if rail.ended == "not_found":
            yield not_run("not_found", "ib_write_bw is not installed in the test image", name)
        else:
            yield not_run("unparsable", f"{where}{exc}", name)
        return
    if not run.rows or run.largest.average_gbps <= 0:
        said = f': "{run.errors[0]}"' if run.errors else ""
        yield not_run("no_rows", f"{where}ib_write_bw measured nothing{said}", name)
        return
    largest = run.largest
    facts[f"{printable(name, 64)}_gbps"] = largest.average_gbps
    measured = f"{where}{largest.average_gbps:g} Gb/s at {largest.size_bytes} B"
    if rail.ended != "exited" or not run.complete:
        how = "no end" if rail.ended == "exited" else printable(rail.ended or "no marker", 40)
        yield not_run("incomplete", f"{measured}, but the output is not whole ({how})", name)
    elif limits is None:
        yield passed("bandwidth", measured, name)
    elif largest.average_gbps < limits.min_gbps.value:
        yield failed("slow", f"{measured}, limit {limits.min_gbps.value:g}", name)
    else:
        yield passed("bandwidth", f"{measured}, limit {limits.min_gbps.value:g}", name)


CHECK = Check(NAME, "InfiniBand bandwidth", judge, argv=argv, deadline_s=600, options=Options, stress=True)
