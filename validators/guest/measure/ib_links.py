"""Every InfiniBand or RoCE port as the kernel shows it in sysfs, one JSON document."""

from __future__ import annotations

import errno
import json
import os
from typing import Any, Dict, Iterator, List, Tuple

MAX_PORTS = 256
MAX_CHARS = 64


def main() -> int:
    root = sysfs()
    document: Dict[str, Any] = {"format": 1, "tool": "ib_links", "error": None, "ports": []}
    if os.path.isdir(root):
        document["ports"] = [read_port(root, device, port) for device, port in ports(root)]
    else:
        document["error"] = "no /sys/class/infiniband"
    print(json.dumps(document))
    return 0


def sysfs() -> str:
    return os.environ.get("FLEET_ROOT", "") + "/sys/class/infiniband"


def ports(root: str) -> List[Tuple[str, int]]:
    """(device, port) in the order of the names; none where there is no such directory."""
    found = []
    for device in _names(root):
        numbers = [int(name) for name in _names(os.path.join(root, device, "ports")) if name.isdigit()]
        found += [(device, number) for number in sorted(numbers)]
    return found[:MAX_PORTS]


def read_port(root: str, device: str, number: int) -> Dict[str, Any]:
    reader = Reader(os.path.join(root, device), "ports/{}/".format(number))
    port: Dict[str, Any] = {"device": device[:MAX_CHARS], "port": number}
    port.update(identity(root, device, number))
    for field in ("node_guid", "fw_ver", "hca_type"):
        port[field] = reader.text(field, field)
    for field in ("state", "phys_state", "rate", "link_layer"):
        port[field] = reader.text(reader.port + field, field)
    port["netdev"] = next(iter(_names(os.path.join(root, device, "device/net"))), None)
    for group in ("counters", "hw_counters"):
        port[group] = dict(reader.numbers(group))
    port["errors"] = reader.errors
    return port


def identity(root: str, device: str, number: int) -> Dict[str, Any]:
    """What a port is known by when its device name has changed: PCI address and GUID, None where not known."""
    link = os.path.join(root, device, "device")
    gid = Reader(os.path.join(root, device), "").text("ports/{}/gids/0".format(number), "gid") or ""
    guid = gid.split(":")[-4:]
    return {
        "pci": os.path.basename(os.path.realpath(link)) if os.path.islink(link) else None,
        "port_guid": ":".join(guid) if len(guid) == 4 and any(group.strip("0") for group in guid) else None,
    }


class Reader:
    """Files of one device; what cannot be read is noted by the name of its error."""

    def __init__(self, device: str, port: str) -> None:
        self.port = port
        self.errors: Dict[str, str] = {}
        self._device = device

    def text(self, path: str, field: str) -> Any:
        try:
            with open(os.path.join(self._device, path), "rb") as file:
                return file.read(4096).decode("ascii", "replace").strip()[:MAX_CHARS]
        except OSError as exc:
            self.errors[field] = errno.errorcode.get(exc.errno or 0, str(exc.errno))
            return None

    def numbers(self, group: str) -> Iterator[Tuple[str, int]]:
        for name in _names(os.path.join(self._device, self.port + group)):
            value = self.text(self.port + group + "/" + name, group + "/" + name)
            if value is not None and value.isdigit():
                yield name[:MAX_CHARS], int(value)


def _names(directory: str) -> List[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
