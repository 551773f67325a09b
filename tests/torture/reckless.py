"""The workflows without what keeps late acts harmless, to see that it is needed: no guard before an act, and a host that
remembers nothing. With both in place the same latency is put before each act, so that a freeze mostly falls just there."""

import random
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fleet.core.clock import Deadline
from fleet.core.model import Fence
from fleet.engine.workflow import Next, Phase, Work, Workflow
from fleet.hypervisor.test_vm import TestVm
from fleet.workflows.world import World

BEFORE_ACT_S = (0.1, 1.2)


def hesitant(workflow: Workflow, *, guarded: bool) -> Workflow:
    """Waits a moment before each act; `guarded` asks after it, whether it may still."""
    phases: Mapping[str, Phase] = {
        name: replace(phase, handler=partial(_handle, phase, guarded)) for name, phase in workflow.phases.items()
    }
    return replace(workflow, phases=phases)


def _handle(phase: Phase, guarded: bool, work: Work) -> Next:
    return phase.handler(_Hesitant(work, guarded))


class _Hesitant(Work):
    def __init__(self, work: Work, guarded: bool) -> None:
        super().__init__(work.db, work.run, work.lease_s)
        self._guarded = guarded

    def guard(self) -> None:
        time.sleep(random.uniform(*BEFORE_ACT_S))
        if self._guarded:
            super().guard()


def forgetful(lab: Path, world: World) -> World:
    """Its hosts have no fence: they start whatever VM they are asked for, as often as they are asked."""
    return replace(world, hypervisor=_Forgetful(world.hypervisor, lab))


class _Forgetful:
    def __init__(self, hypervisor: Any, lab: Path) -> None:
        self._hypervisor, self._lab = hypervisor, lab

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hypervisor, name)

    def place(self, vm: TestVm, fence: Fence, deadline: Deadline) -> None:
        state = self._lab / "machines" / vm.machine.name / "state"
        for trace in (state / "fence", state / "closed" / vm.validation):
            trace.unlink(missing_ok=True)
        shutil.rmtree(state / vm.validation, ignore_errors=True)
        self._hypervisor.place(vm, fence, deadline)
