#!/usr/bin/python3
"""Take the VM's identity and address from its NoCloud seed disk (label `cidata`), which is made for this VM alone."""

import json
import subprocess
from pathlib import Path

SLIRP_ADDRESS = "10.0.2.15/24"  # where QEMU's user network forwards a port of the host to


def run(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def take_identity() -> None:
    """Install the host key and root's login key, and bring up the interface that the seed names."""
    seed = Path("/run/seed")
    seed.mkdir()
    run("mount", "-t", "iso9660", "-o", "ro", run("findfs", "LABEL=cidata"), str(seed))
    first, _, document = (seed / "user-data").read_text().partition("\n")
    if first != "#cloud-config":
        raise SystemExit(f"user-data begins with {first!r}")
    user_data = json.loads(document)
    host_key = Path("/etc/ssh/ssh_host_ed25519_key")
    host_key.touch(mode=0o600)
    host_key.write_text(user_data["ssh_keys"]["ed25519_private"])
    root = next(user for user in user_data["users"] if user["name"] == "root")
    keys = Path("/root/.ssh/authorized_keys")
    keys.parent.chmod(0o700)
    keys.write_text("\n".join(root["ssh_authorized_keys"]) + "\n")
    network = json.loads((seed / "network-config").read_text())
    (interface,) = network.get("network", network)["ethernets"].values()
    bring_up(interface["match"]["macaddress"], interface["addresses"][0])


def bring_up(mac: str, address: str) -> None:
    """The interface is known by its address: passed-through ports are interfaces as well. A loopback address is the host's
    end of a forwarded port: then the VM has slirp's usual one."""
    (name,) = (link.name for link in Path("/sys/class/net").iterdir() if (link / "address").read_text().strip() == mac)
    run("ip", "address", "add", SLIRP_ADDRESS if address.startswith("127.") else address, "dev", name)
    run("ip", "link", "set", name, "up")


take_identity()
