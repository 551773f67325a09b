"""What a first host can lack: how it is taken away, which row tells, and what else cannot be well then."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fleet.core.model import Machine
from fleet.core.states import State
from fleet.engine.worker import Worker
from fleet.hypervisor.inspector import Inspector
from fleet.hypervisor.libvirt import Libvirt
from fleet.hypervisor.site import Flavor, ImageSpec, Site
from fleet.hypervisor.test_vm import make_key_pair, make_test_vm
from fleet.remote.ssh import SshPool
from fleet.store import inspections, machines
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.evidence import EvidenceFolder
from fleet.workflows import inspection
from fleet.workflows.world import Policy, World
from playbooks.loader import SHIPPED, Library
from tests.e2e import first_host
from tests.e2e.first_host import IMAGE, INSIDE, FirstHost
from tests.e2e.host import HERE, pull_out, slots

BY = By("test")
SITE = Site(
    image=ImageSpec(str(INSIDE / "image.qcow2"), "qcow2"),
    flavor=Flavor(vcpus=2, memory_mib=4096, cpu="maximum"),
    template_dir=HERE / "first",
)


@dataclass
class Case:
    """What is checked: change it, or the host, and look."""

    host: FirstHost
    machine: Machine
    site: Site = SITE
    plan: str = "e2e"
    stated: str = ""

    def inspect(self, db: Database, folder: Path, kind: inspection.Inspection) -> tuple[str | None, dict[str, Any]]:
        pool = SshPool()
        library = Library((HERE / "site/playbooks", SHIPPED))
        policy = Policy(default_plan=self.plan)
        evidence, image = EvidenceFolder(folder / "evidence", 1 << 20), {"image_digest": self.stated}
        world = World(db, Libvirt(pool, self.site), library, evidence, make_test_vm, image, policy)
        worker = Worker(db, [inspection.workflow(world, Inspector(pool, self.site))])
        with db.begin() as session:
            machines.add(session, self.machine, BY)
            id_ = inspection.open_inspection(session, self.machine, kind, BY)
        end = time.monotonic() + 100
        while time.monotonic() < end:
            if not worker.step():
                time.sleep(0.05)
            with db.read() as session:
                row = inspections.get(session, id_)
                if row.outcome is not None:
                    pool.close()
                    return row.outcome, row.result
        raise AssertionError("the inspection does not end")


Break = Callable[[Case], AbstractContextManager[None] | None]


def _ssh(**changed: Any) -> Break:
    def change(case: Case) -> None:
        case.machine = replace(case.machine, ssh=replace(case.machine.ssh, **changed))

    return change


def _site(**changed: Any) -> Break:
    def change(case: Case) -> None:
        case.site = replace(SITE, **changed)

    return change


def _machine(**changed: Any) -> Break:
    def change(case: Case) -> None:
        case.machine = replace(case.machine, **changed)

    return change


def _other_key(case: Case) -> None:
    key = case.host.folder / "other"
    key.write_text(make_key_pair()[0])
    case.machine = replace(case.machine, ssh=replace(case.machine.ssh, key_ref=f"file:{key}"))


def _instead(program: str, script: str) -> Break:
    return lambda case: case.host.instead(program, script)


def _without(*programs: str) -> Break:
    return lambda case: case.host.without(*programs)


def _not_its_own(case: Case) -> None:
    os.chown(case.host.state, 0, 0)
    case.host.state.chmod(0o755)


def _fence(text: str) -> Break:
    def change(case: Case) -> None:
        (case.host.state / "fence").write_text(text)

    return change


def _no_folder(path: str) -> Break:
    return lambda case: pull_out(case.host.root / path)


def _image(content: bytes, mode: int = 0o644) -> Break:
    def change(case: Case) -> None:
        image = case.host.folder / "image.qcow2"
        image.write_bytes(content)
        image.chmod(mode)

    return change


def _no_image(case: Case) -> None:
    (case.host.folder / "image.qcow2").unlink()


@contextmanager
def _image_in_a_closed_folder(case: Case) -> Iterator[None]:
    folder = case.host.folder / "closed"
    folder.mkdir()
    (folder / "image.qcow2").write_bytes(IMAGE)
    os.chown(folder, first_host._FIRST_ID, first_host._FIRST_ID)
    folder.chmod(0o700)
    case.site = replace(SITE, image=ImageSpec(str(INSIDE / "closed/image.qcow2"), "qcow2"))
    try:
        yield
    finally:
        (folder / "image.qcow2").unlink()
        folder.rmdir()


def _network(name: str, **how: Any) -> Break:
    def change(case: Case) -> None:
        case.site = replace(SITE, network=name)
        if how:
            case.host.define(name, **how)

    return change


@contextmanager
def _stranger(case: Case) -> Iterator[None]:
    created = case.host.virsh("create", "--paused", str(HERE / "foreign.xml"))
    assert created.returncode == 0, created.stderr
    case.machine = replace(case.machine, state=State.AVAILABLE)
    try:
        yield
    finally:
        case.host.virsh("destroy", "tenant-vm")


def _no_device(case: Case) -> None:
    pull_out(case.host.device(slots()[0].pci))


def _silent_device(case: Case) -> None:
    (case.host.device(slots()[0].pci) / "config").write_bytes(b"\xff" * 64)


def _companion(case: Case) -> None:
    """As a GPU's audio function: in the GPU's group, with a driver, and not on the slot map."""
    device = case.host.device("0000:20:00.1")
    device.mkdir()
    (device / "driver").symlink_to("../../drivers/snd_hda_intel")
    case.host.join("0000:20:00.1", 1, "0x040300")


def _stated(case: Case) -> None:
    case.stated = "0" * 64


TAKEN: dict[str, tuple[Break, str, str, str]] = {
    # what is taken: how, the row that tells, words of what was seen, words of what mends it
    "no address": (_ssh(address=""), "ssh record", "no SSH address", "import FILE --update"),
    "unknown sku": (_machine(sku="none-such"), "sku", "none-such", "playbooks.directories"),
    "short slot map": (
        _machine(slots=slots()[1:]),
        "slot map",
        "7 slots of kind gpu",
        "fleet machine discover first-01",
    ),
    "no scratch disk": (_machine(scratch_disk=None), "scratch disk", "storage", "scratch_disk:"),
    "host key": (_ssh(host_key=make_key_pair()[1]), "host key", "pinned is", "ssh-keygen -lf"),
    "login key": (_ssh(key_ref="file:/nowhere"), "login key", "no such file", "ssh-keygen -t ed25519"),
    "login": (_other_key, "login", "user fleet with key", "authorized_keys"),
    "forwarding": (_ssh(user=first_host.CLOSED), "ssh forwarding", "refuses to forward", "AllowTcpForwarding"),
    "login shell": (_ssh(user=first_host.SHELLLESS), "shell", "not available", "usermod --shell"),
    "sudo": (_site(sudo=True), "sudo", "password is required", "fleet ALL=(root) NOPASSWD: /usr/bin/sh -c *"),
    "tools": (_without("setsid", "flock"), "tools", "flock, setsid", "apt-get install util-linux"),
    "kernel log": (_without("journalctl", "dmesg"), "kernel log", "neither", "systemd-journal"),
    "state directory": (_not_its_own, "state directory", "fleet may not write", "install -d -o fleet"),
    "late fence": (
        _fence(f"{int(time.time() + 9e5) * 1000} 1\n"),
        "fence",
        "no test VM would start",
        "rm /run/fleet-host",
    ),
    "damaged fence": (_fence("what\n"), "fence", "damaged", "rm /run/fleet-host/state/fence"),
    "clock": (_instead("date", "echo 4102444800.0"), "clock", "ahead", "chrony"),
    "kvm": (_site(template_dir=None), "kvm", "no /dev/kvm", "modprobe kvm"),
    "qemu": (_site(template_dir=None), "qemu", "no x86_64 domains of type kvm", "qemu-system-x86"),
    "iommu": (_no_folder("sys/kernel/iommu_groups"), "iommu", "no IOMMU groups", "intel_iommu=on"),
    "vfio": (_no_folder("sys/bus/pci/drivers"), "vfio", "no vfio-pci", "modprobe vfio-pci"),
    "cpus": (_site(flavor=Flavor(8, 4096)), "cpus", "4 on the host", "vcpus"),
    "memory": (_site(flavor=Flavor(2, 9000)), "memory", "8192 MiB available", "memory_mib"),
    "hugepages": (_site(flavor=Flavor(2, 8192, hugepages=True)), "memory", "4 hugepages of 1048576 KiB", "hugepages=8"),
    "image": (_no_image, "file image", "not there", "copy the file"),
    "image's format": (_image(b"raw image"), "file image", "is raw", "image_format: raw"),
    "image's mode": (_image(IMAGE, 0o600), "file image", "fleet may not read", "chmod a+r"),
    "image's folder": (_image_in_a_closed_folder, "file image", "may not enter /run/fleet-host/closed", "chmod o+x"),
    "libvirt": (_ssh(user=first_host.PLAIN), "libvirt", "Permission denied", "usermod -aG libvirt fleetplain"),
    "network": (_network("none-such"), "network none-such", "has no network", "virsh net-define"),
    "network down": (
        _network("net-off", start=False, subnet="192.168.232"),
        "network net-off",
        "not active",
        "net-start",
    ),
    "network once": (
        _network("net-once", auto=False, subnet="192.168.233"),
        "network net-once",
        "boot",
        "net-autostart",
    ),
    "other subnet": (_network("net-else", subnet="192.168.234"), "network net-else", "not in its subnets", "<ip>"),
    "way out": (
        _network("net-out", forward="<forward mode='open'/>", subnet="192.168.235"),
        "network net-out",
        "leads elsewhere",
        "remove <forward>",
    ),
    "stranger": (_stranger, "domains", "tenant-vm is there", "fleet event placed"),
    "device": (_no_device, "device gpu0", "nothing is at 0000:20:00.0", "lspci -s 0000:20:00.0"),
    "silent device": (_silent_device, "device gpu0", "all ones", "power the host off"),
    "group": (
        _companion,
        "device gpu0",
        "group 1 with 0000:20:00.1 (snd_hda_intel)",
        "driverctl set-override 0000:20:00.1",
    ),
    "digest": (_stated, "image digest", "the settings say 0000", "hypervisor.image_digest"),
}

ALSO = {
    # what else cannot be well then
    "kvm": {"qemu"},
    "qemu": {"kvm"},
    "iommu": {f"device {slot.slot}" for slot in slots()},
    "state directory": {"image digest"},
    "image": {"image digest"},
    "image's mode": {"image digest"},
    "libvirt": {"qemu", "network", "domains", "state directory", "image digest"},
    "forwarding": {"state directory", "image digest"},
    "tools": {"image digest"},
    "sudo": None,
    "login shell": None,
    "login": None,
    "login key": None,
    "host key": None,
    "no address": None,
    "unknown sku": {"slot map", "scratch disk"},
    "device": set(),
}
