"""The answer of look.sh, section by section."""

import re
from collections.abc import Sequence

from fleet.core.errors import HypervisorBusy, HypervisorError
from fleet.core.model import DeviceState, Domain, HostView
from fleet.hypervisor.domain import read_domain
from fleet.hypervisor.sections import Section, Sections, split
from fleet.remote.base import Output
from fleet.remote.printable import printable

_UUID_LINE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_HEADER = re.compile(r"\n?==> [^\n]*/([0-9a-f:.]+)/\w+ <==\n")
_DRIVER = re.compile(r"/([0-9a-f:.]+)/driver'? -> '?[^\n]*?([^/'\n]+)'?$", re.MULTILINE)
_CLOCK = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")


def parse(output: Output, nonce: str, addresses: Sequence[str], machine: str) -> HostView:
    """Raises HypervisorError with virsh's words, also for an answer that is cut: half a look would show fewer domains."""
    sections = split(output.stdout.decode("utf-8", "replace"), nonce)
    if ("end", "-") not in sections:
        raise HypervisorError(f"{machine}: look: the answer is cut: {_words(output)}")
    boot_id = sections["boot", "-"].body.strip()
    if not _UUID_LINE.fullmatch(boot_id):
        raise HypervisorError(f"{machine}: look: no boot id: {_words(output)}")
    clock = sections["clock", "-"].body.strip()
    if not _CLOCK.fullmatch(clock):
        raise HypervisorError(f"{machine}: look: no clock: {_words(output)}")
    # without addresses there are no device sections
    raw = {kind: sections.get(("device", kind), Section(0, "")).body for kind in ("config", "speed", "width", "driver")}
    config, speed, width = _config(raw["config"]), _headed(raw["speed"]), _headed(raw["width"])
    driver = dict(_DRIVER.findall(raw["driver"]))
    return HostView(
        boot_id=boot_id,
        wall=float(clock),
        domains=tuple(_domains(sections, machine, output)),
        devices={address: _state(config.get(address, b"")) for address in addresses},
        drivers={address: printable(driver[address], 40) if address in driver else None for address in addresses},
        link={
            address: (printable(speed[address], 40), printable(width[address], 40))
            for address in addresses
            if address in speed and address in width
        },
    )


def _domains(sections: Sections, machine: str, output: Output) -> list[Domain]:
    uuids = _listed(sections["list", "-"], machine, output)
    domains = []
    for uuid in uuids:
        state, xml = sections.get(("state", uuid)), sections.get(("xml", uuid))
        if state and xml and state.status == xml.status == 0:
            domains.append(read_domain(xml.body, uuid, printable(state.body, 40)))
        elif uuid in _listed(sections["again", "-"], machine, output):
            raise HypervisorError(f"{machine}: look: virsh does not tell of domain {uuid}: {_words(output)}")
    return domains


def _listed(section: Section, machine: str, output: Output) -> list[str]:
    if section.status == 124:
        raise HypervisorBusy(f"{machine}: look: virsh did not answer in time")
    if section.status != 0:
        raise HypervisorError(f"{machine}: look: {_words(output)}")
    lines = section.body.split()
    if strange := [line for line in lines if not _UUID_LINE.fullmatch(line)]:
        raise HypervisorError(f"{machine}: look: virsh lists {printable(strange[0], 60)!r}, which is no uuid")
    return lines


def _config(hexadecimal: str) -> dict[str, bytes]:
    """The first bytes of each device's config space, from `head -v -c 4 ... | od -tx1`."""
    try:
        shown = bytes.fromhex(hexadecimal).decode("latin-1")
    except ValueError:
        return {}
    return {address: content.encode("latin-1") for address, content in _headed(shown).items()}


def _headed(text: str) -> dict[str, str]:
    """By device, what `head -v` printed: "==> PATH <==" above each file, an empty line between two."""
    pieces = _HEADER.split(text)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def _state(config: bytes) -> DeviceState:
    if config == b"\xff\xff\xff\xff":
        return DeviceState.ALL_ONES
    return DeviceState.ANSWERS if len(config) == 4 else DeviceState.MISSING  # also: config space that cannot be read


def _words(output: Output) -> str:
    return printable(output.stderr[-1000:]) or "no words"
