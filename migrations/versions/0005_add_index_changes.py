"""Count what changes an account's index without a receipt, so that copies of it know to look."""

from alembic import op

revision = "0005"
down_revision = "0004"

# With the head of the receipts it names a state of the index: vectors that arrive, words that are
# counted anew and expiries that a namespace's time to live sets change it without a receipt.
STATEMENTS = ("ALTER TABLE accounts ADD COLUMN index_changes bigint NOT NULL DEFAULT 0",)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("ALTER TABLE accounts DROP COLUMN index_changes")
