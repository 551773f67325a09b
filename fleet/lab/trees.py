"""The /proc and /sys of simulated hosts and guests: real files under a root of their own, as far as anybody reads them."""

import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from fleet.lab.hardware import Device

_CONFIG_BYTES = 256
_COUNTERS = (
    *("VL15_dropped", "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery"),
    *("local_link_integrity_errors", "port_rcv_constraint_errors", "port_rcv_data", "port_rcv_errors"),
    *("port_rcv_packets", "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors", "symbol_error"),
    *("port_xmit_constraint_errors", "port_xmit_data", "port_xmit_discards", "port_xmit_packets", "port_xmit_wait"),
)
_HW_COUNTERS = (
    *("duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "out_of_buffer", "out_of_sequence"),
    *("packet_seq_err", "rnr_nak_retry_err", "roce_adp_retrans", "rx_read_requests", "rx_write_requests"),
)


def write_boot_id(root: Path, boot_id: str) -> None:
    _write(root / "proc/sys/kernel/random/boot_id", boot_id)


def write_image_manifest(root: Path, packages: Mapping[str, str]) -> None:
    """What a guest says of the image that it was booted from."""
    manifest = {"format": 1, "profile": "lab", "version": "1", "recipe": "none", "packages": packages, "tools": {}}
    _write(root / "etc/fleet-image.json", json.dumps(manifest))


def write_host_devices(root: Path, devices: Sequence[Device], missing: Collection[str], lost: Collection[str]) -> None:
    """The host's PCI bus: `missing` addresses are not on it, the config space of `lost` ones reads all ones."""
    bus = root / "sys/bus/pci"
    (bus / "drivers/vfio-pci").mkdir(parents=True, exist_ok=True)
    for device in devices:
        folder = bus / "devices" / device.pci
        if device.pci in missing:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        vendor, product = device.pci_id
        header = vendor.to_bytes(2, "little") + product.to_bytes(2, "little") + b"\x06\x04\x10\x00"
        config = b"\xff" * _CONFIG_BYTES if device.pci in lost else header.ljust(_CONFIG_BYTES, b"\0")
        _write(folder / "config", config)
        _write(folder / "class", "0x030200" if device.kind == "gpu" else "0x020700")
        _write(folder / "vendor", f"0x{vendor:04x}")
        _write(folder / "device", f"0x{product:04x}")
        _write(folder / "current_link_speed", "Unknown" if device.pci in lost else "16.0 GT/s PCIe")
        _write(folder / "current_link_width", "63" if device.pci in lost else "16")
        group = root / "sys/kernel/iommu_groups" / str(devices.index(device) + 1)
        (group / "devices" / device.pci).mkdir(parents=True, exist_ok=True)
        if not (folder / "iommu_group").is_symlink():
            (folder / "iommu_group").symlink_to(group)
        driver = folder / "driver"
        if not driver.is_symlink():
            driver.symlink_to("../../drivers/vfio-pci")


def write_board(root: Path) -> None:
    """What a host of this kind has beside its devices: 128 processors and two terabytes of memory, and KVM."""
    _write(root / "sys/devices/system/cpu/online", "0-127")
    _write(root / "proc/meminfo", "MemTotal:       2113929216 kB\nMemAvailable:   2097152000 kB")
    _write(root / "dev/kvm", "")


def write_rails(root: Path, rails: Sequence[Device], down: Collection[str]) -> None:
    """The guest's /sys/class/infiniband: its rails as mlx5_0 and up, `down` slots without link, and one Ethernet port that
    is nobody's rail."""
    for index, rail in enumerate(rails):
        link = ("1: DOWN", "2: Polling") if rail.slot in down else ("4: ACTIVE", "5: LinkUp")
        rate = "10 Gb/sec (4X SDR)" if rail.slot in down else "200 Gb/sec (4X HDR)"
        _write_port(root, f"mlx5_{index}", rail.guest_pci, rail.guid or "", link, rate, "InfiniBand", f"ib{index}")
    ethernet = f"mlx5_{len(rails)}"
    guid = "b83f:d203:00ee:0001"
    _write_port(
        root, ethernet, "0000:00:1a.0", guid, ("4: ACTIVE", "5: LinkUp"), "100 Gb/sec (4X EDR)", "Ethernet", "eth1"
    )


def log_kernel(root: Path, booted_at: float, text: str, at: float) -> str:
    """Add a line to the kernel's ring buffer, as its dmesg reads it; returns the line as a console shows it."""
    path = root / "var/log/kmsg"
    path.parent.mkdir(parents=True, exist_ok=True)
    since_boot = max(0.0, at - booted_at)
    with path.open("a") as ring:
        ring.write(f"{at:.6f}\t{since_boot:.6f}\t{text}\n")
    return f"[{since_boot:12.6f}] {text}\n"


def clear_kernel_log(root: Path) -> None:
    """As a boot does."""
    (root / "var/log/kmsg").unlink(missing_ok=True)


def _write_port(
    root: Path, name: str, pci: str, guid: str, link: tuple[str, str], rate: str, link_layer: str, netdev: str
) -> None:
    device = root / "sys/devices/pci0000:00" / pci
    folder = device / "infiniband" / name
    port = folder / "ports/1"
    _write(folder / "node_guid", guid)
    _write(folder / "fw_ver", "20.39.3004")
    _write(folder / "hca_type", "MT4123")
    _write(folder / "board_id", "MT_0000000223")
    _write(port / "state", link[0])
    _write(port / "phys_state", link[1])
    _write(port / "rate", rate)
    _write(port / "link_layer", link_layer)
    _write(port / "lid", "0x0" if link_layer == "Ethernet" else "0x1a")
    _write(port / "gids/0", f"fe80:0000:0000:0000:{guid}")
    for counter in _COUNTERS:
        _write(port / "counters" / counter, "0")
    for counter in _HW_COUNTERS:
        _write(port / "hw_counters" / counter, "0")
    (device / "net" / netdev).mkdir(parents=True, exist_ok=True)
    if not (folder / "device").is_symlink():
        (folder / "device").symlink_to("../..")
    classes = root / "sys/class/infiniband"
    classes.mkdir(parents=True, exist_ok=True)
    if not (classes / name).is_symlink():
        (classes / name).symlink_to(f"../../devices/pci0000:00/{pci}/infiniband/{name}")


def _write(path: Path, content: str | bytes) -> None:
    """In place where it is there already with the same content; sysfs files do not change under a reader."""
    data = content.encode() + b"\n" if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_bytes() == data:
        return
    path.write_bytes(data)
