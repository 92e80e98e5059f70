"""Note the hour in which each key of an account last asked.

It begins with this release; when keys asked before, nobody knows.
"""

from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute(
        """
        CREATE TABLE key_uses (
            account_id bytea NOT NULL REFERENCES accounts ON DELETE CASCADE,
            public_key bytea NOT NULL,
            used_at timestamptz NOT NULL,
            PRIMARY KEY (account_id, public_key)
        )
        """
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("DROP TABLE key_uses")
