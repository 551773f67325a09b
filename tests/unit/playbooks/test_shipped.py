"""The SKUs and plans in the package."""

import pytest

from playbooks.loader import Library, gaps
from validators import CHECKS
from validators.base import Subject

SHIPPED = Library()
PLANS = SHIPPED.plan_names()
SKUS = SHIPPED.sku_names()


def test_what_is_promised_is_there() -> None:
    assert set(PLANS) == {"quick", "standard", "soak"}
    assert set(SKUS) >= {"sim-a100x8", "a100-sxm4x8", "h100-sxm5x8", "h200-sxmx8", "b200-sxmx8"}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("sku", SKUS)
def test_every_sku_can_pass_every_plan(plan: str, sku: str) -> None:
    assert gaps(SHIPPED.plan(plan).value, SHIPPED.sku(sku).value) == []


@pytest.mark.parametrize("plan", PLANS)
def test_plan_looks_again_after_stress_and_reads_the_logs_last(plan: str) -> None:
    stages = SHIPPED.plan(plan).value.stages
    last_stress = max(n for n, stage in enumerate(stages) if any(CHECKS[name].stress for name in stage))
    assert set(stages[0]) == {"gpu_inventory", "ib_links"}
    assert any({"gpu_inventory", "ib_links"} <= set(stage) for stage in stages[last_stress + 1 :])
    assert stages[-1] == ("kernel_log",)
    assert set(SHIPPED.plan(plan).value.names) == set(CHECKS)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("sku", SKUS)
def test_every_command_fits_its_deadline_and_is_text(plan: str, sku: str) -> None:
    loaded = SHIPPED.plan(plan).value
    for name in loaded.names:
        check, wanted = CHECKS[name], loaded.check(name)
        options = {**wanted.options, "scratch_disk": "/dev/vdb"}
        command = check.argv(Subject(SHIPPED.sku(sku).value, options=options)) if check.argv else ()
        assert all(isinstance(word, str) and word for word in command)
        load_s = max((int(wanted.options.get(key, 0)) for key in ("duration_s", "seconds", "runtime_s")), default=0)
        times = {"ib_bandwidth": 8, "storage": 2}.get(name, 1)
        assert (wanted.deadline_s or check.deadline_s) >= times * load_s + 60


@pytest.mark.parametrize("sku", SKUS)
def test_every_limit_says_where_it_comes_from(sku: str) -> None:
    limits = SHIPPED.sku(sku).value.limits.model_dump(exclude_none=True)
    numbers = [limit for check in limits.values() for limit in check.values() if isinstance(limit, dict)]
    assert numbers
    assert all(len(limit["source"]) > 20 for limit in numbers)
