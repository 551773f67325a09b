"""Hosts in memory: what the hypervisor shows and what it was told to do, for workflows that only look and remove."""

from dataclasses import dataclass, field
from pathlib import Path

from fleet.core.clock import Deadline
from fleet.core.errors import Unreachable
from fleet.core.model import DeviceState, Domain, Fence, HostView, Machine, SshTarget, TestVm
from fleet.core.states import State
from fleet.hypervisor.base import ImageView, PlacementView
from fleet.hypervisor.test_vm import SECRETS, restore_test_vm
from fleet.remote.base import Shell
from fleet.store.database import Database
from fleet.store.evidence import EvidenceFolder
from fleet.workflows.world import Policy, World
from playbooks.loader import Library

MACHINE = Machine(
    "m1", "sim", State.VACATED, 1, 0.0, "", SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")
)
KEYS = dict.fromkeys(SECRETS, "key")
UUID = "6f0c4e0e-1c5c-4f0e-9a0f-0123456789ab"
WALL = 1_700_000_000.0  # the clock of every host stands still


def tenant(name: str = "tenant-a") -> Domain:
    return Domain(UUID, name, "running")


def vm_of(validation: str) -> Domain:
    vm = restore_test_vm(validation, MACHINE, KEYS)
    return Domain(vm.uuid, vm.name, "running", validation)


@dataclass
class Hosts:
    """Implements what vacancy, sweep and preflight use; placing is for the simulated rack's tests."""

    domains: dict[str, list[Domain]] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)  # PCI addresses that do not answer
    missing: set[str] = field(default_factory=set)  # PCI addresses at which there is nothing
    removed: list[tuple[str, str]] = field(default_factory=list)
    image: ImageView = field(default_factory=lambda: ImageView({"image": "0" * 64}))

    def look(self, machine: Machine, deadline: Deadline) -> HostView:
        if machine.name in self.away:
            raise Unreachable(f"{machine.name} does not answer")
        states = {s.pci: DeviceState.ALL_ONES if s.pci in self.lost else DeviceState.ANSWERS for s in machine.slots}
        states |= dict.fromkeys(self.missing, DeviceState.MISSING)
        return HostView("boot-1", WALL, tuple(self.domains.get(machine.name, ())), states)

    def read_image(self, machine: Machine, deadline: Deadline) -> ImageView:
        return self.image

    def remove_domain(self, machine: Machine, uuid: str, validation: str, fence: Fence, deadline: Deadline) -> None:
        self.removed.append((machine.name, validation))
        self.domains[machine.name] = [d for d in self.domains[machine.name] if d.validation != validation]

    def place(self, vm: TestVm, fence: Fence, deadline: Deadline) -> None:
        raise NotImplementedError

    def placement(self, vm: TestVm, deadline: Deadline) -> PlacementView:
        raise NotImplementedError

    def tear_down(self, vm: TestVm, fence: Fence, deadline: Deadline) -> None:
        raise NotImplementedError

    def forget(self, vm: TestVm, deadline: Deadline) -> None:
        raise NotImplementedError

    def console(self, vm: TestVm, limit_bytes: int, deadline: Deadline) -> bytes:
        raise NotImplementedError

    def kernel_log(self, machine: Machine, since: float, limit_bytes: int, deadline: Deadline) -> bytes:
        raise NotImplementedError

    def guest(self, vm: TestVm) -> Shell:
        raise NotImplementedError


def world(db: Database, hosts: Hosts, folder: Path, policy: Policy = Policy()) -> World:
    def make(validation: str, machine: Machine) -> TestVm:
        return restore_test_vm(validation, machine, KEYS)

    return World(db, hosts, Library(), EvidenceFolder(folder), make, {"digest": "none"}, policy)
