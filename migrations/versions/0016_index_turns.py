"""Let a page of turns be read in its order: all of a namespace were read and sorted for each."""

from alembic import op

revision = "0016"
down_revision = "0015"

_CREATE = """
CREATE INDEX episodes_newest ON episodes (account_id, namespace_id, created_at, episode_id)
    WHERE state IN ('kept', 'pending')
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '10min'")  # about a minute for ten million turns
    op.execute(_CREATE)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("DROP INDEX episodes_newest")
