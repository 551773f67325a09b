"""The playbook of one validation: plan and SKU as they were at its start, kept on the record so that the verdict can be
computed again with exactly what it was made with."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import validators
from fleet.core.errors import InvalidInput
from fleet.core.model import Machine, SlotKind
from playbooks.errors import PlaybookError
from playbooks.loader import Library
from playbooks.schema import Plan
from validators.base import Check, Subject
from validators.sku import Sku


@dataclass(frozen=True)
class Step:
    """One measurement that the guest's runner makes."""

    name: str  # gpu_inventory, and gpu_inventory.2 when it is read again
    check: Check
    argv: tuple[str, ...]
    deadline_s: float


@dataclass(frozen=True)
class Playbook:
    """`sku` is None when there is no such SKU file: the validation aborts, and `sku_error` says why."""

    plan: Plan
    plan_sha256: str
    sku: Sku | None
    sku_sha256: str
    sku_error: str = ""

    @classmethod
    def load(cls, library: Library, plan: str, sku: str) -> "Playbook":
        """Raises InvalidInput for an unknown or broken plan."""
        try:
            loaded = library.plan(plan)
        except PlaybookError as exc:
            raise InvalidInput(f"plan: {exc}", "plan") from exc
        try:
            declared = library.sku(sku)
        except PlaybookError as exc:
            return cls(loaded.value, loaded.sha256, None, "", f"SKU {sku!r} cannot be used: {exc}")
        return cls(loaded.value, loaded.sha256, declared.value, declared.sha256)

    def dump(self) -> dict[str, Any]:
        return {
            "plan": self.plan.model_dump(mode="json", by_alias=True),
            "plan_sha256": self.plan_sha256,
            "sku": None if self.sku is None else self.sku.model_dump(mode="json"),
            "sku_sha256": self.sku_sha256,
            "sku_error": self.sku_error,
        }

    @classmethod
    def restore(cls, stored: Mapping[str, Any]) -> "Playbook":
        return cls(
            Plan.model_validate(stored["plan"]),
            stored["plan_sha256"],
            None if stored["sku"] is None else Sku.model_validate(stored["sku"]),
            stored["sku_sha256"],
            stored["sku_error"],
        )

    @property
    def enforced(self) -> frozenset[str]:
        return frozenset(name for name in self.plan.names if self.plan.check(name).mode == "enforce")

    def subject(self, check: str, machine: Machine, since: float | None = None) -> Subject:
        assert self.sku is not None
        options = {"scratch_disk": machine.scratch_disk, **self.plan.check(check).options}
        slots = [
            {
                "slot": s.slot,
                "kind": str(s.kind),
                "pci": s.pci,
                "guest_pci": s.guest_pci,
                "serial": s.serial,
                "guid": s.guid,
            }
            for s in machine.slots
        ]
        return Subject(self.sku, slots, since, options)

    def slot_gap(self, machine: Machine) -> str | None:
        """Why the slot map cannot be that of a machine of this SKU. The test VM gets what the map lists: a device that is
        only missing there would be missed by the checks, and the machine condemned for its record."""
        assert self.sku is not None
        wanted = {SlotKind.GPU: self.sku.gpus.count}
        if self.sku.rails is not None and "ib_links" not in self.sku.skip:
            wanted[SlotKind.RAIL] = self.sku.rails.count
        for kind, count in wanted.items():
            listed = sum(slot.kind is kind for slot in machine.slots)
            if listed != count:
                what = f"{listed} slot{'' if listed == 1 else 's'} of kind {kind}"
                return f"the record of {machine.name} lists {what}, SKU {self.sku.sku} has {count}: correct the record first"
        return None

    def stages(self, machine: Machine) -> list[list[Step]]:
        """The guest's part of the plan: checks that the SKU skips or that have no command there are left out."""
        assert self.sku is not None
        seen: dict[str, int] = {}
        stages = []
        for stage in self.plan.stages:
            steps = []
            for name in stage:
                check = validators.CHECKS[name]
                if check.argv is None or name in self.sku.skip:
                    continue
                seen[name] = seen.get(name, 0) + 1
                argv = tuple(check.argv(self.subject(name, machine)))
                if argv:
                    step = name if seen[name] == 1 else f"{name}.{seen[name]}"
                    steps.append(Step(step, check, argv, self.plan.check(name).deadline_s or check.deadline_s))
            if steps:
                stages.append(steps)
        return stages

    def step_names(self, machine: Machine) -> tuple[str, ...]:
        """What the guest measures: the only names that it may report, and all that a pass needs."""
        return tuple(step.name for stage in self.stages(machine) for step in stage)

    def runner_plan(self, validation: str, machine: Machine) -> dict[str, Any]:
        """The document that the runner in the guest reads."""
        return {
            "validation": validation,
            "stages": [
                [
                    {
                        "name": step.name,
                        "argv": list(step.argv),
                        "deadline_s": step.deadline_s,
                        "output_limit_bytes": step.check.output_limit_bytes,
                    }
                    for step in stage
                ]
                for stage in self.stages(machine)
            ],
        }

    def guest_deadline_s(self, machine: Machine) -> float:
        """How long the runner may take if every step takes all of its time, and a minute for itself."""
        return 60.0 + sum(max(step.deadline_s for step in stage) for stage in self.stages(machine))

    def proofs(self, image: Mapping[str, Any]) -> Mapping[str, str]:
        """By check, a digest of what must have passed a machine of the SKU before it may condemn one: image (as the settings
        have it, and its files as seen on the host), SKU file, the code that measures and judges, and the plan's options,
        which say what is measured (a shorter NCCL run is slower). The kernel log is judged also where the plan does not name
        it."""
        files = json.dumps(image.get("seen", {}), sort_keys=True)
        shared = f"{image.get('digest')} {files} {self.sku_sha256} {checks_sha256()}"
        return {
            name: hashlib.sha256(f"{shared} {name} {json.dumps(options, sort_keys=True)}".encode()).hexdigest()
            for name in {*self.plan.names, "kernel_log"}
            for options in [self.plan.check(name).options]
        }


@lru_cache(maxsize=1)
def checks_sha256() -> str:
    """Over the source of the checks: other code is another opinion."""
    files = sorted(p for p in Path(validators.__file__).parent.rglob("*") if p.suffix in (".py", ".yaml"))
    return hashlib.sha256(b"".join(p.read_bytes() for p in files)).hexdigest()


def check_of(measurement: str) -> str:
    """`gpu_inventory.2` and `kernel_log.host` belong to gpu_inventory and kernel_log."""
    return measurement.partition(".")[0]
