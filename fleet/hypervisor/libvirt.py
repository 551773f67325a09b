"""libvirt through `virsh` on the host, over SSH; no binding to compile, nothing to install on the host but libvirt itself.

Each call is one round trip: a script of `fleet/hypervisor/scripts` run by `sh -c`, its answer parsed here. These are all
the virsh calls that the scripts make, with what they expect; decisions hang on the exit status and on the list of uuids,
never on words:

- `virsh list --all --uuid`: one uuid a line. Status 1 when libvirtd is down ("error: failed to connect to the hypervisor").
- `virsh domstate UUID`: `running`, `paused`, `in shutdown`, `shut off`, `crashed`, ... Status 1 when there is none
  ("error: failed to get domain 'UUID'"; older versions add "error: Domain not found: no domain with matching uuid ...").
- `virsh dumpxml UUID`: the XML. Status 1 as above.
- `virsh metadata UUID https://fleet-revalidation.invalid/domain/1`: `<validation id="val-..."/>`. Status 1 without our
  metadata ("error: metadata not found: Requested metadata element is not present"), or as above.
- `virsh create FILE`: "Domain 'NAME' created from FILE". Status 1 with "error: Failed to create domain from FILE" and a
  second line with the cause.
- `virsh destroy UUID`: "Domain 'UUID' destroyed". Status 1 as above.

Other commands: `journalctl -k`, or `dmesg --time-format iso`; `flock`, `setsid`, `timeout`, `sed`, coreutils
(`sha256sum` of the test image among them).
"""

import re
import secrets
from typing import NoReturn, Protocol

from fleet.core.clock import Deadline
from fleet.core.errors import HypervisorBusy, HypervisorError, InvalidInput
from fleet.core.model import Fence, HostView, Machine, SshTarget, TestVm
from fleet.hypervisor import image, kernel_log, look, scripts, seed
from fleet.hypervisor.base import ImageView, Placement, PlacementView
from fleet.hypervisor.domain import PCI_ADDRESS, VALIDATION_ID, DomainTemplate
from fleet.hypervisor.site import Site
from fleet.remote.base import Output, Shell
from fleet.remote.printable import printable

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_LOOK_LIMIT = 16 << 20  # a domain's XML is some 20 KiB
_ANSWER_LIMIT = 64 << 10
_SLACK_BYTES = 4096  # words on stderr beside a log of the asked size
_TEARDOWN_WAIT_S = 10  # for a start at work, see teardown.sh

_FENCED, _NOT_OURS, _BUSY = 3, 4, 5  # exit statuses, see prelude.sh


class Shells(Protocol):
    """What SshPool offers."""

    def shell(self, target: SshTarget, name: str = "") -> Shell: ...

    def through(
        self,
        target: SshTarget,
        address: str,
        port: int,
        user: str,
        private_key_pem: str,
        host_key_public: str,
        name: str,
    ) -> Shell: ...


class Libvirt:
    """A Hypervisor (see base.py). Raises InvalidInput beside what base.py says: for a name or an address that must not
    reach a host, or a template that does not render."""

    def __init__(self, shells: Shells, site: Site) -> None:
        self._shells = shells
        self._site = site
        self._template = DomainTemplate(site)

    def look(self, machine: Machine, deadline: Deadline) -> HostView:
        addresses = [_checked(slot.pci, PCI_ADDRESS, f"{machine.name}: {slot.slot}: pci") for slot in machine.slots]
        nonce = secrets.token_hex(16)
        output = self._run(
            machine, deadline, "look", nonce, _virsh_limit(deadline), *addresses, limit_bytes=_LOOK_LIMIT
        )
        return look.parse(output, nonce, addresses, machine.name)

    def read_image(self, machine: Machine, deadline: Deadline) -> ImageView:
        files = self._site.image.files
        output = self._run(machine, deadline, "image", scripts.source("read_image"), *files.values())
        return image.parse(output.stdout, files, machine.name)

    def place(self, vm: TestVm, fence: Fence, deadline: Deadline) -> None:
        """Also when the host refuses it as fenced: `placement` then says so. Raises HypervisorBusy (again later)."""
        xml, iso = self._template.render(vm).encode(), seed.build(vm)
        arguments = (*_names(vm), fence.run, fence.epoch, len(xml), len(iso), self._site.start_deadline_s)
        starter = scripts.source("start")
        output = self._send(vm.machine, deadline, "place", *arguments, starter, stdin=xml + iso)
        if output.exit_status not in (0, _FENCED):
            _fail(output, vm.machine.name, "place")

    def placement(self, vm: TestVm, deadline: Deadline) -> PlacementView:
        output = self._run(vm.machine, deadline, "placement", *_names(vm), _virsh_limit(deadline))
        lines = output.stdout.decode("utf-8", "replace").split("\n", 6)
        if len(lines) != 7:
            raise HypervisorError(f"{vm.machine.name}: placement: unreadable answer {printable(output.stdout, 120)!r}")
        return _judge_placement([line.strip() for line in lines[:6]], lines[6])

    def tear_down(self, vm: TestVm, fence: Fence, deadline: Deadline) -> None:
        """Raises HypervisorBusy while a start is still at work: the domain may come up yet, call again until it does not
        raise."""
        self._tear_down(vm.machine, *_names(vm), fence, deadline, keep="console")

    def forget(self, vm: TestVm, deadline: Deadline) -> None:
        self._run(vm.machine, deadline, "forget", _names(vm)[0])

    def remove_domain(self, machine: Machine, uuid: str, validation: str, fence: Fence, deadline: Deadline) -> None:
        """Also removes the validation's files. Raises HypervisorBusy as `tear_down` does."""
        names = (_checked(validation, VALIDATION_ID, "validation"), _checked(uuid, _UUID, "uuid"))
        self._tear_down(machine, *names, fence, deadline, keep="nothing")

    def console(self, vm: TestVm, limit_bytes: int, deadline: Deadline) -> bytes:
        arguments = (_names(vm)[0], limit_bytes)
        return self._run(vm.machine, deadline, "console", *arguments, limit_bytes=limit_bytes + _SLACK_BYTES).stdout

    def kernel_log(self, machine: Machine, since: float, limit_bytes: int, deadline: Deadline) -> bytes:
        arguments = (int(since), limit_bytes)
        output = self._run(machine, deadline, "kernel_log", *arguments, limit_bytes=limit_bytes + _SLACK_BYTES)
        return kernel_log.since(output.stdout, since)

    def guest(self, vm: TestVm) -> Shell:
        machine = vm.machine
        return self._shells.through(
            machine.ssh,
            machine.guest_address,
            machine.guest_port,
            "root",
            vm.login_key_private,
            vm.host_key_public,
            f"the test VM of {machine.name}",
        )

    def _tear_down(
        self, machine: Machine, validation: str, uuid: str, fence: Fence, deadline: Deadline, *, keep: str
    ) -> None:
        wait_s = max(1, min(_TEARDOWN_WAIT_S, int(deadline.left_s / 3)))
        arguments = (validation, uuid, fence.run, fence.epoch, wait_s, _virsh_limit(deadline), keep)
        self._run(machine, deadline, "teardown", *arguments)

    def _run(
        self, machine: Machine, deadline: Deadline, script: str, *arguments: str | int, limit_bytes: int = _ANSWER_LIMIT
    ) -> Output:
        output = self._send(machine, deadline, script, *arguments, limit_bytes=limit_bytes)
        if output.exit_status != 0:
            _fail(output, machine.name, script)
        return output

    def _send(
        self,
        machine: Machine,
        deadline: Deadline,
        script: str,
        *arguments: str | int,
        stdin: bytes = b"",
        limit_bytes: int = _ANSWER_LIMIT,
    ) -> Output:
        command = scripts.command(script, *arguments, sudo=self._site.sudo)
        return self._shells.shell(machine.ssh, machine.name).run(
            command, deadline, stdin=stdin, limit_bytes=limit_bytes
        )


def _judge_placement(facts: list[str], words: str) -> PlacementView:
    lock, domain, rc, closed, refused, asked = (printable(fact) for fact in facts)
    if lock == "held":
        return PlacementView(Placement.STARTING)
    if domain in ("shut off", "crashed"):
        return PlacementView(Placement.STOPPED, f"the domain is {domain}")
    if domain:
        return PlacementView(Placement.RUNNING, domain)
    if closed:
        return PlacementView(Placement.FENCED, f"closed by run and epoch {closed}")
    if rc == "0":
        return PlacementView(Placement.STOPPED, "it was started, and the domain is not there any more")
    if rc == "fenced":
        return PlacementView(Placement.FENCED, "a newer run holds the host's fence")
    if rc:
        return PlacementView(Placement.FAILED, printable(words[-1000:]) or f"virsh create ended with {rc}")
    if refused:
        return PlacementView(Placement.FENCED, refused)
    if asked:
        return PlacementView(
            Placement.FAILED, "the start on the host ended without a result (killed, or the host went down)"
        )
    return PlacementView(Placement.ABSENT)


def _fail(output: Output, machine: str, script: str) -> NoReturn:
    words = printable(output.stderr[-1500:]) or f"exit status {output.exit_status}"
    message = f"{machine}: {script}: {words}"
    if output.exit_status == _BUSY:
        raise HypervisorBusy(message)
    if output.exit_status == 124:  # of `timeout`
        raise HypervisorBusy(f"{machine}: {script}: virsh did not answer in time")
    raise HypervisorError(message)


def _virsh_limit(deadline: Deadline) -> int:
    """Seconds for one virsh call, so that a hung one does not outlive the SSH call that asked."""
    return max(2, int(deadline.left_s * 0.7))


def _names(vm: TestVm) -> tuple[str, str]:
    return _checked(vm.validation, VALIDATION_ID, "validation"), _checked(vm.uuid, _UUID, "uuid")


def _checked(text: str, pattern: re.Pattern[str], field: str) -> str:
    if not pattern.fullmatch(text):
        raise InvalidInput(f"{field}: {printable(text, 80)!r} must not reach a host", field)
    return text
