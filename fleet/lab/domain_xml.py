"""A domain's XML, as far as a hypervisor without hardware needs it: read, and written for tenants."""

import re
import uuid
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from xml.sax.saxutils import escape

LIMIT_BYTES = 256 << 10
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,255}")


class XmlRefused(Exception):
    """The sentence that virsh prints after `error: `."""


@dataclass(frozen=True)
class DomainXml:
    uuid: str
    name: str
    hostdevs: tuple[str, ...]  # host PCI addresses
    disks: tuple[str, ...]
    seed: str | None  # the CD-ROM's file
    console: str | None  # the first serial port's file


def parse(text: str) -> DomainXml:
    """Raises XmlRefused."""
    if "<!" in text.replace("<!--", ""):  # a DTD or CDATA: entities could make a small file large
        raise XmlRefused("XML error: document type declarations are not accepted")
    try:
        root = ET.fromstring(text)  # noqa: S314 - no entities, bounded size
    except ET.ParseError as exc:
        raise XmlRefused(f"(domain_definition):{exc.position[0]}: {exc.msg}") from None
    if root.tag != "domain":
        raise XmlRefused(f"XML error: unexpected root element <{root.tag}>, expecting <domain>")
    if root.get("type") not in ("kvm", "qemu"):
        raise XmlRefused(f"invalid argument: could not find capabilities for domaintype={root.get('type')}")
    name = (root.findtext("name") or "").strip()
    if not _NAME.fullmatch(name):
        raise XmlRefused("XML error: name is missing or has characters that are not accepted")
    if root.find("memory") is None:
        raise XmlRefused("XML error: missing memory element")
    disks = [d for d in root.iterfind("devices/disk") if d.find("source") is not None]
    cdroms = [d for d in disks if d.get("device") == "cdrom"]
    return DomainXml(
        uuid=_uuid(root.findtext("uuid")),
        name=name,
        hostdevs=tuple(_pci(h) for h in root.iterfind("devices/hostdev") if h.get("type") == "pci"),
        disks=tuple(_file(d) for d in disks if d not in cdroms),
        seed=_file(cdroms[0]) if cdroms else None,
        console=next((_path(s) for s in root.iterfind("devices/serial") if s.get("type") == "file"), None),
    )


def tenant(instance: str, identity: str, hostdevs: list[str]) -> str:
    """A tenant's domain: no metadata of the service, the devices passed through."""
    devices = "".join(
        "<hostdev mode='subsystem' type='pci' managed='yes'><source>"
        "<address domain='0x{}' bus='0x{}' slot='0x{}' function='0x{}'/></source></hostdev>".format(
            *re.split("[:.]", pci)
        )
        for pci in hostdevs
    )
    return (
        f"<domain type='kvm'><name>{escape(instance)}</name><uuid>{identity}</uuid><memory unit='KiB'>1048576</memory>"
        f"<vcpu>96</vcpu><os><type>hvm</type></os><devices>{devices}</devices></domain>"
    )


def _uuid(text: str | None) -> str:
    try:
        return str(uuid.UUID((text or "").strip()))
    except ValueError:
        raise XmlRefused("XML error: malformed uuid element") from None


def _pci(hostdev: ET.Element) -> str:
    address = hostdev.find("source/address")
    if address is None:
        raise XmlRefused("XML error: missing address in hostdev source")
    try:
        domain, bus, slot, function = (int(address.get(k, "0"), 16) for k in ("domain", "bus", "slot", "function"))
    except ValueError:
        raise XmlRefused("XML error: cannot parse the address of a hostdev") from None
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _file(disk: ET.Element) -> str:
    source = disk.find("source")
    path = (source.get("file") or source.get("dev") or "") if source is not None else ""
    return path


def _path(serial: ET.Element) -> str:
    source = serial.find("source")
    return source.get("path", "") if source is not None else ""
