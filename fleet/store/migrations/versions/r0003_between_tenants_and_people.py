"""The outbox gets destinations and acknowledgements; inspections of hosts, approvals by a second person, who made and
uses a token, receipts of the site's hooks, and what retention has dropped are recorded."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _notices()
    op.create_table(
        "worker",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
    )
    op.create_table(
        "inspection",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("run", sa.Integer(), sa.ForeignKey("run.id"), nullable=False, unique=True),
        sa.Column("machine", sa.String(), sa.ForeignKey("machine.name"), nullable=False, index=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("requested_by", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.Column("result", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
    )
    op.create_table(
        "approval",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("machine", sa.String(), nullable=True, index=True),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("requested_by", sa.String(), nullable=False),
        sa.Column("requested_token", sa.String(), nullable=False),
        sa.Column("requested_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("decided_by", sa.String(), nullable=True),
        sa.Column("decided_at", sa.Double(), nullable=True),
        sa.Column("outcome", sa.String(), nullable=True),
    )
    waiting = sa.text("state = 'waiting'")
    op.create_index(
        "one_waiting_approval",
        "approval",
        ["action", "target"],
        unique=True,
        sqlite_where=waiting,
        postgresql_where=waiting,
    )
    op.create_index("event_waiting", "event", ["received_at"], sqlite_where=waiting, postgresql_where=waiting)
    for name, kind in (
        ("machine", sa.String()),
        ("created_by", sa.String()),
        ("last_used_at", sa.Double()),
        ("last_used_from", sa.String()),
    ):
        op.add_column("token", sa.Column(name, kind, nullable=True))
    op.add_column("validation", sa.Column("receipts", sa.JSON(), nullable=True))
    op.add_column("validation", sa.Column("evidence_bytes", sa.BigInteger(), nullable=True))
    op.add_column("validation", sa.Column("evidence_dropped_at", sa.Double(), nullable=True))
    op.execute("UPDATE validation SET receipts = '{}', evidence_bytes = 0")
    with op.batch_alter_table("validation") as validation:
        validation.alter_column("receipts", existing_type=sa.JSON(), nullable=False)
        validation.alter_column("evidence_bytes", existing_type=sa.BigInteger(), nullable=False)
    _lists()


def _notices() -> None:
    """Nothing was ever sent by the releases before: their rows are due, and the scheduler hears of the present state."""
    op.add_column("notice", sa.Column("destination", sa.String(), nullable=True))
    op.add_column("notice", sa.Column("due_at", sa.Double(), nullable=True))
    op.add_column("notice", sa.Column("subject", sa.String(), nullable=True))
    op.execute("UPDATE notice SET destination = 'scheduler', due_at = created_at, subject = machine")
    op.add_column("notice", sa.Column("last_error", sa.String(), nullable=True))
    op.add_column("notice", sa.Column("acknowledged_at", sa.Double(), nullable=True))
    op.add_column("notice", sa.Column("acknowledged_by", sa.String(), nullable=True))
    with op.batch_alter_table("notice") as notice:
        notice.alter_column("destination", existing_type=sa.String(), nullable=False)
        notice.alter_column("due_at", existing_type=sa.Double(), nullable=False)
        notice.alter_column("subject", existing_type=sa.String(), nullable=False)
        notice.alter_column("machine", existing_type=sa.String(), nullable=True)
        notice.alter_column("machine_version", existing_type=sa.Integer(), new_column_name="version")
    waiting = sa.text("acknowledged_at IS NULL")
    op.create_index("notice_due", "notice", ["destination", "due_at"], sqlite_where=waiting, postgresql_where=waiting)
    op.create_index("notice_of", "notice", ["destination", "subject"])


def _lists() -> None:
    """What every list and filter of the API needs to be quick on a large provider's database."""
    op.drop_index("ix_validation_machine", "validation")
    op.drop_index("ix_validation_verdict", "validation")
    op.create_index("validation_newest", "validation", ["created_at", "id"])
    op.create_index("validation_of_machine", "validation", ["machine", "created_at", "id"])
    op.create_index("validation_by_verdict", "validation", ["verdict", "created_at", "id"])
    running = sa.text("ended_at IS NULL")
    op.create_index("validation_open", "validation", ["machine"], sqlite_where=running, postgresql_where=running)
    op.drop_index("ix_audit_machine", "audit")
    op.create_index("audit_newest", "audit", ["at", "id"])
    op.create_index("audit_of_machine", "audit", ["machine", "at", "id"])
    op.create_index("audit_by_actor", "audit", ["actor", "at", "id"])
    op.create_index("audit_by_action", "audit", ["action", "at", "id"], postgresql_ops={"action": "text_pattern_ops"})
    refused = sa.text("NOT allowed")
    op.create_index("audit_refused", "audit", ["at", "id"], sqlite_where=refused, postgresql_where=refused)
