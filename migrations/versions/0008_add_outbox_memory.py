"""Say whose bytes of before are to go, so that they go with it when it is forgotten sooner."""

from alembic import op

revision = "0008"
down_revision = "0007"

STATEMENTS = (
    # The row of a memory, or the turn, that was sealed anew.
    "ALTER TABLE blob_outbox ADD COLUMN memory_id uuid",
    """
    CREATE INDEX blob_outbox_memory ON blob_outbox (account_id, memory_id)
    WHERE memory_id IS NOT NULL
    """,
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("ALTER TABLE blob_outbox DROP COLUMN memory_id")
