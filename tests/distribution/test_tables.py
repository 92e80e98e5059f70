"""Every table has its place in a cluster, and may have it."""

import pytest

from relayer.database.distribution import BY_ACCOUNT, BY_KEY, EVERYWHERE, layout
from relayer.database.migrate import folder
from relayer.database.pool import Database

# The number of the schema, and pgqueuer's tables: on the coordinator alone.
ON_THE_COORDINATOR = {
    "alembic_version",
    "pgqueuer",
    "pgqueuer_log",
    "pgqueuer_schedules",
    "pgqueuer_statistics",
}
PLACED = [*BY_ACCOUNT, *BY_KEY, *EVERYWHERE]

# No trigger, rule, exclusion or deferred check; nothing numbers rows; no type is our own.
FORBIDDEN = """
WITH placed AS (SELECT to_regclass(name) AS it FROM unnest($1::text[]) AS t (name))
SELECT 'trigger' FROM pg_trigger JOIN placed ON tgrelid = it WHERE NOT tgisinternal
UNION ALL SELECT 'rule' FROM pg_rewrite JOIN placed ON ev_class = it
UNION ALL SELECT 'exclusion' FROM pg_constraint JOIN placed ON conrelid = it WHERE contype = 'x'
UNION ALL SELECT 'deferred' FROM pg_constraint JOIN placed ON conrelid = it WHERE condeferrable
UNION ALL SELECT 'identity' FROM pg_attribute JOIN placed ON attrelid = it WHERE attidentity <> ''
UNION ALL SELECT 'sequence' FROM pg_depend JOIN placed ON refobjid = it
          JOIN pg_class s ON s.oid = objid AND s.relkind = 'S'
UNION ALL SELECT 'inheritance' FROM pg_inherits JOIN placed ON it IN (inhrelid, inhparent)
UNION ALL SELECT 'type' FROM pg_attribute JOIN placed ON attrelid = it
          JOIN pg_type t ON t.oid = atttypid AND t.typnamespace = 'public'::regnamespace
          WHERE t.typname <> 'halfvec'
UNION ALL SELECT 'default' FROM pg_attrdef JOIN placed ON adrelid = it
          WHERE pg_get_expr(adbin, adrelid) LIKE '%(%'
"""
UNFIT = {
    "trigger": "CREATE TRIGGER t BEFORE UPDATE ON links FOR EACH ROW"
    " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "rule": "CREATE RULE r AS ON DELETE TO links DO INSTEAD NOTHING",
    "exclusion": "ALTER TABLE receipts ADD EXCLUDE (seq WITH =)",
    "deferred": "ALTER TABLE receipts ADD UNIQUE (account_id, seq) DEFERRABLE",
    "identity": "ALTER TABLE links ADD COLUMN n bigint GENERATED ALWAYS AS IDENTITY",
    "sequence": "ALTER TABLE links ADD COLUMN n bigserial",
    "inheritance": "CREATE TABLE more_links () INHERITS (links)",
    "type": "ALTER TABLE links ADD COLUMN other vector",
    "default": "ALTER TABLE links ADD COLUMN id uuid DEFAULT gen_random_uuid()",
}


async def test_every_table_has_one_place(database: Database) -> None:
    """A revision that makes a table says nothing of a cluster: `distribution` does."""
    rows = await database.fetch(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p')"
        " AND relnamespace = 'public'::regnamespace"
    )
    assert sorted(r["relname"] for r in rows) == sorted([*PLACED, *ON_THE_COORDINATOR])


async def test_every_table_has_the_column_that_places_it(database: Database) -> None:
    rows = await database.fetch(
        """
        SELECT c.relname, a.attname FROM pg_class c
        JOIN pg_index i ON i.indrelid = c.oid AND i.indisunique
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0] AND a.attnotnull
        WHERE c.relnamespace = 'public'::regnamespace
        """
    )
    first = {(r["relname"], r["attname"]) for r in rows if r["relname"] in (*BY_ACCOUNT, *BY_KEY)}
    assert first == {(t, "account_id") for t in BY_ACCOUNT} | {(t, "public_key") for t in BY_KEY}


async def test_references_lead_back_within_their_group(database: Database) -> None:
    """What is referred to is laid out before, beside, and by the same first column."""
    rows = await database.fetch(
        """
        SELECT c.conrelid::regclass::text AS child, c.confrelid::regclass::text AS parent,
               a.attname AS own, p.attname AS other, c.confdeltype::text AS rule
        FROM pg_constraint c
        JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1]
        JOIN pg_attribute p ON p.attrelid = c.confrelid AND p.attnum = c.confkey[1]
        WHERE c.contype = 'f' AND c.connamespace = 'public'::regnamespace
        """
    )
    assert len(rows) > 10
    for r in rows:
        assert BY_ACCOUNT.index(r["parent"]) < BY_ACCOUNT.index(r["child"])
        assert (r["own"], r["other"]) == ("account_id", "account_id")
        assert r["rule"] in ("a", "c")  # nothing is set to NULL


async def test_no_table_has_what_a_cluster_cannot_have(database: Database) -> None:
    assert await database.fetch(FORBIDDEN, PLACED) == []


@pytest.mark.parametrize("what", UNFIT)
async def test_what_a_cluster_cannot_have_is_seen(database: Database, what: str) -> None:
    await database.execute(UNFIT[what])
    assert what in {r[0] for r in await database.fetch(FORBIDDEN, PLACED)}


async def test_how_columns_are_stored_is_said_where_they_are_made(database: Database) -> None:
    """After a table is distributed, Citus refuses it."""
    texts = [path.read_text() for path in sorted((folder() / "versions").glob("[0-9]*.py"))]
    stored = [text for text in texts if "SET STORAGE" in text]
    assert stored
    for text in stored:
        for line in text.splitlines():
            if "SET STORAGE" in line:
                assert f"CREATE TABLE {line.split('ALTER TABLE ')[1].split()[0]} (" in text
    assert not any("SET STATISTICS" in text for text in texts)
    rows = await database.fetch(
        "SELECT attrelid::regclass::text AS name, attname, attstorage::text AS how"
        " FROM pg_attribute JOIN pg_type t ON t.oid = atttypid"
        " WHERE attrelid::regclass::text = ANY ($1) AND attnum > 0 AND attstorage <> typstorage",
        PLACED,
    )
    assert {(r["name"], r["attname"], r["how"]) for r in rows} == {
        ("vectors", "embedding", "p"),
        ("blobs", "bytes", "e"),
    }


async def test_revisions_make_no_reference_to_a_table_that_is_everywhere() -> None:
    """In the transaction of a change of shards, that would be refused."""
    for path in (folder() / "versions").glob("[0-9]*.py"):
        for table in EVERYWHERE:
            assert f"REFERENCES {table}" not in path.read_text()


async def test_a_database_without_citus_has_no_layout(database: Database) -> None:
    assert await layout(database) is None
