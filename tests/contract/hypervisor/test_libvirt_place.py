"""Placing, following, tearing down and reading what a test VM leaves on its host."""

import dataclasses
import stat
import time

import pytest

from fleet.core.clock import Deadline
from fleet.core.errors import HypervisorBusy, HypervisorError, InvalidInput
from fleet.core.model import Fence, TestVm
from fleet.hypervisor.base import Placement, PlacementView
from fleet.hypervisor.libvirt import Libvirt
from tests.contract.hypervisor.host import SITE, TENANT, Host, machine, soon

FENCE = Fence(5, 1)
FOREIGN = "<domain><name>vm-42</name></domain>"


def placed(host: Host, vm: TestVm) -> PlacementView:
    host.libvirt.place(vm, FENCE, soon())
    host.wait_started(vm)
    return host.libvirt.placement(vm, soon())


def test_a_vm_from_placing_to_forgetting(host: Host, vm: TestVm) -> None:
    assert host.libvirt.placement(vm, soon()) == PlacementView(Placement.ABSENT)
    assert placed(host, vm) == PlacementView(Placement.RUNNING, "running")
    directory = host.state / vm.validation
    assert f"<source path='{directory}/console.log'" in (directory / "domain.xml").read_text()
    assert stat.S_IMODE((directory / "seed.iso").stat().st_mode) == 0o600
    (directory / "console.log").write_text("login:")
    host.libvirt.tear_down(vm, FENCE, soon())
    assert host.domains == set()
    assert not list(directory.glob("*.iso"))
    assert host.libvirt.console(vm, 1000, soon()) == b"login:"
    host.libvirt.forget(vm, soon())
    assert not directory.exists()
    host.libvirt.tear_down(vm, FENCE, soon())
    assert sorted(path.name for path in host.state.iterdir()) == ["closed", "fence", "fence.lock"]


def test_placing_again_changes_nothing(host: Host, vm: TestVm) -> None:
    placed(host, vm)
    placed(host, vm)
    assert [call.split()[0] for call in host.calls].count("create") == 1


def test_a_vm_that_ended_is_not_started_again(host: Host, vm: TestVm) -> None:
    placed(host, vm)
    (host.fake / f"domains/{vm.uuid}.xml").unlink()
    assert placed(host, vm).placement is Placement.STOPPED
    assert host.domains == set()


def test_a_vm_that_is_shut_off_has_stopped(host: Host, vm: TestVm) -> None:
    placed(host, vm)
    (host.fake / f"domains/{vm.uuid}.state").write_text("shut off\n")
    assert host.libvirt.placement(vm, soon()) == PlacementView(Placement.STOPPED, "the domain is shut off")


def test_virshs_refusal_is_told_and_harmless(host: Host, vm: TestVm) -> None:
    words = "error: Failed to create domain from x\nerror: PCI device 0000:1b:00.0 is in use by \x1b[2Jdomain x"
    host.tell("fail-create", words + "y" * 5000)
    view = placed(host, vm)
    assert view.placement is Placement.FAILED
    assert view.reason.isprintable()
    assert len(view.reason) <= 300


def test_a_start_without_an_end_is_failed(host: Host, vm: TestVm) -> None:
    host.libvirt = Libvirt(host, dataclasses.replace(SITE, start_deadline_s=1))
    host.tell("gate-create")
    view = placed(host, vm)
    assert view == PlacementView(Placement.FAILED, "virsh create did not end in 1 s")
    host.unsay("gate-create")


def test_a_foreign_domain_with_our_uuid_is_never_touched(host: Host, vm: TestVm) -> None:
    host.domain(vm.uuid, FOREIGN)
    with pytest.raises(HypervisorError, match="is not of validation val-1"):
        host.libvirt.tear_down(vm, FENCE, soon())
    assert host.domains == {vm.uuid}
    assert not [call for call in host.calls if call.startswith("destroy")]


@pytest.mark.parametrize("claimed", ["val-2", "val-11", "xval-1", "val-1 val-1"])
def test_the_reaper_takes_only_the_domain_of_the_validation_it_names(host: Host, vm: TestVm, claimed: str) -> None:
    metadata = f"<fleet:validation xmlns:fleet='https://fleet-revalidation.invalid/domain/1' id='{claimed}'/>"
    host.domain(TENANT, f"<domain><metadata>{metadata}</metadata></domain>")
    with pytest.raises(HypervisorError, match="not of validation val-1"):
        host.libvirt.remove_domain(machine(), TENANT, "val-1", FENCE, soon())
    assert host.domains == {TENANT}


def test_the_reaper_removes_a_domain_with_its_files_and_closes_its_validation(host: Host, vm: TestVm) -> None:
    placed(host, vm)
    host.libvirt.remove_domain(vm.machine, vm.uuid, vm.validation, Fence(9, 1), soon())
    assert host.domains == set()
    assert not (host.state / vm.validation).exists()
    assert placed(host, vm).placement is Placement.FENCED


@pytest.mark.parametrize(
    ("uuid", "validation"),
    [("$(reboot)", "val-1"), ("--all", "val-1"), (TENANT, "../../etc"), (TENANT, "a b"), (TENANT, "-x"), (TENANT, "")],
)
def test_a_name_that_is_none_reaches_no_host(host: Host, uuid: str, validation: str) -> None:
    with pytest.raises(InvalidInput, match="must not reach a host"):
        host.libvirt.remove_domain(machine(), uuid, validation, FENCE, soon())
    assert host.local.commands == []


def test_a_domain_that_does_not_end_is_an_error(host: Host, vm: TestVm) -> None:
    placed(host, vm)
    host.tell("unkillable")
    with pytest.raises(HypervisorError, match="virsh destroy: Domain"):
        host.libvirt.tear_down(vm, FENCE, soon())


@pytest.mark.parametrize("verb", ["destroy", "list"])
def test_a_destroy_that_takes_its_time_is_busy(host: Host, vm: TestVm, verb: str) -> None:
    placed(host, vm)
    host.tell(f"gate-{verb}")
    with pytest.raises(HypervisorBusy):
        host.libvirt.tear_down(vm, FENCE, Deadline.after(5))
    host.unsay(f"gate-{verb}")
    host.libvirt.tear_down(vm, FENCE, soon())
    assert host.domains == set()


def test_a_state_directory_that_cannot_be_written_is_an_error(host: Host, vm: TestVm) -> None:
    host.state.write_text("a file")
    for act in (host.libvirt.place, host.libvirt.tear_down):
        with pytest.raises(HypervisorError, match="cannot write to"):
            act(vm, FENCE, soon())


@pytest.mark.parametrize("path", ["relative", "/a b", "/x|y", "/x&y", "/$(reboot)"])
def test_a_state_path_that_could_be_code_is_refused(host: Host, vm: TestVm, path: str) -> None:
    host.local.environment["FLEET_STATE"] = path
    with pytest.raises(HypervisorError, match="FLEET_STATE on this host must be"):
        host.libvirt.placement(vm, soon())


def test_keys_are_in_no_command_line(host: Host, vm: TestVm) -> None:
    placed(host, vm)
    host.libvirt.tear_down(vm, FENCE, soon())
    secret = vm.login_key_private.splitlines()[2]
    assert secret not in "".join(host.local.commands)


def test_by_sudo_where_the_site_says_so(host: Host, vm: TestVm) -> None:
    host.tool("sudo", '[ "$1" = -n ] && shift && exec "$@"')
    host.libvirt = Libvirt(host, dataclasses.replace(SITE, sudo=True))
    assert placed(host, vm).placement is Placement.RUNNING
    assert all(command.startswith("sudo -n sh -c ") for command in host.local.commands)
    host.tool("sudo", "echo 'sudo: a password is required' >&2; exit 1")
    with pytest.raises(HypervisorError, match="sudo: a password is required"):
        host.libvirt.look(vm.machine, soon())


def test_the_end_of_a_rotated_console(host: Host, vm: TestVm) -> None:
    assert host.libvirt.console(vm, 10, soon()) == b""
    directory = host.state / vm.validation
    directory.mkdir(parents=True)
    (directory / "console.log.0").write_bytes(b"before\xff\x1b\n")
    (directory / "console.log").write_bytes(b"after\n")
    assert host.libvirt.console(vm, 100, soon()) == b"before\xff\x1b\nafter\n"
    assert host.libvirt.console(vm, 8, soon()) == b"\x1b\nafter\n"


def test_the_kernel_log_from_a_moment_on(host: Host) -> None:
    host.tool("journalctl", "exit 127")
    host.tool(
        "dmesg",
        '[ "$*" = "--time-format iso" ] || exit 9\n'
        "echo '2026-01-31T11:59:59,900000+00:00 old'\necho '  of the old'\n"
        "echo '2026-01-31T12:00:01,000000+00:00 NVRM: Xid 79'\necho '  of the new'",
    )
    since = 1769860800.0  # 2026-01-31 12:00:00 UTC
    log = host.libvirt.kernel_log(machine(), since, 10_000, soon())
    assert log == b"2026-01-31T12:00:01,000000+00:00 NVRM: Xid 79\n  of the new\n"
    assert host.libvirt.kernel_log(machine(), since, 13, soon()) == b"  of the new\n"


def test_the_journal_is_asked_first(host: Host) -> None:
    host.tool("journalctl", 'echo "2026-01-31T12:00:00.000001+0000 m-01 kernel: $*"')
    log = host.libvirt.kernel_log(machine(), 1769860800.7, 10_000, soon())
    assert log == b""  # its line is 0.7 s too old
    log = host.libvirt.kernel_log(machine(), 1769860800.0, 10_000, soon())
    assert b"-k -q --no-pager -o short-iso-precise --since @1769860800" in log


def test_a_kernel_log_that_cannot_be_had_is_an_error(host: Host) -> None:
    host.tool("journalctl", "exit 0")
    host.tool("dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    with pytest.raises(HypervisorError, match="Operation not permitted"):
        host.libvirt.kernel_log(machine(), time.time(), 1000, soon())


def test_a_tear_down_without_libvirtd_closes_the_validation_and_says_so(host: Host, vm: TestVm) -> None:
    host.tell("fail-list", "error: failed to connect to the hypervisor")
    with pytest.raises(HypervisorError, match="failed to connect"):
        host.libvirt.tear_down(vm, FENCE, soon())
    host.unsay("fail-list")
    assert placed(host, vm).placement is Placement.FENCED
