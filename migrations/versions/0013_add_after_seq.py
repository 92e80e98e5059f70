"""Say which receipts an event without one follows: those up to this number are told before it.

Until now it was told once a webhook had been told of all receipts, so one that is behind never was.
"""

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    # What waits already, or is noted by a relayer of the release before, is told next.
    op.execute("ALTER TABLE webhook_events ADD COLUMN after_seq bigint NOT NULL DEFAULT 0")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("ALTER TABLE webhook_events DROP COLUMN after_seq")
