"""Server and client of ib_write_bw, played by scripts."""

import os
from pathlib import Path

import pytest

from tests.unit.guest.measuring import measure
from tests.unit.guest.rails import rail
from validators.tools import ib_loopback
from validators.tools.ib_loopback import Loopback

LISTENING_SERVER = """
import socket, sys
port = int(sys.argv[sys.argv.index("-p") + 1])
if sys.argv[-1] == "127.0.0.1":
    with socket.create_connection(("127.0.0.1", port)) as s:
        print("client got", s.makefile().read())
else:
    with socket.create_server(("127.0.0.1", port)) as s:
        s.accept()[0].sendall(b"hello")
        print("server sent")
"""


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin/ib_write_bw"


def install(tool: Path, script: str, interpreter: str = "/bin/sh") -> None:
    tool.write_text(f"#!{interpreter}\n{script}")
    tool.chmod(0o755)


def loopback(root: Path, *more: str, link_layer: str = "InfiniBand") -> tuple[Loopback, str]:
    environment = {"FLEET_ROOT": str(root), "PATH": f"{root / 'bin'}:{os.environ['PATH']}"}
    words = ("--link-layer", link_layer, "--size", "8388608", "--seconds", "5", "--qps", "2", *more)
    output = measure(root, "ib_bandwidth", *words, environment=environment)
    return ib_loopback.parse(output), output


def test_each_rail_in_turn_between_markers(tmp_path: Path, tool: Path) -> None:
    install(tool, 'echo "$*" | sed "s/-p [0-9]*/-p PORT/"')
    rail(tmp_path, "mlx5_1", pci="0000:1b:00.0")
    rail(tmp_path, "mlx5_0")
    rail(tmp_path, "mlx5_bond_0")
    rail(tmp_path, "mlx5_2", link_layer="Ethernet\n")
    seen, output = loopback(tmp_path)
    arguments = "-p PORT -s 8388608 -D 5 -q 2 -F --report_gbits"
    guid = '"port_guid": "b83f:d203:0012:3456"'
    exits = '"ended": "exited", "server_exit": 0, "client_exit": 0'
    assert output.splitlines() == [
        f'=== fleet ib_bandwidth begin {{"device": "mlx5_0", "port": 1, "pci": null, {guid}}}',
        "=== fleet ib_bandwidth server",
        f"-d mlx5_0 -i 1 {arguments}",
        "=== fleet ib_bandwidth client",
        f"-d mlx5_0 -i 1 {arguments} 127.0.0.1",
        f'=== fleet ib_bandwidth end {{"device": "mlx5_0", "port": 1, {exits}}}',
        f'=== fleet ib_bandwidth begin {{"device": "mlx5_1", "port": 1, "pci": "0000:1b:00.0", {guid}}}',
        "=== fleet ib_bandwidth server",
        f"-d mlx5_1 -i 1 {arguments}",
        "=== fleet ib_bandwidth client",
        f"-d mlx5_1 -i 1 {arguments} 127.0.0.1",
        f'=== fleet ib_bandwidth end {{"device": "mlx5_1", "port": 1, {exits}}}',
        '=== fleet ib_bandwidth done {"ports": 2}',
    ]
    assert [(port.device, port.ended) for port in seen.ports] == [("mlx5_0", "exited"), ("mlx5_1", "exited")]


def test_ethernet_rails_with_a_gid_index(tmp_path: Path, tool: Path) -> None:
    install(tool, 'echo "$*"')
    rail(tmp_path, "mlx5_0")
    rail(tmp_path, "mlx5_2", link_layer="Ethernet\n")
    seen, output = loopback(tmp_path, "--gid-index", "3", link_layer="Ethernet")
    assert [port.device for port in seen.ports] == ["mlx5_2"]
    assert "--report_gbits -x 3 127.0.0.1" in output


def test_client_starts_when_the_server_listens(tmp_path: Path, tool: Path) -> None:
    install(tool, LISTENING_SERVER, "/usr/bin/env python3")
    rail(tmp_path, "mlx5_0")
    seen, _ = loopback(tmp_path)
    assert seen.ports[0].text.split() == ["server", "sent", "client", "got", "hello"]


def test_server_that_fails_gets_no_client(tmp_path: Path, tool: Path) -> None:
    install(tool, 'echo "Unable to find the Infiniband/RoCE device" >&2; exit 1')
    rail(tmp_path, "mlx5_0")
    seen, output = loopback(tmp_path)
    assert seen.ports_tried == 1
    assert output.count("Unable to find") == 1
    assert '"server_exit": 1, "client_exit": null' in output


def test_tool_that_is_not_there(tmp_path: Path) -> None:
    rail(tmp_path, "mlx5_0")
    seen, output = loopback(tmp_path)
    assert (seen.ports[0].ended, seen.ports_tried) == ("not_found", 1)
    assert "ib_write_bw: No such file or directory\n===" in output


def test_no_rail_is_said(tmp_path: Path) -> None:
    assert loopback(tmp_path)[0] == Loopback((), 0)


def test_long_output_is_cut_and_ends_with_a_line(tmp_path: Path, tool: Path) -> None:
    install(tool, "head -c 3000000 /dev/zero | tr '\\0' x")
    rail(tmp_path, "mlx5_0")
    seen, output = loopback(tmp_path)
    assert seen.ports_tried == 1
    assert len(output) < 2 * (64 << 10) + 1000
