"""storage: fio reads and writes the machine's declared scratch disk; the disk's contents are lost."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field, PositiveInt

from validators.base import Check, CheckResult, Finding, Measurement, Subject, conclude, failed, not_run, passed
from validators.record import applied, everything, incomplete, not_applicable, of_check, options, unreadable
from validators.sku import Limit, StorageLimits, Strict
from validators.tools import fio
from validators.tools.errors import ParseError

NAME = "storage"
# errno that a disk gives and a wrong command line does not: EIO, ENXIO, ENODEV, ENODATA (medium), EILSEQ (verify), EREMOTEIO
_DISK_ERRNO = {5: "EIO", 6: "ENXIO", 19: "ENODEV", 61: "ENODATA", 84: "EILSEQ", 121: "EREMOTEIO"}
_DISK_WORDS = ("Input/output error", "verify: bad", "verify failed", "No such device")


class Options(Strict):
    """`runtime_s` is for each of the two jobs (4 KiB random and 128 KiB sequential, half of it writes). `size` bounds the
    part of the disk that is used. The disk itself is the machine's `scratch_disk`, never the plan's."""

    runtime_s: PositiveInt = 30
    size: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,6}[KMGT%]?$")] = "100%"
    iodepth: Annotated[int, Field(ge=1, le=1024)] = 64
    numjobs: Annotated[int, Field(ge=1, le=64)] = 4


def argv(subject: Subject) -> tuple[str, ...]:
    """Empty without a scratch disk: nothing may be written elsewhere."""
    disk = _scratch_disk(subject)
    if disk is None:
        return ()
    wanted = options(Options, subject)
    shared = (f"--filename={disk}", "--direct=1", "--ioengine=libaio", "--time_based", "--group_reporting")
    load = (f"--runtime={wanted.runtime_s}", f"--size={wanted.size}", f"--iodepth={wanted.iodepth}")
    random = ("--name=random", "--rw=randrw", "--bs=4k", f"--numjobs={wanted.numjobs}")
    sequential = ("--name=sequential", "--stonewall", "--rw=rw", "--bs=128k")
    return ("fio", "--output-format=json", *shared, *load, *random, *sequential)


def _scratch_disk(subject: Subject) -> str | None:
    disk = subject.options.get("scratch_disk")
    return disk if isinstance(disk, str) and disk.startswith("/") and ":" not in disk else None  # fio splits at ":"


def judge(measurements: Sequence[Measurement], subject: Subject) -> CheckResult:
    if skipping := not_applicable(NAME, subject):
        return skipping
    limits = subject.sku.limits.storage or StorageLimits()
    readings = of_check(NAME, measurements)
    if not readings and _scratch_disk(subject) is None:
        return conclude(NAME, [not_run("no_scratch_disk", "no scratch disk is declared for this machine")])
    findings: list[Finding] = []
    facts: dict[str, Any] = {}
    for measurement in readings:
        gaps = incomplete(measurement, "fio")
        findings += gaps
        text = everything(measurement)
        findings += _error_lines(text)
        try:
            run = fio.parse(text)
        except ParseError as exc:
            findings.append(unreadable(measurement, "fio", exc))
            continue
        facts |= _facts(run)
        findings += _judge(run, limits, whole=not gaps)
    shown = applied(**{name: getattr(limits, name) for name in StorageLimits.model_fields})
    return conclude(NAME, findings, facts, shown)


def _error_lines(text: str) -> Iterator[Finding]:
    for line in fio.failures(text):
        if any(word in line for word in _DISK_WORDS):
            yield failed("io_error", f"fio: {line}")


def _judge(run: fio.FioRun, limits: StorageLimits, *, whole: bool) -> Iterator[Finding]:
    """Errors condemn however the run ended. Rates are judged of a whole one only: fio that is ended early reports on what it
    has done so far, perhaps without the job that a limit is for."""
    if not run.jobs:
        yield not_run("no_jobs", "fio's report has no job in it")
        return
    for job in run.jobs:
        if job.error in _DISK_ERRNO:
            yield failed("io_error", f"job {job.jobname!r} ended with {_DISK_ERRNO[job.error]} (error {job.error})")
        elif job.error:
            yield not_run("job_error", f"job {job.jobname!r} could not run (error {job.error})")
    measured = _measured(run)
    if not measured["read_ios"] or not measured["write_ios"]:
        what = "read" if not measured["read_ios"] else "write"
        yield not_run("no_io", f"not one {what} was done")
        return
    slow = list(_slow(measured, limits)) if whole else []
    yield from slow
    if whole and not slow and not any(job.error for job in run.jobs):
        counted = f"{measured['read_ios']} reads and {measured['write_ios']} writes without an error"
        yield passed("io", f"{counted}, {measured['read_iops']:.0f} / {measured['write_iops']:.0f} IOPS")


def _slow(measured: dict[str, float], limits: StorageLimits) -> Iterator[Finding]:
    for name in StorageLimits.model_fields:
        limit: Limit | None = getattr(limits, name)
        if limit is not None and measured[name] < limit.value:
            yield failed("slow", f"{name} is {measured[name]:.1f}, limit {limit.value:g}")


def _measured(run: fio.FioRun) -> dict[str, float]:
    """The best job for each figure: one job is for IOPS, another for MiB/s."""
    reads, writes = [job.reading for job in run.jobs], [job.writing for job in run.jobs]
    return {
        "read_ios": sum(way.total_ios for way in reads),
        "write_ios": sum(way.total_ios for way in writes),
        "read_iops": max(way.iops for way in reads),
        "write_iops": max(way.iops for way in writes),
        "read_mib_s": max(way.mib_s for way in reads),
        "write_mib_s": max(way.mib_s for way in writes),
    }


def _facts(run: fio.FioRun) -> dict[str, Any]:
    facts: dict[str, Any] = {"fio_version": run.version, "jobs": len(run.jobs)}
    return facts | (_measured(run) if run.jobs else {})


CHECK = Check(NAME, "Scratch disk", judge, argv=argv, deadline_s=300, options=Options, stress=True)
