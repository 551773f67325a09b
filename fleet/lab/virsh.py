"""virsh's answers, in its own words and with its exit statuses (libvirt 9), for one simulated host."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from xml.etree import ElementTree as ET

from fleet.lab.domain_xml import LIMIT_BYTES, XmlRefused
from fleet.lab.records import DomainRecord

_OPERANDS = {
    "domstate": ("domain",),
    "dominfo": ("domain",),
    "domuuid": ("domain",),
    "domname": ("domain",),
    "dumpxml": ("domain",),
    "destroy": ("domain",),
    "metadata": ("domain", "uri"),
    "create": ("file",),
    "list": (),
    "version": (),
    "capabilities": (),
    "net-info": ("network",),
    "net-dumpxml": ("network",),
}
_FLAGS = {"list": ("--all", "--uuid", "--name"), "destroy": ("--graceful",), "dumpxml": ("--inactive",)}


NETWORK = "fleet-test"
_SUBNET = "<ip address='127.0.0.1' netmask='255.0.0.0'/>"  # guests are on loopback
_CAPABILITIES = """<capabilities>
  <host>
    <secmodel><model>dac</model><doi>0</doi><baselabel type='kvm'>+0:+0</baselabel></secmodel>
  </host>
  <guest>
    <os_type>hvm</os_type>
    <arch name='x86_64'>
      <wordsize>64</wordsize>
      <emulator>/usr/bin/qemu-system-x86_64</emulator>
      <domain type='qemu'/>
      <domain type='kvm'/>
    </arch>
  </guest>
</capabilities>

"""


@dataclass(frozen=True)
class Answer:
    stdout: str = ""
    stderr: str = ""
    status: int = 0


class Domains(Protocol):
    """What stands behind virsh on a host."""

    @property
    def domains(self) -> list[DomainRecord]: ...
    async def create(self, text: str) -> DomainRecord:
        """Raises XmlRefused, CreateRefused."""

    async def destroy(self, domain: DomainRecord) -> None: ...


class CreateRefused(Exception):
    """libvirt's reason, without the leading `error: `."""


class _Usage(Exception):
    pass


async def answer(libvirt: Domains, words: list[str], cwd: Path) -> Answer:
    try:
        command, operands, flags = _read(words)
    except _Usage as exc:
        return Answer("", f"error: {exc}\n", 1)
    if command == "list":
        return _list(libvirt.domains, flags)
    if command == "version":
        return Answer("Using library: libvirt 9.0.0\nRunning hypervisor: QEMU 7.2.0\n\n")
    if command == "capabilities":
        return Answer(_CAPABILITIES)
    if command.startswith("net-"):
        return _network(command, operands["network"])
    if command == "create":
        return await _create(libvirt, operands["file"], cwd)
    domain = next((d for d in libvirt.domains if operands["domain"] in (d.uuid, d.name)), None)
    if domain is None:
        return _failed(f"failed to get domain '{operands['domain']}'")
    if command == "destroy":
        await libvirt.destroy(domain)
        return Answer(f"Domain '{operands['domain']}' destroyed\n\n")
    if command == "metadata":
        return _metadata(domain, operands["uri"])
    shown = {
        "domstate": "running\n",
        "domuuid": f"{domain.uuid}\n",
        "domname": f"{domain.name}\n",
        "dumpxml": f"{domain.xml.strip()}\n",
        "dominfo": f"Name:           {domain.name}\nUUID:           {domain.uuid}\nState:          running\n",
    }
    return Answer(shown[command] + "\n")


def _read(words: list[str]) -> tuple[str, dict[str, str], set[str]]:
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word, _, value = rest.pop(0).partition("=")
        if word in ("-c", "--connect"):
            uri = value or (rest.pop(0) if rest else "")
            if uri != "qemu:///system":
                raise _Usage(f"failed to connect to the hypervisor\nerror: no connection driver available for {uri}")
        elif word not in ("-q", "--quiet"):
            raise _Usage(f"unsupported option '{word}'. See --help.")
    if not rest:
        raise _Usage("no command given")
    command = rest.pop(0)
    if command not in _OPERANDS:
        raise _Usage(f"unknown command: '{command}'")
    operands: dict[str, str] = {}
    flags: set[str] = set()
    names = list(_OPERANDS[command])
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and word[2:] in names and rest:
            names.remove(word[2:])
            operands[word[2:]] = rest.pop(0)
        elif word.startswith("--"):
            if word not in _FLAGS.get(command, ()):
                raise _Usage(f"command '{command}' doesn't support option {word}")
            flags.add(word)
        elif names:
            operands[names.pop(0)] = word
        else:
            raise _Usage(f"unexpected data '{word}'")
    if names:
        raise _Usage(f"command '{command}' requires <{names[0]}> option")
    return command, operands, flags


def _list(domains: list[DomainRecord], flags: set[str]) -> Answer:
    if "--uuid" in flags:
        return Answer("".join(f"{d.uuid}\n" for d in domains) + "\n")
    if "--name" in flags:
        return Answer("".join(f"{d.name}\n" for d in domains) + "\n")
    rows = "".join(f" {number:<4} {d.name}   running\n" for number, d in enumerate(domains, 1))
    return Answer(f" Id   Name   State\n--------------------\n{rows}\n")


async def _create(libvirt: Domains, file: str, cwd: Path) -> Answer:
    try:
        with (cwd / file).open("rb") as opened:
            content = await asyncio.to_thread(opened.read, LIMIT_BYTES + 1)
    except OSError as exc:
        return _failed(f"Failed to open file '{file}': {exc.strerror}")
    try:
        if len(content) > LIMIT_BYTES:
            raise XmlRefused(f"XML error: the document is larger than {LIMIT_BYTES} bytes")
        domain = await libvirt.create(content.decode())
    except UnicodeDecodeError:
        return _failed(f"Failed to create domain from {file}\nerror: XML error: input is not proper UTF-8")
    except (XmlRefused, CreateRefused) as exc:
        return _failed(f"Failed to create domain from {file}\nerror: {exc}")
    return Answer(f"Domain '{domain.name}' created from {file}\n\n")


def _network(command: str, name: str) -> Answer:
    if name != NETWORK:
        return _failed(f"failed to get network '{name}'")
    if command == "net-dumpxml":
        bridge = "<bridge name='virbr7' stp='on' delay='0'/>"
        return Answer(f"<network>\n  <name>{name}</name>\n  {bridge}\n  {_SUBNET}\n</network>\n\n")
    return Answer(f"Name:           {name}\nActive:         yes\nPersistent:     yes\nAutostart:      yes\n\n")


def _metadata(domain: DomainRecord, uri: str) -> Answer:
    """The element of that namespace, printed as libvirt does: without prefix and namespace."""
    for element in ET.fromstring(domain.xml).iterfind("metadata/*"):  # noqa: S314 - went through domain_xml.parse
        namespace, _, tag = element.tag.rpartition("}")
        if namespace == "{" + uri:
            shown = ET.Element(tag, element.attrib)
            shown.extend(element)
            return Answer(
                ET.tostring(shown, encoding="unicode", short_empty_elements=True).replace(" />", "/>") + "\n\n"
            )
    return _failed("metadata not found: Requested metadata element is not present")


def _failed(sentence: str) -> Answer:
    return Answer("\n", f"error: {sentence}\n", 1)
