"""Let memories be corrected, held back, pinned, seen again, linked and sealed anew.

An earlier revision is a row of its own: its id is derived from the memory's and its number, it
says in `revision_of` whose it is, and it keeps its words and vectors for recalls of another time.
The memory keeps its sequence number, and with it its place among its neighbours.
"""

from alembic import op

revision = "0003"
down_revision = "0002"

STATEMENTS = (
    "ALTER TABLE accounts ADD COLUMN settings jsonb NOT NULL DEFAULT '{}'",
    "ALTER TABLE namespaces ADD COLUMN ttl_s bigint",
    "ALTER TABLE memories ADD COLUMN revision_of uuid",
    # When this revision was stored; created_at is when the memory was.
    "ALTER TABLE memories ADD COLUMN stored_at timestamptz",
    "UPDATE memories SET stored_at = created_at",
    "ALTER TABLE memories ALTER COLUMN stored_at SET NOT NULL",
    "ALTER TABLE memories ADD COLUMN superseded_by uuid",
    "ALTER TABLE memories ADD COLUMN pinned boolean NOT NULL DEFAULT false",
    "ALTER TABLE memories ADD COLUMN review text",
    "ALTER TABLE memories ADD COLUMN stale boolean NOT NULL DEFAULT false",
    "ALTER TABLE memories ADD COLUMN seen_count int NOT NULL DEFAULT 1",
    "ALTER TABLE memories ADD COLUMN last_seen_at timestamptz",
    # What was superseded may be said again, and is a new memory then.
    "DROP INDEX memories_fingerprint",
    """
    CREATE UNIQUE INDEX memories_fingerprint ON memories
        (account_id, namespace_id, epoch, fingerprint)
        WHERE fingerprint IS NOT NULL AND superseded_at IS NULL
    """,
    """
    CREATE INDEX memories_revisions ON memories (account_id, revision_of)
        WHERE revision_of IS NOT NULL
    """,
    """
    CREATE INDEX memories_review ON memories (account_id, namespace_id, seq)
        WHERE review IS NOT NULL
    """,
    """
    CREATE INDEX memories_expiry ON memories (account_id, expires_at)
        WHERE expires_at IS NOT NULL
    """,
    "CREATE INDEX memories_epoch ON memories (account_id, epoch, seq)",
    # What memories have to do with each other and with the turns they came from, by id.
    """
    CREATE TABLE links (
        account_id bytea NOT NULL,
        memory_id uuid NOT NULL,
        relation text NOT NULL,
        other_id uuid NOT NULL,
        created_at timestamptz NOT NULL,
        PRIMARY KEY (account_id, memory_id, relation, other_id),
        FOREIGN KEY (account_id, memory_id) REFERENCES memories ON DELETE CASCADE
    )
    """,
    "CREATE INDEX links_other ON links (account_id, other_id, relation)",
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '15min'")  # indexes of all that is stored
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("older releases do not know earlier revisions")
