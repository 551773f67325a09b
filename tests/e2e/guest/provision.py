#!/usr/bin/python3
"""What cloud-init and the hardware would do in a real test VM, from the same inputs.

The NoCloud seed disk (label `cidata`) gives the SSH identity and the address. The hardware, which a TCG machine cannot
have, is described by the host in QEMU's firmware configuration (`opt/fleet-hardware`), as JSON::

    {"gpus": [{"uuid": "GPU-...", "bus": "0000:05:00.0", ...}],    the stand-in NVML library's state, key=value
     "rails": ["52:54:00:00:01:01"],                               MAC addresses, one soft-RoCE device each
     "tools": {"gpu_burn": {"prints": "...", "seconds": 2, "status": 0},       a replayed recording
               "other": {"script": "#!/bin/sh ..."}}}
"""

import json
import subprocess
from pathlib import Path
from typing import Any

HARDWARE = Path("/sys/firmware/qemu_fw_cfg/by_name/opt/fleet-hardware/raw")
NVML_STATE = Path("/run/nvml-standin")
SLIRP_ADDRESS = "10.0.2.15/24"  # where QEMU's user network forwards a port of the host to
REPLAY = """#!/bin/sh
# Prints a recording, with a pause in its middle.
head -c {half} {text}
sleep {seconds}
tail -c +{rest} {text}
exit {status}
"""


def run(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def take_identity() -> str:
    """Install the host key and root's login key; return the address that the seed asks for."""
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
    return str(interface["addresses"][0])


def bring_up_network(address: str) -> None:
    """A loopback address is the host's end of a forwarded port: then the VM has slirp's usual one."""
    run("ip", "address", "add", SLIRP_ADDRESS if address.startswith("127.") else address, "dev", "eth0")
    run("ip", "link", "set", "eth0", "up")


def make_gpus(gpus: "list[dict[str, object]]") -> None:
    lines = ("\t".join(f"{key}={value}" for key, value in gpu.items()) for gpu in gpus)
    NVML_STATE.write_text("".join(line + "\n" for line in lines))


def make_rails(macs: "list[str]") -> None:
    """One soft-RoCE device on a veth pair each: a veth says 10 Gb/s, a dummy device says nothing."""
    for index, mac in enumerate(macs):
        name, peer = f"rail{index}", f"switch{index}"
        run("ip", "link", "add", name, "address", mac, "type", "veth", "peer", "name", peer)
        run("ip", "link", "set", peer, "up")
        run("ip", "address", "add", f"10.99.{index}.1/24", "dev", name)
        run("ip", "link", "set", name, "up")
        run("rdma", "link", "add", f"rxe{index}", "type", "rxe", "netdev", name)


def make_tools(tools: "dict[str, dict[str, Any]]") -> None:
    folder = Path("/usr/local/bin")
    folder.mkdir(parents=True, exist_ok=True)
    for name, tool in tools.items():
        (folder / name).write_text(tool["script"] if "script" in tool else replay(name, **tool))
        (folder / name).chmod(0o755)


def replay(name: str, prints: str, seconds: float, status: int) -> str:
    text = Path("/opt") / name
    text.write_text(prints)
    half = len(prints.encode()) // 2
    return REPLAY.format(half=half, rest=half + 1, text=text, seconds=seconds, status=status)


bring_up_network(take_identity())
if HARDWARE.exists():
    hardware = json.loads(HARDWARE.read_text())
    make_gpus(hardware["gpus"])
    make_rails(hardware["rails"])
    make_tools(hardware["tools"])
