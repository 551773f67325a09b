"""gpu_burn: every GPU multiplies matrices for a while and compares each result with the first."""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import PositiveInt

from validators.base import Check, CheckResult, Finding, Measurement, Subject, conclude, failed, not_run, passed
from validators.record import (
    applied,
    everything,
    gpu_names,
    incomplete,
    no_limit,
    not_applicable,
    of_check,
    options,
    unreadable,
)
from validators.sku import GpuBurnLimits, Strict
from validators.tools import gpu_burn
from validators.tools.errors import ParseError

NAME = "gpu_burn"
_FLAGS = {"float": (), "doubles": ("-d",), "tensor": ("-tc",), "doubles_tensor": ("-d", "-tc")}
_HARDWARE_ERRORS = ("uncorrectable ECC", "uncorrectable NVLink", "fallen off the bus", "device is lost", "GPU is lost")


class Options(Strict):
    """`duration_s`: how long the GPUs burn; the check's deadline must leave a minute beside it."""

    duration_s: PositiveInt = 60


def argv(subject: Subject) -> tuple[str, ...]:
    limits = subject.sku.limits.gpu_burn
    return ("gpu_burn", *_FLAGS[limits.mode if limits else "tensor"], str(options(Options, subject).duration_s))


def judge(measurements: Sequence[Measurement], subject: Subject) -> CheckResult:
    if skipping := not_applicable(NAME, subject):
        return skipping
    limits = subject.sku.limits.gpu_burn
    findings: list[Finding] = [] if limits else [no_limit(NAME, subject)]
    facts: dict[str, Any] = {}
    for measurement in of_check(NAME, measurements):
        findings += incomplete(measurement, "gpu_burn")
        try:
            run = gpu_burn.parse(everything(measurement))
        except ParseError as exc:
            findings.append(unreadable(measurement, "gpu_burn", exc))
            continue
        facts |= _facts(run)
        findings += _judge(run, limits, subject)
    return conclude(NAME, findings, facts, applied(min_gflops=limits.min_gflops) if limits else {})


def _judge(run: gpu_burn.BurnRun, limits: GpuBurnLimits | None, subject: Subject) -> Iterator[Finding]:
    expected = subject.sku.gpus.count
    for line in run.errors:
        if any(word in line for word in _HARDWARE_ERRORS):
            yield failed("gpu_error", f"gpu_burn: {line}")
    if run.tested is None:
        said = f': "{run.errors[0]}"' if run.errors else ""
        yield not_run("no_trailer", f"gpu_burn printed no result for any GPU{said}")
    elif run.tested != expected:
        yield not_run("gpu_count", f"gpu_burn tested {run.tested} GPUs, the SKU has {expected}")
    read = {gpu.index: gpu for gpu in run.gpus}
    names = gpu_names(subject)
    for index in range(max(expected, max(read, default=-1) + 1)):
        device = names[index] if index < expected else f"gpu{index}"
        if index in read:
            yield _gpu(read[index], device, limits)
        else:
            yield not_run("not_burned", f"gpu_burn says nothing of GPU {index}", device)


def _gpu(gpu: gpu_burn.BurnedGpu, device: str, limits: GpuBurnLimits | None) -> Finding:
    what = f"GPU {gpu.index}"
    if gpu.died:
        return failed("died", f"{what} died in the burn", device)
    if gpu.errors:
        return failed("wrong_results", f"{what} computed {gpu.errors} wrong results", device)
    if gpu.result == "FAULTY":
        return failed("faulty", f"{what} is called FAULTY by gpu_burn", device)
    if gpu.result is None:
        return not_run("no_result", f"gpu_burn ended without a result for {what}", device)
    if gpu.processed <= 0 or gpu.gflops <= 0:
        return not_run("no_work", f"{what} is called OK, but no progress line shows work of it", device)
    if limits is None:
        return passed("burned", f"{what}: {gpu.gflops:.0f} Gflop/s, no errors", device)
    if gpu.gflops < limits.min_gflops.value:
        return failed("slow", f"{what}: {gpu.gflops:.0f} Gflop/s, limit {limits.min_gflops.value:.0f}", device)
    return passed("burned", f"{what}: {gpu.gflops:.0f} Gflop/s, limit {limits.min_gflops.value:.0f}, no errors", device)


def _facts(run: gpu_burn.BurnRun) -> dict[str, Any]:
    return {
        "tested_gpus": run.tested,
        "progress_percent": run.percent,
        "mode": run.mode,
        "gpus": [
            {
                "index": gpu.index,
                "name": gpu.name,
                "uuid": gpu.uuid,
                "gflops": gpu.gflops,
                "processed_products": gpu.processed,
                "wrong_results": None if gpu.died else gpu.errors,
                "temperature_c": gpu.temperature_c,
                "max_temperature_c": gpu.max_temperature_c,
                "result": gpu.result,
            }
            for gpu in run.gpus
        ],
    }


CHECK = Check(
    NAME,
    "GPU burn",
    judge,
    argv=argv,
    progress=gpu_burn.progress,
    deadline_s=300,
    output_limit_bytes=32 << 20,  # progress is rewritten several times a second
    options=Options,
    stress=True,
)
