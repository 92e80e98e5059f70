"""Say how far a consolidation is among the weeks of episodes, and how often the model failed there.

What comes next is the first group behind that moment and number, or the oldest.
"""

from alembic import op

revision = "0011"
down_revision = "0010"

STATEMENTS = (
    "ALTER TABLE consolidations ADD COLUMN group_moment timestamptz",
    "ALTER TABLE consolidations ADD COLUMN group_seq bigint",
    "ALTER TABLE consolidations ADD COLUMN failures int NOT NULL DEFAULT 0",
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("ALTER TABLE consolidations DROP COLUMN failures")
    op.execute("ALTER TABLE consolidations DROP COLUMN group_seq")
    op.execute("ALTER TABLE consolidations DROP COLUMN group_moment")
