"""A tree like /sys/class/infiniband, of real files."""

from pathlib import Path


def rail(
    root: Path, device: str, *, pci: str | None = None, guid: str = "b83f:d203:0012:3456", **files: str | bytes
) -> Path:
    """`files` replaces or adds files of port 1, `__` standing for a slash in a name."""
    home = root / "sys/class/infiniband" / device
    port = home / "ports/1"
    content: dict[str, str | bytes] = {
        "state": "4: ACTIVE\n",
        "phys_state": "5: LinkUp\n",
        "rate": "200 Gb/sec (4X HDR)\n",
        "link_layer": "InfiniBand\n",
        "gids__0": f"fe80:0000:0000:0000:{guid}\n",
        "counters__link_downed": "0\n",
        "counters__symbol_error": "12\n",
        "hw_counters__out_of_sequence": "7\n",
    }
    for name, text in (content | files).items():
        path = port / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for name, text in {"node_guid": guid, "fw_ver": "20.31.1014", "hca_type": "MT4123"}.items():
        (home / name).write_text(f"{text}\n")
    if pci:
        target = root / "sys/devices" / pci
        (target / f"net/ib{device[-1]}").mkdir(parents=True)
        (home / "device").symlink_to(target)
    return port
