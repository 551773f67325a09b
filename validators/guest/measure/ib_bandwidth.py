"""ib_write_bw against itself on every port, one port after the other: the raw outputs between marker lines."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import threading
import time
from typing import Any, Dict, List

from . import ib_links

TOOL = "ib_write_bw"
MARK = "=== fleet ib_bandwidth "
KEEP_BYTES = 64 << 10  # of each side's output
LISTEN_S = 5.0  # how long a server may take until it listens
LEAVE_S = 5.0  # how long a server may outlive its client; one whose client failed waits for ever
SPARE_S = 30.0  # beyond the measuring itself: memory registration, connecting


def main(words: List[str]) -> int:
    parser = argparse.ArgumentParser(prog="ib_bandwidth")
    parser.add_argument("--link-layer", required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--seconds", type=int, required=True)
    parser.add_argument("--qps", type=int, required=True)
    parser.add_argument("--gid-index", type=int)
    options = parser.parse_args(words)
    root = ib_links.sysfs()
    rails = [
        (device, port)
        for device, port in ib_links.ports(root)
        if "bond" not in device
        and ib_links.Reader(root, "").text("{}/ports/{}/link_layer".format(device, port), "") == options.link_layer
    ]
    for device, port in rails:
        measure(dict({"device": device, "port": port}, **ib_links.identity(root, device, port)), options)
    mark("done", {"ports": len(rails)})
    return 0


def measure(rail: Dict[str, Any], options: argparse.Namespace) -> None:
    end_at = time.monotonic() + options.seconds + SPARE_S
    tcp_port = _free_port()
    command = [TOOL, "-d", rail["device"], "-i", str(rail["port"]), "-p", str(tcp_port), "-s", str(options.size)]
    command += ["-D", str(options.seconds), "-q", str(options.qps), "-F", "--report_gbits"]
    if options.gid_index is not None:
        command += ["-x", str(options.gid_index)]

    mark("begin", rail)
    server = Side(command)
    _wait_for_listener(server, tcp_port, min(end_at, time.monotonic() + LISTEN_S))
    client = None if server.exit_status else Side([*command, "127.0.0.1"])  # no partner, no measurement
    in_time = client is None or client.wait(end_at)
    server.wait(time.monotonic() + LEAVE_S)
    for name, side in (("server", server), ("client", client)):
        mark(name)
        os.write(1, side.text if side else b"")
    mark(
        "end",
        {
            "device": rail["device"],
            "port": rail["port"],
            "ended": "not_found" if not server.found else "exited" if in_time else "deadline",
            "server_exit": server.exit_status,
            "client_exit": client.exit_status if client else None,
        },
    )


class Side:
    """One of the two processes. `text` is what it printed, cut at KEEP_BYTES, with a line end."""

    def __init__(self, command: List[str]) -> None:
        self.found = True
        self.exit_status: int | None = None
        self._kept = b""
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        except OSError as exc:
            self.found = False
            self._kept = "{}: {}".format(command[0], exc.strerror).encode()
            return
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> bytes:
        return self._kept if not self._kept or self._kept.endswith(b"\n") else self._kept + b"\n"

    def look(self) -> bool:
        """Has it ended?"""
        if self.found and self.exit_status is None:
            self.exit_status = self._process.poll()
        return not self.found or self.exit_status is not None

    def wait(self, until: float) -> bool:
        """Wait for its end and its last words, or kill it (and report no exit status) when the time is over."""
        if not self.found:
            return True
        try:
            self.exit_status = self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self._reader.join(1.0)
            return False
        self._reader.join(1.0)
        return True

    def _read(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        while data := os.read(pipe.fileno(), KEEP_BYTES):
            self._kept += data[: KEEP_BYTES - len(self._kept)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for_listener(server: Side, tcp_port: int, until: float) -> None:
    """perftest's client gives up at once when nobody listens, and a trial connection would be taken for the client."""
    while not server.look() and time.monotonic() < until and not _listens(tcp_port):
        time.sleep(0.01)


def _listens(tcp_port: int) -> bool:
    wanted = ":{:04X}".format(tcp_port)
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        if any(row[1].endswith(wanted) and row[3] == "0A" for row in rows):
            return True
    return False


def mark(what: str, facts: Dict[str, Any] | None = None) -> None:
    """Unbuffered, so that the tail of the output tells the progress."""
    os.write(1, (MARK + what + (" " + json.dumps(facts) if facts is not None else "") + "\n").encode())
