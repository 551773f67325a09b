"""The answer of inspect_libvirt.sh: version, capabilities, networks. Their XML is read as everybody's: as hostile input."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, ParseError

from fleet.core.errors import HypervisorBusy, HypervisorError
from fleet.hypervisor.domain import parse_xml
from fleet.hypervisor.sections import Section, split
from fleet.remote.base import Output
from fleet.remote.printable import printable

_NOTHING = Section(127, "")
_TIMED_OUT = 124  # of `timeout`
_ACTIVE = re.compile(r"^(Active|Autostart):\s+(yes|no)\s*$", re.MULTILINE)
_LABEL = re.compile(r"\+(\d{1,10}):\+(\d{1,10})")
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Network:
    """`forward` is the mode by which it leads elsewhere; None: nowhere."""

    active: bool
    autostart: bool
    forward: str | None
    addresses: tuple[_Network, ...]


@dataclass(frozen=True)
class Libvirt:
    """`kinds` are the domain types for x86_64, each with its emulators. `qemu` is the user and group that QEMU runs as."""

    version: str
    kinds: Mapping[str, frozenset[str]]
    qemu: tuple[int, int] | None
    networks: Mapping[str, Network | None]  # None: libvirt knows none of that name


def parse(output: Output, nonce: str, networks: Sequence[str], machine: str) -> Libvirt:
    """Raises HypervisorBusy when virsh did not answer in time, HypervisorError with virsh's words."""
    found = split(output.stdout.decode("utf-8", "replace"), nonce)
    version = found.get(("version", "-"), _NOTHING)
    words = printable(output.stderr[-1000:]) or f"exit status {output.exit_status}"
    if version.status == _TIMED_OUT:
        raise HypervisorBusy(f"{machine}: inspect: virsh did not answer in time")
    if version.status != 0 or ("end", "-") not in found:
        raise HypervisorError(f"{machine}: inspect: {words}")
    capabilities = _xml(found.get(("capabilities", "-"), _NOTHING))
    return Libvirt(
        version=printable(version.body.strip().splitlines()[-1] if version.body.strip() else "", 80),
        kinds={} if capabilities is None else _kinds(capabilities),
        qemu=None if capabilities is None else _qemu(capabilities),
        networks={
            name: read_network(found.get(("info", name), _NOTHING), found.get(("network", name), _NOTHING))
            for name in networks
        },
    )


def _xml(section: Section) -> Element | None:
    try:
        return parse_xml(section.body.strip()) if section.status == 0 else None
    except ParseError:
        return None


def _kinds(capabilities: Element) -> dict[str, frozenset[str]]:
    kinds: dict[str, frozenset[str]] = {}
    for arch in capabilities.iterfind("guest/arch[@name='x86_64']"):
        usual = arch.findtext("emulator")
        for domain in arch.iterfind("domain"):
            emulators = {printable(path, 200) for path in (usual, domain.findtext("emulator")) if path}
            kind = printable(domain.get("type", ""), 20)
            kinds[kind] = kinds.get(kind, frozenset()) | emulators
    return kinds


def _qemu(capabilities: Element) -> tuple[int, int] | None:
    for model in capabilities.iterfind("host/secmodel"):
        if model.findtext("model") == "dac":
            for label in model.iterfind("baselabel"):
                if match := _LABEL.fullmatch(label.text or ""):
                    return int(match[1]), int(match[2])
    return None


def read_network(info: Section, shown: Section) -> Network | None:
    xml = _xml(shown)
    if info.status != 0 or xml is None:
        return None
    told = dict(_ACTIVE.findall(info.body))
    forward = xml.find("forward")
    return Network(
        active=told.get("Active") == "yes",
        autostart=told.get("Autostart") == "yes",
        # an element without a mode is one for `nat`
        forward=None if forward is None else printable(forward.get("mode", "nat"), 20),
        addresses=tuple(_addresses(xml)),
    )


def _addresses(xml: Element) -> list[_Network]:
    found: list[_Network] = []
    for at in xml.iterfind("ip"):
        address = at.get("address", "")
        length = at.get("netmask") or at.get("prefix") or ("64" if ":" in address else "24")
        try:
            found.append(ipaddress.ip_network(f"{address}/{length}", strict=False))
        except ValueError:
            continue
    return found
