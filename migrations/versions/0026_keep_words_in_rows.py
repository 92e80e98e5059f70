"""Let a memory's row have the frequencies of its words, by which these are found without rows of
their own.

Each token of `tokens` has its byte there; null says that the words are rows of `postings`, as those
of long texts stay. What is stored already is moved by the relayer, a few memories at a time.
"""

from alembic import op

revision = "0026"
down_revision = "0025"

STATEMENTS = (
    "ALTER TABLE memories ADD COLUMN frequencies bytea",
    # Without a list of what is new, which each search would read: a write takes its time at once.
    """
    CREATE INDEX memories_tokens ON memories USING gin (tokens) WITH (fastupdate = off)
        WHERE frequencies IS NOT NULL
    """,
    # What an earlier release stored of few words, until it is moved: empty from then on.
    """
    CREATE INDEX memories_apart ON memories (account_id)
        WHERE frequencies IS NULL AND cardinality(tokens) BETWEEN 1 AND 128
    """,
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '10min'")  # about a minute for ten million memories
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '15min'")
    # Words that were rows never, or are none any more, are rows again.
    op.execute(
        """
        INSERT INTO postings (account_id, namespace_id, token, memory_id, frequency, word_count)
        SELECT m.account_id, m.namespace_id, t.token, m.memory_id,
               get_byte(m.frequencies, t.place::int - 1), m.word_count
        FROM memories m CROSS JOIN LATERAL unnest(m.tokens) WITH ORDINALITY AS t (token, place)
        WHERE m.frequencies IS NOT NULL
        """
    )
    op.execute("DROP INDEX memories_apart")
    op.execute("DROP INDEX memories_tokens")
    op.execute("ALTER TABLE memories DROP COLUMN frequencies")
