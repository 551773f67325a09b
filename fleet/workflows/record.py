"""The validation as a handler sees it, and the small writes that all phases share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from fleet.core.errors import FleetError
from fleet.core.model import Fence, HostView, Machine, TestVm
from fleet.engine.workflow import Next, Work
from fleet.hypervisor.test_vm import restore_test_vm, secrets_of
from fleet.store import machines, validations
from fleet.workflows.playbook import Playbook
from fleet.workflows.world import World
from validators.base import Ended


@dataclass(frozen=True)
class Record:
    """One validation and its machine, as they were when this step began."""

    id: str
    machine: Machine
    playbook: Playbook
    prior_state: str
    trigger: str
    site_mode: str
    image: Mapping[str, Any]
    vm: TestVm | None
    progress: Mapping[str, Any]
    data: Mapping[str, Any]  # the run's
    receipts: Mapping[str, Any]  # of the site's hooks, by name

    @classmethod
    def load(cls, world: World, work: Work) -> "Record":
        assert work.run.ref is not None
        with world.db.read() as session:
            row = validations.get(session, work.run.ref)
            machine = machines.get(session, row.machine)
        return cls(
            row.id,
            machine,
            Playbook.restore(row.playbook),
            row.prior_state,
            row.trigger,
            row.site_mode,
            row.image,
            None if row.secrets is None else restore_test_vm(row.id, machine, row.secrets),
            row.progress,
            work.run.data,
            row.receipts,
        )

    @property
    def test_vm(self) -> TestVm:
        """Raises FleetError where there is none: the phases before `place` have no VM."""
        if self.vm is None:
            raise FleetError(f"validation {self.id} has no test VM on its record")
        return self.vm

    @property
    def since(self) -> float:
        """From when on a log line counts: the host's clock at preflight, seconds."""
        return float(self.data.get("since", 0.0))

    def store_vm(self, session: Session, vm: TestVm) -> None:
        """The VM's own keys live on the record until it is settled: another worker must be able to go on."""
        validations.get(session, self.id).secrets = secrets_of(vm)


def fence(work: Work) -> Fence:
    """Runs are ordered by when they were opened (milliseconds), not by their number: a database that was set up anew counts
    from one again, and hosts remember the old one's fence."""
    return Fence(int(work.run.created_at * 1000), work.run.epoch)


def ended_early(
    record: Record, phase: str, reason: str, data: Mapping[str, Any] | None = None, *, by: str | None = None
) -> Next:
    """The way out for a validation that cannot go on: where a VM may exist, through collecting and teardown."""
    placed = record.vm is not None and (phase != "preflight")
    more = {"aborted": reason, "aborted_by": by, "placed": placed, "ended_in": phase, **(data or {})}
    return Next("collect" if placed else "settle", reason, data=more)


def tenant_on(view: HostView) -> tuple[str, dict[str, Any]]:
    """Reason and data of a validation that ends because somebody else's domain is on the host."""
    names = ", ".join(d.name for d in view.tenants)
    return f"tenant domain on the host: {names}", {"tenants": [[d.uuid, d.name] for d in view.tenants]}


def keep(
    world: World,
    record: Record,
    check: str,
    name: str,
    stdout: bytes,
    stderr: bytes = b"",
    *,
    ended: Ended = Ended.EXITED,
    exit_status: int | None = None,
    started_at: float | None = None,
    duration_s: float | None = None,
    truncated: bool = False,
) -> Callable[[Session], None]:
    """Store one measurement's files now and return what notes them on the record, to be run with the phase's change."""
    contents = {"stdout": stdout, "stderr": stderr}
    files = {
        stream: world.evidence.put(record.id, name, stream, content)
        for stream, content in contents.items()
        if content or stream == "stdout"
    }
    cut = truncated or any(len(content) > world.evidence.limit_bytes for content in contents.values())

    def within(session: Session) -> None:
        validations.put_measurement(
            session,
            record.id,
            check,
            name,
            ended=ended,
            exit_status=exit_status,
            started_at=started_at,
            duration_s=duration_s,
            truncated=cut,
            files=files,
        )

    return within


def in_order(*writes: Callable[[Session], None]) -> Callable[[Session], None]:
    def within(session: Session) -> None:
        for write in writes:
            write(session)

    return within
