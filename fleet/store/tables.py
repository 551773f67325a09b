"""All tables. Times are seconds since the epoch by the database's clock (`db_now`). Changes need a migration beside them."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

_Json = sa.JSON(none_as_null=True)
_Time: sa.types.TypeEngine[float] = sa.Double()


class Base(DeclarativeBase):
    type_annotation_map = {
        dict[str, Any]: _Json,
        list[Any]: _Json,
        float: _Time,
    }


class MachineRow(Base):
    __tablename__ = "machine"
    name: Mapped[str] = mapped_column(primary_key=True)
    sku: Mapped[str]
    state: Mapped[str] = mapped_column(index=True)
    version: Mapped[int] = mapped_column(default=1)
    state_since: Mapped[float]
    state_why: Mapped[str]
    ssh: Mapped[dict[str, Any]]  # address, port, user, host_key, key_ref
    slots: Mapped[list[Any]]
    guest_address: Mapped[str]
    guest_port: Mapped[int]
    scratch_disk: Mapped[str | None]
    rack: Mapped[str | None]
    power_feed: Mapped[str | None]
    capacity: Mapped[int] = mapped_column(default=1)
    handed_over_at: Mapped[float | None]
    hold: Mapped[dict[str, Any] | None]  # owner, reason, since, expires_at, lock_power
    vacated_because: Mapped[dict[str, Any]]  # cause, why, signals, instance
    created_at: Mapped[float]


class InstanceRow(Base):
    __tablename__ = "instance"
    machine: Mapped[str] = mapped_column(sa.ForeignKey("machine.name"), primary_key=True)
    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    since: Mapped[float]


class EventRow(Base):
    """Accepted events, for ever: the same id is never applied twice. A refused event leaves no row."""

    __tablename__ = "event"
    id: Mapped[str] = mapped_column(primary_key=True)
    body_sha256: Mapped[str]
    kind: Mapped[str]
    machine: Mapped[str] = mapped_column(sa.ForeignKey("machine.name"), index=True)
    instance: Mapped[str]
    cause: Mapped[str | None]
    why: Mapped[str | None]
    signals: Mapped[list[Any]]
    state: Mapped[str]  # applied, waiting (a `placed` for a machine that is not free yet), dropped
    received_at: Mapped[float]
    applied_at: Mapped[float | None]

    __table_args__ = (
        sa.Index(
            "event_waiting",
            "received_at",
            sqlite_where=sa.text("state = 'waiting'"),
            postgresql_where=sa.text("state = 'waiting'"),
        ),
    )


class RunRow(Base):
    """The engine's row: one per open piece of long work, of any kind. `id` is the fence's first number."""

    __tablename__ = "run"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    kind: Mapped[str]  # validation, vacancy, reaper, ...
    subject: Mapped[str]  # what there may be one open run of: a machine's name
    ref: Mapped[str | None]  # the record it works on, such as a validation's id
    phase: Mapped[str]
    phase_since: Mapped[float]
    why: Mapped[str] = mapped_column(default="")
    due_at: Mapped[float]
    epoch: Mapped[int] = mapped_column(default=0)  # fencing token: rises with every claim
    lease_until: Mapped[float] = mapped_column(default=0.0)
    worker: Mapped[str | None]
    abort_reason: Mapped[str | None]
    abort_by: Mapped[str | None]
    attempts: Mapped[int] = mapped_column(default=0)
    last_error: Mapped[str | None]
    data: Mapped[dict[str, Any]]
    rack: Mapped[str | None]
    power_feed: Mapped[str | None]
    holds_budget: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[float]
    ended_at: Mapped[float | None]

    __table_args__ = (
        sa.Index(
            "one_open_run_per_subject",
            "kind",
            "subject",
            unique=True,
            sqlite_where=sa.text("ended_at IS NULL"),
            postgresql_where=sa.text("ended_at IS NULL"),
        ),
        sa.Index(
            "run_due",
            "due_at",
            sqlite_where=sa.text("ended_at IS NULL"),
            postgresql_where=sa.text("ended_at IS NULL"),
        ),
        {"sqlite_autoincrement": True},
    )


class WorkerRow(Base):
    """A worker process that is up, by its own word. What it holds is on the runs; this is for health and metrics."""

    __tablename__ = "worker"
    name: Mapped[str] = mapped_column(primary_key=True)
    threads: Mapped[int]
    started_at: Mapped[float]
    seen_at: Mapped[float]


class ValidationRow(Base):
    __tablename__ = "validation"
    id: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[int] = mapped_column(sa.ForeignKey("run.id"), unique=True)
    machine: Mapped[str] = mapped_column(sa.ForeignKey("machine.name"))
    plan: Mapped[str]
    trigger: Mapped[str]
    requested_by: Mapped[str]
    prior_state: Mapped[str]
    site_mode: Mapped[str]  # enforce or observe, as it was at the claim
    verdict: Mapped[str | None]
    reason: Mapped[str | None]
    created_at: Mapped[float]
    ended_at: Mapped[float | None]
    playbook: Mapped[dict[str, Any]]  # the plan and SKU as loaded, with file hashes: what the verdict was made with
    image: Mapped[dict[str, Any]]  # digest and versions of the test image
    phases: Mapped[list[Any]]  # {phase, since, until, why}
    progress: Mapped[dict[str, Any]]  # {check: {state, percent, outcome}}
    inventory: Mapped[dict[str, Any]]  # serials and firmware seen, by slot
    receipts: Mapped[dict[str, Any]] = mapped_column(default=dict)  # what the site's hooks answered, by hook
    evidence_bytes: Mapped[int] = mapped_column(sa.BigInteger, default=0)  # of all its raw outputs, noted at its end
    evidence_dropped_at: Mapped[float | None]  # the raw outputs are gone by the site's retention; the verdict stays
    secrets: Mapped[dict[str, Any] | None]  # the VM's own keys while it lives; cleared at settle

    __table_args__ = (
        sa.Index("validation_newest", "created_at", "id"),
        sa.Index("validation_of_machine", "machine", "created_at", "id"),
        sa.Index("validation_by_verdict", "verdict", "created_at", "id"),
        sa.Index(
            "validation_open",
            "machine",
            sqlite_where=sa.text("ended_at IS NULL"),
            postgresql_where=sa.text("ended_at IS NULL"),
        ),
    )


class MeasurementRow(Base):
    __tablename__ = "measurement"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    validation: Mapped[str] = mapped_column(sa.ForeignKey("validation.id"), index=True)
    check: Mapped[str] = mapped_column("check_name")
    name: Mapped[str]  # the plan's step, such as gpu_inventory.2
    ended: Mapped[str]
    exit_status: Mapped[int | None]
    started_at: Mapped[float | None]
    duration_s: Mapped[float | None]
    truncated: Mapped[bool]
    files: Mapped[dict[str, Any]]  # {stdout|stderr: {path, sha256, bytes}}
    __table_args__ = (sa.UniqueConstraint("validation", "name"),)


class CheckRow(Base):
    """What one check of one validation concluded."""

    __tablename__ = "check_result"
    validation: Mapped[str] = mapped_column(sa.ForeignKey("validation.id"), primary_key=True)
    check: Mapped[str] = mapped_column("check_name", primary_key=True)
    mode: Mapped[str]  # enforce or observe
    outcome: Mapped[str]
    reason: Mapped[str]
    findings: Mapped[list[Any]]  # {device, code, outcome, reason}
    facts: Mapped[dict[str, Any]]
    limits: Mapped[dict[str, Any]]


class TicketRow(Base):
    __tablename__ = "ticket"
    id: Mapped[str] = mapped_column(primary_key=True)
    machine: Mapped[str] = mapped_column(sa.ForeignKey("machine.name"), index=True)
    cause: Mapped[str]  # the check and code that failed first: one open ticket per machine and cause
    state: Mapped[str]  # open, taken, fixed, closed, reopened
    title: Mapped[str]
    body: Mapped[str]  # rendered text: per-test table, numbers against limits, last log lines
    checks: Mapped[list[Any]]  # the checks that must pass to close it
    validation: Mapped[str] = mapped_column(sa.ForeignKey("validation.id"))  # the one that failed last
    history: Mapped[list[Any]]  # {at, actor, what, note, validation}
    created_at: Mapped[float]
    updated_at: Mapped[float]
    closed_at: Mapped[float | None]

    __table_args__ = (
        sa.Index(
            "one_open_ticket_per_cause",
            "machine",
            "cause",
            unique=True,
            sqlite_where=sa.text("closed_at IS NULL"),
            postgresql_where=sa.text("closed_at IS NULL"),
        ),
    )


class AttentionRow(Base):
    """Something that waits for a person. One open row per kind and subject."""

    __tablename__ = "attention"
    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    machine: Mapped[str | None]
    subject: Mapped[str]
    reason: Mapped[str]
    next_step: Mapped[str]
    since: Mapped[float]
    resolved_at: Mapped[float | None]
    resolved_by: Mapped[str | None]

    __table_args__ = (
        sa.Index(
            "one_open_attention",
            "kind",
            "subject",
            unique=True,
            sqlite_where=sa.text("resolved_at IS NULL"),
            postgresql_where=sa.text("resolved_at IS NULL"),
        ),
    )


class AuditRow(Base):
    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    at: Mapped[float]
    actor: Mapped[str]
    source: Mapped[str | None]  # network address the request came from; None inside the service
    action: Mapped[str]
    machine: Mapped[str | None]
    object: Mapped[str | None]
    allowed: Mapped[bool] = mapped_column(default=True)
    detail: Mapped[dict[str, Any]]

    __table_args__ = (
        sa.Index("audit_newest", "at", "id"),
        sa.Index("audit_of_machine", "machine", "at", "id"),
        sa.Index("audit_by_actor", "actor", "at", "id"),
        # also finds the beginning of a word, whatever the database's collation
        sa.Index("audit_by_action", "action", "at", "id", postgresql_ops={"action": "text_pattern_ops"}),
        sa.Index(
            "audit_refused", "at", "id", sqlite_where=sa.text("NOT allowed"), postgresql_where=sa.text("NOT allowed")
        ),
    )


class TokenRow(Base):
    __tablename__ = "token"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    role: Mapped[str]
    machine: Mapped[str | None]  # an agent's: it speaks for this machine only
    secret_sha256: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[float]
    created_by: Mapped[str | None]  # None: made before this was recorded
    expires_at: Mapped[float | None]
    revoked_at: Mapped[float | None]
    last_used_at: Mapped[float | None]  # to the minute
    last_used_from: Mapped[str | None]


class IdempotencyRow(Base):
    """An answer, written in the transaction of its effect."""

    __tablename__ = "idempotency"
    actor: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    request_sha256: Mapped[str]
    status: Mapped[int]
    response: Mapped[str]
    at: Mapped[float] = mapped_column(index=True)


class NoticeRow(Base):
    """The outbox: what was promised to the outside, written with the change that promises it. What is sent is rebuilt from
    the present state; the row says only that something is to be told of its subject, and how far that is."""

    __tablename__ = "notice"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    destination: Mapped[str]  # scheduler, attention
    kind: Mapped[str]
    subject: Mapped[str]  # the machine's name, the attention record's id
    version: Mapped[int]  # of the subject: the acknowledgement of one covers all that are not newer
    machine: Mapped[str | None] = mapped_column(index=True)
    body: Mapped[dict[str, Any]]
    created_at: Mapped[float]
    due_at: Mapped[float]
    attempts: Mapped[int] = mapped_column(default=0)  # how often it was answered with an error
    last_error: Mapped[str | None]
    delivered_at: Mapped[float | None]  # the receiver has had it
    acknowledged_at: Mapped[float | None]  # the receiver goes by it; until then it is sent again
    acknowledged_by: Mapped[str | None]

    __table_args__ = (
        sa.Index(
            "notice_due",
            "destination",
            "due_at",
            sqlite_where=sa.text("acknowledged_at IS NULL"),
            postgresql_where=sa.text("acknowledged_at IS NULL"),
        ),
        sa.Index("notice_of", "destination", "subject"),
    )


class InspectionRow(Base):
    """A look at a host that a person asked for and that switches nothing: `check` tries the prerequisites, `discover` proposes
    a record."""

    __tablename__ = "inspection"
    id: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[int] = mapped_column(sa.ForeignKey("run.id"), unique=True)
    machine: Mapped[str] = mapped_column(sa.ForeignKey("machine.name"), index=True)
    kind: Mapped[str]  # check, discover
    requested_by: Mapped[str]
    outcome: Mapped[str | None]
    result: Mapped[dict[str, Any]]
    created_at: Mapped[float]
    ended_at: Mapped[float | None]


class ApprovalRow(Base):
    """A write that takes two people: what the first asked for, until a second says yes or no, or it expires."""

    __tablename__ = "approval"
    id: Mapped[str] = mapped_column(primary_key=True)
    action: Mapped[str]
    machine: Mapped[str | None] = mapped_column(index=True)
    target: Mapped[str]
    request: Mapped[dict[str, Any]]
    reason: Mapped[str | None]
    state: Mapped[str]  # waiting, approved, rejected, expired
    requested_by: Mapped[str]
    requested_token: Mapped[str]  # the id of the token that asked
    requested_at: Mapped[float]
    expires_at: Mapped[float]
    decided_by: Mapped[str | None]
    decided_at: Mapped[float | None]
    outcome: Mapped[str | None]

    __table_args__ = (
        sa.Index(
            "one_waiting_approval",
            "action",
            "target",
            unique=True,
            sqlite_where=sa.text("state = 'waiting'"),
            postgresql_where=sa.text("state = 'waiting'"),
        ),
    )


class ProvenRow(Base):
    """What has passed a machine of a SKU once, and may therefore condemn: the digest over test image, check code and
    limits."""

    __tablename__ = "proven"
    sku: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(primary_key=True)
    validation: Mapped[str | None]  # None: it ships with the simulated rack
    at: Mapped[float]


class SiteRow(Base):
    """One row: switches for the whole site."""

    __tablename__ = "site"
    id: Mapped[int] = mapped_column(primary_key=True, default=1)
    mode: Mapped[str]  # enforce or observe
    paused: Mapped[dict[str, Any] | None]  # by, reason, since
    data: Mapped[dict[str, Any]]
