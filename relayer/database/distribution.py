"""Laying the tables out over the nodes of a Citus cluster, and saying how they lie.

Not here: the tables (`migrations/`), and whose turn it is (`relayer.database.migrate`).

- Everything of an account is on one node; so is everything of a public key, which a request names
  before its account is known. No statement joins the two, and no foreign key leaves its group.
- The queue and the number of the schema stay on the coordinator alone, and so do locks and notices:
  every relayer talks to the coordinator.
- Each table is laid out in a transaction of its own, after those it refers to; who is stopped
  between two begins again where he was.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import asyncpg

from relayer.database.pool import APPLICATION, Connection, Database
from relayer.postgres.embedded import PostgresError

VERSION_MIN: Final = 13

BY_ACCOUNT: Final = (
    *(
        "accounts",
        "grants",
        "key_uses",
        "receipts",
        "namespaces",
        "namespace_keys",
        "request_windows",
    ),
    *(
        "memories",
        "postings",
        "vectors",
        "links",
        "memory_recalls",
        "episodes",
        "tombstones",
        "idempotency",
    ),
    *("blobs", "blob_outbox", "lasting_objects", "webhooks", "webhook_events"),
    *("consolidations", "consolidation_actions", "index_steps"),
)
BY_KEY: Final = ("key_owner", "nonces", "nonces_ahead")
EVERYWHERE: Final = ("nonce_floor", "unlock_keys")

# Whether the extension is in this database, and which.
_VERSION: Final = "SELECT extversion FROM pg_extension WHERE extname = 'citus'"
# Also of a server that has the extension and no node yet, which is a coordinator to be.
_IS_WORKER: Final = "SELECT groupid <> 0 FROM pg_dist_local_group"
_NODES: Final = """
SELECT count(*) FROM pg_dist_node WHERE isactive AND noderole = 'primary' AND shouldhaveshards
"""
# Which of these tables there are, and which of them Citus knows.
_TABLES: Final = """
SELECT t.name, EXISTS (SELECT 1 FROM pg_dist_partition d
                       WHERE d.logicalrelid = to_regclass(t.name)) AS distributed
FROM unnest($1::text[]) WITH ORDINALITY AS t (name, place)
WHERE to_regclass(t.name) IS NOT NULL ORDER BY t.place
"""
# Sessions of relayers, which would wait for each table and see it half moved.
_RELAYERS: Final = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid()
"""
# A worker's crash would empty its part of an unlogged table, and the row that tells of a crash may
# be in another's.
_LOG_NONCES: Final = "ALTER TABLE nonces SET LOGGED"
_DISTRIBUTE: Final = """
SELECT create_distributed_table($1::text::regclass, $2::text, colocate_with => $3::text)
"""
_PUT_EVERYWHERE: Final = "SELECT create_reference_table($1::text::regclass)"
# Tables whose rows were copied to the nodes and still lie in the coordinator's files as well.
_LEFT_BEHIND: Final = """
SELECT t.name FROM unnest($1::text[]) WITH ORDINALITY AS t (name, place)
WHERE pg_relation_size(to_regclass(t.name)) > 0 ORDER BY t.place DESC
"""
_EMPTY_LOCAL: Final = "SELECT truncate_local_data_after_distributing_table($1::text::regclass)"
# Shards are changed one after the other: a reference in the same transaction would refuse more.
SEQUENTIAL: Final = "SET citus.multi_shard_modify_mode = 'sequential'"
# Moving an account's rows takes as long as there are rows; waiting for somebody's lock does not.
_PATIENCE: Final = ("SET statement_timeout = 0", "SET lock_timeout = '30s'")


@dataclass(frozen=True)
class Layout:
    """The layout of a database's tables: the number of nodes, the tables laid out and the others.

    Of those `left_behind`, copies of moved rows still lie in the coordinator's files.
    """

    nodes: int
    distributed: tuple[str, ...]
    missing: tuple[str, ...]
    left_behind: tuple[str, ...]

    @property
    def is_partial(self) -> bool:
        """Return true if some tables were laid out and others not."""
        return bool(self.distributed and self.missing)


async def layout(connection: Connection | Database) -> Layout | None:
    """Return the layout of the tables; None on a database without Citus."""
    if not await connection.fetch(_VERSION):
        return None
    [nodes] = await connection.fetch(_NODES)
    names = [*BY_ACCOUNT, *BY_KEY, *EVERYWHERE]
    rows = await connection.fetch(_TABLES, names)
    distributed = tuple(r["name"] for r in rows if r["distributed"])
    return Layout(
        nodes=int(nodes[0]),
        distributed=distributed,
        missing=tuple(r["name"] for r in rows if not r["distributed"]),
        left_behind=tuple(
            r["name"]
            for r in await connection.fetch(_LEFT_BEHIND, distributed)
            if r["name"] not in EVERYWHERE
        ),
    )


async def check_layout(connection: Connection) -> None:
    """Return if a relayer can serve from this database: it is no cluster's, or its coordinator.

    Raises:
        PostgresError: it is a worker, or somebody began to lay the tables out and did not finish.
    """
    found = await layout(connection)
    if found is None:
        return
    await _refuse_worker(connection)
    if found.is_partial:
        raise PostgresError(
            f"{len(found.missing)} tables are not distributed yet: stop the relayers and run "
            "relayer migrate --distributed once more"
        )


async def _refuse_worker(connection: Connection) -> None:
    if await connection.fetchval(_IS_WORKER):
        raise PostgresError("this is a worker of a cluster: name the coordinator instead")


async def check_cluster(connection: Connection) -> None:
    """Return if the tables of this database can be laid out over nodes.

    Raises:
        PostgresError: there is no Citus, it is too old, this is not its coordinator, or no node
            takes rows.
    """
    version: str | None = await connection.fetchval(_VERSION)
    if version is None:
        raise PostgresError("the database has no Citus: CREATE EXTENSION citus in it first")
    [major] = re.findall(r"^\d+", version)
    if int(major) < VERSION_MIN:
        raise PostgresError(
            f"the database has Citus {version}, memrelay needs {VERSION_MIN} or later"
        )
    await _refuse_worker(connection)
    if not await connection.fetchval(_NODES):
        raise PostgresError(
            "no node of the cluster takes rows: citus_add_node(…) each worker first"
        )


async def distribute(connection: Connection) -> list[str]:
    """Lay out every table that is not yet, with its rows; their names in the order it was done.

    Raises:
        PostgresError: a relayer is connected, or the cluster refuses a table.
    """
    found = await layout(connection)
    assert found is not None
    if found.missing and await connection.fetchval(_RELAYERS, APPLICATION):
        raise PostgresError("relayers are connected to the database: stop them first")
    for statement in (SEQUENTIAL, *_PATIENCE):
        await connection.execute(statement)
    for table in found.missing:
        async with _refusals_of(table), connection.transaction():
            await _lay_out(connection, table)
    await _empty_local(connection)
    return list(found.missing)


async def _empty_local(connection: Connection) -> None:
    """Delete what is left of moved rows: what is erased later must not live on in an old file."""
    moved = await layout(connection)
    assert moved is not None
    for table in moved.left_behind:
        async with _refusals_of(table):
            await connection.execute(_EMPTY_LOCAL, table)


async def distribute_new(connection: Connection) -> None:
    """Lay out the tables that a revision has just made, in its transaction.

    Where nothing is laid out, nothing happens: that is for whoever runs the relayer to decide.
    """
    found = await layout(connection)
    if found is not None and found.is_partial:
        for table in found.missing:
            async with _refusals_of(table):
                await _lay_out(connection, table)


async def _lay_out(connection: Connection, table: str) -> None:
    if table in EVERYWHERE:
        await connection.execute(_PUT_EVERYWHERE, table)
        return
    if table == "nonces":
        await connection.execute(_LOG_NONCES)
    group, column = (BY_KEY, "public_key") if table in BY_KEY else (BY_ACCOUNT, "account_id")
    beside = "none" if table == group[0] else group[0]
    await connection.execute(_DISTRIBUTE, table, column, beside)


@asynccontextmanager
async def _refusals_of(table: str) -> AsyncIterator[None]:
    """Say which table a cluster refused and by which code; what it said may quote a row."""
    try:
        yield
    except asyncpg.PostgresConnectionError:
        raise
    except asyncpg.PostgresError as error:
        raise PostgresError(
            f"the cluster did not take {table} (SQLSTATE {error.sqlstate}; the log of PostgreSQL "
            "says why): mend that and try again"
        ) from None
