"""Say of changes which memories they changed, so that copies of an index need not look at all."""

from alembic import op

revision = "0006"
down_revision = "0005"

# From one state of an account's index, numbered by its receipts and `index_changes` together, to
# the next. Only for copies that are a few minutes old: a crash may empty it.
STATEMENTS = (
    """
    CREATE UNLOGGED TABLE index_steps (
        account_id bytea NOT NULL,
        number bigint NOT NULL,
        earlier bigint NOT NULL,
        earlier_head bytea NOT NULL,
        namespace_ids int[] NOT NULL,
        seqs bigint[] NOT NULL,
        created_at timestamptz NOT NULL,
        PRIMARY KEY (account_id, number)
    )
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
    op.execute("DROP TABLE index_steps")
