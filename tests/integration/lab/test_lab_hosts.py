"""A simulated host, seen over SSH: what its virsh says and does, what its files show, who gets in."""

import json
import re
import stat
from pathlib import Path

import paramiko
import pytest


def test_manifest_describes_each_machine_fully(rack):
    assert [m.name for m in rack.manifest.machines] == ["lab-01", "lab-02", "lab-03"]
    machine = rack.machine("lab-02")
    kinds = [slot["kind"] for slot in machine.slots]
    assert (kinds.count("gpu"), kinds.count("rail")) == (8, 8)
    for field in ("pci", "guest_pci", "slot"):
        assert len({slot[field] for slot in machine.slots}) == 16
    everywhere = [slot for m in rack.manifest.machines for slot in m.slots]
    assert len({slot["serial"] for slot in everywhere if slot["kind"] == "gpu"}) == 24
    assert len({slot["guid"] for slot in everywhere if slot["kind"] == "rail"}) == 24
    assert rack.machine("lab-01").instances == ("tenant-1",)
    assert machine.instances == ()


def test_secrets_are_readable_by_the_owner_only(rack):
    for name in ("lab.json", "login_key", "state.json"):
        assert stat.S_IMODE((rack.directory / name).stat().st_mode) == 0o600, name


def test_wrong_login_key_is_refused(rack, tmp_path):
    from_elsewhere = paramiko.Ed25519Key.from_private_key_file
    other = rack.directory / "machines/lab-02/host_key"
    machine = rack.machine("lab-02")
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    with pytest.raises(paramiko.AuthenticationException):
        client.connect(
            machine.address,
            machine.port,
            machine.user,
            pkey=from_elsewhere(str(other)),
            allow_agent=False,
            look_for_keys=False,
        )
    client.close()


def test_each_host_shows_its_own_key(rack):
    keys = {m.host_key for m in rack.manifest.machines}
    assert len(keys) == 3
    m, key = rack.machine("lab-02"), (rack.directory / "login_key").read_text()
    with pytest.raises(paramiko.BadHostKeyException):
        rack.log_in(m.address, m.port, m.user, rack.machine("lab-03").host_key, key)


def test_a_command_runs_in_a_real_shell_with_its_input_output_and_status(rack):
    said = rack.on_host("lab-02", "read word; echo got $word; echo oops >&2; exit 7", b"hello\n")
    assert (said.status, said.out, said.err) == (7, "got hello\n", "oops\n")
    assert rack.on_host("lab-02", "nonsuch-tool").status == 127


def test_tools_of_the_real_machine_are_not_there(rack):
    for tool in ("journalctl", "nvidia-smi", "sudo", "systemctl"):
        assert rack.on_host("lab-02", f"command -v {tool}").status == 127, tool


def test_the_hosts_tree_shows_boot_id_and_devices(rack):
    said = rack.on_host("lab-02", "cat $FLEET_ROOT/proc/sys/kernel/random/boot_id")
    assert re.fullmatch(r"[0-9a-f-]{36}\n", said.out)
    gpu = rack.machine("lab-02").slots[0]["pci"]
    said = rack.on_host(
        "lab-02",
        f"cd $FLEET_ROOT/sys/bus/pci/devices/{gpu} && od -An -tx1 -N4 config && readlink driver && cat vendor current_link_width",
    )
    assert said.out.split() == ["de", "10", "b0", "20", "../../drivers/vfio-pci", "0x10de", "16"]


def test_hosts_kernel_log_has_iso_stamps(rack):
    said = rack.on_host("lab-02", "dmesg --time-format iso")
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}\+00:00 Linux version", said.out)
    refused = rack.on_host("lab-02", "dmesg --colour-me")
    assert refused.status == 1
    assert "unrecognized option" in refused.err


def test_tunnels_reach_only_the_own_guest(rack):
    transport = rack.connect("lab-02").get_transport()
    for place in (("127.0.0.1", rack.machine("lab-03").guest_port), ("127.0.0.1", 22), ("10.0.0.1", 80)):
        with pytest.raises(paramiko.ChannelException, match="Administratively"):
            transport.open_channel("direct-tcpip", place, ("", 0), timeout=5)
    machine = rack.machine("lab-02")
    with pytest.raises(paramiko.ChannelException, match="Connect"):
        transport.open_channel("direct-tcpip", (machine.guest_address, machine.guest_port), ("", 0), timeout=5)


@pytest.mark.parametrize(
    ("words", "status", "err"),
    [
        (("frobnicate",), 1, "error: unknown command: 'frobnicate'\n"),
        (("list", "--all", "--bogus"), 1, "error: command 'list' doesn't support option --bogus\n"),
        (("domstate",), 1, "error: command 'domstate' requires <domain> option\n"),
        (("domstate", "a", "b"), 1, "error: unexpected data 'b'\n"),
        (("domstate", "a"), 1, "error: failed to get domain 'a'\n"),
        (("dumpxml", "a"), 1, "error: failed to get domain 'a'\n"),
        (("destroy", "a"), 1, "error: failed to get domain 'a'\n"),
        (("create", "/nonexistent"), 1, "error: Failed to open file '/nonexistent': No such file or directory\n"),
    ],
)
def test_virsh_refuses_in_its_own_words(rack, words, status, err):
    said = rack.virsh("lab-02", *words)
    assert (said.status, said.err) == (status, err)


def test_a_domain_is_created_listed_and_destroyed(rack):
    vm = rack.make_vm("lab-02")
    file = str(vm.state / "domain.xml")
    said = rack.create(vm)
    assert (said.status, said.out, said.err) == (0, f"Domain '{vm.name}' created from {file}\n\n", "")
    assert rack.virsh("lab-02", "list", "--all", "--uuid").out == f"{vm.uuid}\n\n"
    assert rack.virsh("lab-02", "domstate", vm.uuid).out == "running\n\n"
    assert rack.virsh("lab-02", "dumpxml", vm.uuid).out.strip() == vm.xml
    metadata = rack.virsh("lab-02", "metadata", vm.uuid, "https://fleet-revalidation.invalid/domain/1")
    assert metadata.out == '<validation id="val-1"/>\n\n'
    none = rack.virsh("lab-02", "metadata", vm.uuid, "https://elsewhere.invalid")
    assert none.err == "error: metadata not found: Requested metadata element is not present\n"
    assert rack.virsh("lab-02", "destroy", vm.uuid).out == f"Domain '{vm.uuid}' destroyed\n\n"
    assert rack.virsh("lab-02", "list", "--all", "--uuid").out == "\n"


def test_a_second_domain_is_refused_like_libvirt_does(rack):
    vm = rack.make_vm("lab-02")
    rack.create(vm)
    again = rack.create(vm)
    assert again.status == 1
    assert again.err.endswith(f"error: Requested operation is not valid: domain '{vm.name}' is already active\n")
    gpu = rack.machine("lab-02").slots[0]["pci"]
    other = rack.make_vm("lab-02", devices=(gpu,))
    busy = rack.create(other)
    assert busy.err.endswith(
        f"error: Requested operation is not valid: PCI device {gpu} is in use by driver QEMU, domain {vm.name}\n"
    )
    (other.state / "domain.xml").write_text(other.xml.replace(other.name, vm.name))
    taken = rack.create(other)
    assert taken.err.endswith(f"error: operation failed: domain '{vm.name}' already exists with uuid {vm.uuid}\n")


@pytest.mark.parametrize(
    ("was", "becomes", "reason"),
    [
        ("</domain>", "", "(domain_definition)"),
        ("<domain type='kvm'>", "<!DOCTYPE x><domain type='kvm'>", "document type"),
        ("type='kvm'", "type='xen'", "could not find capabilities"),
        ("bus='0x07'", "bus='0x99'", "not found: could not access /sys/bus/pci/devices/0000:99:00.0/config"),
        ("seed.iso", "no.iso", "No such file or directory"),
        ("{image}", "/etc/passwd", "Cannot access storage file '/etc/passwd'"),
        ("console.log", "../../../lab-03/state/console.log", "Unable to open file"),
        ("<name>", "<name>../", "name is missing or has characters"),
    ],
)
def test_bad_domains_are_refused(rack, was, becomes, reason):
    vm = rack.make_vm("lab-02")
    was = was.replace("{image}", rack.manifest.image)
    assert was in vm.xml
    (vm.state / "domain.xml").write_text(vm.xml.replace(was, becomes, 1))
    said = rack.create(vm)
    assert said.status == 1
    assert said.err.startswith(f"error: Failed to create domain from {vm.state}/domain.xml\nerror: ")
    assert reason in said.err
    assert rack.virsh("lab-02", "list", "--all", "--uuid").out == "\n"


def test_a_tenant_holds_every_device_and_leaves_when_told(rack):
    uuid = rack.virsh("lab-01", "list", "--all", "--uuid").out.strip()
    xml = rack.virsh("lab-01", "dumpxml", uuid).out
    assert xml.count("<hostdev") == 16
    assert "<metadata>" not in xml
    refused = rack.create(rack.make_vm("lab-01"))
    assert "is in use by driver QEMU, domain tenant-1" in refused.err
    rack.client.tenant_leaves("lab-01", "tenant-1")
    assert rack.virsh("lab-01", "list", "--all", "--uuid").out.strip() == uuid  # not at once
    rack.wait_for(lambda: rack.virsh("lab-01", "list", "--all", "--uuid").out == "\n", seconds=4)


def test_files_of_a_domain_are_written_for_the_lab_to_read_again(rack):
    rack.create(rack.make_vm("lab-03"))
    document = json.loads(Path(rack.directory / "state.json").read_text())
    assert [len(m["domains"]) for m in document["machines"]] == [1, 0, 1]
