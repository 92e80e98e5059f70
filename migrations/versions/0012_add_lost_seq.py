"""Say up to where an account's memories may be without bytes, as an operator has accepted.

Of those behind that, one at least has its bytes in a database that is to hold them.
"""

from alembic import op

revision = "0012"
down_revision = "0011"

STATEMENTS = ("ALTER TABLE accounts ADD COLUMN lost_seq bigint NOT NULL DEFAULT 0",)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("ALTER TABLE accounts DROP COLUMN lost_seq")
