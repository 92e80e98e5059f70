"""Count what words and vectors of memories take in the database, for each memory and in all.

A relayer of the release before leaves 0 in what it writes while it still runs: that counts for
nothing until its words or vectors change.
"""

from alembic import op

revision = "0020"
down_revision = "0019"

# As `relayer.database.index_size` counted them then.
STATEMENTS = (
    "ALTER TABLE memories ADD COLUMN index_bytes bigint NOT NULL DEFAULT 0",
    "ALTER TABLE namespaces ADD COLUMN index_bytes bigint NOT NULL DEFAULT 0",
    "ALTER TABLE accounts ADD COLUMN index_bytes bigint NOT NULL DEFAULT 0",
    """
    UPDATE memories m
    SET index_bytes = 1900 + 232::bigint * cardinality(m.tokens)
                      + coalesce((SELECT sum(8192 / greatest(8168 / (2 * vector_dims(v.embedding)
                                                                     + 124), 1) + 125)
                                  FROM vectors v
                                  WHERE v.account_id = m.account_id
                                    AND v.memory_id = m.memory_id), 0)
    """,
    """
    UPDATE namespaces n SET index_bytes = c.bytes
    FROM (SELECT account_id, namespace_id, sum(index_bytes) AS bytes FROM memories
          GROUP BY account_id, namespace_id) c
    WHERE n.account_id = c.account_id AND n.namespace_id = c.namespace_id
    """,
    """
    UPDATE accounts a SET index_bytes = c.bytes
    FROM (SELECT account_id, sum(index_bytes) AS bytes FROM namespaces GROUP BY account_id) c
    WHERE a.account_id = c.account_id AND a.closed_at IS NULL
    """,
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '15min'")  # all memories are written once
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    for table in ("memories", "namespaces", "accounts"):
        op.execute(f"ALTER TABLE {table} DROP COLUMN index_bytes")
