"""Every InfiniBand or RoCE port as the kernel shows it in sysfs, one JSON document."""

from __future__ import annotations

import argparse
import errno
import json
import os
import time
from typing import Any, Dict, Iterator, List, Tuple

MAX_PORTS = 256
MAX_CHARS = 64
AGAIN_S = 0.5


def main(words: List[str]) -> int:
    """Links are trained for some seconds after the driver has come up, and the guest's SSH does not wait for them: with
    `--expect N` ports, their reading is the one in which all are active, or the last one within `--settle-s`."""
    parser = argparse.ArgumentParser(prog="ib_links")
    parser.add_argument("--link-layer", default="InfiniBand")
    parser.add_argument("--expect", type=int, default=0)
    parser.add_argument("--settle-s", type=float, default=0.0)
    options = parser.parse_args(words)
    end_at = time.monotonic() + options.settle_s
    document = measure(sysfs())
    while _active(document, options.link_layer) < options.expect and time.monotonic() < end_at:
        time.sleep(AGAIN_S)
        document = measure(sysfs())
    print(json.dumps(document))
    return 0


def measure(root: str) -> Dict[str, Any]:
    document: Dict[str, Any] = {"format": 1, "tool": "ib_links", "error": None, "ports": []}
    if os.path.isdir(root):
        document["ports"] = [read_port(root, device, port) for device, port in ports(root)]
    else:
        document["error"] = "no /sys/class/infiniband"
    return document


def _active(document: Dict[str, Any], link_layer: str) -> int:
    found = [port for port in document["ports"] if port["link_layer"] == link_layer]
    return sum(1 for port in found if (port["state"] or "").startswith("4:"))


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
