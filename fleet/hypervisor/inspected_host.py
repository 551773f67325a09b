"""The answer of inspect_host.sh: what is there, nothing about whether it is enough."""

import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleet.core.errors import HypervisorError
from fleet.hypervisor.sections import Section, Sections, split
from fleet.remote.base import Output
from fleet.remote.printable import printable

_NOTHING = Section(127, "")
_PERMISSION, _NO_FOLDER = 13, 20  # see inspect_host.sh
_MEMORY = re.compile(r"^Mem(Total|Available):\s+(\d{1,15}) kB$", re.MULTILINE)
_PAGES = re.compile(r"^(\d{1,9}) (\d{1,12}) (\d{1,12})$", re.MULTILINE)
_FENCE = re.compile(r"\s*(\d{1,18})?(?:\s+(\d{1,18}))?\s*")
_FOLDER = re.compile(r"^([0-7]{3,4}) (\d{1,10}) (\d{1,10}) (/.*)$", re.MULTILINE)
_MEMBER = re.compile(r"^([0-9a-f:.]{12,16}) (0x[0-9a-f]{6}) (\S{1,60})$", re.MULTILINE)


@dataclass(frozen=True)
class Folder:
    path: str
    mode: int
    uid: int
    gid: int


@dataclass(frozen=True)
class File:
    """`head` None: the login may not read it. `folders` are those that lead to it, the nearest first."""

    regular: bool
    size_bytes: int
    head: bytes | None
    folders: tuple[Folder, ...]


@dataclass(frozen=True)
class StateFolder:
    """`nearest` is the folder that is there; `refused`: the login may not write to it."""

    nearest: str
    refused: bool
    free_kib: int | None


@dataclass(frozen=True)
class Member:
    """Of an IOMMU group. `pci_class` as sysfs prints it, `driver` `-` without one."""

    address: str
    pci_class: str
    driver: str


@dataclass(frozen=True)
class Device:
    driver: str | None
    group: str | None
    members: tuple[Member, ...]


@dataclass(frozen=True)
class Host:
    """None, where a question was not answered."""

    user: str
    uid: int | None
    groups: tuple[str, ...]
    tools: frozenset[str]
    wall: float | None
    state_path: str
    state: StateFolder | None
    fence: tuple[int, int] | None  # run and epoch; (0, 0) before the first validation; None: damaged
    kernel_log: str | None  # the program that shows it
    kvm: bool
    iommu_groups: int
    vfio: str | None  # loaded, available
    memory_mib: tuple[int, int] | None  # total, available
    hugepages_kib: Mapping[int, tuple[int, int]]  # size: (number, free ones)
    cpus: int | None
    files: Mapping[str, File | None]  # None: not there, or out of reach for the login
    devices: Mapping[str, Device]  # those that are there


def parse(output: Output, nonce: str, files: Sequence[str], addresses: Sequence[str], machine: str) -> Host:
    """Raises HypervisorError for an answer that is cut."""
    found = split(output.stdout.decode("utf-8", "replace"), nonce)
    if ("end", "-") not in found:
        words = printable(output.stderr[-1000:]) or f"exit status {output.exit_status}"
        raise HypervisorError(f"{machine}: inspect: the answer is cut: {words}")
    who = [*_said(found, "who").splitlines(), "", "", ""]
    state_path, state = _state(found)
    return Host(
        user=printable(who[0], 60),
        uid=_number(who[1]),
        groups=tuple(printable(group, 60) for group in who[2].split()),
        tools=frozenset(_said(found, "tools").split()),
        wall=_decimal(_said(found, "clock")),
        state_path=state_path,
        state=state,
        fence=_fence(found.get(("fence", "-"), _NOTHING)),
        kernel_log=printable(_said(found, "log"), 20) or None,
        kvm=found.get(("kvm", "-"), _NOTHING).status == 0,
        iommu_groups=len(_said(found, "iommu").split()),
        vfio=printable(_said(found, "vfio"), 20) or None,
        memory_mib=_memory(_said(found, "memory")),
        hugepages_kib={int(s): (int(n), int(free)) for s, n, free in _PAGES.findall(_said(found, "pages"))},
        cpus=_count(_said(found, "cpus")),
        files={path: _file(found.get(("file", str(i)), _NOTHING)) for i, path in enumerate(files)},
        devices={a: _device(at.body) for a in addresses if (at := found.get(("device", a), _NOTHING)).status == 0},
    )


def _said(found: Sections, kind: str) -> str:
    section = found.get((kind, "-"), _NOTHING)
    return section.body.strip() if section.status == 0 else ""


def _state(found: Sections) -> tuple[str, StateFolder | None]:
    for (kind, path), section in found.items():
        if kind == "state":
            lines = section.body.splitlines() or [""]
            if section.status in (_PERMISSION, _NO_FOLDER):
                return path, StateFolder(printable(lines[0]), True, None)
            free = lines[-1].split()
            kib = _number(free[3]) if len(lines) > 1 and len(free) >= 6 else None
            return path, StateFolder(printable(lines[0]), False, kib) if section.status == 0 else None
    return "", None


def _fence(section: Section) -> tuple[int, int] | None:
    """As `read_fence` of prelude.sh reads it: a file that is not there, or empty, is nobody's."""
    match = _FENCE.fullmatch(section.body)
    return None if match is None else (int(match[1] or 0), int(match[2] or 0))


def _memory(text: str) -> tuple[int, int] | None:
    kib = {name: int(number) for name, number in _MEMORY.findall(text)}
    return (kib["Total"] // 1024, kib["Available"] // 1024) if {"Total", "Available"} <= kib.keys() else None


def _file(section: Section) -> File | None:
    first, _, rest = section.body.partition("\n")
    match first.split():
        case [mode, size] if section.status == 0 and size.isdigit():
            head, _, folders = rest.partition("\n")
            return File(
                regular=stat.S_ISREG(_hexadecimal(mode)) or stat.S_ISBLK(_hexadecimal(mode)),
                size_bytes=int(size),
                head=_bytes(head),
                folders=tuple(Folder(path, int(m, 8), int(u), int(g)) for m, u, g, path in _FOLDER.findall(folders)),
            )
    return None


def _device(body: str) -> Device:
    driver, _, group = body.partition("\n")[0].partition(" ")
    members = tuple(Member(a, c, printable(d, 60)) for a, c, d in _MEMBER.findall(body))
    return Device(_or_none(driver), _or_none(group), members)


def _or_none(word: str) -> str | None:
    return printable(word, 60) if word not in ("", "-") else None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _count(ranges: str) -> int | None:
    """Processors in a list such as `0-127,256`."""
    if not re.fullmatch(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*", ranges):
        return None
    ends = [part.partition("-") for part in ranges.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


def _decimal(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", text) else None


def _hexadecimal(text: str) -> int:
    return int(text, 16) if re.fullmatch(r"[0-9a-f]{1,8}", text) else 0


def _bytes(hexadecimal: str) -> bytes | None:
    try:
        return bytes.fromhex(hexadecimal)
    except ValueError:
        return None
