"""Say which model and passages each memory's vectors have, and where it came from.

What 0001 stored becomes out of date by it: the relayer brings it up to date in the background, the
sources with the words (`relayer/memories/indexer.py`).
"""

from alembic import op

revision = "0002"
down_revision = "0001"

STATEMENTS = (
    "ALTER TABLE memories ADD COLUMN source bigint",
    "ALTER TABLE memories ADD COLUMN embedding_version text NOT NULL DEFAULT ''",
    "DROP INDEX memories_unembedded",
    # What the index knows by other words, another model or other passages than today's is found as
    # ranges beside today's versions, so that nothing is read when nothing waits.
    """
    CREATE INDEX memories_versions ON memories (account_id, index_version, embedding_version, seq)
        WHERE format = 'sealed'
    """,
    # The model before the epoch: which models a namespace uses is then one probe each.
    "DROP INDEX vectors_scope",
    "CREATE INDEX vectors_scope ON vectors (account_id, namespace_id, model, epoch)",
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '15min'")  # indexes of all that is stored
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("older releases do not know which vectors are of which model")
