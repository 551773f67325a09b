"""The rack ends and starts again: what survives, what does not, and who may run it."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from fleet.core.errors import InvalidInput, Unreachable
from fleet.lab import manifest
from fleet.lab.client import LabClient
from fleet.lab.process import LabProcess
from fleet.lab.records import Records


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def background(hands, vm):
    said = hands.in_guest(
        vm, "setsid sh -c 'echo $$ > pid; exec sleep 300' </dev/null >/dev/null 2>&1 & sleep 0.3; cat pid"
    )
    return int(said.out)


def test_a_running_guest_survives_the_labs_kill(start_rack):
    first = start_rack()
    first.client.reconcile({"lab-01": []})
    vm = first.boot("lab-01")
    pid = background(first, vm)
    boot_id = first.in_guest(vm, "cat $FLEET_ROOT/proc/sys/kernel/random/boot_id").out
    host_boot_id = first.client.machines()[0]["boot_id"]
    first.client.break_("lab-01", "slow-nccl")
    os.kill(first.lab.pid, signal.SIGKILL)
    first.lab.stop()
    assert alive(pid)

    second = start_rack()
    ways = [(m.port, m.guest_port, m.host_key) for m in (first.machine("lab-01"), second.machine("lab-01"))]
    assert ways[0] == ways[1]
    assert second.virsh("lab-01", "list", "--all", "--uuid").out == f"{vm.uuid}\n\n"
    second.wait_for(lambda: len(second.client.machines()) == 1)
    assert second.in_guest(vm, f"kill -0 {pid}").status == 0
    assert second.in_guest(vm, "cat $FLEET_ROOT/proc/sys/kernel/random/boot_id").out == boot_id
    row = second.client.machines()[0]
    assert (row["boot_id"], row["faults"]) == (host_boot_id, ["slow-nccl"])
    second.virsh("lab-01", "destroy", vm.uuid)
    assert not alive(pid)


def test_an_orderly_end_takes_every_process_along_and_guests_boot_anew(start_rack):
    first = start_rack()
    first.client.reconcile({"lab-01": []})
    vm = first.boot("lab-01")
    pid = background(first, vm)
    boot_id = first.in_guest(vm, "cat $FLEET_ROOT/proc/sys/kernel/random/boot_id").out
    first.lab.stop()
    assert not alive(pid)

    second = start_rack()
    second.wait_for(lambda: vm.console.count("login:") == 2)
    assert second.in_guest(vm, "cat $FLEET_ROOT/proc/sys/kernel/random/boot_id").out not in ("", boot_id)
    assert second.in_guest(vm, "cat pid").out == f"{pid}\n"  # its disk is the same


def test_the_rack_ends_when_its_input_does(tmp_path):
    command = [sys.executable, "-m", "fleet.lab", "--dir", str(tmp_path / "rack"), "--machines", "1"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    child.stdin.close()
    assert child.wait(20) == 0
    child.stdout.close()


def test_two_racks_cannot_share_a_directory(start_rack):
    first = start_rack()
    with pytest.raises(Unreachable, match=f"another simulated rack runs in {first.directory}"):
        LabProcess(first.directory, 1).start()
    assert len(first.client.machines()) == 1  # unharmed


def test_a_taken_port_is_replaced_and_the_manifest_says_so(start_rack, tmp_path):
    first = start_rack()
    was = first.machine("lab-01")
    first.lab.stop()
    with socket.create_server((was.address, was.port)):
        second = start_rack()
        now = second.machine("lab-01")
        assert now.port != was.port
        assert now.host_key == was.host_key
        assert second.on_host("lab-01", "echo here").out == "here\n"


def test_more_machines_are_added_to_a_rack_and_the_old_ones_kept(start_rack):
    first = start_rack(1)
    first.client.tenant_leaves("lab-01", "tenant-1")
    first.wait_for(lambda: first.client.machines()[0]["domains"] == [])
    first.lab.stop()
    second = start_rack(3)
    assert [m.name for m in second.manifest.machines] == ["lab-01", "lab-02", "lab-03"]
    assert [m.instances for m in second.manifest.machines] == [(), (), ()]  # the first tenant came only once


def test_a_tenant_told_to_leave_is_gone_after_a_kill_too(start_rack):
    first = start_rack()
    first.client.tenant_leaves("lab-01", "tenant-1")
    os.kill(first.lab.pid, signal.SIGKILL)
    first.lab.stop()
    second = start_rack()
    second.wait_for(lambda: second.client.machines()[0]["domains"] == [])


@pytest.mark.parametrize("machines", [0, 65])
def test_the_number_of_machines_is_bounded(tmp_path, machines):
    with pytest.raises(InvalidInput, match="1 to 64 machines"):
        LabProcess(tmp_path / "rack", machines)


def test_control_wants_its_secret_and_reads_strictly(rack):
    control = rack.manifest.control
    with httpx.Client(base_url=control.url, trust_env=False) as http:
        assert http.get("/faults").status_code == 401
        assert http.get("/faults", headers={"Authorization": "Bearer x"}).status_code == 401
        http.headers["Authorization"] = f"Bearer {control.secret}"
        for body in ({}, {"fault": 1}, {"fault": "faulty-gpu", "more": 1}, []):
            assert http.post("/machines/lab-02/break", json=body).status_code == 422, body
        assert http.post("/machines/lab-02/break", content=b"{").status_code == 422
        assert http.post("/machines/lab-02/explode", json={"fault": "faulty-gpu"}).status_code == 404
        assert http.put("/tenants", json={"lab-02": ["ok"], "lab-03": "no list"}).status_code == 422
        assert http.put("/tenants", json={"lab-02": ["../../x"]}).status_code == 422
    assert [d["instance"] for d in rack.client.machines()[1]["domains"]] == []  # nothing was half done


def test_client_says_when_no_rack_is_there(tmp_path):
    with pytest.raises(Unreachable, match=r"does not answer at http://127\.0\.0\.1:9"):
        LabClient("http://127.0.0.1:9", "x").faults()
    with pytest.raises(Exception, match="no simulated rack has run"):
        manifest.read(tmp_path / "lab.json")


def test_records_come_back_as_they_were(tmp_path):
    records = Records(tmp_path / "state.json")
    record, new = records.machine(7)
    assert new
    record.faults.append("rail-down")
    record.lost.append("0000:07:00.0")
    records.control_port = 4242
    records.save()
    again = Records(tmp_path / "state.json")
    assert again.machine(7) == (record, False)
    assert again.control_port == 4242


def test_a_directory_too_long_for_a_sockets_address_is_fine(start_rack, tmp_path):
    hands = start_rack(1, tmp_path / ("long" * 40))
    assert hands.virsh("lab-01", "list", "--all", "--name").out == "tenant-1\n\n"
