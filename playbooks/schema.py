"""A plan: which checks a validation runs, in which order, and which of them may condemn. SKUs are in validators.sku."""

from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, model_validator

from validators.sku import Strict

CheckName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
Stage = Annotated[tuple[CheckName, ...], Field(min_length=1, max_length=20)]


class PlanCheck(Strict):
    """`mode: observe` records the outcome and condemns nothing. `deadline_s` None is the check's own. `with` are options
    that the check's file documents."""

    mode: Literal["enforce", "observe"] = "enforce"
    deadline_s: PositiveFloat | None = None
    options: dict[str, Any] = Field(default={}, alias="with")


class Plan(Strict):
    """`stages` run one after the other, the checks in one stage side by side; a check named a second time is read again
    (`gpu_inventory.2`), as inventory and counters are after stress. The first `failed` ends the run unless `run_all`."""

    plan: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")
    description: str = Field(default="", max_length=500)
    run_all: bool = False
    stages: tuple[Stage, ...] = Field(min_length=1, max_length=50)
    checks: dict[CheckName, PlanCheck] = {}

    @model_validator(mode="after")
    def _listed(self) -> "Plan":
        staged = {name for stage in self.stages for name in stage}
        if extra := sorted(set(self.checks) - staged):
            raise ValueError(f"checks: {', '.join(extra)} is configured but in no stage")
        for index, stage in enumerate(self.stages):
            if twice := sorted({name for name in stage if stage.count(name) > 1}):
                raise ValueError(
                    f"stages[{index}]: {', '.join(twice)} is named twice; a second reading needs a later stage"
                )
        return self

    def check(self, name: str) -> PlanCheck:
        return self.checks.get(name, PlanCheck())

    @property
    def names(self) -> tuple[str, ...]:
        """Every check once, in order of first appearance."""
        return tuple(dict.fromkeys(name for stage in self.stages for name in stage))
