"""The answer of inspect_devices.sh: PCI functions, and what the host's own drivers and tools say of them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.core.errors import HypervisorError
from fleet.hypervisor.sections import Section, Sections, split
from fleet.remote.base import Output
from fleet.remote.printable import printable

_NOTHING = Section(127, "")
_ADDRESS = r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]"
_FUNCTION = re.compile(
    rf"^({_ADDRESS}) 0x([0-9a-f]{{6}}) 0x([0-9a-f]{{4}}) 0x([0-9a-f]{{4}}) (\S{{1,60}})$", re.MULTILINE
)
_PORT = re.compile(
    rf"^({_ADDRESS}) ([A-Za-z0-9_]{{1,40}}) (\d{{1,3}}) (InfiniBand|Ethernet) ([0-9a-f:]{{39}}|-) (.{{1,40}})$",
    re.MULTILINE,
)
_SMI = re.compile(
    r"^\s*[0-9A-F]{4}([0-9A-Fa-f]{4}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7]), (\w{4,40}), (.{1,80})$", re.MULTILINE
)
_FIELD = re.compile(r"^([A-Za-z ]+):\.+(.*)$", re.MULTILINE)  # of smpquery
_LLDP = re.compile(r"^lldp\.([^.]+)\.(chassis\.name|port\.ifname|port\.descr)=(.*)$", re.MULTILINE)
_SWITCH = re.compile(r"MF0;([^:;]+):")  # how managed switches describe themselves: MF0;NAME:MODEL/UNIT
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")
_VPD_READ_ONLY, _VPD_END = 0x90, 0x78


@dataclass(frozen=True)
class Function:
    address: str
    pci_class: str  # six hexadecimal digits
    vendor: str
    device: str
    driver: str | None


@dataclass(frozen=True)
class Port:
    address: str
    device: str
    number: int
    link_layer: str
    guid: str | None


@dataclass(frozen=True)
class Found:
    functions: tuple[Function, ...]
    ports: tuple[Port, ...]
    serials: Mapping[str, str]  # by address: of GPUs
    switch_ports: Mapping[str, str]  # by address: `SWITCH/PORT`
    nets: Mapping[str, str]  # by address: the network interface


def parse(output: Output, nonce: str, machine: str) -> Found:
    """Raises HypervisorError for an answer that is cut."""
    found = split(output.stdout.decode("utf-8", "replace"), nonce)
    if ("end", "-") not in found:
        words = printable(output.stderr[-1000:]) or f"exit status {output.exit_status}"
        raise HypervisorError(f"{machine}: inspect: the answer is cut: {words}")
    functions = tuple(
        Function(a, c, v, d, None if driver == "-" else printable(driver, 60))
        for a, c, v, d, driver in _FUNCTION.findall(_said(found, "functions"))
    )
    ports = tuple(
        Port(a, device, int(number), layer, _guid(gid))
        for a, device, number, layer, gid, _ in _PORT.findall(_said(found, "ports"))
    )
    nets = {
        at.body.strip().split("/")[-3]: name
        for (kind, name), at in found.items()
        if kind == "net" and at.body.count("/") > 3
    }
    return Found(functions, ports, _serials(found), {**_lldp(found, nets), **_fabric(found, ports)}, nets)


def _said(found: Sections, kind: str) -> str:
    section = found.get((kind, "-"), _NOTHING)
    return section.body if section.status == 0 else ""


def _guid(gid: str) -> str | None:
    """The last half of a port's first GID. All zeros: the port has none yet."""
    guid = gid[-19:]
    return guid if gid != "-" and guid.strip("0:") else None


def _serials(found: Sections) -> dict[str, str]:
    by_vpd = {a: serial for (kind, a), at in found.items() if kind == "vpd" and (serial := vpd_serial(at.body))}
    by_driver = {
        f"{domain}:{bus}:{device}.{function}".lower(): serial
        for domain, bus, device, function, serial, _ in _SMI.findall(_said(found, "smi"))
        if serial.strip("0")  # boards without a serial say 0 or [N/A]
    }
    return {**by_vpd, **by_driver}


def vpd_serial(hexadecimal: str) -> str | None:
    """The serial number (keyword SN) of vital product data, PCI 3.0 appendix I."""
    try:
        data = bytes.fromhex(hexadecimal)
    except ValueError:
        return None
    at = 0
    while at + 3 <= len(data) and data[at] & 0x80:  # large resources: a tag and two bytes of length
        tag, length = data[at], int.from_bytes(data[at + 1 : at + 3], "little")
        if tag == _VPD_READ_ONLY:
            return _keyword(data[at + 3 : at + 3 + length], b"SN")
        at += 3 + length
    return None


def _keyword(fields: bytes, wanted: bytes) -> str | None:
    at = 0
    while at + 3 <= len(fields):
        name, length = fields[at : at + 2], fields[at + 2]
        if name == wanted:
            text = fields[at + 3 : at + 3 + length].decode("ascii", "replace").strip(" \0")
            return text if _WORD.fullmatch(text) else None
        at += 3 + length
    return None


def _fabric(found: Sections, ports: tuple[Port, ...]) -> dict[str, str]:
    """By InfiniBand's own management packets: name (or GUID) and port of the switch at the other end."""
    known: dict[str, str] = {}
    for port in ports:
        said = found.get(("neighbour", f"{port.device}/{port.number}"), _NOTHING)
        fields = {name.strip(): value.strip() for name, value in _FIELD.findall(said.body)} if said.status == 0 else {}
        if fields.get("NodeType") != "Switch":
            continue
        named = _SWITCH.match(fields.get("Node Description", ""))
        place = f"{named[1] if named else fields.get('Guid', '')}/{fields.get('LocalPort', '')}"
        if _WORD.fullmatch(place) and place[-1].isdigit():
            known[port.address] = place
    return known


def _lldp(found: Sections, nets: Mapping[str, str]) -> dict[str, str]:
    told: dict[str, dict[str, str]] = {}
    for net, key, value in _LLDP.findall(_said(found, "lldp")):
        told.setdefault(net, {})[key] = value.strip()
    known: dict[str, str] = {}
    for address, net in nets.items():
        port = told.get(net, {}).get("port.ifname") or told.get(net, {}).get("port.descr", "")
        place = f"{told.get(net, {}).get('chassis.name', '')}/{port}"
        if port and _WORD.fullmatch(place):
            known[address] = place
    return known
