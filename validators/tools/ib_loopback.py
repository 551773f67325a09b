"""Raw perftest output of many ports in one text, each between marker lines that the guest's measuring code prints."""

import json
import re
from dataclasses import dataclass

from validators.tools.errors import ParseError

_MARK = re.compile(r"^=== fleet ib_bandwidth (begin|server|client|end|done)(?: (\{.{0,2000}\}))?\s*$", re.MULTILINE)
_MAX_PORTS = 256


@dataclass(frozen=True)
class PortOutput:
    """One port's raw output (a `rails.PortLike`). `ended` is how its pair of processes ended, None when the end marker is
    missing."""

    device: str
    port: int
    pci: str | None
    port_guid: str | None
    text: str
    ended: str | None


@dataclass(frozen=True)
class Loopback:
    """`ports_tried` comes with the last marker: None means that the output was cut."""

    ports: tuple[PortOutput, ...]
    ports_tried: int | None


def parse(output: str) -> Loopback:
    """Raises ParseError when there is no marker at all, or one that does not fit."""
    marks = list(_MARK.finditer(output))
    if not marks:
        raise ParseError("no marker line of ib_bandwidth")
    ports: list[PortOutput] = []
    begun: dict[str, object] | None = None
    text: list[str] = []
    tried: int | None = None
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        what, said = mark[1], _said(mark[2])
        if what == "begin":
            if begun is not None:
                ports.append(_port(begun, text, None))
            begun, text = said, []
        elif what == "end" and begun is not None:
            ports.append(_port(begun, text, _string(said.get("ended"))))
            begun = None
        elif what == "done":
            tried = said["ports"] if isinstance(said.get("ports"), int) else None  # type: ignore[assignment]
        elif begun is not None:
            text.append(output[mark.end() : following.start() if following else len(output)])
        if len(ports) > _MAX_PORTS:
            raise ParseError(f"more than {_MAX_PORTS} ports")
    if begun is not None:
        ports.append(_port(begun, text, None))
    return Loopback(tuple(ports), tried)


def _said(text: str | None) -> dict[str, object]:
    try:
        said = json.loads(text or "{}")
    except (ValueError, RecursionError):
        raise ParseError("a marker line of ib_bandwidth has broken JSON") from None
    return said if isinstance(said, dict) else {}


def _port(begun: dict[str, object], text: list[str], ended: str | None) -> PortOutput:
    device, port = _string(begun.get("device")), begun.get("port")
    if device is None or not isinstance(port, int):
        raise ParseError("a begin marker of ib_bandwidth names no device and port")
    return PortOutput(device, port, _string(begun.get("pci")), _string(begun.get("port_guid")), "\n".join(text), ended)


def _string(value: object) -> str | None:
    return value[:64] if isinstance(value, str) else None
