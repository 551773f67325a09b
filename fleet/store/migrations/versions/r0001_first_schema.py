"""The first schema: machines, events, runs, validations, tickets, and what the service needs around them."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_JSON = sa.JSON(none_as_null=True)


def _must(name: str, kind: sa.types.TypeEngine[Any] = sa.String()) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


def _may(name: str, kind: sa.types.TypeEngine[Any] = sa.String()) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=True)


def _number() -> sa.Column[int]:
    return sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True)


def _unique_while(condition: str, name: str, table: str, *columns: str) -> None:
    text = sa.text(condition)
    op.create_index(name, table, list(columns), unique=True, sqlite_where=text, postgresql_where=text)


def upgrade() -> None:
    _fleet()
    _work()
    _outcome()
    _service()


def _fleet() -> None:
    op.create_table(
        "machine",
        _must("name"),
        _must("sku"),
        _must("state"),
        _must("version", sa.Integer()),
        _must("state_since", sa.Double()),
        _must("state_why"),
        _must("ssh", _JSON),
        _must("slots", _JSON),
        _must("guest_address"),
        _must("guest_port", sa.Integer()),
        _may("scratch_disk"),
        _may("rack"),
        _may("power_feed"),
        _must("capacity", sa.Integer()),
        _may("hold", _JSON),
        _must("vacated_because", _JSON),
        _must("created_at", sa.Double()),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_index("ix_machine_state", "machine", ["state"])
    op.create_table(
        "instance",
        _must("machine"),
        _must("id"),
        _must("kind"),
        _must("since", sa.Double()),
        sa.ForeignKeyConstraint(["machine"], ["machine.name"]),
        sa.PrimaryKeyConstraint("machine", "id"),
    )
    op.create_table(
        "event",
        _must("id"),
        _must("body_sha256"),
        _must("kind"),
        _must("machine"),
        _must("instance"),
        _may("cause"),
        _may("why"),
        _must("signals", _JSON),
        _must("state"),
        _must("received_at", sa.Double()),
        _may("applied_at", sa.Double()),
        sa.ForeignKeyConstraint(["machine"], ["machine.name"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_event_machine", "event", ["machine"])


def _work() -> None:
    op.create_table(
        "run",
        _number(),
        _must("kind"),
        _must("subject"),
        _may("ref"),
        _must("phase"),
        _must("phase_since", sa.Double()),
        _must("why"),
        _must("due_at", sa.Double()),
        _must("epoch", sa.Integer()),
        _must("lease_until", sa.Double()),
        _may("worker"),
        _may("abort_reason"),
        _may("abort_by"),
        _must("attempts", sa.Integer()),
        _may("last_error"),
        _must("data", _JSON),
        _may("rack"),
        _may("power_feed"),
        _must("holds_budget", sa.Boolean()),
        _must("created_at", sa.Double()),
        _may("ended_at", sa.Double()),
        sqlite_autoincrement=True,
    )
    _unique_while("ended_at IS NULL", "one_open_run_per_subject", "run", "kind", "subject")
    still_open = sa.text("ended_at IS NULL")
    op.create_index("run_due", "run", ["due_at"], sqlite_where=still_open, postgresql_where=still_open)


def _outcome() -> None:
    op.create_table(
        "validation",
        _must("id"),
        _must("run", sa.Integer()),
        _must("machine"),
        _must("plan"),
        _must("trigger"),
        _must("requested_by"),
        _must("prior_state"),
        _may("verdict"),
        _may("reason"),
        _must("created_at", sa.Double()),
        _may("ended_at", sa.Double()),
        _must("playbook", _JSON),
        _must("image", _JSON),
        _must("phases", _JSON),
        _must("progress", _JSON),
        _must("inventory", _JSON),
        _may("secrets", _JSON),
        sa.ForeignKeyConstraint(["machine"], ["machine.name"]),
        sa.ForeignKeyConstraint(["run"], ["run.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("run"),
    )
    op.create_index("ix_validation_machine", "validation", ["machine"])
    op.create_index("ix_validation_verdict", "validation", ["verdict"])
    op.create_table(
        "measurement",
        _number(),
        _must("validation"),
        _must("check_name"),
        _must("name"),
        _must("ended"),
        _may("exit_status", sa.Integer()),
        _may("started_at", sa.Double()),
        _may("duration_s", sa.Double()),
        _must("truncated", sa.Boolean()),
        _must("files", _JSON),
        sa.ForeignKeyConstraint(["validation"], ["validation.id"]),
        sa.UniqueConstraint("validation", "name"),
    )
    op.create_index("ix_measurement_validation", "measurement", ["validation"])
    op.create_table(
        "check_result",
        _must("validation"),
        _must("check_name"),
        _must("mode"),
        _must("outcome"),
        _must("reason"),
        _must("findings", _JSON),
        _must("facts", _JSON),
        _must("limits", _JSON),
        sa.ForeignKeyConstraint(["validation"], ["validation.id"]),
        sa.PrimaryKeyConstraint("validation", "check_name"),
    )
    op.create_table(
        "ticket",
        _must("id"),
        _must("machine"),
        _must("cause"),
        _must("state"),
        _must("title"),
        _must("body"),
        _must("checks", _JSON),
        _must("validation"),
        _must("history", _JSON),
        _must("created_at", sa.Double()),
        _must("updated_at", sa.Double()),
        _may("closed_at", sa.Double()),
        sa.ForeignKeyConstraint(["machine"], ["machine.name"]),
        sa.ForeignKeyConstraint(["validation"], ["validation.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_ticket_machine", "ticket", ["machine"])
    _unique_while("closed_at IS NULL", "one_open_ticket_per_cause", "ticket", "machine", "cause")


def _service() -> None:
    op.create_table(
        "attention",
        _must("id"),
        _must("kind"),
        _may("machine"),
        _must("subject"),
        _must("reason"),
        _must("next_step"),
        _must("since", sa.Double()),
        _may("resolved_at", sa.Double()),
        _may("resolved_by"),
        sa.PrimaryKeyConstraint("id"),
    )
    _unique_while("resolved_at IS NULL", "one_open_attention", "attention", "kind", "subject")
    op.create_table(
        "audit",
        _number(),
        _must("at", sa.Double()),
        _must("actor"),
        _may("source"),
        _must("action"),
        _may("machine"),
        _may("object"),
        _must("allowed", sa.Boolean()),
        _must("detail", _JSON),
    )
    op.create_index("ix_audit_machine", "audit", ["machine"])
    op.create_table(
        "token",
        _must("id"),
        _must("name"),
        _must("role"),
        _must("secret_sha256"),
        _must("created_at", sa.Double()),
        _may("expires_at", sa.Double()),
        _may("revoked_at", sa.Double()),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("secret_sha256"),
    )
    op.create_table(
        "idempotency",
        _must("actor"),
        _must("key"),
        _must("request_sha256"),
        _must("status", sa.Integer()),
        _must("response"),
        _must("at", sa.Double()),
        sa.PrimaryKeyConstraint("actor", "key"),
    )
    op.create_index("ix_idempotency_at", "idempotency", ["at"])
    op.create_table(
        "notice",
        _number(),
        _must("kind"),
        _must("machine"),
        _must("machine_version", sa.Integer()),
        _must("body", _JSON),
        _must("created_at", sa.Double()),
        _may("delivered_at", sa.Double()),
        _must("attempts", sa.Integer()),
    )
    op.create_index("ix_notice_machine", "notice", ["machine"])
    op.create_table(
        "site",
        sa.Column("id", sa.Integer(), primary_key=True),
        _must("mode"),
        _may("paused", _JSON),
        _must("data", _JSON),
    )
