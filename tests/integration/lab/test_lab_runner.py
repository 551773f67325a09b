"""The real runner in a simulated guest, followed over the service's own SSH, while the rack goes down and comes back."""

import os
import signal
import time

import pytest

from fleet.core.clock import Deadline
from fleet.core.errors import RemoteError
from fleet.core.model import SshTarget
from fleet.remote.ssh import SshPool
from fleet.workflows.guest import GuestRun, RunState
from playbooks.loader import Library
from validators import CHECKS
from validators.base import Ended, Measurement, Outcome, Subject

SKU = Library().sku("sim-a100x8").value


@pytest.fixture
def pool():
    made = SshPool()
    yield made
    made.close()


def follow(run, until, seconds=30.0):
    """Polls through broken connections; what was seen when `until` said so, and every output on the way."""
    outputs, end = {}, time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            seen = run.poll(outputs, 1 << 20, Deadline.after(3))
        except RemoteError:
            time.sleep(0.1)
            continue
        outputs.update(seen.outputs)
        if seen.state and until(seen.state):
            return seen.state, outputs
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


def test_a_run_goes_on_while_the_rack_is_killed_and_started_again(start_rack, pool):
    rack = start_rack()
    rack.client.reconcile({"lab-01": []})
    vm = rack.boot("lab-01")
    m = rack.machine("lab-01")
    target = SshTarget(m.address, m.port, m.user, m.host_key, m.key_ref)
    shell = pool.through(target, m.guest_address, m.guest_port, "root", vm.login_key, vm.host_key, "the guest")
    subject = Subject(SKU, [dict(slot) for slot in m.slots])
    names = ("gpu_inventory", "gpu_burn", "nccl")
    steps = [
        {"name": n, "argv": list(CHECKS[n].argv(subject)), "deadline_s": 30, "output_limit_bytes": 1 << 20}
        for n in names
    ]
    run = GuestRun(shell, "val-1")
    run.begin({"validation": "val-1", "stages": [[step] for step in steps]}, Deadline.after(10))
    follow(run, lambda state: state.checks["gpu_burn"].state == "running")

    os.kill(rack.lab.pid, signal.SIGKILL)
    rack.lab.stop()
    start_rack()

    state, outputs = follow(run, lambda state: state.state is not RunState.RUNNING)
    assert (state.state, state.reason) == (RunState.DONE, "")
    for name in names:
        out = outputs[name]
        measured = Measurement(
            name, out.stdout.decode(), out.stderr.decode(), state.checks[name].exit_status, Ended.EXITED
        )
        result = CHECKS[name].judge([measured], subject)
        assert result.outcome is Outcome.PASSED, result
