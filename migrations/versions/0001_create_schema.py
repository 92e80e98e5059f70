"""Create the schema: accounts and grants, memories and their index, receipts, bookkeeping.

Every tenant table begins its keys with account_id, has no triggers and refers to nothing outside
its account, so that the same schema can be distributed by account. Not here: pgqueuer's tables,
which pgqueuer installs itself.
"""

from alembic import op

revision = "0001"
down_revision = None

STATEMENTS = (
    "CREATE EXTENSION IF NOT EXISTS vector",
    # The lock row of an account: heads of its sequences and of its receipt chain.
    """
    CREATE TABLE accounts (
        account_id bytea PRIMARY KEY,
        label text NOT NULL,
        created_at timestamptz NOT NULL,
        grant_serial int NOT NULL,
        receipt_seq bigint NOT NULL,
        receipt_head bytea NOT NULL,
        memory_seq bigint NOT NULL DEFAULT 0,
        namespace_count int NOT NULL DEFAULT 0,
        memory_count bigint NOT NULL DEFAULT 0,
        storage_bytes bigint NOT NULL DEFAULT 0
    ) WITH (fillfactor = 50)
    """,
    # Distributed by public_key, apart from the tenant tables: a request names a key first.
    """
    CREATE TABLE key_owner (
        public_key bytea PRIMARY KEY,
        account_id bytea NOT NULL
    )
    """,
    # A crash of PostgreSQL empties unlogged tables; the marker row (empty key) tells.
    """
    CREATE UNLOGGED TABLE nonces (
        public_key bytea NOT NULL,
        nonce uuid NOT NULL,
        expires_at timestamptz NOT NULL,
        PRIMARY KEY (public_key, nonce)
    )
    """,
    "CREATE INDEX nonces_expiry ON nonces (expires_at)",
    # Requests dated ahead of the database's clock would outlive the floor that a crash sets.
    """
    CREATE TABLE nonces_ahead (
        public_key bytea NOT NULL,
        nonce uuid NOT NULL,
        expires_at timestamptz NOT NULL,
        PRIMARY KEY (public_key, nonce)
    )
    """,
    """
    CREATE TABLE nonce_floor (
        only_row boolean PRIMARY KEY CHECK (only_row),
        floor_s bigint NOT NULL
    )
    """,
    "INSERT INTO nonce_floor VALUES (true, 0)",
    """
    INSERT INTO nonces VALUES ('\\x', '00000000-0000-0000-0000-000000000000', 'infinity')
    """,
    """
    CREATE UNLOGGED TABLE request_windows (
        account_id bytea NOT NULL,
        subject bytea NOT NULL,
        window_start timestamptz NOT NULL,
        used bigint NOT NULL,
        PRIMARY KEY (account_id, subject, window_start)
    )
    """,
    # Signed grants and revocations, verbatim; recipient and label only help to list them.
    """
    CREATE TABLE grants (
        account_id bytea NOT NULL REFERENCES accounts ON DELETE CASCADE,
        serial int NOT NULL,
        recipient bytea NOT NULL,
        label text NOT NULL,
        object bytea NOT NULL,
        created_at timestamptz NOT NULL,
        PRIMARY KEY (account_id, serial)
    )
    """,
    """
    CREATE TABLE receipts (
        account_id bytea NOT NULL REFERENCES accounts ON DELETE CASCADE,
        seq bigint NOT NULL,
        object bytea NOT NULL,
        PRIMARY KEY (account_id, seq)
    )
    """,
    """
    CREATE TABLE namespaces (
        account_id bytea NOT NULL REFERENCES accounts ON DELETE CASCADE,
        namespace_id int NOT NULL,
        name text NOT NULL,
        memory_count bigint NOT NULL DEFAULT 0,
        word_count bigint NOT NULL DEFAULT 0,
        storage_bytes bigint NOT NULL DEFAULT 0,
        updated_at timestamptz NOT NULL,
        PRIMARY KEY (account_id, namespace_id),
        UNIQUE (account_id, name)
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE namespace_keys (
        account_id bytea NOT NULL,
        namespace_id int NOT NULL,
        epoch int NOT NULL,
        key_id bytea NOT NULL,
        PRIMARY KEY (account_id, namespace_id, epoch),
        FOREIGN KEY (account_id, namespace_id) REFERENCES namespaces ON DELETE CASCADE
    )
    """,
    """
    CREATE TABLE memories (
        account_id bytea NOT NULL,
        memory_id uuid NOT NULL,
        namespace_id int NOT NULL,
        epoch int NOT NULL,
        seq bigint NOT NULL,
        revision int NOT NULL,
        type smallint NOT NULL,
        format text NOT NULL,
        kind text NOT NULL,
        importance text NOT NULL,
        confidence text NOT NULL,
        writer bytea NOT NULL,
        event_time timestamptz,
        created_at timestamptz NOT NULL,
        expires_at timestamptz,
        superseded_at timestamptz,
        blob_id bytea NOT NULL,
        size_bytes int NOT NULL,
        word_count smallint NOT NULL,
        tokens bigint[] NOT NULL,
        fingerprint bytea,
        index_version smallint NOT NULL,
        embedding_model text,
        PRIMARY KEY (account_id, memory_id),
        FOREIGN KEY (account_id, namespace_id) REFERENCES namespaces ON DELETE CASCADE
    )
    """,
    """
    CREATE UNIQUE INDEX memories_fingerprint ON memories
        (account_id, namespace_id, epoch, fingerprint) WHERE fingerprint IS NOT NULL
    """,
    "CREATE UNIQUE INDEX memories_sequence ON memories (account_id, seq)",
    "CREATE INDEX memories_newest ON memories (account_id, namespace_id, seq)",
    """
    CREATE INDEX memories_unembedded ON memories (account_id, namespace_id, seq)
        WHERE embedding_model IS NULL
    """,
    "CREATE INDEX memories_blob ON memories (account_id, blob_id)",
    """
    CREATE TABLE postings (
        account_id bytea NOT NULL,
        namespace_id int NOT NULL,
        token bigint NOT NULL,
        memory_id uuid NOT NULL,
        frequency smallint NOT NULL,
        word_count smallint NOT NULL,
        PRIMARY KEY (account_id, namespace_id, token, memory_id) INCLUDE (frequency, word_count)
    )
    """,
    # PLAIN keeps an exact scan from detoasting; it must be set before a table is distributed.
    """
    CREATE TABLE vectors (
        account_id bytea NOT NULL,
        memory_id uuid NOT NULL,
        part smallint NOT NULL,
        namespace_id int NOT NULL,
        epoch int NOT NULL,
        model text NOT NULL,
        embedding halfvec NOT NULL,
        PRIMARY KEY (account_id, memory_id, model, part),
        FOREIGN KEY (account_id, memory_id) REFERENCES memories ON DELETE CASCADE
    )
    """,
    "ALTER TABLE vectors ALTER COLUMN embedding SET STORAGE PLAIN",
    "CREATE INDEX vectors_scope ON vectors (account_id, namespace_id, epoch, model)",
    """
    CREATE TABLE episodes (
        account_id bytea NOT NULL,
        episode_id uuid NOT NULL,
        namespace_id int NOT NULL,
        epoch int NOT NULL,
        writer bytea NOT NULL,
        blob_id bytea NOT NULL,
        size_bytes int NOT NULL,
        state text NOT NULL,
        attempts smallint NOT NULL DEFAULT 0,
        created_at timestamptz NOT NULL,
        PRIMARY KEY (account_id, episode_id),
        FOREIGN KEY (account_id, namespace_id) REFERENCES namespaces ON DELETE CASCADE
    )
    """,
    "CREATE INDEX episodes_state ON episodes (account_id, namespace_id, state)",
    """
    CREATE TABLE blobs (
        account_id bytea NOT NULL,
        blob_id bytea NOT NULL,
        bytes bytea NOT NULL,
        created_at timestamptz NOT NULL,
        PRIMARY KEY (account_id, blob_id)
    )
    """,
    "ALTER TABLE blobs ALTER COLUMN bytes SET STORAGE EXTERNAL",
    # Blobs that an outside store is to delete when their time comes: erased ones at once, those
    # just put unless the transaction that refers to them commits.
    """
    CREATE TABLE blob_outbox (
        account_id bytea NOT NULL,
        blob_id bytea NOT NULL,
        due_at timestamptz NOT NULL,
        PRIMARY KEY (account_id, blob_id)
    )
    """,
    """
    CREATE TABLE tombstones (
        account_id bytea NOT NULL,
        memory_id uuid NOT NULL,
        blob_ids bytea[] NOT NULL,
        erased_at timestamptz NOT NULL,
        PRIMARY KEY (account_id, memory_id)
    )
    """,
    """
    CREATE TABLE idempotency (
        account_id bytea NOT NULL,
        mark bytea NOT NULL,
        text_mark bytea NOT NULL,
        memory_id uuid NOT NULL,
        expires_at timestamptz NOT NULL,
        PRIMARY KEY (account_id, mark)
    )
    """,
    "CREATE INDEX idempotency_expiry ON idempotency (account_id, expires_at)",
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60s'")
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("the first revision has nothing before it")
