"""Let a namespace have a sealed index: one record beside each memory in place of rows that tell.

`sealed_index` is what an owner chose, `index_moves` says that some memories are still found by the
other kind. A relayer of the release before goes on writing rows; those are moved by the next.
`index_choices` counts an account's choices, so that whoever has one in mind notices another.
"""

from alembic import op

revision = "0023"
down_revision = "0022"

STATEMENTS = (
    "ALTER TABLE memories ADD COLUMN index_record bytea",
    """
    ALTER TABLE namespaces ADD COLUMN sealed_index boolean NOT NULL DEFAULT false,
                           ADD COLUMN index_moves boolean NOT NULL DEFAULT false
    """,
    "ALTER TABLE accounts ADD COLUMN index_choices int NOT NULL DEFAULT 0",
    # Which models a namespace's records are of; equal entries of a page are kept once.
    """
    CREATE INDEX memories_recorded ON memories (account_id, namespace_id, embedding_model)
        WHERE index_record IS NOT NULL
    """,
    # A few of all namespaces, for the sweeper.
    """
    CREATE INDEX namespaces_index_moves ON namespaces (account_id, namespace_id)
        WHERE index_moves
    """,
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '5min'")
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    op.execute("DROP INDEX namespaces_index_moves")
    op.execute("DROP INDEX memories_recorded")
    op.execute("ALTER TABLE accounts DROP COLUMN index_choices")
    op.execute("ALTER TABLE namespaces DROP COLUMN index_moves, DROP COLUMN sealed_index")
    op.execute("ALTER TABLE memories DROP COLUMN index_record")
