"""One look at a host: what is there, what is ours, and nothing that a domain could fake."""

from pathlib import Path

import pytest

from fleet.core.clock import Deadline
from fleet.core.errors import HypervisorBusy, HypervisorError, InvalidInput
from fleet.core.model import DeviceState, HostView
from tests.contract.hypervisor.host import BOOT_ID, TENANT, Host, machine, soon

OURS = "99999999-2222-3333-4444-555555555555"
METADATA = (
    "<metadata><fleet:validation xmlns:fleet='https://fleet-revalidation.invalid/domain/1' id='val-7'/></metadata>"
)


def look(host: Host, *addresses: str) -> HostView:
    return host.libvirt.look(machine(*addresses), soon())


def test_an_empty_host(host: Host) -> None:
    view = look(host)
    assert (view.boot_id, view.domains, dict(view.devices)) == (BOOT_ID, (), {})
    assert view.wall > 1_700_000_000


def test_devices_by_what_their_config_space_says(host: Host) -> None:
    host.device("0000:1b:00.0")
    host.device("0000:43:00.0", config=b"\xff\xff\xff\xff", driver=None)
    host.device("0000:52:00.0", driver="nvidia")
    (host.root / "sys/bus/pci/devices/0000:52:00.0/config").write_bytes(b"")
    view = look(host, "0000:1b:00.0", "0000:43:00.0", "0000:52:00.0", "0000:9d:00.0")
    assert list(view.devices.values()) == [
        DeviceState.ANSWERS,
        DeviceState.ALL_ONES,
        DeviceState.MISSING,
        DeviceState.MISSING,
    ]
    assert view.drivers == {
        "0000:1b:00.0": "vfio-pci",
        "0000:43:00.0": None,
        "0000:52:00.0": "nvidia",
        "0000:9d:00.0": None,
    }
    assert view.link["0000:1b:00.0"] == ("16.0 GT/s PCIe", "16")
    assert "0000:9d:00.0" not in view.link


def test_domains_and_who_owns_them(host: Host) -> None:
    host.domain(OURS, f"<domain><name>fleet-test-val-7</name>{METADATA}</domain>")
    host.domain(TENANT, "<domain><name>vm-42</name></domain>", state="shut off")
    seen = {domain.uuid: (domain.name, domain.state, domain.validation) for domain in look(host).domains}
    assert seen == {OURS: ("fleet-test-val-7", "running", "val-7"), TENANT: ("vm-42", "shut off", None)}


def test_a_name_of_control_characters_is_harmless(host: Host) -> None:
    host.domain(TENANT, "<domain><name>$(reboot)`id`;'\"&#x85;&#x202e;&lt;b&gt;\n\t\\ x</name></domain>")
    (domain,) = look(host).domains
    assert domain.name.isprintable()
    assert domain.name.startswith("$(reboot)`id`;'\"")


def test_xml_that_poses_as_the_next_section_is_only_xml(host: Host) -> None:
    posing = f"\nend - 0\n{'0' * 32} end - 0\n{'0' * 32} state {TENANT} 0\nshut off\n"
    host.domain(TENANT, f"<domain><name>a</name><description>{posing}</description></domain>")
    (domain,) = look(host).domains
    assert (domain.name, domain.state) == ("a", "running")


@pytest.mark.parametrize(
    "xml", ["", "<domain", "\x00\x01", "<!DOCTYPE d [<!ENTITY a 'b'>]><domain>&a;</domain>", "<domain>\x1b</domain>"]
)
def test_a_domain_that_cannot_be_read_is_a_tenants(host: Host, xml: str) -> None:
    host.domain(TENANT, xml)
    view = look(host)
    assert [domain.uuid for domain in view.tenants] == [TENANT]


def test_a_domain_that_goes_between_the_list_and_the_questions_is_gone(host: Host) -> None:
    host.tell("ghost", f"{OURS}\n")
    host.domain(TENANT, "<domain><name>a</name></domain>")
    assert [domain.uuid for domain in look(host).domains] == [TENANT]


def test_a_domain_that_virsh_lists_and_does_not_tell_of_is_an_error(host: Host) -> None:
    host.tell("extra", f"{OURS}\n")
    with pytest.raises(HypervisorError, match=f"m-01: look: virsh does not tell of domain {OURS}"):
        look(host)


@pytest.mark.parametrize("line", ["$(reboot)", "../../etc/passwd", "--all", "x" * 36, "\x1b[2J"])
def test_a_list_of_what_is_no_uuid_is_an_error_and_reaches_no_command(host: Host, line: str) -> None:
    host.tell("extra", f"{line}\n")
    with pytest.raises(HypervisorError, match="which is no uuid") as error:
        look(host)
    assert str(error.value).isprintable()
    assert not [call for call in host.calls if line in call and not call.startswith("list")]


def test_libvirtd_down(host: Host) -> None:
    host.tell("fail-list", "error: failed to connect to the hypervisor\nerror: Failed to connect \x1b[31msocket\n")
    with pytest.raises(HypervisorError, match=r"m-01: look: error: failed to connect to the hypervisor error: Failed"):
        look(host)


def test_a_virsh_that_hangs_is_busy(host: Host) -> None:
    host.tell("gate-list")
    with pytest.raises(HypervisorBusy, match="did not answer in time"):
        host.libvirt.look(machine(), Deadline.after(4))
    host.unsay("gate-list")


def test_no_virsh(host: Host, tmp_path: Path) -> None:
    (host.tools / "virsh").unlink()
    bare = tmp_path / "bare"
    bare.mkdir()
    for tool in ("sh", "cat", "od", "tr", "timeout", "date", "readlink"):
        (bare / tool).symlink_to(Path("/usr/bin") / tool)
    host.local.environment["PATH"] = str(bare)
    with pytest.raises(HypervisorError, match="virsh: not found"):
        look(host)


def test_no_boot_id(host: Host) -> None:
    (host.root / "proc/sys/kernel/random/boot_id").unlink()
    with pytest.raises(HypervisorError, match="no boot id"):
        look(host)


@pytest.mark.parametrize("address", ["0000:1b:00.0; reboot", "../../etc", "1b:00.0", "0000:1B:00.0", ""])
def test_an_address_that_is_none_reaches_no_host(host: Host, address: str) -> None:
    with pytest.raises(InvalidInput, match="m-01: gpu0: pci"):
        look(host, address)
    assert host.local.commands == []
