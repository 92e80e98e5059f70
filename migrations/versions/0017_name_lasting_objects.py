"""Name the objects of each account's journal that stay, so that a restore need not read them.

An object's name does not tell what it is. Grants, names of namespaces and receipts of erasures are
never collected; an account that forgets much has more of them than it could read in a request.
"""

from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute(
        """
        CREATE UNLOGGED TABLE lasting_objects (
            account_id bytea NOT NULL,
            blob_id bytea NOT NULL,
            PRIMARY KEY (account_id, blob_id)
        )
        """
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("DROP TABLE lasting_objects")
