"""A host in a directory: the scripts run in a real sh, virsh is a stand-in that can be slow, fail and lie."""

import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from fleet.core.clock import Deadline
from fleet.core.errors import DeadlinePassed, HypervisorBusy
from fleet.core.model import Fence, Machine, Slot, SlotKind, SshTarget, TestVm
from fleet.core.states import State
from fleet.hypervisor.libvirt import Libvirt
from fleet.hypervisor.site import Flavor, ImageSpec, Site
from fleet.remote.base import Output, Shell

_VIRSH = Path(__file__).with_name("virsh.sh")
BOOT_ID = "8f4ea0a5-0d0b-4f0e-9a55-1f6f2f0f3d11"
TENANT = "11111111-2222-3333-4444-555555555555"
SITE = Site(ImageSpec("/images/test.ext4", kernel="/images/vmlinux"), Flavor(8, 4096))


def soon() -> Deadline:
    return Deadline.after(30)


@dataclass
class LocalShell:
    """A login shell on this machine; what SSH does to a call that is late, it does too."""

    environment: dict[str, str]
    commands: list[str] = field(default_factory=list)

    def run(self, command: str, deadline: Deadline, *, stdin: bytes = b"", limit_bytes: int = 1 << 20) -> Output:
        self.commands.append(command)
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )
        try:
            stdout, stderr = process.communicate(stdin, timeout=deadline.left_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise DeadlinePassed("local: too late") from None
        assert len(stdout) + len(stderr) <= limit_bytes
        return Output(process.returncode, stdout, stderr)

    def close(self) -> None: ...


class Host:
    def __init__(self, directory: Path, site: Site = SITE) -> None:
        self.fake, self.state, self.root = directory / "fake", directory / "state", directory / "root"
        self.tools = directory / "tools"
        for path in (self.fake / "domains", self.root / "proc/sys/kernel/random", self.tools):
            path.mkdir(parents=True)
        shutil.copy(_VIRSH, self.tools / "virsh")
        (self.root / "proc/sys/kernel/random/boot_id").write_text(f"{BOOT_ID}\n")
        self.local = LocalShell(
            {
                "PATH": f"{self.tools}:{os.environ['PATH']}",
                "FAKE": str(self.fake),
                "FLEET_STATE": str(self.state),
                "FLEET_ROOT": str(self.root),
            }
        )
        self.libvirt = Libvirt(self, site)

    def shell(self, target: SshTarget, name: str = "") -> Shell:
        return self.local

    def through(
        self,
        target: SshTarget,
        address: str,
        port: int,
        user: str,
        private_key_pem: str,
        host_key_public: str,
        name: str,
    ) -> Shell:
        return self.local

    # What stands on the host

    def tool(self, name: str, text: str) -> None:
        path = self.tools / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def device(self, address: str, config: bytes = bytes.fromhex("de103023"), driver: str | None = "vfio-pci") -> None:
        path = self.root / "sys/bus/pci/devices" / address
        path.mkdir(parents=True)
        (path / "config").write_bytes(config + bytes(60))
        (path / "current_link_speed").write_text("16.0 GT/s PCIe\n")
        (path / "current_link_width").write_text("16\n")
        if driver:
            (path / "driver").symlink_to(f"../../drivers/{driver}")

    def domain(self, uuid: str, xml: str, state: str = "running") -> None:
        (self.fake / f"domains/{uuid}.xml").write_text(xml)
        (self.fake / f"domains/{uuid}.state").write_text(state + "\n")

    def tell(self, name: str, text: str = "") -> None:
        """Put a word in virsh's ear, see virsh.sh."""
        (self.fake / name).write_text(text)

    def unsay(self, name: str) -> None:
        (self.fake / name).unlink()

    # What happens there

    @property
    def domains(self) -> set[str]:
        return {path.stem for path in (self.fake / "domains").glob("[!.]*.xml")}

    @property
    def calls(self) -> list[str]:
        path = self.fake / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def wait_at(self, verb: str) -> None:
        """Until virsh stands at its gate."""
        path = self.fake / f"at-{verb}"
        while not path.exists():
            time.sleep(0.01)
        path.unlink()

    def start_at_work(self, vm: TestVm) -> bool:
        """As the host sees it: somebody holds the lock."""
        lock = self.state / vm.validation / "start.lock"
        return lock.exists() and subprocess.run(["flock", "-n", "-s", lock, "true"], check=False).returncode != 0

    def wait_started(self, vm: TestVm) -> None:
        while self.start_at_work(vm):
            time.sleep(0.01)

    def tear_down(self, vm: TestVm, fence: Fence) -> None:
        """As the workflow does: again, for as long as it is busy."""
        while True:
            try:
                return self.libvirt.tear_down(vm, fence, Deadline.after(6))
            except HypervisorBusy:
                time.sleep(0.01)


def machine(*addresses: str) -> Machine:
    slots = tuple(
        Slot(f"gpu{n}", SlotKind.GPU, address, f"0000:{n + 1:02x}:00.0") for n, address in enumerate(addresses)
    )
    target = SshTarget("192.0.2.1", 22, "root", "", "")
    return Machine("m-01", "a100x8", State.VALIDATING, 1, 0.0, "", target, slots)
