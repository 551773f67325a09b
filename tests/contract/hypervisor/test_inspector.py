"""What a host is asked when a person wants to know it: the scripts in a real sh, over trees and tools of every kind."""

import re
from pathlib import Path

import pytest

from fleet.core.errors import HypervisorBusy, HypervisorError
from fleet.hypervisor import inspected_devices, scripts
from fleet.hypervisor.inspector import TOOLS, Inspector
from tests.contract.hypervisor.host import SITE, Host, machine, soon

SCRIPTS = sorted(path.stem for path in Path(scripts.__file__).parent.glob("*.sh"))
_WORD = r"([a-z][a-z0-9_-]*)"
_COMMANDS = re.compile(
    rf"(?:^|[|;(!&]|\b(?:then|do|else|if)\b|\$\(|\btimeout (?:-k 1 )?[\d.]+|nice -n 10|section \w+ \S+)\s*{_WORD}(?=\s|$)",
    re.M,
)
_GRAMMAR = {
    *("if", "then", "else", "elif", "fi", "for", "while", "do", "done", "case", "esac", "in", "continue", "return"),
    *("exit", "exec", "shift", "set", "read", "printf", "echo", "command", "trap", "umask", "export", "sh", "true"),
}
_OPTIONAL = {"journalctl", "dmesg", "nvidia-smi", "smpquery", "lldpctl", "sudo"}


def inspector(host: Host) -> Inspector:
    return Inspector(host, SITE)


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_program_that_a_script_calls_is_looked_for(script: str) -> None:
    text = scripts.source(script) if script != "prelude" else scripts.source("forget")
    text = re.sub(r"\s# .*|\$\(\(.*?\)\)", "", text)
    bare = re.sub(
        r"'[^']*'|\"[^\"]*\"", lambda quoted: quoted[0] if "$(" in quoted[0] else "''", text
    )  # words for people
    ours = set(re.findall(r"^(\w+)\(\)", text, re.M))
    called = set(_COMMANDS.findall(bare)) - ours - _GRAMMAR
    assert called - set(TOOLS) - _OPTIONAL == set()


def test_every_program_that_is_looked_for_is_called() -> None:
    everything = " ".join(scripts.source(name) for name in SCRIPTS if name != "prelude")
    assert [tool for tool in TOOLS if not re.search(rf"\b{tool}\b", everything)] == []


def test_a_host_with_nothing_answers_every_question(host: Host) -> None:
    seen = inspector(host).host(machine("0000:1b:00.0"), ["/nowhere/image"], soon())
    assert seen.tools == frozenset(TOOLS)
    assert (seen.kvm, seen.iommu_groups, seen.vfio, seen.memory_mib, seen.cpus) == (False, 0, None, None, None)
    assert (seen.fence, seen.files, seen.devices) == ((0, 0), {"/nowhere/image": None}, {})
    assert seen.state is not None
    assert (seen.state.refused, seen.state_path) == (False, str(host.state))
    assert not host.state.exists()  # asking makes nothing


def test_a_file_and_the_folders_that_lead_to_it(host: Host, tmp_path: Path) -> None:
    image = tmp_path / "an image; $(reboot)" / "it's.qcow2"
    image.parent.mkdir(mode=0o750)
    image.write_bytes(b"QFI\xfb and more")
    link = tmp_path / "link"
    link.symlink_to(image)
    files = inspector(host).host(machine(), [str(link), str(tmp_path)], soon()).files
    seen = files[str(link)]
    assert seen is not None
    assert (seen.regular, seen.size_bytes, seen.head) == (True, 13, b"QFI\xfb")
    assert (seen.folders[0].path, seen.folders[0].mode, seen.folders[-1].path) == (str(image.parent), 0o750, "/")
    folder = files[str(tmp_path)]
    assert folder is not None
    assert not folder.regular


def test_a_device_and_its_group(host: Host) -> None:
    host.device("0000:1b:00.0")
    host.device("0000:1b:00.1", driver="snd_hda_intel")
    groups = host.root / "sys/kernel/iommu_groups/7/devices"
    for name in ("0000:1b:00.0", "0000:1b:00.1"):
        device = host.root / "sys/bus/pci/devices" / name
        (groups / name).mkdir(parents=True)
        (device / "iommu_group").symlink_to("../../../../kernel/iommu_groups/7")
        (device / "class").write_text("0x030200\n" if name.endswith("0") else "0x040300\n")
    seen = inspector(host).host(machine("0000:1b:00.0"), [], soon())
    device_ = seen.devices["0000:1b:00.0"]
    assert (device_.driver, device_.group, seen.iommu_groups) == ("vfio-pci", "7", 1)
    assert [(m.address, m.pci_class, m.driver) for m in device_.members] == [
        ("0000:1b:00.0", "0x030200", "vfio-pci"),
        ("0000:1b:00.1", "0x040300", "snd_hda_intel"),
    ]


@pytest.mark.parametrize(
    ("text", "fence"),
    [("", (0, 0)), ("12 3\n", (12, 3)), ("12 3", (12, 3)), ("x", None), ("1 2 3\n", None), ("9" * 30, None)],
)
def test_the_fence_as_the_scripts_read_it(host: Host, text: str, fence: tuple[int, int] | None) -> None:
    host.state.mkdir()
    (host.state / "fence").write_text(text)
    assert inspector(host).host(machine(), [], soon()).fence == fence


def test_libvirts_words_reach_the_person(host: Host) -> None:
    host.tell("fail-version", "error: failed to connect \x1b[31m to the hypervisor")
    with pytest.raises(HypervisorError, match=r"m-01: inspect: error: failed to connect  ?\[31m to the hypervisor"):
        inspector(host).libvirt(machine(), [], soon())


def test_a_libvirt_that_hangs_is_told_from_one_that_refuses(host: Host) -> None:
    host.tell("gate-version")
    with pytest.raises(HypervisorBusy, match="did not answer in time"):
        inspector(host).libvirt(machine(), [], soon().after(8))
    host.unsay("gate-version")


def test_the_login_shells_own_words_are_an_answer(host: Host) -> None:
    assert inspector(host).rights(machine(), soon()) is None
    host.local.environment["FLEET_STATE"] = "not a path"
    assert "FLEET_STATE on this host must be an absolute path" in (inspector(host).rights(machine(), soon()) or "")


class Hardware:
    """A host's PCI bus as sysfs shows it."""

    def __init__(self, host: Host) -> None:
        self._bus = host.root / "sys/bus/pci/devices"

    def add(self, address: str, pci_class: str, vendor: str, driver: str | None = None) -> Path:
        folder = self._bus / address
        folder.mkdir(parents=True)
        for name, text in {"class": f"0x{pci_class}", "vendor": f"0x{vendor}", "device": "0x2330"}.items():
            (folder / name).write_text(f"{text}\n")
        if driver:
            (folder / "driver").symlink_to(f"../../drivers/{driver}")
        return folder

    def port(
        self, folder: Path, device: str, guid: str, link_layer: str = "InfiniBand", state: str = "4: ACTIVE"
    ) -> None:
        port = folder / "infiniband" / device / "ports/1"
        (port / "gids").mkdir(parents=True)
        for name, text in {"link_layer": link_layer, "state": state, "gids/0": f"fe80:0000:0000:0000:{guid}"}.items():
            (port / name).write_text(f"{text}\n")


def test_devices_and_what_is_known_of_them(host: Host) -> None:
    bus = Hardware(host)
    gpu = bus.add("0000:1b:00.0", "030200", "10de", "nvidia")
    bus.add("0000:43:00.0", "030200", "10de", "vfio-pci")
    (gpu / "vpd").write_bytes(vpd(b"1330000000001"))
    bus.add("0000:07:00.0", "068000", "10de")
    rail = bus.add("0000:18:00.0", "020700", "15b3", "mlx5_core")
    bus.port(rail, "mlx5_0", "b83f:d203:0001:0000")
    nic = bus.add("0000:29:00.0", "020000", "15b3", "mlx5_core")
    bus.port(nic, "mlx5_1", "b83f:d2ff:fe01:0001", "Ethernet")
    (nic / "net/eth5").mkdir(parents=True)
    bus.add("0000:00:1f.0", "060100", "8086")
    host.tool(
        "nvidia-smi", "echo '00000000:1B:00.0, 1654922006512, NVIDIA H100 80GB HBM3'\necho '00000000:44:00.0, [N/A], x'"
    )
    host.tool(
        "smpquery",
        'case $* in *nodeinfo*) printf "%s\\n" "# Node info" "NodeType:........................Switch"'
        ' "Guid:............................0xb8599f0300c2f06a" "LocalPort:.......................25";;'
        ' *) echo "Node Description:........MF0;leaf-01:MQM8700/U1";; esac',
    )
    host.tool(
        "lldpctl", "printf '%s\\n' lldp.eth5.chassis.name=tor-7 lldp.eth5.port.ifname=Ethernet12 'lldp.eth5.x=\x1b[2J'"
    )
    found = inspector(host).devices(machine(), soon())
    assert [(f.address, f.pci_class, f.vendor, f.driver) for f in found.functions] == [
        ("0000:07:00.0", "068000", "10de", None),
        ("0000:18:00.0", "020700", "15b3", "mlx5_core"),
        ("0000:1b:00.0", "030200", "10de", "nvidia"),
        ("0000:29:00.0", "020000", "15b3", "mlx5_core"),
        ("0000:43:00.0", "030200", "10de", "vfio-pci"),
    ]
    assert found.serials == {"0000:1b:00.0": "1654922006512"}  # the driver's word before the card's own
    assert [(p.address, p.guid, p.link_layer) for p in found.ports] == [
        ("0000:18:00.0", "b83f:d203:0001:0000", "InfiniBand"),
        ("0000:29:00.0", "b83f:d2ff:fe01:0001", "Ethernet"),
    ]
    assert found.switch_ports == {"0000:18:00.0": "leaf-01/25", "0000:29:00.0": "tor-7/Ethernet12"}


def vpd(serial: bytes) -> bytes:
    fields = b"PN\x03abc" + b"SN" + bytes([len(serial)]) + serial
    return b"\x82\x04\x00GPU " + b"\x90" + len(fields).to_bytes(2, "little") + fields + b"\x78"


@pytest.mark.parametrize(
    ("data", "serial"),
    [
        (vpd(b"1330000000001"), "1330000000001"),
        (vpd(b"\x1b[2J"), None),
        (vpd(b""), None),
        (vpd(b"1330000000001")[:12], None),
        (b"\xff" * 200, None),
        (b"", None),
    ],
)
def test_a_cards_own_serial_is_believed_when_it_can_be_one(data: bytes, serial: str | None) -> None:
    assert inspected_devices.vpd_serial(data.hex(" ")) == serial


def test_tools_that_fail_or_lie_say_nothing(host: Host) -> None:
    bus = Hardware(host)
    bus.add("0000:1b:00.0", "030200", "10de", "nvidia")
    bus.port(bus.add("0000:18:00.0", "020700", "15b3", "mlx5_core"), "mlx5_0", "0000:0000:0000:0000")
    host.tool("nvidia-smi", "echo '00000000:1B:00.0, $(reboot), x'; exit 9")
    host.tool("smpquery", "echo 'NodeType:...Switch'; echo 'Guid:...0x1'; echo 'LocalPort:...25; rm -rf'")
    host.tool("lldpctl", "exit 1")
    found = inspector(host).devices(machine(), soon())
    assert (found.serials, found.switch_ports) == ({}, {})
    assert [port.guid for port in found.ports] == [None]
