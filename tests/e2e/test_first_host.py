"""`fleet machine check` on real sshd, sudo and libvirt: a host that is set up is found so, and each prerequisite that is taken
away is named, with what mends it, and hides no other."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.core.clock import Deadline
from fleet.core.model import Fence
from fleet.hypervisor.base import Placement
from fleet.hypervisor.libvirt import Libvirt
from fleet.hypervisor.site import ImageSpec
from fleet.hypervisor.test_vm import make_test_vm
from fleet.remote.ssh import SshPool
from fleet.store.database import Database
from fleet.workflows import inspection
from tests.e2e import first_host
from tests.e2e.first_host import INSIDE, FirstHost
from tests.e2e.host import HERE, missing_parts
from tests.e2e.taken_away import ALSO, SITE, TAKEN, Case
from tests.needs import need

Rows = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def running_first_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FirstHost]:
    lacking = missing_parts("sudo")
    need(f"{', '.join(lacking)} (Debian: tools/system-packages, as root)", not lacking)
    host = FirstHost(tmp_path_factory.mktemp("first"))
    try:
        host.start()
        host.define("fleet-test")
        yield host
    finally:
        host.stop()


@pytest.fixture
def host(running_first_host: FirstHost) -> FirstHost:
    running_first_host.reset()
    return running_first_host


@pytest.fixture
def check(sqlite_url: str, tmp_path: Path) -> Iterator[Callable[[Case], tuple[str | None, Rows]]]:
    db = Database(sqlite_url)

    def ask(case: Case) -> tuple[str | None, Rows]:
        outcome, result = case.inspect(db, tmp_path, inspection.Inspection.CHECK)
        return outcome, {row["name"]: row for row in result["rows"]}

    yield ask
    db.close()


Check = Callable[[Case], tuple[str | None, Rows]]


@pytest.mark.parametrize(("user", "sudo"), [(first_host.LOGIN, False), (first_host.SUDOER, True)])
def test_a_host_that_is_set_up_is_found_so_and_left_as_it_is(
    host: FirstHost, check: Check, user: str, sudo: bool
) -> None:
    before = host.command("find", str(INSIDE / "root"), str(INSIDE / "state"), "-printf", "%p %m %u %s %T@\n").stdout
    outcome, rows = check(Case(host, host.machine("first-01", user=user), replace(SITE, sudo=sudo)))
    assert {name: row["seen"] for name, row in rows.items() if row["status"] != "met"} == {}
    assert outcome == "met"
    assert ("sudo" if sudo else "shell") in rows
    after = host.command("find", str(INSIDE / "root"), str(INSIDE / "state"), "-printf", "%p %m %u %s %T@\n").stdout
    kept = [line for line in after.splitlines() if "/state" not in line]  # where the image's digest is kept
    assert kept == [line for line in before.splitlines() if "/state" not in line]


def test_a_host_that_is_away_leaves_what_needs_no_host(host: FirstHost, check: Check) -> None:
    machine = host.machine("first-01", ssh_port=1)
    outcome, rows = check(Case(host, machine))
    assert outcome == "unreached"
    assert [name for name, row in rows.items() if row["status"] == "missing"] == ["ssh"]
    assert {name for name, row in rows.items() if row["status"] == "met"} == {
        "ssh record",
        "sku",
        "slot map",
        "scratch disk",
        "domain template",
        "login key",
    }


def test_a_login_in_libvirts_group_needs_no_sudo(host: FirstHost) -> None:
    """Not for a VM's console either, which virtlogd writes as root."""
    pool = SshPool()
    (host.folder / "disk.raw").write_bytes(bytes(1 << 20))
    image = ImageSpec(str(INSIDE / "disk.raw"))
    hypervisor = Libvirt(pool, replace(SITE, image=image, template_dir=HERE / "first/no-devices"))
    vm = make_test_vm("val-first", host.machine("first-01"))
    try:
        hypervisor.place(vm, Fence(1, 1), Deadline.after(30))
        for _ in Deadline.after(60).poll(0.1):
            seen = hypervisor.placement(vm, Deadline.after(10))
            if seen.placement is not Placement.STARTING:
                break
        assert seen.placement is Placement.RUNNING, seen.reason
        assert [domain.validation for domain in hypervisor.look(vm.machine, Deadline.after(10)).domains] == [
            "val-first"
        ]
        console = host.state / "val-first/console.log"
        console.write_bytes(b"from the guest\n")
        assert hypervisor.console(vm, 1000, Deadline.after(10)) == b"from the guest\n"
        assert console.stat().st_uid == host.state.stat().st_uid
        hypervisor.tear_down(vm, Fence(1, 1), Deadline.after(30))
        assert host.domains() == []
        assert hypervisor.console(vm, 1000, Deadline.after(10)).startswith(b"from the guest\n")
        hypervisor.forget(vm, Deadline.after(10))
        assert not (host.state / "val-first").exists()
    finally:
        host.virsh("destroy", vm.uuid)
        pool.close()


@pytest.mark.parametrize("taken", TAKEN)
def test_what_is_taken_away_is_named_with_what_mends_it(host: FirstHost, check: Check, taken: str) -> None:
    take, name, seen, mend = TAKEN[taken]
    case = Case(host, host.machine("first-01"))
    context = take(case)
    if context is None:
        outcome, rows = check(case)
    else:
        with context:
            outcome, rows = check(case)
    assert outcome in ("gaps", "unreached")
    assert rows[name]["status"] == "missing", rows[name]
    assert seen in rows[name]["seen"]
    assert mend in rows[name]["mend"]
    also = ALSO.get(taken, set())
    if also is not None:
        assert {n for n, row in rows.items() if row["status"] != "met"} - {name} <= also
    assert len(rows) >= 30  # nothing is left out because something else is wrong
