"""What the workflows work with: the parts of the outside world, and the site's rules. Built once by the composition root."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.core.model import Machine, TestVm
from fleet.hooks.base import Hook
from fleet.hypervisor.base import Hypervisor
from fleet.store.database import Database
from fleet.store.evidence import EvidenceStore
from fleet.webhook.receiver import Receiver
from playbooks.loader import Library


@dataclass(frozen=True)
class Policy:
    """The site's rules for validations. Seconds unless named otherwise; defaults follow facts/timing.yaml."""

    default_plan: str = "standard"
    minimum_checks: frozenset[str] = frozenset({"gpu_inventory", "gpu_burn", "ib_links", "kernel_log"})
    """A pass returns a machine to the pool only if these were enforced and passed (or the SKU skips them)."""
    place_deadline_s: float = 900.0  # eight GPUs and a terabyte of memory take minutes to start
    boot_deadline_s: float = 600.0
    guest_silence_s: float = 180.0  # how long the test VM may be unreachable while checks run
    teardown_deadline_s: float = 900.0
    device_return_s: float = 60.0  # devices may need this long after the VM is gone
    withdrawal_deadline_s: float = 600.0  # from the withdrawal until the scheduler must have acknowledged it
    departure_deadline_s: float = 1800.0  # from the event until the tenant's domain must be gone
    departure_poll_s: float = 5.0
    abort_retries_s: tuple[float, ...] = (60.0, 300.0, 900.0)  # waits before automatic retries of a vacated machine
    call_deadline_s: float = 10.0  # one command over SSH
    host_look_s: float = 30.0  # how often, while checks run, the host is looked at for a tenant's domain
    output_limit_bytes: int = 32 << 20
    log_limit_bytes: int = 1 << 20
    evidence_patience_s: float = 600.0  # how long a validation waits for an evidence store that is full or away
    validation_limit_bytes: int = 512 << 20  # of what one test VM's checks print, all together
    evidence_limit_bytes: int = 200 << 30  # of all evidence that is kept
    keep_days: Mapping[str, float] = field(default_factory=lambda: {"passed": 90.0, "aborted": 180.0, "failed": 730.0})
    retention_s: float = 300.0  # the round that measures the evidence store and drops what is old
    sweep_s: float = 300.0  # the reaper's round over all hosts
    watchdog_s: float = 60.0  # between two rounds over all deadlines
    watchdog_grace_s: float = 900.0  # after the whole service was away: what is late gets this time first
    host_patience: int = 5  # tries of a phase before an unreachable host ends the validation


@dataclass(frozen=True)
class World:
    db: Database
    hypervisor: Hypervisor
    library: Library
    evidence: EvidenceStore
    make_test_vm: Callable[[str, Machine], TestVm]
    image: Mapping[str, Any] = field(default_factory=dict)  # digest, and versions of what is in it
    policy: Policy = Policy()
    hooks: tuple[Hook, ...] = ()  # asked before a test VM is placed, in this order
    scheduler: Receiver | None = None  # the provider's: hears which machines can be claimed
    attention_hook: Receiver | None = None  # whatever tells people that something waits for them
