"""A stand-in revalidation on the real engine: looks at the stand-in world, does at most one act, names what is next."""

import random
import time
from dataclasses import dataclass

from sqlalchemy.orm import Session

from fleet.engine.claim import Budgets
from fleet.engine.workflow import Next, Phase, Work, Workflow
from fleet.store.tables import AuditRow
from tests.torture.world import World

KIND = "torture"
FIRST = "wait"
CHECKS = ("memory", "gpu", "network")
ABORTABLE = ("wait", "power", "place", "check")
BUDGETS = Budgets(total=6, per_rack=3, per_power_feed=100)
RACKS = 3
LEASE_S = 0.6
BEFORE_ACT_S = (0.03, 0.2)  # long against the rest: whoever is frozen or killed is mostly so just before an act
AFTER_ACT_S = 0.06


@dataclass(frozen=True)
class Job:
    """`guarded` False leaves the guard out, to see that it is the guard that prevents harm."""

    world: World
    guarded: bool = True

    def workflow(self) -> Workflow:
        handlers = {
            "wait": self.reserve,
            "power": self.power,
            "place": self.place,
            "check": self.check,
            "teardown": self.tear_down,
            "release": self.release,
        }
        phases = {
            name: Phase(handler, abortable=name in ABORTABLE, gate=name == FIRST, max_attempts=1000, backoff_s=0.1)
            for name, handler in handlers.items()
        }
        return Workflow(KIND, phases, abort=self.abort, give_up=_never)

    def reserve(self, work: Work) -> Next:
        return Next("power", "within budget", data={"boots": self.world.boots(work.run.subject), "left": list(CHECKS)})

    def power(self, work: Work) -> Next:
        if self.world.boots(work.run.subject) == work.run.data["boots"]:
            self._act(work, "power_cycle")
        return Next("place", "seen booted", after_s=0.06)

    def place(self, work: Work) -> Next:
        if not self.world.vm_is_up(work.run.subject):
            self._act(work, "place_vm")
        return Next("check", "VM is up", after_s=0.06)

    def check(self, work: Work) -> Next:
        left = work.run.data["left"]
        if not left:
            return Next("teardown", "all checked", data={"verdict": "passed"})
        self._act(work, f"check_{left[0]}")
        return Next("check", f"{left[0]} passed", data={"left": left[1:]})

    def abort(self, work: Work) -> Next:
        return Next("teardown", str(work.run.abort_reason), data={"verdict": "aborted"})

    def tear_down(self, work: Work) -> Next:
        if self.world.vm_is_up(work.run.subject):
            self._act(work, "teardown")
        return Next("release", "VM is gone")

    def release(self, work: Work) -> Next:
        verdict = work.run.data["verdict"]
        self._act(work, f"release_{verdict}")

        def settle(session: Session) -> None:
            machine = work.run.subject
            session.add(
                AuditRow(at=work.run.now, actor="worker", action=verdict, machine=machine, allowed=True, detail={})
            )

        return Next.done(verdict, within=settle)

    def _act(self, work: Work, what: str) -> None:
        """Latency, guard, effect, latency: a crash or a freeze can fall on any side of the effect.

        Between the guard's answer and the effect lies a moment that no engine can protect. A real act keeps it harmless
        by a request timeout below half the lease and the fence on the host; here the clock is read once more."""
        time.sleep(random.uniform(*BEFORE_ACT_S))
        asked = -work.lease_s
        while self.guarded and time.monotonic() - asked > work.lease_s / 2:
            asked = time.monotonic()
            work.guard()
        self.world.act(work.run.subject, what, work.run.epoch)
        time.sleep(random.uniform(0, AFTER_ACT_S))


def _never(work: Work, error: Exception) -> Next:
    raise error
