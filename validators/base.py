"""The contract of a check: what is measured, how it is read, what it means. Only measuring touches the world.

A guest measures (``validators.guest``), the control plane stores the raw output, and ``judge`` is a pure function of what
was stored, so that every verdict can be computed again from the record.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from validators.sku import Sku, Strict


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not_run"  # could not be measured; the reason says why
    SKIPPED = "skipped"  # the SKU file declares the check inapplicable; never the guest


class Ended(StrEnum):
    """How the process of a measurement ended. Everything but EXITED means: the output may be incomplete."""

    EXITED = "exited"
    DEADLINE = "deadline"  # killed by the runner when its time was over
    OUTPUT_LIMIT = "output_limit"  # killed by the runner: it printed more than the cap
    DISK_FULL = "disk_full"  # the runner could not store the output
    NOT_FOUND = "not_found"  # the tool is not installed
    STOPPED = "stopped"  # ended by the orchestrator before it was done
    LOST = "lost"  # the guest, or the runner in it, went away while it ran


@dataclass(frozen=True)
class Measurement:
    """One raw output as stored. `name` is the plan's step (`gpu_inventory`, `gpu_inventory.2` when read again after
    stress, `kernel_log.guest`, `kernel_log.host`, `kernel_log.console`)."""

    name: str
    stdout: str
    stderr: str = ""
    exit_status: int | None = None
    ended: Ended = Ended.EXITED
    started_at: float | None = None  # guest's wall clock, seconds since the epoch: display only
    duration_s: float | None = None
    truncated: bool = False  # more was printed than is stored


@dataclass(frozen=True)
class Finding:
    """What a check says of one device (`device` None: of the machine). `code` is snake_case and stable; `reason` is a
    sentence with the number and its limit, never empty."""

    outcome: Outcome
    code: str
    reason: str
    device: str | None = None


@dataclass(frozen=True)
class CheckResult:
    """`facts` holds every number read, with the unit in the key; `limits` what was applied, with source where known."""

    check: str
    outcome: Outcome
    reason: str
    findings: tuple[Finding, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """What the judge may know of the machine besides its SKU.

    `slots` are the machine's slot rows as recorded (`kind`, `slot`, `pci`, `guest_pci`, `serial`, `guid`);
    `since` is the wall time (seconds) of the claim, from which on a log line counts."""

    sku: Sku
    slots: Sequence[Mapping[str, Any]] = ()
    since: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # the plan's `with:` for this check


Judge = Callable[[Sequence[Measurement], Subject], CheckResult]


@dataclass(frozen=True)
class Check:
    """One test. `argv` makes the guest's command from the subject; None where the control plane collects the
    measurement itself (kernel_log), empty where there is nothing to run on this machine (`judge` then says why).
    `progress` reads per cent from the end of the output, None where the tool says none. `options` is the schema of the
    plan's `with:`. `stress` marks load: the plan reads inventory and counters again after it."""

    name: str
    title: str
    judge: Judge
    argv: Callable[[Subject], Sequence[str]] | None = None
    progress: Callable[[str], float | None] | None = None
    deadline_s: float = 300.0
    output_limit_bytes: int = 8 << 20
    options: type[Strict] = Strict
    stress: bool = False


def passed(code: str, reason: str, device: str | None = None) -> Finding:
    return Finding(Outcome.PASSED, code, reason, device)


def failed(code: str, reason: str, device: str | None = None) -> Finding:
    return Finding(Outcome.FAILED, code, reason, device)


def not_run(code: str, reason: str, device: str | None = None) -> Finding:
    return Finding(Outcome.NOT_RUN, code, reason, device)


def skipped(code: str, reason: str, device: str | None = None) -> Finding:
    return Finding(Outcome.SKIPPED, code, reason, device)


_WORST_FIRST = (Outcome.FAILED, Outcome.NOT_RUN, Outcome.PASSED, Outcome.SKIPPED)


def conclude(
    check: str,
    findings: Sequence[Finding],
    facts: Mapping[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
) -> CheckResult:
    """The check's outcome is its worst finding's: a failure condemns, else a gap keeps it from passing. No findings at
    all is not_run: no data is not a pass."""
    if not findings:
        findings = [not_run("no_data", "nothing was measured")]
    worst = next(o for o in _WORST_FIRST if any(f.outcome is o for f in findings))
    first = next(f for f in findings if f.outcome is worst)
    same = sum(f.outcome is worst for f in findings)
    reason = first.reason if first.device is None else f"{first.device}: {first.reason}"
    if same > 1 and worst is not Outcome.PASSED:
        reason += f" (and {same - 1} more)"
    if worst is Outcome.PASSED and same > 1:
        reason = f"{same} findings passed; first: {reason}"
    return CheckResult(check, worst, reason, tuple(findings), dict(facts or {}), dict(limits or {}))
