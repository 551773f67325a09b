"""Looking at a host for a person who wants to know what it lacks, or what is in it. Nothing here changes anything there."""

import secrets
from collections.abc import Mapping, Sequence

from fleet.core.clock import Deadline
from fleet.core.errors import HypervisorError
from fleet.core.model import Machine
from fleet.hypervisor import inspected_devices, inspected_host, inspected_libvirt, scripts
from fleet.hypervisor.domain import PCI_ADDRESS
from fleet.hypervisor.domain_needs import Needs, needs
from fleet.hypervisor.libvirt import Shells
from fleet.hypervisor.site import Site
from fleet.remote.base import Output
from fleet.remote.knock import Step, knock
from fleet.remote.printable import printable

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "coreutils": (
        *("basename", "cat", "chmod", "cut", "date", "df", "dirname", "head", "id", "ls", "mkdir", "mv", "nice", "od"),
        *("readlink", "rm", "rmdir", "sha256sum", "stat", "tail", "timeout", "tr", "uname", "wc"),
    ),
    "grep": ("grep",),
    "libvirt-clients": ("virsh",),
    "sed": ("sed",),
    "util-linux": ("flock", "setsid"),
}
"""The programs that our scripts call on a host, by Debian package; `journalctl` or `dmesg` beside them (a test compares)."""
TOOLS = tuple(tool for tools in PACKAGES.values() for tool in tools)

_ANSWER_LIMIT = 4 << 20
_VIRSH_SHARE = 0.2  # of the time left, for each of at most four calls


class Inspector:
    """Raises RemoteError, HypervisorError, InvalidInput, as a Hypervisor does."""

    def __init__(self, shells: Shells, site: Site) -> None:
        self._shells, self.site = shells, site

    def knock(self, machine: Machine, deadline: Deadline) -> list[Step]:
        """How far a connection of its own gets."""
        return knock(machine.ssh, machine.name, (machine.guest_address, machine.guest_port), deadline)

    def rights(self, machine: Machine, deadline: Deadline) -> str | None:
        """Whether scripts run as they will have to (by sudo, where the site says so): None, or the words of the refusal."""
        output = self._send(machine, scripts.command("inspect_rights", sudo=self.site.sudo), deadline)
        if output.exit_status == 0 and output.stdout == b"fleet\n":
            return None
        if output.exit_status == 0:
            return f"the login shell prints words of its own: {printable(output.stdout, 80)!r}"
        words = printable(output.stderr[-1000:]) or printable(output.stdout[-1000:])
        return words or f"exit status {output.exit_status}"

    def needs(self, machine: Machine) -> Needs:
        return needs(self.site, machine)

    def host(self, machine: Machine, files: Sequence[str], deadline: Deadline) -> inspected_host.Host:
        nonce = secrets.token_hex(16)
        addresses = [slot.pci for slot in machine.slots if PCI_ADDRESS.fullmatch(slot.pci)]
        arguments: tuple[str | int, ...] = (nonce, " ".join(TOOLS), len(files), *files, *addresses)
        return inspected_host.parse(
            self._run(machine, "inspect_host", arguments, deadline), nonce, files, addresses, machine.name
        )

    def libvirt(self, machine: Machine, networks: Sequence[str], deadline: Deadline) -> inspected_libvirt.Libvirt:
        nonce = secrets.token_hex(16)
        limit_s = max(1, int(deadline.left_s * _VIRSH_SHARE))
        output = self._run(machine, "inspect_libvirt", (nonce, limit_s, *networks), deadline)
        return inspected_libvirt.parse(output, nonce, networks, machine.name)

    def devices(self, machine: Machine, deadline: Deadline) -> inspected_devices.Found:
        nonce = secrets.token_hex(16)
        return inspected_devices.parse(self._run(machine, "inspect_devices", (nonce,), deadline), nonce, machine.name)

    def _run(self, machine: Machine, script: str, arguments: Sequence[str | int], deadline: Deadline) -> Output:
        output = self._send(machine, scripts.command(script, *arguments, sudo=self.site.sudo), deadline)
        if output.exit_status != 0 and not output.stdout:
            words = printable(output.stderr[-1000:]) or f"exit status {output.exit_status}"
            raise HypervisorError(f"{machine.name}: inspect: {words}")
        return output

    def _send(self, machine: Machine, command: str, deadline: Deadline) -> Output:
        return self._shells.shell(machine.ssh, machine.name).run(command, deadline, limit_bytes=_ANSWER_LIMIT)
