"""A running rack, and a test's hands on it: SSH to hosts and guests by paramiko, VMs from hand-made XML and seed disks."""

import base64
import io
import json
import shlex
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh
import paramiko
import pycdlib
import pytest

from fleet.lab.client import LabClient
from fleet.lab.manifest import MachineEntry, Manifest
from fleet.lab.process import LabProcess

METADATA = "https://fleet-revalidation.invalid/domain/1"


@dataclass(frozen=True)
class Said:
    status: int
    out: str
    err: str


def key_pair() -> tuple[str, str]:
    key = asyncssh.generate_private_key("ssh-ed25519")
    return key.export_private_key().decode(), key.export_public_key().decode().strip()


@dataclass(frozen=True)
class Vm:
    """A test VM as a test made it. `state` is its folder on the host."""

    machine: str
    uuid: str
    name: str
    xml: str
    host_key: str  # public, pinned
    login_key: str  # private
    state: Path

    @property
    def console(self) -> str:
        return (self.state / "console.log").read_text()


@dataclass
class Hands:
    lab: LabProcess
    manifest: Manifest
    directory: Path
    _open: list[paramiko.SSHClient] = field(default_factory=list)
    _hosts: dict[str, paramiko.SSHClient] = field(default_factory=dict)

    @property
    def client(self) -> LabClient:
        return self.lab.client()

    def machine(self, name: str) -> MachineEntry:
        return next(m for m in self.manifest.machines if m.name == name)

    def connect(self, name: str) -> paramiko.SSHClient:
        """One connection to each host, made anew when it is broken."""
        known = self._hosts.get(name)
        transport = known.get_transport() if known else None
        if known and transport and transport.is_active():
            return known
        m = self.machine(name)
        key = (self.directory / "login_key").read_text()
        self._hosts[name] = self.log_in(m.address, m.port, m.user, m.host_key, key)
        return self._hosts[name]

    def on_host(self, name: str, command: str, stdin: bytes = b"") -> Said:
        return run(self.connect(name), command, stdin)

    def virsh(self, name: str, *words: str) -> Said:
        return self.on_host(name, shlex.join(["virsh", *words]))

    def make_vm(self, name: str, *, devices: tuple[str, ...] | None = None, seed: bool = True) -> Vm:
        """Its XML and seed are on the host; nothing is started."""
        host_private, host_public = key_pair()
        login_private, login_public = key_pair()
        identity = str(uuid.uuid4())
        vm_name = f"fleet-test-{identity[:8]}"
        folder = f'"$FLEET_STATE/{identity}"'
        state = Path(self.on_host(name, f"mkdir {folder} && cd {folder} && pwd").out.strip())
        addresses = [slot["pci"] for slot in self.machine(name).slots] if devices is None else list(devices)
        xml = domain_xml(vm_name, identity, state, addresses, self.manifest.image)
        (state / "domain.xml").write_text(xml)
        if seed:
            (state / "seed.iso").write_bytes(seed_iso(host_private, host_public, login_public))
        return Vm(name, identity, vm_name, xml, host_public, login_private, state)

    def create(self, vm: Vm) -> Said:
        return self.virsh(vm.machine, "create", str(vm.state / "domain.xml"))

    def boot(self, name: str) -> Vm:
        """A VM that answers SSH."""
        vm = self.make_vm(name)
        created = self.create(vm)
        assert created.status == 0, created
        self.wait_for(lambda: "login:" in vm.console)
        return vm

    def into(
        self, vm: Vm, *, host_key: str | None = None, login_key: str | None = None, patience_s: float = 10
    ) -> paramiko.SSHClient:
        m = self.machine(vm.machine)
        transport = self.connect(vm.machine).get_transport()
        assert transport
        tunnel = transport.open_channel("direct-tcpip", (m.guest_address, m.guest_port), ("", 0), timeout=5)
        keys = host_key or vm.host_key, login_key or vm.login_key
        return self.log_in(m.guest_address, m.guest_port, "root", *keys, tunnel=tunnel, patience_s=patience_s)

    def in_guest(self, vm: Vm, command: str, stdin: bytes = b"") -> Said:
        return run(self.into(vm), command, stdin)

    def wait_for(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not happen in time"
            time.sleep(0.02)

    def close(self) -> None:
        for client in self._open:
            client.close()
        self._open.clear()
        self._hosts.clear()

    def log_in(
        self,
        address: str,
        port: int,
        user: str,
        host_key: str,
        login_key: str,
        tunnel: paramiko.Channel | None = None,
        patience_s: float = 10,
    ) -> paramiko.SSHClient:
        client = paramiko.SSHClient()
        name = address if port == 22 else f"[{address}]:{port}"
        pinned = paramiko.Ed25519Key(data=base64.b64decode(host_key.split()[1]))
        client.get_host_keys().add(name, "ssh-ed25519", pinned)
        key = paramiko.Ed25519Key.from_private_key(io.StringIO(login_key))
        client.connect(
            address,
            port,
            user,
            pkey=key,
            sock=tunnel,
            allow_agent=False,
            look_for_keys=False,
            timeout=5,
            banner_timeout=5,
        )
        self._open.append(client)
        return client


def run(client: paramiko.SSHClient, command: str, stdin: bytes = b"") -> Said:
    given, out, err = client.exec_command(command, timeout=20)
    given.write(stdin)
    given.channel.shutdown_write()
    said = out.read().decode(errors="replace"), err.read().decode(errors="replace")
    return Said(out.channel.recv_exit_status(), *said)


def domain_xml(name: str, identity: str, state: Path, devices: list[str], image: str) -> str:
    hostdevs = "".join(
        "<hostdev mode='subsystem' type='pci' managed='yes'><source>"
        f"<address domain='0x{d[:4]}' bus='0x{d[5:7]}' slot='0x{d[8:10]}' function='0x{d[11]}'/></source></hostdev>"
        for d in devices
    )
    return f"""<domain type='kvm'>
  <name>{name}</name><uuid>{identity}</uuid>
  <metadata><fleet:validation xmlns:fleet='{METADATA}' id='val-1'/></metadata>
  <memory unit='MiB'>1024</memory><vcpu>2</vcpu><os><type>hvm</type></os>
  <devices>
    <disk type='file' device='disk'><source file='{image}'/><target dev='vda' bus='virtio'/></disk>
    <disk type='file' device='cdrom'><source file='{state}/seed.iso'/><target dev='sda' bus='sata'/></disk>
    <serial type='file'><source path='{state}/console.log'/></serial>{hostdevs}
  </devices>
</domain>"""


def seed_iso(host_private: str, host_public: str, login_public: str) -> bytes:
    user = {
        "ssh_keys": {"ed25519_private": host_private, "ed25519_public": host_public},
        "users": [{"name": "root", "ssh_authorized_keys": [login_public]}],
    }
    content = b"#cloud-config\n" + json.dumps(user).encode()
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident="cidata")
    iso.add_fp(io.BytesIO(content), len(content), "/USERDATA.;1", rr_name="user-data", joliet_path="/user-data")
    out = io.BytesIO()
    iso.write_fp(out)
    iso.close()
    return out.getvalue()


@pytest.fixture
def start_rack(tmp_path: Path) -> Iterator[Callable[..., Hands]]:
    """Starts a rack; the same directory again: the same rack, later."""
    started: list[Hands] = []

    def start(machines: int = 1, directory: Path = tmp_path / "rack") -> Hands:
        lab = LabProcess(directory, machines)
        hands = Hands(lab, lab.start(), directory)
        started.append(hands)
        return hands

    yield start
    for hands in started:
        hands.close()
        hands.lab.stop()


@pytest.fixture(scope="module")
def shared_rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hands]:
    directory = tmp_path_factory.mktemp("rack")
    lab = LabProcess(directory, 3)
    hands = Hands(lab, lab.start(), directory)
    yield hands
    hands.close()
    lab.stop()


@pytest.fixture
def rack(shared_rack: Hands) -> Iterator[Hands]:
    """The module's rack, as at its first start again: no fault, no domain but the first tenant's."""
    yield shared_rack
    client = shared_rack.client
    for machine in client.machines():
        for fault in machine["faults"]:
            client.mend(machine["name"], fault)
        for domain in machine["domains"]:
            if domain["instance"] is None:
                shared_rack.virsh(machine["name"], "destroy", domain["uuid"])
    client.reconcile({"lab-01": ["tenant-1"], "lab-02": [], "lab-03": []})
    shared_rack.close()
