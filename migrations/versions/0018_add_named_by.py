"""Say who named a namespace's key, since an owner's word counts before a writer's.

Nobody knows it of those that were named before.
"""

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("ALTER TABLE namespace_keys ADD COLUMN named_by bytea")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("ALTER TABLE namespace_keys DROP COLUMN named_by")
