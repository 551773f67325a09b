"""What the service adds to one validation, beyond the hypervisor's create, boot and destroy and the checks themselves.

The bound is measured in the same run on the same simulated rack: the same VM, runner and plan, driven by the same drivers in a
bare loop without records, engine or verdict. Goal: at most 1.5 s wall and 0.3 s CPU added.

    python -m tests.bench.bench_validation [RUNS]
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fleet.app import parts, rack
from fleet.app.start import LAB_RULES
from fleet.core.clock import Deadline
from fleet.core.errors import RemoteError
from fleet.core.ids import new_id
from fleet.core.model import Fence, Trigger
from fleet.engine.worker import Worker
from fleet.hypervisor.base import Placement
from fleet.lab.process import LabProcess
from fleet.settings import load
from fleet.store import machines, validations
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.workflows import begin, revalidation
from fleet.workflows.guest import GuestRun
from fleet.workflows.playbook import Playbook
from fleet.workflows.world import World

MACHINE = "lab-02"


@contextmanager
def running(home: Path) -> Iterator[tuple[Database, World, Worker]]:
    lab = LabProcess(home / "lab", machines=2)
    with ExitStack() as stack:
        manifest = lab.start()
        stack.callback(lab.stop)
        settings = load(None, {"data_dir": home}, LAB_RULES)
        hypervisor = rack.hypervisor(settings.hypervisor, manifest)
        db = stack.enter_context(parts.database(settings, alone=True))
        rack.register(db, manifest)
        world = stack.enter_context(parts.world(settings, db, hypervisor, parts.image(hypervisor)))
        worker = Worker(db, [revalidation.workflow(world)])  # no sweep: it would take the bare loop's VM for an orphan
        stack.callback(worker.stop)
        worker.start()
        yield db, world, worker


def bare(db: Database, world: World) -> float:
    """Seconds for place, boot, checks and teardown, asked for as fast as the answers come."""
    started = time.monotonic()
    with db.read() as session:
        machine = machines.get(session, MACHINE)
    vm, fence = world.make_test_vm(new_id("val"), machine), Fence(int(time.time() * 1000), 1)
    playbook = Playbook.load(world.library, "standard", machine.sku)
    world.hypervisor.place(vm, fence, Deadline.after(10))
    while world.hypervisor.placement(vm, Deadline.after(10)).placement is not Placement.RUNNING:
        time.sleep(0.02)
    guest = GuestRun(world.hypervisor.guest(vm), vm.validation)
    while True:
        try:
            guest.boot_id(Deadline.after(10))
            break
        except RemoteError:
            time.sleep(0.02)
    guest.begin(playbook.runner_plan(vm.validation, machine), Deadline.after(10))
    while (state := guest.poll((), 1 << 20, Deadline.after(10)).state) is None or state.state == "running":
        time.sleep(0.05)
    world.hypervisor.tear_down(vm, fence, Deadline.after(10))
    while world.hypervisor.look(machine, Deadline.after(10)).domain(vm.uuid) is not None:
        time.sleep(0.02)
    return time.monotonic() - started


def ours(db: Database, world: World, worker: Worker) -> tuple[float, float]:
    """Seconds and CPU seconds of this process for one validation, from the order to the verdict."""
    cpu = time.process_time()
    with db.begin() as session:
        seen = machines.get(session, MACHINE)
        playbook = Playbook.load(world.library, "standard", seen.sku)
        id_ = begin.start_validation(session, seen, playbook, Trigger.MANUAL, By("bench"), image=world.image)
    worker.kick()
    verdict = None
    while verdict is None:
        time.sleep(0.25)  # asking is not what is measured
        with db.read() as session:
            verdict = validations.get(session, id_).verdict
    assert verdict == "passed", verdict
    used = time.process_time() - cpu
    with db.read() as session:
        row = validations.get(session, id_)
        assert row.ended_at is not None
        return row.ended_at - row.created_at, used


def idle_share(seconds: float) -> float:
    """CPU seconds a second of a worker that has nothing to do: no validation adds them."""
    cpu = time.process_time()
    time.sleep(seconds)
    return (time.process_time() - cpu) / seconds


def main(runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as (db, world, worker):
        ours(db, world, worker)  # warm: connections, imports
        idle = idle_share(5.0)
        pairs = [(bare(db, world), *ours(db, world, worker)) for _ in range(runs)]
    floor = statistics.median(b for b, _, _ in pairs)
    added = statistics.median(wall - b for b, wall, _ in pairs)
    cpu = statistics.median(c - idle * wall for _, wall, c in pairs)
    print(
        f"one validation, median of {runs}: bare {floor:.2f} s, added by the service {added:.2f} s wall, {cpu:.2f} s CPU"
    )
    print(f"  an idle worker: {idle:.3f} of a core, not counted")
    print(f"  of the goal: wall {added / 1.5:.2f} (1.5 s), CPU {cpu / 0.3:.2f} (0.3 s)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
