"""What the site's domain would ask of a host, read from the very XML that would be placed there."""

from dataclasses import dataclass
from xml.etree.ElementTree import Element

from fleet.core.model import Machine
from fleet.hypervisor.domain import DomainTemplate, parse_xml
from fleet.hypervisor.site import Site
from fleet.hypervisor.test_vm import SECRETS, restore_test_vm

_OWN = "@FLEET_STATE@/"  # a validation's own files: place.sh brings them


@dataclass(frozen=True)
class Needs:
    kind: str  # kvm or qemu
    emulator: str | None  # None: libvirt chooses
    files: tuple[str, ...]  # on the host, and there before any validation
    networks: tuple[str, ...]  # of libvirt
    passthrough: bool
    hugepages: bool


def needs(site: Site, machine: Machine) -> Needs:
    """Raises InvalidInput for a template that does not render, or a slot map with an address that is none."""
    vm = restore_test_vm("val-check", machine, dict.fromkeys(SECRETS, "none"))
    root = parse_xml(DomainTemplate(site).render(vm))
    return Needs(
        kind=root.get("type", ""),
        emulator=root.findtext("devices/emulator"),
        files=tuple(dict.fromkeys(_files(root))),
        networks=tuple(
            dict.fromkeys(name for s in root.iterfind("devices/interface/source") if (name := s.get("network")))
        ),
        passthrough=root.find("devices/hostdev") is not None,
        hugepages=root.find("memoryBacking/hugepages") is not None,
    )


def _files(root: Element) -> list[str]:
    named = [root.findtext("os/kernel"), root.findtext("os/initrd")]
    named += [s.get("file") or s.get("dev") for s in root.iterfind("devices/disk/source")]
    return [path for path in named if path and not path.startswith(_OWN)]
