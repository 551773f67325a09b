"""From stored measurements to results: reads files, calls the checks' judges, decides nothing itself."""

from collections.abc import Sequence
from typing import Any

import structlog

import validators
from fleet.core.errors import EvidenceError, NotFound, StoreError
from fleet.core.model import Machine
from fleet.store.evidence import EvidenceStore
from fleet.store.tables import MeasurementRow
from fleet.workflows.guest import GuestPoll
from fleet.workflows.playbook import Playbook, check_of
from validators.base import CheckResult, Ended, Finding, Measurement, Outcome, conclude, not_run

log = structlog.get_logger(__name__)

HOST_CHECKS = ("host_inventory", "device_return")
"""Judged by the control plane itself, from looks at the host before and after: a device that is missing, answers all
ones or does not come back is a failing measurement. Always enforced."""


COLLECTED = ("kernel_log.host",)
"""What the control plane reads for the plan's checks and a pass needs. Of guest and console one is enough (the judge)."""


def read(row: MeasurementRow, evidence: EvidenceStore) -> Measurement:
    """The stored measurement as the judges want it; undecodable bytes are shown as U+FFFD. Raises NotFound and StoreError
    where its files are gone, or are no longer what was measured."""
    text = {
        stream: evidence.get(row.files[stream]).decode("utf-8", "replace") if stream in row.files else ""
        for stream in ("stdout", "stderr")
    }
    return Measurement(
        name=row.name,
        stdout=text["stdout"],
        stderr=text["stderr"],
        exit_status=row.exit_status,
        ended=Ended(row.ended),
        started_at=row.started_at,
        duration_s=row.duration_s,
        truncated=row.truncated,
    )


def fresh(name: str, poll: GuestPoll) -> Measurement:
    """The same, of a step whose output has just been fetched and is not stored yet."""
    assert poll.state is not None
    step, output = poll.state.checks[name], poll.outputs[name]
    return Measurement(
        name=name,
        stdout=output.stdout.decode("utf-8", "replace"),
        stderr=output.stderr.decode("utf-8", "replace"),
        exit_status=step.exit_status,
        ended=Ended(step.ended or Ended.LOST),
        started_at=step.started_at,
        duration_s=step.duration_s,
        truncated=output.truncated or step.truncated,
    )


def judge_check(
    name: str, measured: Sequence[Measurement], playbook: Playbook, machine: Machine, since: float
) -> CheckResult:
    """One check's result. A judge that raises is our own mistake: the check was not run, nothing is condemned."""
    if playbook.sku is None:
        return conclude(name, [not_run("unknown_sku", playbook.sku_error)])
    try:
        return validators.CHECKS[name].judge(measured, playbook.subject(name, machine, since))
    except Exception as exc:  # the judges read hostile text
        log.exception("judge", check=name)
        return conclude(name, [not_run("judge_error", f"the output could not be judged: {type(exc).__name__}: {exc}")])


def judge_all(
    rows: Sequence[MeasurementRow],
    evidence: EvidenceStore,
    playbook: Playbook,
    machine: Machine,
    since: float,
    ended_by: str | None = None,
    *,
    patient: bool = False,
) -> dict[str, CheckResult]:
    """Every check of the plan, in its order; one without a measurement says what ended the run (`ended_by`) before its turn
    came. The kernel log is judged also when the plan does not name it and something
    could not be run: a guest that hung is no evidence, but what its console says may be. `patient`: raises EvidenceError
    where the store cannot be read now; otherwise what it holds counts as lost."""
    by_check: dict[str, list[Measurement]] = {}
    results: dict[str, CheckResult] = {}
    damaged: list[tuple[str, str]] = []
    planned = () if playbook.sku is None else (*playbook.step_names(machine), *COLLECTED)
    for row in rows:
        check = check_of(row.name)
        try:
            measurement = read(row, evidence)
        except (NotFound, StoreError) as exc:
            if patient and isinstance(exc, EvidenceError):
                raise
            damaged.append((check, str(exc)))
            continue
        if check in HOST_CHECKS:
            results[check] = host_result(check, measurement)
        else:
            by_check.setdefault(check, []).append(measurement)
    for name in playbook.plan.names:
        results[name] = judge_check(name, by_check.get(name, []), playbook, machine, since)
        if ended_by is not None and name not in by_check and results[name].outcome is Outcome.NOT_RUN:
            results[name] = conclude(name, [not_run("not_reached", f"its turn did not come: {ended_by}")])
        elif ended_by is None:
            missing = [step for step in planned if check_of(step) == name and step not in {row.name for row in rows}]
            results[name] = _with_gaps(results[name], [f"the reading {step} was not made" for step in missing])
    for check in dict.fromkeys(check for check, _ in damaged):
        why = [reason for of, reason in damaged if of == check]
        results[check] = _with_gaps(results.get(check, CheckResult(check, Outcome.NOT_RUN, "", ())), why)
    gap = any(r.outcome is Outcome.NOT_RUN for r in results.values())
    if gap and "kernel_log" not in results and playbook.sku is not None and "kernel_log" in by_check:
        results["kernel_log"] = judge_check("kernel_log", by_check["kernel_log"], playbook, machine, since)
    return results


def _with_gaps(result: CheckResult, why: Sequence[str]) -> CheckResult:
    """A check that passed did so without these: that proves nothing. What failed, has failed."""
    if result.outcome in (Outcome.FAILED, Outcome.SKIPPED) or not why:
        return result
    findings = [*result.findings, *(not_run("not_measured", reason) for reason in why)]
    return conclude(result.check, findings, result.facts, result.limits)


def host_result(check: str, measurement: Measurement) -> CheckResult:
    """Reads back what `fleet.workflows.host_evidence` wrote: one line per device, `outcome<TAB>code<TAB>device<TAB>reason`."""
    findings = []
    for line in measurement.stdout.splitlines():
        outcome, code, device, reason = line.split("\t", 3)
        findings.append(Finding(Outcome(outcome), code, reason, device or None))
    return conclude(check, findings)


def as_findings(result: CheckResult) -> list[dict[str, Any]]:
    return [
        {"device": f.device, "code": f.code, "outcome": str(f.outcome), "reason": f.reason} for f in result.findings
    ]
