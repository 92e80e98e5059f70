"""Say of a memory's expiry whether somebody asked for it, or it is the one of its kind.

A pin takes the second away, and was told so far by arithmetic: an expiry of a `working` memory that
somebody asked for was taken for the default one where it was a day ahead.
"""

from alembic import op

revision = "0021"
down_revision = "0020"

STATEMENTS = (
    "ALTER TABLE memories ADD COLUMN has_default_life boolean NOT NULL DEFAULT false",
    # Of what is there already, nobody can tell better than before.
    """
    UPDATE memories SET has_default_life = true
    WHERE kind = 'working'
      AND given_expires_at - coalesce(last_seen_at, created_at)
          BETWEEN interval '23 hours 59 minutes' AND interval '24 hours'
    """,
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '10min'")  # all memories are read once
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("ALTER TABLE memories DROP COLUMN has_default_life")
