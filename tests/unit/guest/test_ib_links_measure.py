"""Ports out of a tree of real files."""

import json
import threading
from pathlib import Path

from tests.unit.guest.measuring import measure
from tests.unit.guest.rails import rail
from validators.tools import infiniband_sysfs
from validators.tools.infiniband_sysfs import IbPorts


def links(root: Path) -> IbPorts:
    return infiniband_sysfs.parse(measure(root, "ib_links", environment={"FLEET_ROOT": str(root)}))


def test_every_value_of_a_port(tmp_path: Path) -> None:
    rail(tmp_path, "mlx5_0", pci="0000:1b:00.0")
    output = json.loads(measure(tmp_path, "ib_links", environment={"FLEET_ROOT": str(tmp_path)}))
    assert output == {
        "format": 1,
        "tool": "ib_links",
        "error": None,
        "ports": [
            {
                "device": "mlx5_0",
                "port": 1,
                "pci": "0000:1b:00.0",
                "port_guid": "b83f:d203:0012:3456",
                "node_guid": "b83f:d203:0012:3456",
                "fw_ver": "20.31.1014",
                "hca_type": "MT4123",
                "state": "4: ACTIVE",
                "phys_state": "5: LinkUp",
                "rate": "200 Gb/sec (4X HDR)",
                "link_layer": "InfiniBand",
                "netdev": "ib0",
                "counters": {"link_downed": 0, "symbol_error": 12},
                "hw_counters": {"out_of_sequence": 7},
                "errors": {},
            }
        ],
    }


def test_no_infiniband_at_all(tmp_path: Path) -> None:
    assert (links(tmp_path).error, links(tmp_path).ports) == ("no /sys/class/infiniband", ())


def test_ports_in_order_with_bonds_and_second_ports(tmp_path: Path) -> None:
    rail(tmp_path, "mlx5_1")
    rail(tmp_path, "mlx5_0")
    rail(tmp_path, "mlx5_bond_0", link_layer="Ethernet\n")
    (tmp_path / "sys/class/infiniband/mlx5_0/ports/2").mkdir()
    assert [(port.device, port.port) for port in links(tmp_path).ports] == [
        ("mlx5_0", 1),
        ("mlx5_0", 2),
        ("mlx5_1", 1),
        ("mlx5_bond_0", 1),
    ]


def test_unreadable_is_null_with_the_error_and_the_rest_is_read(tmp_path: Path) -> None:
    port = rail(tmp_path, "mlx5_0", counters__odd="N/A (no data)\n", state=b"\xff\x00" + b"x" * 5000)
    (port / "rate").unlink()
    (port / "rate").mkdir()
    (port / "counters/link_downed").unlink()
    (port / "counters/link_downed").mkdir()
    (port / "phys_state").unlink()
    (seen,) = links(tmp_path).ports
    assert (seen.rate, seen.phys_state, seen.pci, seen.netdev) == (None, None, None, None)
    assert seen.errors == {"rate": "EISDIR", "phys_state": "ENOENT", "counters/link_downed": "EISDIR"}
    assert seen.counters == {"symbol_error": 12}
    assert seen.state == "\ufffd\0" + "x" * 62


def test_port_without_a_guid_has_none(tmp_path: Path) -> None:
    rail(tmp_path, "mlx5_0", guid="0000:0000:0000:0000")
    assert links(tmp_path).ports[0].port_guid is None


def test_at_most_256_ports(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"sys/class/infiniband/mlx5_0/ports/{number + 1}").mkdir(parents=True)
    output = json.loads(measure(tmp_path, "ib_links", environment={"FLEET_ROOT": str(tmp_path)}))
    assert [port["port"] for port in output["ports"]] == list(range(1, 257))


def test_links_that_are_still_trained_are_waited_for(tmp_path: Path) -> None:
    """The guest answers before its links are up: a reading right then would call good rails down."""
    port = rail(tmp_path, "mlx5_0", state="2: INIT\n")
    rail(tmp_path, "mlx5_1", link_layer="Ethernet\n", state="1: DOWN\n")  # not a rail: not waited for
    trained = threading.Timer(1.0, lambda: (port / "state").write_text("4: ACTIVE\n"))
    trained.start()
    words = ("--link-layer", "InfiniBand", "--expect", "1", "--settle-s", "30")
    seen = infiniband_sysfs.parse(measure(tmp_path, "ib_links", *words, environment={"FLEET_ROOT": str(tmp_path)}))
    trained.join()
    assert [p.state for p in seen.ports] == ["4: ACTIVE", "1: DOWN"]


def test_links_that_stay_down_are_read_all_the_same(tmp_path: Path) -> None:
    rail(tmp_path, "mlx5_0", state="1: DOWN\n")
    words = ("--expect", "1", "--settle-s", "0.1")
    seen = infiniband_sysfs.parse(measure(tmp_path, "ib_links", *words, environment={"FLEET_ROOT": str(tmp_path)}))
    assert [p.state for p in seen.ports] == ["1: DOWN"]
