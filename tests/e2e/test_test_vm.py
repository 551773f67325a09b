"""The hypervisor contract and the guest runner on real parts: libvirt, sshd, QEMU, and the tools in the VM."""

import dataclasses
import itertools
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from fleet.core.clock import Deadline
from fleet.core.errors import HostKeyRefused, HypervisorError, RemoteError
from fleet.core.model import DeviceState, Fence, TestVm
from fleet.hypervisor.base import Placement, PlacementView
from fleet.hypervisor.libvirt import Libvirt
from fleet.hypervisor.test_vm import make_key_pair, make_test_vm
from fleet.workflows.guest import GuestPoll, GuestRun, RunState
from tests.e2e.hardware import RAIL_GUID
from tests.e2e.host import HERE, Host, pull_out
from validators.tools import infiniband_sysfs, nvml

pytestmark = [pytest.mark.real, pytest.mark.timeout(500)]
FOREIGN = "7e7a1700-0000-4000-8000-000000000001"
_numbers = itertools.count(1)


def soon() -> Deadline:
    """A limit, not an expectation: the VM runs in software, beside whatever else the machine does."""
    return Deadline.after(120)


def new_vm(host: Host) -> TestVm:
    return make_test_vm(f"val-e2e{next(_numbers)}", host.machine("e2e-01"))


def settled(hypervisor: Libvirt, vm: TestVm) -> PlacementView:
    for _ in Deadline.after(120).poll(0.1):
        if (seen := hypervisor.placement(vm, soon())).placement is not Placement.STARTING:
            break
    return seen


def wait_for_ssh(hypervisor: Libvirt, vm: TestVm) -> None:
    for left in Deadline.after(150).poll(0.2):
        try:
            hypervisor.guest(vm).run("true", Deadline.after(20))
        except RemoteError:
            if left == 0:
                raise
        else:
            return


@pytest.fixture
def vm(host: Host, hypervisor: Libvirt) -> Iterator[TestVm]:
    """Placed, up, and gone afterwards."""
    vm = new_vm(host)
    hypervisor.place(vm, Fence(1, 1), soon())
    assert settled(hypervisor, vm).placement is Placement.RUNNING
    wait_for_ssh(hypervisor, vm)
    yield vm
    hypervisor.tear_down(vm, Fence(1, 1), soon())
    assert host.domains() == []
    hypervisor.forget(vm, soon())


def test_vm_is_placed_once_and_reached_by_its_own_keys_only(host: Host, hypervisor: Libvirt, vm: TestVm) -> None:
    hypervisor.place(vm, Fence(1, 1), soon())  # again: the same domain
    assert host.domains() == [vm.uuid]
    seen = hypervisor.look(vm.machine, soon())
    assert [(domain.name, domain.validation, domain.state) for domain in seen.domains] == [
        (vm.name, vm.validation, "running")
    ]
    assert seen.tenants == []
    assert set(seen.devices.values()) == {DeviceState.ANSWERS}

    guest = hypervisor.guest(vm)
    guest.run("echo 'a line of the kernel' > /dev/console", soon())
    assert b"a line of the kernel" in hypervisor.console(vm, 4096, soon())
    assert guest.run("cat", soon(), stdin=b"\x00\xff").stdout == b"\x00\xff"

    _, other_key = make_key_pair()
    with pytest.raises(HostKeyRefused):
        hypervisor.guest(dataclasses.replace(vm, host_key_public=other_key)).run("true", soon())

    with pytest.raises(HypervisorError):
        hypervisor.remove_domain(vm.machine, vm.uuid, "val-another", Fence(2, 1), soon())
    assert host.domains() == [vm.uuid]
    hypervisor.tear_down(vm, Fence(1, 1), soon())
    assert host.domains() == []
    hypervisor.tear_down(vm, Fence(1, 1), soon())  # again: nothing to do
    assert b"a line of the kernel" in hypervisor.console(vm, 4096, soon())


def test_runner_measures_with_the_real_tools(hypervisor: Libvirt, vm: TestVm) -> None:
    run = GuestRun(hypervisor.guest(vm), vm.validation)
    disk = (
        "fio",
        "--output-format=json",
        "--name=random",
        "--filename=/dev/vdb",
        "--rw=randrw",
        "--bs=4k",
        "--size=4M",
    )
    bandwidth = (
        "@measure",
        "ib_bandwidth",
        "--link-layer",
        "Ethernet",
        "--size",
        "4096",
        "--seconds",
        "1",
        "--qps",
        "1",
    )
    run.begin(
        plan(
            vm,
            [{"gpu_inventory": ("@measure", "gpu_inventory"), "ib_links": ("@measure", "ib_links")}],
            [{"ib_bandwidth": bandwidth}],
            [{"storage": (*disk, "--direct=1", "--ioengine=libaio"), "gpu_burn": ("gpu_burn", "60")}],
        ),
        soon(),
    )
    poll = follow(run)
    assert poll.state is not None
    assert {name: (check.ended, check.exit_status) for name, check in poll.state.checks.items()} == dict.fromkeys(
        ("gpu_inventory", "ib_links", "ib_bandwidth", "storage", "gpu_burn"), ("exited", 0)
    )
    printed = {name: output.stdout.decode() for name, output in poll.outputs.items()}

    inventory = nvml.parse(printed["gpu_inventory"])
    assert [gpu.serial for gpu in inventory.gpus] == [slot.serial for slot in vm.machine.slots if slot.kind == "gpu"]
    (port,) = infiniband_sysfs.parse(printed["ib_links"]).ports
    assert (port.port_guid, port.link_layer) == (RAIL_GUID, "Ethernet")
    assert "BW average[Gb/sec]" in printed["ib_bandwidth"]
    assert json.loads(printed["storage"])["jobs"][0]["error"] == 0
    assert "GPU 7: OK" in printed["gpu_burn"]


def plan(vm: TestVm, *stages: list[dict[str, tuple[str, ...]]]) -> Mapping[str, Any]:
    def step(name: str, argv: tuple[str, ...]) -> dict[str, Any]:
        return {"name": name, "argv": list(argv), "deadline_s": 200, "output_limit_bytes": 1 << 20}

    return {
        "validation": vm.validation,
        "stages": [[step(*item) for steps in stage for item in steps.items()] for stage in stages],
    }


def follow(run: GuestRun) -> GuestPoll:
    for _ in Deadline.after(400).poll(0.3):
        poll = run.poll((), 1 << 20, soon())
        if poll.state is not None and poll.state.state is not RunState.RUNNING:
            break
    return poll


def test_foreign_domain_is_seen_and_never_touched(host: Host, hypervisor: Libvirt) -> None:
    created = host.virsh("create", "--paused", str(HERE / "foreign.xml"))
    assert created.returncode == 0, created.stderr
    try:
        machine = host.machine("e2e-01")
        assert [domain.name for domain in hypervisor.look(machine, soon()).tenants] == ["tenant-vm"]
        with pytest.raises(HypervisorError):
            hypervisor.remove_domain(machine, FOREIGN, "val-e2e", Fence(9, 1), soon())
        usurper = dataclasses.replace(new_vm(host), uuid=FOREIGN)
        with pytest.raises(HypervisorError):
            hypervisor.tear_down(usurper, Fence(9, 1), soon())
        assert host.domains() == [FOREIGN]
    finally:
        host.virsh("destroy", FOREIGN)


def test_start_that_comes_after_the_teardown_is_refused_on_the_host(host: Host, hypervisor: Libvirt) -> None:
    vm = new_vm(host)
    hypervisor.tear_down(vm, Fence(1, 2), soon())
    hypervisor.place(vm, Fence(1, 1), soon())  # by a worker that had been frozen
    assert settled(hypervisor, vm).placement is Placement.FENCED
    assert host.domains() == []


def test_vm_that_libvirt_refuses_is_a_failed_start_with_its_words(host: Host, hypervisor: Libvirt) -> None:
    vm = new_vm(host)
    with host.without_scratch_disk():
        hypervisor.place(vm, Fence(1, 1), soon())
        seen = settled(hypervisor, vm)
    assert seen.placement is Placement.FAILED
    assert "scratch.img" in seen.reason
    assert host.domains() == []


def test_device_that_is_gone_or_answers_all_ones_is_seen(host: Host, hypervisor: Libvirt) -> None:
    machine = host.machine("e2e-01")
    lost, dead = machine.slots[0].pci, machine.slots[1].pci
    pull_out(host.device(lost))
    (host.device(dead) / "config").write_bytes(b"\xff" * 64)
    devices = hypervisor.look(machine, soon()).devices
    assert {pci: state for pci, state in devices.items() if state is not DeviceState.ANSWERS} == {
        lost: DeviceState.MISSING,
        dead: DeviceState.ALL_ONES,
    }


def test_kernel_log_of_the_host_is_cut_to_what_is_new(host: Host, hypervisor: Libvirt) -> None:
    machine = host.machine("e2e-01")
    whole = hypervisor.kernel_log(machine, 0.0, 1 << 20, soon())
    assert whole
    assert hypervisor.kernel_log(machine, time.time() + 3600, 1 << 20, soon()) == b""
