"""Say of what was erased whether its time was over: what was made of it may have stayed.

And of accounts, how far they have caught up with a store after their database was set back.
"""

from alembic import op

revision = "0009"
down_revision = "0008"

STATEMENTS = (
    "ALTER TABLE tombstones ADD COLUMN expired boolean NOT NULL DEFAULT false",
    "ALTER TABLE accounts ADD COLUMN caught_up bigint NOT NULL DEFAULT 0",
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("ALTER TABLE accounts DROP COLUMN caught_up")
    op.execute("ALTER TABLE tombstones DROP COLUMN expired")
