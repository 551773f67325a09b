"""What may condemn is recorded: the site's mode at each claim, and what has passed a machine of its SKU once."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "proven",
        sa.Column("sku", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("validation", sa.String(), nullable=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("sku", "digest"),
    )
    op.add_column("machine", sa.Column("handed_over_at", sa.Double(), nullable=True))
    op.add_column("validation", sa.Column("site_mode", sa.String(), nullable=True))
    # Until now the mode applied when a verdict was settled, so the present one is the best that is known of old rows.
    op.execute("UPDATE validation SET site_mode = coalesce((SELECT mode FROM site ORDER BY id LIMIT 1), 'observe')")
    with op.batch_alter_table("validation") as validation:
        validation.alter_column("site_mode", existing_type=sa.String(), nullable=False)
