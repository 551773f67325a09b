"""A host as `docs/first-host.md` sets one up, on real parts: logins that may little, sudo, libvirt's own networks; and each of
its prerequisites taken away again."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fleet.core.model import Machine
from tests.e2e.host import HERE, Host, slots

LOGIN, SUDOER, PLAIN, CLOSED, SHELLLESS = "fleet", "fleetsudo", "fleetplain", "fleetclosed", "fleetnone"
_USERS = {LOGIN: "libvirt", SUDOER: "", PLAIN: "", CLOSED: "libvirt", SHELLLESS: "libvirt"}
_FIRST_ID = 7001
INSIDE = Path("/run/fleet-host")  # where the host's folder is, seen from the host
IMAGE = b"QFI\xfb" + bytes(4092)

_NETWORK = """<network>
  <name>{name}</name>
  {forward}
  <bridge name='{bridge}'/>
  <dns enable='no'/>
  <ip address='{address}' netmask='255.255.255.0'/>
</network>
"""


class FirstHost(Host):
    """Only what a check looks at: no VM is ever started on it."""

    def machine(self, name: str, ssh_port: int | None = None, user: str = LOGIN) -> Machine:
        known = super().machine(name, ssh_port)
        return replace(known, ssh=replace(known.ssh, user=user), guest_address="127.231.0.10")

    def reset(self) -> None:
        super().reset()
        shutil.rmtree(self.root / "sys/kernel", ignore_errors=True)
        shutil.rmtree(self.root / "sys/bus/pci/drivers", ignore_errors=True)
        (self.root / "sys/bus/pci/drivers/vfio-pci").mkdir(parents=True)
        for group, slot in enumerate(slots(), 1):
            self.join(slot.pci, group)
        for path, text in {
            "proc/meminfo": "MemTotal:       16777216 kB\nMemAvailable:   8388608 kB\n",
            "sys/devices/system/cpu/online": "0-3\n",
            "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "4\n",
            "sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages": "4\n",
        }.items():
            self.write(path, text)
        (self.folder / "image.qcow2").write_bytes(IMAGE)
        (self.folder / "image.qcow2").chmod(0o644)
        os.chown(self.state, _FIRST_ID, _FIRST_ID)

    def join(self, pci: str, group: int, pci_class: str = "0x030200") -> None:
        """Put a device into an IOMMU group."""
        folder = self.root / f"sys/kernel/iommu_groups/{group}"
        (folder / "devices" / pci).mkdir(parents=True, exist_ok=True)
        (self.device(pci) / "class").write_text(f"{pci_class}\n")
        (self.device(pci) / "iommu_group").symlink_to(f"../../../../kernel/iommu_groups/{group}")

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def define(
        self, name: str, *, forward: str = "", subnet: str = "127.231.0", start: bool = True, auto: bool = True
    ) -> None:
        xml = self.folder / f"{name}.xml"
        bridge = f"fl{name[-8:].replace('-', '')}"
        xml.write_text(_NETWORK.format(name=name, forward=forward, bridge=bridge, address=f"{subnet}.1"))
        wanted = [("net-define", str(INSIDE / xml.name))]
        wanted += [("net-start", name)] if start else []
        wanted += [("net-autostart", name)] if auto else []
        for words in wanted:
            done = self.virsh(*words)
            assert done.returncode == 0, done.stderr

    @contextmanager
    def without(self, *programs: str) -> Iterator[None]:
        """No such program on the host."""
        with self._over(INSIDE / "nothing", *programs):
            yield

    @contextmanager
    def instead(self, program: str, script: str) -> Iterator[None]:
        file = self.folder / f"instead-{program}"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        with self._over(INSIDE / file.name, program):
            yield

    @contextmanager
    def _over(self, what: Path, *programs: str) -> Iterator[None]:
        places = [f"/usr/bin/{program}" for program in programs]
        try:
            for place in places:
                done = self.command("mount", "--bind", str(what), place)
                assert done.returncode == 0, done.stderr
            yield
        finally:
            for place in places:
                self.command("umount", place)

    def _write_files(self) -> None:
        self.folder.chmod(0o711)  # a login that is not root has to get to what is its own
        super()._write_files()
        folder = self.folder
        (folder / "login.pub").chmod(0o644)
        (folder / "nothing").write_text("")
        with (folder / "libvirtd.conf").open("a") as conf:
            conf.write('unix_sock_group = "libvirt"\nunix_sock_rw_perms = "0770"\n')
        # QEMU as the user that libvirt's package makes for it
        (folder / "qemu.conf").write_text('namespaces = []\nsecurity_driver = "none"\ncgroup_controllers = []\n')
        self._write_users()
        with (folder / "sshd_config").open("w") as conf:
            conf.write(
                f"ListenAddress 127.0.0.1:{self.ssh_port}\nHostKey {folder}/host_key\nPidFile none\nUsePAM no\n"
                f"AuthorizedKeysFile {INSIDE}/login.pub\nStrictModes no\nPasswordAuthentication no\nMaxSessions 50\n"
                f"SetEnv FLEET_ROOT={INSIDE}/root FLEET_STATE={INSIDE}/state\n"
                f"Match User {CLOSED}\n  AllowTcpForwarding no\n"
            )
        journal = folder / "journalctl"
        journal.write_text("#!/bin/sh\necho '2026-01-01T00:00:00+0000 host kernel: Linux version 6.1.0'\n")
        journal.chmod(0o755)
        shutil.copy(HERE / "first_host.sh", folder / "more.sh")

    def _write_users(self) -> None:
        etc = self.folder / "etc"
        etc.mkdir()
        for name in ("passwd", "shadow", "group"):
            shutil.copy(f"/etc/{name}", etc / name)
        members = ",".join(user for user, group in _USERS.items() if group)
        group = (etc / "group").read_text().splitlines()
        group = [f"{line.rstrip()}{members}" if line.startswith("libvirt:") else line for line in group]
        with (etc / "passwd").open("a") as passwd, (etc / "shadow").open("a") as shadow:
            for number, user in enumerate(_USERS, _FIRST_ID):
                shell = "/usr/sbin/nologin" if user == SHELLLESS else "/bin/sh"
                passwd.write(f"{user}:x:{number}:{number}::/:{shell}\n")
                shadow.write(f"{user}:*:19000:0:99999:7:::\n")
                group.append(f"{user}:x:{number}:")
        (etc / "group").write_text("\n".join(group) + "\n")
        sudoers = etc / "sudoers"
        sudoers.write_text(f'Defaults !pam_session\nDefaults env_keep += "FLEET_ROOT FLEET_STATE"\n{SUDOERS}\n')
        sudoers.chmod(0o440)


SUDOERS = f"{SUDOER} ALL=(root) NOPASSWD: /usr/bin/sh -c *"
