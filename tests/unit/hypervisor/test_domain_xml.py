"""Domain XML: what we render, what a site may change, and what is read of everybody's."""

import dataclasses
import shutil
import subprocess
from pathlib import Path

import pytest

from fleet.core.errors import InvalidInput
from fleet.core.model import Machine, Slot, SlotKind, SshTarget, TestVm
from fleet.core.states import State
from fleet.hypervisor.domain import DomainTemplate, read_domain
from fleet.hypervisor.site import Flavor, ImageSpec, Site
from fleet.hypervisor.test_vm import make_test_vm
from tests.needs import need

CAPTURES = Path(__file__).parents[2] / "data" / "captures" / "libvirt"
UUID = "11111111-2222-3333-4444-555555555555"
SITE = Site(
    ImageSpec("/images/test.ext4", kernel="/images/vmlinux", initrd="/images/initrd"), Flavor(8, 4096, hugepages=True)
)
OURS = "https://fleet-revalidation.invalid/domain/1"


def vm_on(*slots: Slot, **changed: object) -> TestVm:
    target = SshTarget("192.0.2.1", 22, "root", "", "")
    machine = Machine("m-01", "a100x8", State.VALIDATING, 1, 0.0, "", target, slots)
    return dataclasses.replace(make_test_vm("val-1", machine), **changed)  # type: ignore[arg-type]


GPU = Slot("gpu0", SlotKind.GPU, "0000:1b:00.0", "0000:05:00.0")
RAIL = Slot("rail0", SlotKind.RAIL, "0001:9d:00.1", "0000:05:00.1")
BRIDGE = Slot("nvswitch0", SlotKind.NVSWITCH, "0000:c4:00.0")


def site_with(directory: Path, template: str) -> Site:
    (directory / "domain.xml.j2").write_text(template)
    return dataclasses.replace(SITE, template_dir=directory)


def validated(xml: str) -> str:
    """By libvirt's own schema and parser; its test driver takes domains of its own type only."""
    need("virsh (Debian: apt-get install libvirt-clients)", shutil.which("virsh"))
    ready = xml.replace("@FLEET_STATE@", "/var/lib/fleet").replace("<domain type='kvm'", "<domain type='test'", 1)
    told = subprocess.run(
        ["virsh", "-c", "test:///default", "create", "--validate", "/dev/stdin"],
        input=ready,
        capture_output=True,
        text=True,
    )
    return told.stderr.strip()


@pytest.mark.real
@pytest.mark.parametrize(
    "site",
    [
        SITE,
        dataclasses.replace(SITE, image=ImageSpec("/images/test.qcow2", "qcow2")),
        dataclasses.replace(SITE, network="a & b", flavors={"a100x8": Flavor(1, 128, cpu="maximum")}),
    ],
)
def test_libvirt_takes_what_is_rendered(site: Site) -> None:
    assert validated(DomainTemplate(site).render(vm_on(GPU, RAIL, BRIDGE))) == ""


@pytest.mark.real
def test_libvirt_would_not_take_anything_else() -> None:
    xml = DomainTemplate(SITE).render(vm_on(GPU))
    assert "XML document failed to validate" in validated(xml.replace("<clock offset='utc'/>", "<clock speed='fast'/>"))


def test_every_slot_is_passed_through_at_its_fixed_address() -> None:
    xml = DomainTemplate(SITE).render(vm_on(GPU, RAIL, BRIDGE))
    assert read_domain(xml, UUID, "running").hostdevs == ("0000:1b:00.0", "0001:9d:00.1", "0000:c4:00.0")
    assert "bus='0x05' slot='0x00' function='0x0' multifunction='on'/>" in xml
    assert "bus='0x05' slot='0x00' function='0x1'/>" in xml


def test_the_same_vm_is_the_same_domain() -> None:
    vm = vm_on(GPU)
    assert DomainTemplate(SITE).render(vm) == DomainTemplate(SITE).render(vm)


def test_values_are_escaped() -> None:
    image = ImageSpec("/images/<&'\".ext4", kernel="/k", cmdline="a=<b> & 'c' \"d\"")
    xml = DomainTemplate(dataclasses.replace(SITE, image=image)).render(vm_on(GPU))
    assert read_domain(xml, UUID, "running").validation == "val-1"
    assert "a=&lt;b&gt; &amp; &#39;c&#39; &#34;d&#34;" in xml


@pytest.mark.parametrize("address", ["1b:00.0", "0000:1b:00.8", "0000:1b:00.0'/><x", "", "0000:1B:00.0\n"])
def test_an_address_that_is_none_names_its_slot(address: str) -> None:
    with pytest.raises(InvalidInput, match=r"gpu0: pci: .* is not a PCI address"):
        DomainTemplate(SITE).render(vm_on(dataclasses.replace(GPU, pci=address)))


def test_a_site_overrides_blocks_of_ours(tmp_path: Path) -> None:
    template = (
        '{% extends "default/domain.xml.j2" %}{% block domain_type %}qemu{% endblock %}'
        "{% block namespaces %} xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'{% endblock %}"
        "{% block hostdevs %}{% endblock %}"
        "{% block extra %}<qemu:commandline><qemu:arg value='{{ machine.guest_port }}'/></qemu:commandline>{% endblock %}"
    )
    xml = DomainTemplate(site_with(tmp_path, template)).render(vm_on(GPU))
    assert xml.startswith("<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>")
    assert "<qemu:arg value='22'/>" in xml
    assert read_domain(xml, UUID, "running").hostdevs == ()


def test_a_site_without_a_template_of_its_own_uses_ours(tmp_path: Path) -> None:
    vm = vm_on(GPU)
    assert DomainTemplate(dataclasses.replace(SITE, template_dir=tmp_path)).render(vm) == DomainTemplate(SITE).render(
        vm
    )


@pytest.mark.parametrize(
    ("template", "error"),
    [
        ("<domain>\n{% if %}\n</domain>", r"domain\.xml\.j2, line 2: "),
        ("<domain>\n\n{{ vm.nam }}</domain>", r"domain\.xml\.j2, line 3: .*no attribute 'nam'"),
        ("\n{{ 1 / 0 }}", r"domain\.xml\.j2, line 2: division by zero"),
        ("\n\n{{ nothing() }}", r"domain\.xml\.j2, line 3: 'nothing' is undefined"),
        ('{% extends "defualt/domain.xml.j2" %}', r"domain\.xml\.j2, line 1: .*defualt/domain\.xml\.j2"),
        ("<domain>", "not well-formed XML: .*line 1"),
        ("<!DOCTYPE d><domain/>", "not well-formed XML: a domain has no DOCTYPE"),
        ("<network/>", "has the root element 'network', not 'domain'"),
        ("<domain><name>x</name></domain>", "has the name 'x', not 'fleet-test-val-1'"),
        ("<domain><name>{{ vm.name }}</name></domain>", "has the uuid 'None'"),
        ("<domain><name>{{ vm.name }}</name><uuid>{{ vm.uuid }}</uuid></domain>", "validation in the metadata 'None'"),
    ],
)
def test_a_template_that_is_wrong_says_where(tmp_path: Path, template: str, error: str) -> None:
    with pytest.raises(InvalidInput, match=error) as refused:
        DomainTemplate(site_with(tmp_path, template)).render(vm_on(GPU))
    assert refused.value.field == "template_dir"


def read(inner: str) -> tuple[str | None, tuple[str, ...]]:
    domain = read_domain(f"<domain>{inner}</domain>", UUID, "running")
    return domain.validation, domain.hostdevs


def test_recorded_host_devices() -> None:
    one = (CAPTURES / "hostdev-h100-vfio-attach.xml").read_text()
    assert read(f"<devices>{one}</devices>")[1] == ("0000:1b:00.0",)
    two = (CAPTURES / "hostdev-two-functions-with-guest-address.xml").read_text()
    assert read(two)[1] == ("0000:02:00.0", "0000:02:00.1")


def test_host_devices_of_other_shapes() -> None:
    address = "<address type='pci' domain='0x0' bus='0xc1' slot='0x2' function='0x7'/>"
    network = f"<interface type='hostdev'><source>{address}</source></interface>"
    usb = "<hostdev type='usb'><source><address bus='1' device='2'/></source></hostdev>"
    odd = "<hostdev type='pci'><source><address bus='zz'/></source></hostdev><hostdev type='pci'/>"
    big = "<hostdev type='pci'><source><address bus='0x100'/></source></hostdev>"
    assert read(f"<devices>{usb}{odd}{big}{network}</devices>")[1] == ("0000:c1:02.7",)


@pytest.mark.parametrize(
    ("inner", "validation"),
    [
        (f"<metadata><f:validation xmlns:f='{OURS}' id='val-1'/></metadata>", "val-1"),
        (f"<metadata><validation xmlns='{OURS}' id='val-1'/></metadata>", "val-1"),
        ("<metadata><fleet:validation xmlns:fleet='https://elsewhere.invalid/' id='val-1'/></metadata>", None),
        ("<metadata><validation id='val-1'/></metadata>", None),
        (f"<metadata><a><f:validation xmlns:f='{OURS}' id='val-1'/></a></metadata>", None),
        (f"<devices><f:validation xmlns:f='{OURS}' id='val-1'/></devices>", None),
        (f"<metadata><!-- <f:validation xmlns:f='{OURS}' id='val-1'/> --></metadata>", None),
        (f"<description>&lt;f:validation xmlns:f='{OURS}' id='val-1'/&gt;</description>", None),
        (
            f"<metadata><f:validation xmlns:f='{OURS}' id='val-1'/><f:validation xmlns:f='{OURS}' id='val-2'/></metadata>",
            None,
        ),
        (f"<metadata><f:validation xmlns:f='{OURS}' id='../x'/></metadata>", None),
        (f"<metadata><f:validation xmlns:f='{OURS}'/></metadata>", None),
    ],
)
def test_ours_is_only_what_our_metadata_says(inner: str, validation: str | None) -> None:
    assert read(inner)[0] == validation


@pytest.mark.parametrize(
    "xml",
    [
        "<!DOCTYPE d [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;'>]><domain><name>&b;</name></domain>",
        "<!DOCTYPE d SYSTEM 'file:///etc/passwd'><domain/>",
        "<domain><name>" + "x" * (1 << 20) + "</name></domain>",
        "<domain>\ud800</domain>",
        "<domain/><domain/>",
    ],
)
def test_hostile_xml_is_a_domain_that_is_not_ours(xml: str) -> None:
    domain = read_domain(xml, UUID, "running")
    assert (domain.name, domain.validation, domain.hostdevs) == ("(unreadable)", None, ())
