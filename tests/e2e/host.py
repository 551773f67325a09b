"""A bare-metal host of the end-to-end tests: a real libvirtd and a real sshd in namespaces of their own, and a file tree in
place of the PCI devices that no test machine has."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleet.core.model import Machine, Slot, SlotKind, SshTarget
from fleet.core.states import State
from tests.e2e.hardware import GPUS, RAIL_GUID, hardware

HERE = Path(__file__).parent
SCRATCH_BYTES = 64 << 20
START_LIMIT_S = 60.0


def free_port() -> int:
    """Below the range that the kernel takes from for outgoing connections: it is bound only later, by sshd or QEMU."""
    for port in random.sample(range(20000, 30000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port between 20000 and 30000")


class Host:
    """`folder` holds everything it has. Root only; started by `running`, ended by killing its process 1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ssh_port = free_port()
        self.guest_port = free_port()
        self.root = folder / "root"
        self.state = folder / "state"
        self._scratch = folder / "scratch.img"
        self._process: subprocess.Popen[bytes] | None = None

    def machine(self, name: str, ssh_port: int | None = None) -> Machine:
        """`ssh_port`: that of a cable plugged in between."""
        target = SshTarget(
            "127.0.0.1", ssh_port or self.ssh_port, "root", self.host_key, f"file:{self.folder / 'login'}"
        )
        return Machine(
            name=name,
            sku="e2e-soft",
            state=State.VACATED,
            version=1,
            state_since=0.0,
            state_why="made for a test",
            ssh=target,
            slots=slots(),
            guest_address="127.0.0.1",
            guest_port=self.guest_port,
            scratch_disk="/dev/vdb",
        )

    @property
    def host_key(self) -> str:
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])

    def show(self, document: dict[str, Any]) -> None:
        """What hardware the next VM on this host sees (tests.e2e.hardware)."""
        (self.folder / "hardware.json").write_text(json.dumps(document))

    def reset(self) -> None:
        """Healthy hardware, every device in its slot, nothing that the service left here."""
        self.show(hardware())
        for folder in (self.device(""), self.state):
            shutil.rmtree(folder, ignore_errors=True)
        self.state.mkdir()
        for slot in slots():
            plug_in(self.device(slot.pci), "vfio-pci", "10de" if slot.kind is SlotKind.GPU else "15b3")

    @contextmanager
    def without_scratch_disk(self) -> Iterator[None]:
        """Then libvirt refuses to start a VM."""
        away = self._scratch.with_suffix(".away")
        self._scratch.rename(away)
        try:
            yield
        finally:
            away.rename(self._scratch)

    def device(self, pci: str) -> Path:
        return self.root / "sys/bus/pci/devices" / pci

    def start(self) -> None:
        self._write_files()
        unshare = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc")
        with (self.folder / "host.log").open("wb") as log:
            command = [*unshare, "sh", str(HERE / "host.sh"), str(self.folder)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + START_LIMIT_S
        while (answer := self.virsh("version")).returncode != 0:
            if time.monotonic() > end or self._process.poll() is not None:
                log_end = (self.folder / "host.log").read_text()[-2000:]
                raise RuntimeError(f"the host does not start:\n{answer.stderr}\n{log_end}")
            time.sleep(0.05)

    def stop(self) -> None:
        """As if its power were cut: nothing in it gets to say goodbye."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)  # unshare --kill-child: the namespace's process 1 goes with it
            self._process.wait()

    def virsh(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """By somebody on the host, past the service."""
        return self.command("virsh", *words)

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        inside = ("nsenter", "--mount", "--root", "--pid", "--target", str(self._first_process()))
        return subprocess.run([*inside, *words], capture_output=True, text=True, timeout=60, check=False)

    def domains(self) -> list[str]:
        """UUIDs, running or not."""
        listed = self.virsh("list", "--all", "--uuid")
        assert listed.returncode == 0, listed.stderr
        return listed.stdout.split()

    def _first_process(self) -> int:
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return int(children[0]) if children else self._process.pid

    def _write_files(self) -> None:
        folder = self.folder
        for key in ("host_key", "login"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
        (folder / "libvirtd.conf").write_text('auth_unix_rw = "none"\nauth_unix_ro = "none"\n')
        # No namespaces and cgroups for QEMU: they need a systemd.
        (folder / "qemu.conf").write_text(
            'namespaces = []\nsecurity_driver = "none"\ncgroup_controllers = []\nuser = "root"\ngroup = "root"\n'
        )
        (folder / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1:{self.ssh_port}\nHostKey {folder}/host_key\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {folder}/login.pub\nStrictModes no\nPasswordAuthentication no\nMaxSessions 50\n"
            f"SetEnv FLEET_ROOT={self.root} FLEET_STATE={self.state}\n"
        )
        with self._scratch.open("wb") as scratch:
            scratch.truncate(SCRATCH_BYTES)
        boot_id = self.root / "proc/sys/kernel/random/boot_id"
        boot_id.parent.mkdir(parents=True)
        boot_id.write_text(f"{uuid.uuid4()}\n")
        self.reset()


def slots() -> tuple[Slot, ...]:
    gpus = [
        Slot(f"gpu{index}", SlotKind.GPU, f"0000:{0x20 + index:02x}:00.0", gpu["bus"], gpu["serial"])
        for index, gpu in enumerate(GPUS)
    ]
    return (*gpus, Slot("rail0", SlotKind.RAIL, "0000:40:00.0", guid=RAIL_GUID))


def plug_in(device: Path, driver: str, vendor: str) -> None:
    """A device's folder as sysfs shows it, as far as the service looks."""
    device.mkdir(parents=True)
    (device / "config").write_bytes(bytes.fromhex(vendor)[::-1] + bytes(62))
    (device / "current_link_speed").write_text("16.0 GT/s PCIe\n")
    (device / "current_link_width").write_text("16\n")
    (device / "driver").symlink_to(f"../../drivers/{driver}")


def pull_out(device: Path) -> None:
    shutil.rmtree(device)


@contextmanager
def running(folder: Path) -> Iterator[Host]:
    host = Host(folder)
    try:
        host.start()
        yield host
    finally:
        host.stop()


def missing_parts(*more: str) -> Sequence[str]:
    """What this machine lacks for a host and its VMs, and `more` programs; empty when nothing."""
    programs = (
        "libvirtd",
        "virtlogd",
        "virsh",
        "sshd",
        "unshare",
        "qemu-system-x86_64",
        "mmdebstrap",
        "mkfs.ext4",
        "gcc",
        *more,
    )
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    lacking = [program for program in programs if shutil.which(program, path=path) is None]
    return [*lacking, *(["root"] if os.geteuid() != 0 else [])]
