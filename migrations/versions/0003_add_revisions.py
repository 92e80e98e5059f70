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
    # The newest epoch, under which alone new memories are sealed; and what is to be sealed anew.
    "ALTER TABLE accounts ADD COLUMN epoch int NOT NULL DEFAULT 1",
    "ALTER TABLE namespaces ADD COLUMN reseal_below int NOT NULL DEFAULT 0",
    # That a custodian named its successor, beside the grant that rests on it.
    "ALTER TABLE grants ADD COLUMN succession bytea",
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
    # What is out of the way, and how much of it there is.
    """
    CREATE INDEX memories_superseded ON memories (account_id, namespace_id)
        WHERE superseded_at IS NOT NULL
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
    # What a turn that waits or is kept says, as a keyed hash, so that equal ones are one.
    "ALTER TABLE episodes ADD COLUMN fingerprint bytea",
    """
    CREATE UNIQUE INDEX episodes_fingerprint ON episodes
        (account_id, namespace_id, epoch, fingerprint)
        WHERE fingerprint IS NOT NULL
    """,
    # When a namespace was erased as a whole: while it is empty since, it is not listed.
    "ALTER TABLE namespaces ADD COLUMN erased_at timestamptz",
    # When an account was erased: nobody can lock it for writing, or found it, any more.
    "ALTER TABLE accounts ADD COLUMN closed_at timestamptz",
    "ALTER TABLE accounts ADD COLUMN purged_at timestamptz",
    # Who may be told that a memory was erased.
    "ALTER TABLE tombstones ADD COLUMN namespace_id int",
    # The expiry that was asked for; expires_at is that or, unless pinned, the namespace's, if it
    # comes first.
    "ALTER TABLE memories ADD COLUMN given_expires_at timestamptz",
    "UPDATE memories SET given_expires_at = expires_at WHERE expires_at IS NOT NULL",
    # The memory's newest `state` object in the journal: older ones, and an erased one's, go.
    "ALTER TABLE memories ADD COLUMN state_blob bytea",
    # Blobs that nothing refers to and nobody erased: they go only long after they were found.
    "ALTER TABLE blob_outbox ADD COLUMN stray boolean NOT NULL DEFAULT false",
    # The journal's object that names the namespace; and that rows of an account are still missing,
    # because it was rebuilt from its blobs and not everybody lent their keys since.
    "ALTER TABLE namespace_keys ADD COLUMN object bytea",
    "ALTER TABLE accounts ADD COLUMN incomplete boolean NOT NULL DEFAULT false",
    "ALTER TABLE accounts ADD COLUMN grant_serial_due int NOT NULL DEFAULT 0",
    # Who is told what happens to an account: delivered_seq is the last receipt that was told, and
    # leased_until keeps several relayers from telling the same at once.
    """
    CREATE TABLE webhooks (
        account_id bytea NOT NULL REFERENCES accounts ON DELETE CASCADE,
        webhook_id uuid NOT NULL,
        sealed bytea NOT NULL,
        events text[] NOT NULL,
        namespaces text[],
        active boolean NOT NULL,
        created_at timestamptz NOT NULL,
        delivered_seq bigint NOT NULL,
        delivered_at timestamptz,
        due_at timestamptz NOT NULL,
        attempts int NOT NULL DEFAULT 0,
        failing_since timestamptz,
        problem text,
        leased_until timestamptz,
        PRIMARY KEY (account_id, webhook_id)
    )
    """,
    # What no receipt tells of, until it was told: which memories have vectors now.
    """
    CREATE TABLE webhook_events (
        account_id bytea NOT NULL,
        webhook_id uuid NOT NULL,
        event_id uuid NOT NULL,
        namespace_id int NOT NULL,
        type text NOT NULL,
        ids uuid[] NOT NULL,
        created_at timestamptz NOT NULL,
        PRIMARY KEY (account_id, webhook_id, event_id, namespace_id),
        FOREIGN KEY (account_id, webhook_id) REFERENCES webhooks ON DELETE CASCADE
    )
    """,
    # What consolidation did, by id, so that all of it can be seen and undone.
    """
    CREATE TABLE consolidations (
        account_id bytea NOT NULL,
        run_id uuid NOT NULL,
        namespace_id int NOT NULL,
        actor bytea NOT NULL,
        state text NOT NULL,
        position bigint NOT NULL DEFAULT 0,
        started_at timestamptz NOT NULL,
        finished_at timestamptz,
        PRIMARY KEY (account_id, run_id),
        FOREIGN KEY (account_id, namespace_id) REFERENCES namespaces ON DELETE CASCADE
    )
    """,
    """
    CREATE UNIQUE INDEX consolidations_unfinished ON consolidations (account_id, namespace_id)
        WHERE finished_at IS NULL
    """,
    """
    CREATE INDEX consolidations_newest ON consolidations (account_id, namespace_id, started_at)
    """,
    """
    CREATE TABLE consolidation_actions (
        account_id bytea NOT NULL,
        run_id uuid NOT NULL,
        action_id uuid NOT NULL,
        action text NOT NULL,
        memory_id uuid NOT NULL,
        other_ids uuid[] NOT NULL,
        created_at timestamptz NOT NULL,
        undone text,
        PRIMARY KEY (account_id, run_id, action_id),
        FOREIGN KEY (account_id, run_id) REFERENCES consolidations ON DELETE CASCADE
    )
    """,
    """
    CREATE INDEX consolidation_actions_memory ON consolidation_actions (account_id, memory_id)
    """,
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '15min'")  # indexes of all that is stored
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("older releases do not know earlier revisions")
