"""A database that takes itself for a Citus cluster's coordinator.

Functions of Citus's names note what they were asked and refuse what Citus was seen to refuse of
real tables; no row is moved. Not here: what a cluster does with statements (`rules.py`).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg

from relayer.postgres.embedded import EmbeddedPostgres

EXTENSION = """
INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
VALUES (4100000, 'citus', 10, 'pg_catalog'::regnamespace, false, $1)
"""
GROUP = "CREATE TABLE pg_dist_local_group AS SELECT 0 AS groupid"
NODES = """
CREATE TABLE pg_dist_node (nodename text, isactive bool, noderole text, shouldhaveshards bool)
"""
PARTITIONS = "CREATE TABLE pg_dist_partition (logicalrelid regclass PRIMARY KEY)"
CALLS = "CREATE TABLE calls (n serial, what text, name text, dist_column text, colocate text)"
# A table and what happens as it is laid out: the session dies, or it is refused.
FAULTS = "CREATE TABLE faults (name text, dies bool)"

# What was measured: keys begin with the column, references stay in the group, no triggers; a
# reference to a table that is not distributed yet is refused.
DISTRIBUTE = """
CREATE FUNCTION create_distributed_table(
    name regclass, dist_column text, colocate_with text DEFAULT 'default', shard_count int DEFAULT 0
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE number int := (SELECT attnum FROM pg_attribute WHERE attrelid = name
                       AND attname = dist_column);
BEGIN
    IF number IS NULL THEN RAISE undefined_column; END IF;
    PERFORM pg_terminate_backend(pg_backend_pid()) FROM faults f
    WHERE f.name = create_distributed_table.name::text AND f.dies;
    IF EXISTS (SELECT FROM faults f WHERE f.name = create_distributed_table.name::text)
       OR EXISTS (SELECT FROM pg_index WHERE indrelid = name AND indisunique
               AND NOT number = ANY (indkey::int[]))
       OR EXISTS (SELECT FROM pg_constraint WHERE conrelid = name AND contype = 'f'
                  AND (confdeltype = 'n' OR NOT number = ANY (conkey)
                       OR NOT EXISTS (SELECT FROM pg_dist_partition
                                      WHERE logicalrelid = confrelid)))
       OR EXISTS (SELECT FROM pg_trigger WHERE tgrelid = name AND NOT tgisinternal)
       OR colocate_with <> 'none' AND NOT EXISTS (SELECT FROM pg_dist_partition
                                                  WHERE logicalrelid = colocate_with::regclass)
    THEN RAISE feature_not_supported; END IF;
    INSERT INTO pg_dist_partition VALUES (name);
    INSERT INTO calls (what, name, dist_column, colocate)
    VALUES ('distribute', name, dist_column, colocate_with);
END $$
"""
REFERENCE = """
CREATE FUNCTION create_reference_table(name regclass) RETURNS void LANGUAGE sql AS $$
    INSERT INTO pg_dist_partition VALUES (name);
    INSERT INTO calls (what, name) VALUES ('everywhere', name);
$$
"""
TRUNCATE = """
CREATE FUNCTION truncate_local_data_after_distributing_table(name regclass) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO calls (what, name) VALUES ('empty', name);
$$
"""


@dataclass(frozen=True)
class Cluster:
    """How to reach such a database, as the relayer and as who set it up."""

    connect_args: dict[str, Any]
    admin: asyncpg.Connection

    async def calls(self, what: str = "distribute") -> list[tuple[Any, ...]]:
        """What it was asked, in order: table, column, beside what."""
        rows = await self.admin.fetch(
            "SELECT name, dist_column, colocate FROM calls WHERE what = $1 ORDER BY n", what
        )
        return [tuple(r) for r in rows]

    async def names(self, what: str = "distribute") -> list[str]:
        """The tables alone."""
        return [name for name, _, _ in await self.calls(what)]


@asynccontextmanager
async def coordinator(
    postgres: EmbeddedPostgres, connect_args: dict[str, Any], *, version: str = "13.2-1"
) -> AsyncIterator[Cluster]:
    """A database made the coordinator of two workers; nothing is distributed."""
    admin = await asyncpg.connect(**{**postgres.admin_args, "database": connect_args["database"]})
    try:
        await admin.execute(EXTENSION, version)
        for statement in (GROUP, NODES, PARTITIONS, CALLS, FAULTS, DISTRIBUTE, REFERENCE, TRUNCATE):
            await admin.execute(statement)
        await admin.execute(
            "INSERT INTO pg_dist_node SELECT 'worker', true, 'primary', true FROM"
            " generate_series(1, 2)"
        )
        role = connect_args["user"]
        await admin.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
        await admin.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}")
        yield Cluster(connect_args, admin)
    finally:
        await admin.close()
