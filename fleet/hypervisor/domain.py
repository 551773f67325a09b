"""Domain XML: ours is rendered from a template and checked, everybody's is read as hostile input."""

import re
import traceback
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from fleet.core.errors import InvalidInput
from fleet.core.model import Domain, Slot, TestVm
from fleet.hypervisor.seed import mac_of
from fleet.hypervisor.site import Site
from fleet.remote.printable import printable

METADATA_URI = "https://fleet-revalidation.invalid/domain/1"
PCI_ADDRESS = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])")
VALIDATION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # a directory on the host and a word of its scripts
_XML_LIMIT = 1 << 20
_FILES = {"console": "console.log", "seed": "seed.iso"}
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class PciAddress:
    """In the parts that libvirt wants, each `0x..`."""

    domain: str
    bus: str
    slot: str
    function: str

    @classmethod
    def parse(cls, text: str, field: str) -> "PciAddress":
        if not (match := PCI_ADDRESS.fullmatch(text)):
            raise InvalidInput(f"{field}: {printable(text, 40)!r} is not a PCI address like 0000:1b:00.0", field)
        return cls(*(f"0x{part}" for part in match.groups()))


@dataclass(frozen=True)
class HostDevice:
    host: PciAddress
    guest: PciAddress | None
    multifunction: bool  # function 0 of a guest slot that has more: without the flag a guest sees only this one


class DomainTemplate:
    """The site's domain.xml.j2, or ours. `default/domain.xml.j2` is always ours, for a site's to extend."""

    def __init__(self, site: Site) -> None:
        self._site = site
        ours = jinja2.FileSystemLoader(_TEMPLATES)
        sites = [jinja2.FileSystemLoader(site.template_dir)] if site.template_dir else []
        self._jinja = jinja2.Environment(
            loader=jinja2.ChoiceLoader([*sites, ours, jinja2.PrefixLoader({"default": ours})]),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def render(self, vm: TestVm) -> str:
        """The VM's XML; the host fills in where @FLEET_STATE@ is. Raises InvalidInput: a template's error with its line, an
        address that is none, or XML that came out without our name, uuid or metadata."""
        try:
            xml = self._jinja.get_template("domain.xml.j2").render(
                vm=vm,
                machine=vm.machine,
                image=self._site.image,
                flavor=self._site.flavor_of(vm.machine),
                network=self._site.network,
                files={name: f"@FLEET_STATE@/{vm.validation}/{file}" for name, file in _FILES.items()},
                devices=host_devices(vm.machine.slots),
                mac=mac_of(vm),
                metadata_uri=METADATA_URI,
            )
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as exc:
            raise InvalidInput(f"{_where(exc)}: {printable(str(exc))}", "template_dir") from exc
        return _checked(xml, vm)


def host_devices(slots: Sequence[Slot]) -> list[HostDevice]:
    """What is passed through: every slot, at its fixed guest address where the slot map gives one."""
    pairs = [
        (
            PciAddress.parse(slot.pci, f"{slot.slot}: pci"),
            PciAddress.parse(slot.guest_pci, f"{slot.slot}: guest_pci") if slot.guest_pci else None,
        )
        for slot in slots
    ]
    places = [(guest.domain, guest.bus, guest.slot) for _, guest in pairs if guest]
    return [
        HostDevice(
            host,
            guest,
            guest is not None and guest.function == "0x0" and places.count((guest.domain, guest.bus, guest.slot)) > 1,
        )
        for host, guest in pairs
    ]


def read_domain(xml: str, uuid: str, state: str) -> Domain:
    """What `virsh dumpxml` said of domain `uuid`. XML that cannot be read is a domain that is not ours: never touched,
    and in the way."""
    try:
        root = parse_xml(xml)
    except ET.ParseError:
        return Domain(uuid=uuid, name="(unreadable)", state=state)
    return Domain(
        uuid=uuid,
        name=printable(root.findtext("name") or "", 120),
        state=state,
        validation=_validation(root),
        hostdevs=tuple(_passed_through(root)),
    )


class _NoDoctype(ET.TreeBuilder):
    """Entities, and with them every way to make a small document large, need a DOCTYPE."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise ET.ParseError(f"a domain has no DOCTYPE {name} {pubid} {system}")


def parse_xml(xml: str) -> ET.Element:
    if len(xml) > _XML_LIMIT:
        raise ET.ParseError(f"longer than {_XML_LIMIT} characters")
    parser = ET.XMLParser(target=_NoDoctype())  # noqa: S314 - bounded, and no DOCTYPE
    try:
        parser.feed(xml)
        root: ET.Element = parser.close()
    except (ValueError, RecursionError) as exc:  # surrogates and the like
        raise ET.ParseError(printable(str(exc))) from exc
    return root


def _validation(root: ET.Element) -> str | None:
    """Ours only when it says so once, in the one place, with an id that we could have made."""
    found = root.findall(f"metadata/{{{METADATA_URI}}}validation")
    name = found[0].get("id", "") if len(found) == 1 else ""
    return name if VALIDATION_ID.fullmatch(name) else None


def _passed_through(root: ET.Element) -> Iterator[str]:
    """Host addresses. A device's own <address> is the guest's; the host's is inside <source>."""
    devices = [d for d in root.iterfind("devices/hostdev") if d.get("type") == "pci"]
    devices += [d for d in root.iterfind("devices/interface") if d.get("type") == "hostdev"]
    for device in devices:
        address = device.find("source/address")
        if address is None:
            continue
        try:
            domain, bus, slot, function = (
                int(address.get(part, "0"), 16) for part in ("domain", "bus", "slot", "function")
            )
        except ValueError:
            continue
        if 0 <= domain <= 0xFFFF and 0 <= bus <= 0xFF and 0 <= slot <= 0x1F and 0 <= function <= 7:
            yield f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _checked(xml: str, vm: TestVm) -> str:
    template = "the domain template's output"
    try:
        root = parse_xml(xml)
    except ET.ParseError as exc:
        raise InvalidInput(f"{template} is not well-formed XML: {printable(str(exc))}", "template_dir") from exc
    for what, seen, wanted in (
        ("root element", root.tag, "domain"),
        ("name", root.findtext("name"), vm.name),
        ("uuid", root.findtext("uuid"), vm.uuid),
        ("validation in the metadata", _validation(root), vm.validation),
    ):
        if seen != wanted:
            raise InvalidInput(
                f"{template} has the {what} {printable(str(seen), 80)!r}, not {wanted!r}", "template_dir"
            )
    return xml


def _where(exc: Exception) -> str:
    """`domain.xml.j2, line 12`: a syntax error knows its place, other errors have it in their traceback."""
    if isinstance(exc, jinja2.TemplateSyntaxError):
        return f"{exc.name or 'domain.xml.j2'}, line {exc.lineno}"
    frames = [f for f in traceback.extract_tb(exc.__traceback__) if f.filename.endswith(".j2")]
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else "domain.xml.j2"
