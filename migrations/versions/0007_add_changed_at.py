"""Keep when an account was changed last, so that no host's clock puts a later change before it."""

from alembic import op

revision = "0007"
down_revision = "0006"

STATEMENTS = ("ALTER TABLE accounts ADD COLUMN changed_at timestamptz NOT NULL DEFAULT 'epoch'",)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("ALTER TABLE accounts DROP COLUMN changed_at")
