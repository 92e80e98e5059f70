"""Count how often each memory was recalled, for the accounts that ask for it.

`recalls_since` is the day from which an account's recalls are counted, null for none. Counts go
with their memories.
"""

from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("ALTER TABLE accounts ADD COLUMN recalls_since date")
    op.execute(
        """
        CREATE TABLE memory_recalls (
            account_id bytea NOT NULL,
            memory_id uuid NOT NULL,
            recall_count bigint NOT NULL,
            last_on date NOT NULL,
            PRIMARY KEY (account_id, memory_id),
            FOREIGN KEY (account_id, memory_id) REFERENCES memories ON DELETE CASCADE
        )
        """
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("DROP TABLE memory_recalls")
    op.execute("ALTER TABLE accounts DROP COLUMN recalls_since")
