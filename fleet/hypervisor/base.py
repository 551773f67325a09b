"""What the orchestrator needs of a hypervisor. Every call has a deadline and may be repeated; each does one thing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from fleet.core.clock import Deadline
from fleet.core.model import Fence, HostView, Machine, TestVm
from fleet.remote.base import Shell


class Placement(StrEnum):
    ABSENT = "absent"  # never asked for on this host
    STARTING = "starting"  # the detached start is still at work on the host
    RUNNING = "running"
    FAILED = "failed"  # the start ended and there is no domain; see reason
    FENCED = "fenced"  # closed by a teardown, or refused for a newer fence: it will not start any more
    STOPPED = "stopped"  # it ran, and is no longer there (crashed, or destroyed by somebody)


@dataclass(frozen=True)
class PlacementView:
    placement: Placement
    reason: str = ""  # what virsh said, bounded and printable


@dataclass(frozen=True)
class ImageView:
    """The files that a test VM is made from, as they are on one host. `digests` (SHA-256, hexadecimal) by part: `image`, and
    `kernel` and `initrd` where it is booted directly; all of them, or the host is `reading`, or they cannot be had: `why`."""

    digests: Mapping[str, str] = field(default_factory=dict)
    reading: bool = False
    why: str = ""


class Hypervisor(Protocol):
    def look(self, machine: Machine, deadline: Deadline) -> HostView:
        """Boot id, domains, and the state of every device in the slot map. Raises RemoteError, HypervisorError."""

    def read_image(self, machine: Machine, deadline: Deadline) -> ImageView:
        """What a test VM would be made from on this host. Files that it has not seen before are read there, detached: ask
        again while it is `reading`. Raises RemoteError, HypervisorError."""

    def place(self, vm: TestVm, fence: Fence, deadline: Deadline) -> None:
        """Start the VM detached on the host (it takes minutes with eight GPUs); idempotent by the VM's uuid."""

    def placement(self, vm: TestVm, deadline: Deadline) -> PlacementView:
        """How far the start is."""

    def tear_down(self, vm: TestVm, fence: Fence, deadline: Deadline) -> None:
        """Close the fence, then destroy the domain if it is there and ours, and remove its files (the console stays
        until `forget`). Idempotent. Never touches a domain without our metadata. Raises HypervisorBusy while a start
        or a destroy is still at work on the host: call again, the VM is gone only when this returns."""

    def forget(self, vm: TestVm, deadline: Deadline) -> None:
        """Remove what is left of the validation on the host (console included), keep the fence."""

    def remove_domain(self, machine: Machine, uuid: str, validation: str, fence: Fence, deadline: Deadline) -> None:
        """The reaper's act: destroy a test domain whose metadata names `validation`; refuse anything else."""

    def console(self, vm: TestVm, limit_bytes: int, deadline: Deadline) -> bytes:
        """The last `limit_bytes` of the serial console; empty where there is none."""

    def kernel_log(self, machine: Machine, since: float, limit_bytes: int, deadline: Deadline) -> bytes:
        """The host's kernel log from `since` (host's wall clock, seconds) on, the last `limit_bytes` of it."""

    def guest(self, vm: TestVm) -> Shell:
        """A shell in the test VM, reached through the host; connects at first use."""
