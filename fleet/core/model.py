"""The nouns, as frozen copies of their rows. Times are seconds since the epoch by the database's clock; ids are text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fleet.core.states import State


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    ABORTED = "aborted"


class Trigger(StrEnum):
    """Why a validation was started."""

    VACATED = "vacated"  # automatic, after the last tenant left
    MANUAL = "manual"
    FIXED = "fixed"  # every open ticket of the machine was marked fixed


class EventKind(StrEnum):
    """What the provider's control plane reports of an instance."""

    PLACED = "instance.placed"
    MIGRATED = "instance.migrated"
    REMOVED = "instance.removed"
    KEPT = "instance.kept"


class SlotKind(StrEnum):
    GPU = "gpu"
    NVSWITCH = "nvswitch"
    RAIL = "rail"
    NVME = "nvme"


@dataclass(frozen=True)
class Slot:
    """One device of a machine: the row of the slot map. `pci` is the host's address (`0000:1b:00.0`), `guest_pci` the
    fixed one in the test VM; `guid` and `switch_port` are a rail's, `serial` a GPU's."""

    slot: str
    kind: SlotKind
    pci: str
    guest_pci: str | None = None
    serial: str | None = None
    guid: str | None = None
    switch_port: str | None = None


@dataclass(frozen=True)
class SshTarget:
    """Where and how a host is reached. `host_key` is pinned: "ssh-ed25519 AAAA..."; `key_ref` names the login key
    (`file:PATH`, `env:NAME`, `credential:NAME`), resolved at use. `password` logins do not exist."""

    address: str
    port: int
    user: str
    host_key: str
    key_ref: str


@dataclass(frozen=True)
class Hold:
    owner: str
    reason: str
    since: float
    expires_at: float | None = None
    lock_power: bool = False


@dataclass(frozen=True)
class Instance:
    id: str
    kind: str  # "tenant" or "test"
    since: float


@dataclass(frozen=True)
class Machine:
    name: str
    sku: str
    state: State
    version: int
    state_since: float
    state_why: str
    ssh: SshTarget
    slots: tuple[Slot, ...] = ()
    guest_address: str = "192.168.231.10"  # of the test VM, seen from the host
    guest_port: int = 22
    scratch_disk: str | None = None  # the path of the disk in the guest that fio may overwrite
    rack: str | None = None
    power_feed: str | None = None
    capacity: int = 1  # how many tenant instances it can carry
    handed_over_at: float | None = None
    hold: Hold | None = None
    instances: tuple[Instance, ...] = ()
    vacated_because: Mapping[str, Any] = field(default_factory=dict)  # cause and signals of the last departure

    @property
    def claimable(self) -> bool:
        """May a tenant be placed on it? What the scheduler is told of."""
        return self.state is State.AVAILABLE and self.hold is None


@dataclass(frozen=True)
class TestVm:
    """The test VM of one validation, everything that placing, reaching and removing it needs. `uuid` is derived from the
    validation's id, so that two placings are the same domain."""

    __test__ = False

    validation: str
    uuid: str
    name: str
    machine: Machine
    host_key_private: str  # OpenSSH PEM, made for this VM only
    host_key_public: str
    login_key_private: str
    login_key_public: str


@dataclass(frozen=True)
class Fence:
    """Orders the starts on one host: (run, epoch) rises, and the host's script refuses a start with an older one. `run` is
    the time at which the run was opened, in milliseconds."""

    run: int
    epoch: int


@dataclass(frozen=True)
class Domain:
    """A VM as the hypervisor lists it. `validation` is the id in our metadata; None means: not ours, never touch."""

    uuid: str
    name: str
    state: str  # as `virsh domstate` prints it
    validation: str | None = None
    hostdevs: tuple[str, ...] = ()  # host PCI addresses


class DeviceState(StrEnum):
    ANSWERS = "answers"
    MISSING = "missing"  # not on the PCI bus
    ALL_ONES = "all_ones"  # config space reads ff: fallen off the bus


@dataclass(frozen=True)
class HostView:
    """One look at a host, taken in one round trip."""

    boot_id: str
    wall: float  # the host's own clock, seconds since the epoch: what its log's stamps are to be compared with
    domains: tuple[Domain, ...]
    devices: Mapping[str, DeviceState]  # by host PCI address, for every address that was asked for
    drivers: Mapping[str, str | None] = field(default_factory=dict)
    link: Mapping[str, tuple[str, str]] = field(
        default_factory=dict
    )  # PCI address: (speed, width) as sysfs prints them

    def domain(self, uuid: str) -> Domain | None:
        return next((d for d in self.domains if d.uuid == uuid), None)

    @property
    def tenants(self) -> Sequence[Domain]:
        """Domains that are not ours and hold, or may hold, the machine: everything without our metadata that is not
        shut off."""
        return [d for d in self.domains if d.validation is None and d.state != "shut off"]
