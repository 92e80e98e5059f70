"""Let what a memory says be looked up by its account and fingerprint alone.

With the namespace and the epoch before it, a planner without statistics takes another index, and
each write looks through its whole namespace; before PostgreSQL 18 it does so with statistics, too.
"""

from alembic import op

revision = "0014"
down_revision = "0013"

_DROP = "DROP INDEX memories_fingerprint"
_CREATE = """
CREATE UNIQUE INDEX memories_fingerprint ON memories ({columns})
    WHERE fingerprint IS NOT NULL AND superseded_at IS NULL
"""


def upgrade() -> None:
    _index("account_id, fingerprint, namespace_id, epoch")


def downgrade() -> None:
    _index("account_id, namespace_id, epoch, fingerprint")


def _index(columns: str) -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '10min'")  # about a minute for ten million memories
    op.execute(_DROP)
    op.execute(_CREATE.format(columns=columns))
