"""A test VM of the rack: boots from its seed, lets in whom the seed names, runs real processes, ends with its domain."""

import json
import re
from pathlib import Path

import paramiko
import pytest

from validators.guest.build import runner_zipapp


@pytest.fixture
def vm(rack):
    return rack.boot("lab-02")


def test_guest_shows_the_key_of_its_seed_and_takes_only_its_login_key(rack, vm):
    assert rack.in_guest(vm, "echo $USER").out == "root\n"
    other = rack.make_vm("lab-03")
    with pytest.raises(paramiko.BadHostKeyException):
        rack.into(vm, host_key=other.host_key)
    with pytest.raises(paramiko.AuthenticationException):
        rack.into(vm, login_key=other.login_key)
    with pytest.raises(paramiko.AuthenticationException):
        rack.into(vm, login_key=(rack.directory / "login_key").read_text())


def test_console_shows_the_boot(rack, vm):
    assert re.search(r"SeaBIOS.*\[ +\d+\.\d{6}\] Linux version.*fleet-test login:", vm.console, re.S)


def test_guest_without_a_seed_file_is_not_created_and_one_with_a_bad_seed_lets_nobody_in(rack):
    unseeded = rack.make_vm("lab-03", seed=False)
    assert "Cannot access storage file" in rack.create(unseeded).err
    (unseeded.state / "seed.iso").write_bytes(b"not an image")
    assert rack.create(unseeded).status == 0
    rack.wait_for(lambda: "cloud-init: no usable seed" in unseeded.console)
    with pytest.raises(paramiko.ChannelException):
        rack.into(unseeded)


def test_guest_is_not_reached_before_it_has_booted(rack):
    vm = rack.make_vm("lab-03")
    rack.create(vm)
    with pytest.raises(paramiko.ChannelException):
        rack.into(vm)
    rack.wait_for(lambda: "login:" in vm.console)
    assert rack.in_guest(vm, "true").status == 0


def test_guest_has_a_boot_id_of_its_own_and_its_rails_in_sysfs(rack, vm):
    boot = rack.in_guest(vm, "cat $FLEET_ROOT/proc/sys/kernel/random/boot_id").out
    assert re.fullmatch(r"[0-9a-f-]{36}\n", boot)
    assert boot != rack.on_host("lab-02", "cat $FLEET_ROOT/proc/sys/kernel/random/boot_id").out
    said = rack.in_guest(
        vm, "cd $FLEET_ROOT/sys/class/infiniband && cat */ports/1/link_layer && cat mlx5_3/ports/1/gids/0"
    )
    assert said.out.split("\n")[:9] == ["InfiniBand"] * 8 + ["Ethernet"]
    rails = [slot for slot in rack.machine("lab-02").slots if slot["kind"] == "rail"]
    assert said.out.split("\n")[9].endswith(rails[3]["guid"])
    link = rack.in_guest(vm, "basename $(readlink -f $FLEET_ROOT/sys/class/infiniband/mlx5_3/device)")
    assert link.out.strip() == rails[3]["guest_pci"]


def test_measuring_code_reads_the_guest_as_it_is_in_the_slot_map(rack, vm):
    rack.in_guest(vm, "cat > runner.pyz", runner_zipapp())
    inventory = json.loads(rack.in_guest(vm, "python3 runner.pyz measure gpu_inventory").out)
    gpus = [slot for slot in rack.machine("lab-02").slots if slot["kind"] == "gpu"]
    assert inventory["error"] is None
    assert [gpu["serial"] for gpu in inventory["gpus"]] == [slot["serial"] for slot in gpus]
    assert [gpu["pci_bus_id"][4:].lower() for gpu in inventory["gpus"]] == [slot["guest_pci"] for slot in gpus]
    assert {(gpu["name"], gpu["nvlinks_active"]) for gpu in inventory["gpus"]} == {("NVIDIA A100-SXM4-40GB", 12)}
    assert not any(gpu["unsupported"] for gpu in inventory["gpus"])
    links = json.loads(rack.in_guest(vm, "python3 runner.pyz measure ib_links").out)
    assert [port["state"] for port in links["ports"]] == ["4: ACTIVE"] * 9


def test_processes_outlive_their_session_and_end_with_the_domain(rack, vm):
    said = rack.in_guest(
        vm, "setsid sh -c 'echo $$ > pid; exec sleep 300' </dev/null >/dev/null 2>&1 & sleep 0.2; cat pid"
    )
    pid = int(said.out)
    rack.close()  # every connection
    assert rack.in_guest(vm, f"kill -0 {pid}").status == 0
    rack.virsh("lab-02", "destroy", vm.uuid)
    assert not _alive(pid)
    with pytest.raises(paramiko.ChannelException):
        rack.into(vm)


def test_what_a_guest_wrote_is_gone_with_it(rack, vm):
    rack.in_guest(vm, "echo secret > left")
    rack.virsh("lab-02", "destroy", vm.uuid)
    again = rack.boot("lab-02")
    assert rack.in_guest(again, "ls").out == ""


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
