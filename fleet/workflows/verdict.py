"""The verdict is a pure function of what was stored: results of the checks, the plan's modes, and why the run ended."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fleet.core.model import Verdict
from validators.base import CheckResult, Outcome


@dataclass(frozen=True)
class Decision:
    verdict: Verdict
    reason: str  # a sentence for the record and for people
    failed: tuple[str, ...] = ()  # required checks that failed, in the plan's order


def decide(
    results: Mapping[str, CheckResult],
    enforced: Collection[str],
    minimum: Collection[str],
    *,
    also_needed: Collection[str] = (),
    aborted: str | None = None,
) -> Decision:
    """Any required check `failed` -> failed, whatever ended the run: a failing measurement stays true. Else an abort is
    an abort. Else all required checks passed, among them the site's `minimum` and those that open tickets name
    (`also_needed`) -> passed. Everything else is aborted: nothing was proven, nothing is condemned.

    A skipped check (the SKU file says so) counts as covered; no check at all passes nothing."""
    required = [r for name, r in results.items() if name in enforced and r.outcome is not Outcome.SKIPPED]
    failed = [r for r in required if r.outcome is Outcome.FAILED]
    if failed:
        more = "" if len(failed) == 1 else f"; also failed: {', '.join(r.check for r in failed[1:])}"
        return Decision(Verdict.FAILED, f"{failed[0].check}: {failed[0].reason}{more}", tuple(r.check for r in failed))
    if aborted is not None:
        return Decision(Verdict.ABORTED, aborted)
    if gaps := [r for r in required if r.outcome is not Outcome.PASSED]:
        return Decision(Verdict.ABORTED, "; ".join(f"{r.check} was not run: {r.reason}" for r in gaps))
    covered = {r.check for r in required} | {n for n, r in results.items() if r.outcome is Outcome.SKIPPED}
    if missing := sorted((set(minimum) | set(also_needed)) - covered):
        return Decision(
            Verdict.ABORTED,
            f"a pass needs {', '.join(missing)} as well, which this plan does not enforce: use a fuller plan",
        )
    if minimum and not any(r.check in minimum for r in required):
        return Decision(Verdict.ABORTED, "the SKU skips every check that a pass needs, so nothing was proven")
    if not required:
        return Decision(Verdict.ABORTED, "no check was enforced, so nothing was proven")
    return Decision(Verdict.PASSED, f"{len(required)} checks passed")
