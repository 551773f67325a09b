"""Whoever is late or frozen: after a teardown that did not say busy, no domain comes up."""

import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from fleet.core.clock import Deadline
from fleet.core.errors import FleetError, HypervisorBusy, HypervisorError
from fleet.core.model import Fence, TestVm
from fleet.hypervisor.base import Placement
from fleet.hypervisor.test_vm import make_test_vm
from tests.contract.hypervisor.host import Host, machine, soon

FIRST, SECOND = Fence(5, 1), Fence(5, 2)


def placement(host: Host, vm: TestVm) -> Placement:
    return host.libvirt.placement(vm, soon()).placement


def test_teardown_before_the_start_closes_it(host: Host, vm: TestVm) -> None:
    host.tear_down(vm, FIRST)
    host.libvirt.place(vm, SECOND, soon())
    assert placement(host, vm) is Placement.FENCED
    assert not [call for call in host.calls if call.startswith("create")]


def test_a_forgotten_validation_stays_closed(host: Host, vm: TestVm) -> None:
    host.tear_down(vm, FIRST)
    host.libvirt.forget(vm, soon())
    host.libvirt.place(vm, FIRST, soon())
    assert placement(host, vm) is Placement.FENCED
    assert not (host.state / vm.validation).exists()


def test_a_start_by_an_older_epoch_is_refused(host: Host, vm: TestVm) -> None:
    other = make_test_vm("val-0", vm.machine)
    host.libvirt.place(other, SECOND, soon())
    host.wait_started(other)
    host.libvirt.place(vm, FIRST, soon())
    view = host.libvirt.placement(vm, soon())
    assert view.placement is Placement.FENCED
    assert "run 5 epoch 1 comes late: the host's fence is at run 5 epoch 2" in view.reason
    assert host.domains == {other.uuid}


def test_a_newer_epoch_of_the_same_run_goes_on_with_the_start(host: Host, vm: TestVm) -> None:
    """The first worker was frozen after it placed the VM; the second wants the same VM."""
    host.tell("gate-create")
    host.libvirt.place(vm, FIRST, soon())
    host.wait_at("create")
    host.libvirt.place(vm, SECOND, soon())
    assert placement(host, vm) is Placement.STARTING
    host.unsay("gate-create")
    host.wait_started(vm)
    assert placement(host, vm) is Placement.RUNNING
    assert len([call for call in host.calls if call.startswith("create")]) == 1


def test_a_start_that_is_in_create_when_the_teardown_comes_removes_its_own_domain(host: Host, vm: TestVm) -> None:
    host.tell("gate-create")
    host.libvirt.place(vm, FIRST, soon())
    host.wait_at("create")
    with pytest.raises(HypervisorBusy, match="still at work"):
        host.libvirt.tear_down(vm, SECOND, Deadline.after(4))
    host.unsay("gate-create")
    host.wait_started(vm)
    assert f"destroy {vm.uuid}" in host.calls
    assert host.domains == set()
    host.tear_down(vm, SECOND)
    assert placement(host, vm) is Placement.FENCED


def test_without_the_closing_the_same_start_would_leave_a_domain(host: Host, vm: TestVm) -> None:
    """What the test above would miss, were it blind."""
    host.tell("gate-create")
    host.libvirt.place(vm, FIRST, soon())
    host.wait_at("create")
    with pytest.raises(HypervisorBusy):
        host.libvirt.tear_down(vm, FIRST, Deadline.after(4))
    (host.state / "closed" / vm.validation).unlink()
    host.unsay("gate-create")
    host.wait_started(vm)
    assert host.domains == {vm.uuid}


def test_a_start_that_is_frozen_before_its_create_never_creates(host: Host, vm: TestVm) -> None:
    host.tell("gate-metadata")  # the question before create: is it there already?
    host.domain(vm.uuid, "<domain/>")  # not ours, so that the answer is no
    host.libvirt.place(vm, FIRST, soon())
    host.wait_at("metadata")
    starter = starter_pid(host, vm)
    os.kill(starter, signal.SIGSTOP)
    host.unsay("gate-metadata")
    (host.fake / f"domains/{vm.uuid}.xml").unlink()
    with pytest.raises(HypervisorBusy):
        host.libvirt.tear_down(vm, SECOND, Deadline.after(4))
    os.kill(starter, signal.SIGCONT)
    host.wait_started(vm)
    assert host.domains == set()
    host.tear_down(vm, SECOND)
    assert host.domains == set()


def test_a_teardown_waits_for_virsh_when_the_start_was_killed(host: Host, vm: TestVm) -> None:
    """The lock is passed on to virsh: it outlives the starter."""
    host.tell("gate-create")
    host.libvirt.place(vm, FIRST, soon())
    host.wait_at("create")
    os.kill(starter_pid(host, vm), signal.SIGKILL)
    with pytest.raises(HypervisorBusy):
        host.libvirt.tear_down(vm, FIRST, Deadline.after(4))
    host.unsay("gate-create")
    host.tear_down(vm, FIRST)
    assert host.domains == set()


def test_a_killed_start_is_a_failed_one_and_may_be_tried_again(host: Host, vm: TestVm) -> None:
    host.tell("gate-create")
    host.tell("fail-create", "error: killed\n")
    host.libvirt.place(vm, FIRST, soon())
    host.wait_at("create")
    os.kill(starter_pid(host, vm), signal.SIGKILL)
    host.unsay("gate-create")
    host.wait_started(vm)
    view = host.libvirt.placement(vm, soon())
    assert (view.placement, "without a result" in view.reason) == (Placement.FAILED, True)
    host.unsay("fail-create")
    host.libvirt.place(vm, SECOND, soon())
    host.wait_started(vm)
    assert placement(host, vm) is Placement.RUNNING


def test_an_old_run_is_torn_down_under_a_newer_fence(host: Host, vm: TestVm) -> None:
    """A domain left behind has to go whatever runs now; the fence does not fall for it."""
    newer = make_test_vm("val-2", vm.machine)
    host.libvirt.place(vm, FIRST, soon())
    host.wait_started(vm)
    host.libvirt.place(newer, Fence(6, 1), soon())
    host.wait_started(newer)
    host.tear_down(vm, FIRST)
    assert host.domains == {newer.uuid}
    assert (host.state / "fence").read_text() == "6 1\n"


@pytest.mark.parametrize("content", ["six one\n", "-1 2\n", "1 2 3\n", f"{'9' * 30} 1\n", "\x1b[2J\n"])
def test_a_damaged_fence_stops_starts_but_no_teardown(host: Host, vm: TestVm, content: str) -> None:
    host.state.mkdir()
    (host.state / "fence").write_text(content)
    with pytest.raises(HypervisorError, match="fence is damaged"):
        host.libvirt.place(vm, FIRST, soon())
    host.tear_down(vm, FIRST)
    assert (host.state / "fence").read_text() == "5 1\n"


def test_an_empty_fence_is_nobodys(host: Host, vm: TestVm) -> None:
    host.state.mkdir()
    (host.state / "fence").touch()
    host.libvirt.place(vm, FIRST, soon())
    host.wait_started(vm)
    assert placement(host, vm) is Placement.RUNNING


@pytest.mark.parametrize("seed", range(24))
def test_in_any_order_no_domain_is_left(tmp_path: Path, seed: int) -> None:
    """Two workers place, one tears down, at random times, with a slow virsh; now and then a kill -9 or a freeze hits the
    starter."""
    dice = random.Random(seed)
    host = Host(tmp_path)
    vm = make_test_vm(f"val-{seed}", machine())
    for verb in ("list", "metadata", "destroy"):
        host.tell(f"delay-{verb}", f"{dice.choice([0, 0, 0, 0.2])}")
    host.tell("delay-create", f"{dice.choice([0, 0.1, 0.3, 1])}")

    def late(delay_s: float, fence: Fence) -> None:
        time.sleep(delay_s)
        try:
            host.libvirt.place(vm, fence, soon())
        except FleetError:
            return

    def strike(delay_s: float, blow: int) -> None:
        time.sleep(delay_s)
        pid = starter_pid(host, vm, wait=False)
        if pid:
            os.kill(pid, blow)
            time.sleep(0.2)
            if blow == signal.SIGSTOP:
                os.kill(pid, signal.SIGCONT)

    threads = [threading.Thread(target=late, args=(dice.uniform(0, 0.3), fence)) for fence in (FIRST, SECOND)]
    blow = dice.choice([None, signal.SIGKILL, signal.SIGSTOP])
    if blow:
        threads.append(threading.Thread(target=strike, args=(dice.uniform(0, 0.4), blow)))
    for thread in threads:
        thread.start()
    time.sleep(dice.uniform(0.1, 0.6))
    host.tear_down(vm, SECOND)
    # From here on nothing may come up: neither from what was at work nor from who comes later.
    for thread in threads:
        thread.join()
    host.wait_started(vm)
    assert host.domains == set()
    assert placement(host, vm) is Placement.FENCED


def starter_pid(host: Host, vm: TestVm, wait: bool = True) -> int:
    """The detached start of this host's VM, by its command line."""
    while True:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and is_starter(entry, host, vm):
                return int(entry.name)
        if not wait:
            return 0
        time.sleep(0.01)


def is_starter(entry: Path, host: Host, vm: TestVm) -> bool:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
        return (
            words[:2] == [b"sh", b"-c"]
            and words[3:5] == [b"fleet-start", vm.validation.encode()]
            and f"FLEET_STATE={host.state}".encode() in (entry / "environ").read_bytes().split(b"\0")
        )
    except (OSError, subprocess.SubprocessError):
        return False
