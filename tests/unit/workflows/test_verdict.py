"""The verdict as a pure function: every rule of the design has a line here."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from fleet.core.model import Verdict
from fleet.workflows.verdict import Decision, decide
from validators.base import CheckResult, Outcome, conclude, failed, not_run, passed, skipped

MINIMUM = {"gpu_inventory", "gpu_burn"}
_FINDING = {
    Outcome.PASSED: passed("fine", "231 GB/s"),
    Outcome.FAILED: failed("slow", "12 GB/s, limit 228", "gpu 3"),
    Outcome.NOT_RUN: not_run("missing", "the tool is not installed"),
    Outcome.SKIPPED: skipped("sku", "the SKU has none"),
}


def results(**outcomes: Outcome) -> dict[str, CheckResult]:
    return {name: conclude(name, [_FINDING[outcome]]) for name, outcome in outcomes.items()}


def decided(found: Mapping[str, CheckResult], **more: object) -> Decision:
    return decide(found, set(found), MINIMUM, **more)  # type: ignore[arg-type]


def test_all_passed_is_passed() -> None:
    decision = decided(results(gpu_inventory=Outcome.PASSED, gpu_burn=Outcome.PASSED))
    assert decision == Decision(Verdict.PASSED, "2 checks passed")


def test_a_failed_check_fails_and_names_number_and_limit() -> None:
    decision = decided(results(gpu_inventory=Outcome.PASSED, gpu_burn=Outcome.FAILED))
    assert decision.verdict is Verdict.FAILED
    assert decision.failed == ("gpu_burn",)
    assert decision.reason == "gpu_burn: gpu 3: 12 GB/s, limit 228"


def test_a_failing_measurement_outlives_an_abort() -> None:
    decision = decided(results(gpu_inventory=Outcome.NOT_RUN, gpu_burn=Outcome.FAILED), aborted="a person ended it")
    assert decision.verdict is Verdict.FAILED


def test_an_abort_is_an_abort_even_when_everything_passed_so_far() -> None:
    decision = decided(results(gpu_inventory=Outcome.PASSED, gpu_burn=Outcome.PASSED), aborted="a person ended it")
    assert decision == Decision(Verdict.ABORTED, "a person ended it")


def test_what_was_not_run_proves_nothing() -> None:
    decision = decided(results(gpu_inventory=Outcome.PASSED, gpu_burn=Outcome.NOT_RUN))
    assert decision.verdict is Verdict.ABORTED
    assert decision.reason == "gpu_burn was not run: the tool is not installed"


def test_an_observed_failure_condemns_nothing() -> None:
    found = results(gpu_inventory=Outcome.PASSED, gpu_burn=Outcome.PASSED, nccl=Outcome.FAILED)
    assert decide(found, MINIMUM, MINIMUM).verdict is Verdict.PASSED


def test_a_pass_needs_the_minimum_set() -> None:
    decision = decided(results(gpu_inventory=Outcome.PASSED))
    assert decision.verdict is Verdict.ABORTED
    assert "gpu_burn" in decision.reason


def test_a_pass_needs_what_open_tickets_name() -> None:
    found = results(gpu_inventory=Outcome.PASSED, gpu_burn=Outcome.PASSED)
    decision = decided(found, also_needed={"nccl"})
    assert decision.verdict is Verdict.ABORTED
    assert "nccl" in decision.reason


def test_a_check_that_the_sku_skips_counts_as_covered() -> None:
    assert decided(results(gpu_inventory=Outcome.PASSED, gpu_burn=Outcome.SKIPPED)).verdict is Verdict.PASSED


def test_nothing_enforced_proves_nothing() -> None:
    found = results(gpu_inventory=Outcome.SKIPPED, gpu_burn=Outcome.SKIPPED)
    assert decided(found).verdict is Verdict.ABORTED
    assert decide({}, set(), set()).verdict is Verdict.ABORTED


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c", "gpu_inventory", "gpu_burn"]), st.sampled_from(list(Outcome))),
    st.booleans(),
)
def test_no_pass_without_proof_and_no_condemnation_without_evidence(
    outcomes: dict[str, Outcome], aborted: bool
) -> None:
    decision = decided(results(**outcomes), aborted="ended" if aborted else None)
    if decision.verdict is Verdict.PASSED:
        assert not aborted
        assert set(outcomes.values()) <= {Outcome.PASSED, Outcome.SKIPPED}
        assert set(outcomes) >= MINIMUM
    assert (decision.verdict is Verdict.FAILED) == (Outcome.FAILED in outcomes.values())
    assert decision.reason


def test_a_sku_that_skips_all_that_a_pass_needs_proves_nothing() -> None:
    """The looks at the host are always there, and no proof of work."""
    outcomes = {"gpu_inventory": Outcome.SKIPPED, "gpu_burn": Outcome.SKIPPED, "host_inventory": Outcome.PASSED}
    results = {name: conclude(name, [_FINDING[outcome]]) for name, outcome in outcomes.items()}
    assert decide(results, set(results), MINIMUM).verdict is Verdict.ABORTED
