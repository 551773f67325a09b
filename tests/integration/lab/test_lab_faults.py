"""Faults of hosts, networks and guests, as the service meets them, and what mending them brings back."""

import re
import socket

import paramiko
import pytest

from fleet.core.errors import NotFound, Refused
from fleet.lab.faults import FAULTS

CONFIG = "od -An -tx1 -N4 $FLEET_ROOT/sys/bus/pci/devices/{}/config"


@pytest.fixture
def gpu(rack):
    return rack.machine("lab-02").slots[3]["pci"]


def test_each_fault_has_a_row_and_unknown_ones_are_told_what_there_is(rack):
    rows = rack.client.faults()
    assert {row["name"] for row in rows} == set(FAULTS)
    assert {row["expect"] for row in rows} == {"passed", "failed", "aborted"}
    with pytest.raises(NotFound, match=r"no fault 'gremlins'; there are: faulty-gpu, "):
        rack.client.break_("lab-02", "gremlins")
    with pytest.raises(NotFound, match=r"no machine 'lab-99' in the rack; there are: lab-01, lab-02, lab-03"):
        rack.client.break_("lab-99", "faulty-gpu")


def test_faults_are_listed_by_machine_and_can_be_put_in_twice(rack):
    rack.client.break_("lab-02", "slow-nccl")
    assert rack.client.break_("lab-02", "slow-nccl")["faults"] == ["slow-nccl"]
    assert [m["faults"] for m in rack.client.machines()] == [[], ["slow-nccl"], []]
    assert rack.client.mend("lab-02", "slow-nccl")["faults"] == []
    assert rack.client.mend("lab-02", "slow-nccl")["faults"] == []


def test_a_missing_gpu_is_not_on_the_bus_and_cannot_be_passed_through(rack, gpu):
    vm = rack.make_vm("lab-02")
    rack.client.break_("lab-02", "missing-gpu")
    assert rack.on_host("lab-02", CONFIG.format(gpu)).out == ""
    assert f"Device {gpu} not found" in rack.create(vm).err
    rack.client.mend("lab-02", "missing-gpu")
    assert rack.on_host("lab-02", CONFIG.format(gpu)).out.split() == ["de", "10", "b0", "20"]


def test_a_vm_that_cannot_be_placed(rack):
    rack.client.break_("lab-02", "vm-not-placed")
    said = rack.create(rack.make_vm("lab-02"))
    assert said.status == 1
    assert "error: internal error: qemu unexpectedly closed the monitor" in said.err
    assert rack.virsh("lab-02", "list", "--all", "--uuid").out == "\n"


def test_a_guest_that_never_boots_says_so_on_its_console(rack):
    rack.client.break_("lab-02", "guest-never-boots")
    vm = rack.make_vm("lab-02")
    assert rack.create(vm).status == 0
    rack.wait_for(lambda: "Kernel panic" in vm.console)
    assert rack.virsh("lab-02", "domstate", vm.uuid).out == "running\n\n"
    with pytest.raises(paramiko.ChannelException):
        rack.into(vm)


def test_virsh_lies(rack):
    rack.client.break_("lab-02", "virsh-lies")
    vm = rack.make_vm("lab-02")
    assert rack.create(vm).status == 0
    assert rack.virsh("lab-02", "domstate", vm.uuid).out == "running\n\n"
    assert not (vm.state / "console.log").exists()
    assert rack.virsh("lab-02", "destroy", vm.uuid).status == 0


def test_virsh_hangs_and_answers_when_mended(rack):
    rack.client.break_("lab-02", "virsh-hangs")
    assert rack.on_host("lab-02", "timeout 0.5 virsh list --all --uuid").status == 124
    rack.client.mend("lab-02", "virsh-hangs")
    assert rack.virsh("lab-02", "list", "--all", "--uuid").status == 0


def test_a_device_that_does_not_come_back(rack, gpu):
    vm = rack.boot("lab-02")
    rack.client.break_("lab-02", "device-not-back")
    assert rack.on_host("lab-02", CONFIG.format(gpu)).out.split() == ["de", "10", "b0", "20"]
    rack.virsh("lab-02", "destroy", vm.uuid)
    assert rack.on_host("lab-02", CONFIG.format(gpu)).out.split() == ["ff"] * 4
    assert f"vfio-pci {gpu}: not ready 65535ms after FLR; giving up" in rack.on_host("lab-02", "dmesg").out
    again = rack.create(rack.make_vm("lab-02"))
    assert f"Unknown PCI header type '127' for device '{gpu}'" in again.err
    rack.client.mend("lab-02", "device-not-back")
    assert rack.on_host("lab-02", CONFIG.format(gpu)).out.split() == ["de", "10", "b0", "20"]


def test_a_gpu_lost_under_load_is_lost_for_guest_and_host(rack, gpu):
    rack.client.break_("lab-02", "gpu-lost-under-load")
    vm = rack.boot("lab-02")
    burnt = rack.in_guest(vm, "gpu_burn -d -tc 60").out
    assert "1573  (DIED!)" in burnt
    assert "\tGPU 3: FAULTY" in burnt
    guest_pci = rack.machine("lab-02").slots[3]["guest_pci"]
    for log in (rack.in_guest(vm, "dmesg --time-format iso").out, vm.console):
        assert f"NVRM: Xid (PCI:{guest_pci[:-2]}): 79" in log
    assert rack.on_host("lab-02", CONFIG.format(gpu)).out.split() == ["ff"] * 4
    ask = "cd $FLEET_PYNVML && python3 -c 'import pynvml; pynvml.nvmlDeviceGetHandleByIndex({})'"
    assert rack.in_guest(vm, ask.format(2)).status == 0
    assert "NVMLError: 15" in rack.in_guest(vm, ask.format(3)).err


def test_a_guest_that_hangs_in_the_burn_leaves_its_last_words_on_the_console(rack):
    rack.client.break_("lab-02", "guest-hangs-in-burn")
    vm = rack.boot("lab-02")
    rack.in_guest(vm, "setsid gpu_burn 60 > burnt 2>&1 < /dev/null &")
    rack.wait_for(lambda: re.search(r"NVRM: Xid \(PCI:0000:00:0b\): 79", vm.console) is not None)
    with pytest.raises(paramiko.SSHException):
        rack.into(vm, patience_s=1)
    assert rack.virsh("lab-02", "domstate", vm.uuid).out == "running\n\n"
    assert rack.virsh("lab-02", "destroy", vm.uuid).status == 0


def test_connections_to_the_guest_break_but_work_goes_on(rack):
    vm = rack.boot("lab-02")
    rack.client.break_("lab-02", "ssh-drops")
    client = rack.into(vm)
    rack.wait_for(lambda: not client.get_transport().is_active())
    short = [rack.in_guest(vm, f"echo {n}").out for n in range(3)]
    assert short == ["0\n", "1\n", "2\n"]
    assert rack.on_host("lab-02", "echo host").out == "host\n"


def test_a_dead_host_refuses_connections_and_comes_back_as_another_boot(rack):
    before = rack.on_host("lab-02", "cat $FLEET_ROOT/proc/sys/kernel/random/boot_id").out
    vm = rack.boot("lab-02")
    rack.client.place_tenant("lab-02", "tenant-9")
    machine, connected = rack.machine("lab-02"), rack.connect("lab-02")
    assert rack.client.break_("lab-02", "host-dies")["up"] is False
    rack.wait_for(lambda: not connected.get_transport().is_active())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((machine.address, machine.port), timeout=5)
    rack.client.mend("lab-02", "host-dies")
    assert rack.on_host("lab-02", "cat $FLEET_ROOT/proc/sys/kernel/random/boot_id").out not in ("", before)
    left = rack.virsh("lab-02", "list", "--all", "--name").out.split()
    assert left == ["tenant-9"]  # a tenant's domain starts with its host, a transient one is gone
    assert rack.virsh("lab-02", "domstate", vm.uuid).status == 1


def test_a_cut_network_accepts_and_says_nothing_until_mended(rack):
    machine, connected = rack.machine("lab-02"), rack.connect("lab-02")
    rack.client.break_("lab-02", "network-cut")
    with socket.create_connection((machine.address, machine.port), timeout=5) as silent:
        silent.settimeout(0.5)
        with pytest.raises(TimeoutError):
            silent.recv(1)
    with pytest.raises(paramiko.SSHException):
        connected.get_transport().open_session(timeout=0.5)  # an open connection is cut too
    rack.client.mend("lab-02", "network-cut")
    assert rack.on_host("lab-02", "echo back").out == "back\n"


def test_a_tenant_can_appear_beside_a_test_vm(rack):
    rack.boot("lab-02")
    row = rack.client.place_tenant("lab-02", "tenant-2")
    assert [d["instance"] for d in row["domains"]] == [None, "tenant-2"]
    rack.client.tenant_leaves("lab-02", "tenant-2")
    rack.wait_for(lambda: len(rack.client.machines()[1]["domains"]) == 1)


def test_a_tenant_that_is_placed_again_stays(rack):
    rack.client.tenant_leaves("lab-01", "tenant-1")
    rack.client.place_tenant("lab-01", "tenant-1")
    rack.client.place_tenant("lab-02", "tenant-2")
    rack.client.tenant_leaves("lab-02", "tenant-2")  # told after the first, so gone after it
    rack.wait_for(lambda: rack.client.machines()[1]["domains"] == [])
    assert [d["instance"] for d in rack.client.machines()[0]["domains"]] == ["tenant-1"]


def test_tenants_are_reconciled_on_dead_hosts_too(rack):
    rack.client.break_("lab-02", "host-dies")
    with pytest.raises(Refused, match="lab-02 is down"):
        rack.client.place_tenant("lab-02", "tenant-3")
    rows = rack.client.reconcile({"lab-01": [], "lab-02": ["tenant-3"], "lab-03": ["a", "b"]})
    assert [[d["instance"] for d in row["domains"]] for row in rows] == [[], ["tenant-3"], ["a", "b"]]
    rack.client.mend("lab-02", "host-dies")
    assert rack.virsh("lab-02", "list", "--all", "--name").out == "tenant-3\n\n"
