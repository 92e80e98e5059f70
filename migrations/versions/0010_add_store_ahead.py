"""Say by how much the store of an account was told of more receipts than the account has.

So it is once its database was set back and has caught up: its numbers go on from before. What the
column before said, the mark that it had caught up with, hid each further loss until the numbers had
passed that mark.
"""

from alembic import op

revision = "0010"
down_revision = "0009"

STATEMENTS = (
    # 0009 came without it at first.
    "ALTER TABLE accounts ADD COLUMN IF NOT EXISTS caught_up bigint NOT NULL DEFAULT 0",
    "ALTER TABLE accounts ADD COLUMN store_ahead bigint NOT NULL DEFAULT 0",
    "UPDATE accounts SET store_ahead = caught_up - receipt_seq WHERE caught_up > receipt_seq",
    "ALTER TABLE accounts DROP COLUMN caught_up",  # no release had it
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("ALTER TABLE accounts ADD COLUMN caught_up bigint NOT NULL DEFAULT 0")
    op.execute("UPDATE accounts SET caught_up = receipt_seq + store_ahead WHERE store_ahead > 0")
    op.execute("ALTER TABLE accounts DROP COLUMN store_ahead")
