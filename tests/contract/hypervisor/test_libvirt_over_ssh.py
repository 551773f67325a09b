"""The same scripts through a real sshd: what only a connection can show."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.core.errors import CommandNotFound
from fleet.core.model import Fence, TestVm
from fleet.hypervisor.base import Placement
from fleet.hypervisor.libvirt import Libvirt
from fleet.hypervisor.test_vm import make_test_vm
from fleet.remote.ssh import SshPool
from tests.contract.hypervisor.host import SITE, Host, soon
from tests.contract.hypervisor.host import machine as empty_machine
from tests.contract.remote import sshd
from tests.needs import need

pytestmark = pytest.mark.real

Connect = Callable[[str], tuple[Libvirt, TestVm]]


@pytest.fixture
def connect(host: Host, tmp_path: Path) -> Iterator[Connect]:
    """The host behind an sshd whose sessions have this PATH."""
    need("sshd (Debian: apt-get install openssh-server)", sshd.PROGRAM)
    with ExitStack() as stack:

        def start(path: str) -> tuple[Libvirt, TestVm]:
            (tmp_path / "sshd").mkdir()
            environment = {**host.local.environment, "PATH": path}
            words = " ".join(f"{name}={value}" for name, value in environment.items())
            server = stack.enter_context(sshd.running(tmp_path / "sshd", f"SetEnv {words}"))
            pool = SshPool()
            stack.callback(pool.close)
            machine = replace(empty_machine(), ssh=server.target())
            return Libvirt(pool, SITE), make_test_vm("val-1", machine)

        yield start


def test_a_start_goes_on_when_the_call_that_asked_for_it_has_ended(host: Host, connect: Connect) -> None:
    libvirt, vm = connect(f"{host.tools}:/usr/bin:/bin")
    host.tell("gate-create")
    libvirt.place(vm, Fence(1, 1), soon())
    host.wait_at("create")
    assert libvirt.placement(vm, soon()).placement is Placement.STARTING
    host.unsay("gate-create")
    host.wait_started(vm)
    assert libvirt.placement(vm, soon()).placement is Placement.RUNNING
    assert [domain.validation for domain in libvirt.look(vm.machine, soon()).domains] == [vm.validation]
    libvirt.tear_down(vm, Fence(1, 2), soon())
    libvirt.forget(vm, soon())
    assert host.domains == set()


def test_a_host_without_virsh(host: Host, connect: Connect, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "sh").symlink_to("/bin/sh")
    libvirt, vm = connect(str(bare))
    with pytest.raises(CommandNotFound, match="m-01: virsh is not installed there"):
        libvirt.look(vm.machine, soon())
