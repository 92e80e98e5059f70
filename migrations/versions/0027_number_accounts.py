"""Let rows and indexes have numbers of accounts, and short names of versions of vectors.

A number is the first eight bytes of the account's id, so that nothing has to be looked up, and a
database that was lost gets the same ones again. The whole id stands in `accounts` and beside each
key.

Every table with rows of accounts is written anew, and so are its indexes; foreign keys are made
again. Of a distributed table, Citus changes no type of the column by which it lies.
"""

from alembic import op

from relayer.postgres.embedded import PostgresError

revision = "0027"
down_revision = "0026"

NUMBER = "('x' || encode(substr({id}, 1, 8), 'hex'))::bit(64)::bigint"
# Each after those it refers to.
TABLES = (
    *("accounts", "grants", "key_uses", "receipts", "namespaces", "namespace_keys"),
    *("request_windows", "memories", "postings", "vectors", "links", "memory_recalls", "episodes"),
    *("tombstones", "idempotency", "blobs", "blob_outbox", "lasting_objects", "webhooks"),
    *("webhook_events", "consolidations", "consolidation_actions", "index_steps"),
)
FOREIGN_KEYS = """
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE contype = 'f' AND conrelid = ANY (string_to_array('{names}', ' ')::regclass[])
ORDER BY conrelid::regclass::text, conname
"""
# As `relayer.database.index_size` counts from here on, and `relayer.embedding` names versions.
RECOUNT = (
    """
    UPDATE memories m
    SET embedding_version = CASE
            WHEN m.embedding_version = '' THEN ''
            WHEN m.embedding_version = 'missing' THEN ' '
            ELSE translate(encode(substr(sha256(convert_to(m.embedding_version, 'UTF8')), 1, 6),
                                  'base64'), '+/', '-_') END,
        index_bytes = 1550 + CASE WHEN m.frequencies IS NULL THEN 167::bigint ELSE 32 END
                             * cardinality(m.tokens)
                      + coalesce(octet_length(m.index_record), 0)
                      + coalesce((SELECT sum(8192 / greatest(8168 / (2 * vector_dims(v.embedding)
                                                                     + 124), 1) + 90)
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
IS_CITUS = "SELECT count(*) FROM pg_extension WHERE extname = 'citus'"
IS_DISTRIBUTED = """
SELECT count(*) FROM pg_dist_partition WHERE logicalrelid = 'accounts'::regclass
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60min'")  # all that is stored is written once
    _refuse_distributed()
    foreign_keys = _drop_foreign_keys()
    for statement in RECOUNT:  # first: tables that are written anew leave nothing dead
        op.execute(statement)
    op.execute("ALTER TABLE accounts ADD COLUMN whole_id bytea")
    op.execute("UPDATE accounts SET whole_id = account_id")
    op.execute("ALTER TABLE accounts ALTER COLUMN whole_id SET NOT NULL")
    number = NUMBER.format(id="account_id")
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} ALTER COLUMN account_id TYPE bigint USING {number}")
    op.execute(
        "ALTER TABLE accounts ADD CONSTRAINT accounts_number"
        f" CHECK (account_id = {NUMBER.format(id='whole_id')})"
    )
    op.execute("ALTER TABLE key_owner RENAME COLUMN account_id TO whole_id")
    _add_foreign_keys(foreign_keys)
    for table in TABLES:  # what was known of the column went with its type
        if _rows(f"SELECT 1 FROM {table} LIMIT 1"):  # noqa: S608  # our own name
            op.execute(f"ANALYZE {table}")


def _refuse_distributed() -> None:
    if _rows(IS_CITUS)[0][0] and _rows(IS_DISTRIBUTED)[0][0]:
        raise PostgresError(
            "the tables are distributed by a column whose type this release changes, and Citus"
            " changes none: take them back to the coordinator first (deploy/citus.md)"
        )


def _drop_foreign_keys() -> list[tuple[str, ...]]:
    found = _rows(FOREIGN_KEYS.format(names=" ".join(TABLES)))
    for table, name, _ in found:
        op.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
    return found


def _add_foreign_keys(found: list[tuple[str, ...]]) -> None:
    for table, name, definition in found:
        op.execute(f'ALTER TABLE {table} ADD CONSTRAINT "{name}" {definition}')


def _rows(query: str) -> list[tuple[str, ...]]:
    return [tuple(row) for row in op.get_bind().exec_driver_sql(query).fetchall()]


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = '60min'")
    _refuse_distributed()
    foreign_keys = _drop_foreign_keys()
    op.execute("ALTER TABLE accounts DROP CONSTRAINT accounts_number")
    for table in TABLES:
        op.execute(
            f"ALTER TABLE {table} ALTER COLUMN account_id TYPE bytea USING int8send(account_id)"
        )
    for table in TABLES:
        op.execute(
            f"UPDATE {table} t SET account_id = a.whole_id FROM accounts a"  # noqa: S608  # our own name
            " WHERE t.account_id = substr(a.whole_id, 1, 8)"
        )
    op.execute("ALTER TABLE accounts DROP COLUMN whole_id")
    op.execute("ALTER TABLE key_owner RENAME COLUMN whole_id TO account_id")
    _add_foreign_keys(foreign_keys)
