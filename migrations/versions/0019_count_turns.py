"""Say who found the facts of a turn, why the language model did not, and how many turns had any.

The counts begin with this release; of turns that were done before, nobody knows.
"""

from alembic import op

revision = "0019"
down_revision = "0018"

STATEMENTS = (
    """
    ALTER TABLE accounts
        ADD COLUMN turns_with_facts bigint NOT NULL DEFAULT 0,
        ADD COLUMN turns_without_facts bigint NOT NULL DEFAULT 0
    """,
    "ALTER TABLE episodes ADD COLUMN extractor text, ADD COLUMN failure text",
    """
    CREATE INDEX episodes_failures ON episodes (account_id, created_at)
        WHERE state = 'pending' OR failure IS NOT NULL
    """,
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '10min'")  # all turns are read once, for the index
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("DROP INDEX episodes_failures")
    op.execute("ALTER TABLE episodes DROP COLUMN extractor, DROP COLUMN failure")
    op.execute("ALTER TABLE accounts DROP COLUMN turns_with_facts, DROP COLUMN turns_without_facts")
