"""What an earlier release stored is there after an upgrade, and becomes what this one stores."""

from pathlib import Path

import asyncpg
import pytest
from alembic.script import ScriptDirectory

from relayer.database import migrate
from relayer.database.pool import Database
from relayer.embedding.embedders import Embedder
from relayer.postgres.embedded import EmbeddedPostgres, PostgresError
from relayer.upkeep import check
from relayer.words.tokens import INDEX_VERSION
from tests.conftest import BenchMaker
from tests.older import database_at
from tests.services import TEAM, bench_on
from tests.stored_words import WORDS

# Each after those it refers to.
TABLES = (
    *("accounts", "key_owner", "grants", "receipts", "namespaces", "namespace_keys"),
    *("memories", "postings", "vectors", "blobs"),
)
COLUMNS = """
SELECT attname FROM pg_attribute
WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
# Where a row of today has the account's whole id, which earlier ones had each.
WHOLE = dict.fromkeys(
    TABLES, "(SELECT whole_id FROM accounts a WHERE a.account_id = t.account_id)"
) | {"accounts": "whole_id", "key_owner": "whole_id"}


async def copy_rows(source: Database, old: asyncpg.Connection, words: str) -> None:
    """The rows of a database of today in one of earlier, as far as that has columns for them."""
    for table in TABLES:
        there = words if table == "postings" else table
        names = [r["attname"] for r in await old.fetch(COLUMNS, table)]
        columns = ", ".join(WHOLE[table] if name == "account_id" else name for name in names)
        rows = await source.fetch(f"SELECT ROW({columns})::text AS row FROM {there} t")
        await old.execute(
            f"INSERT INTO {table} SELECT (r::{table}).* FROM unnest($1::text[]) r",
            [r["row"] for r in rows],
        )


@pytest.mark.parametrize("embedded", [True, False])
async def test_what_the_first_revision_holds_is_followed_up(
    postgres: EmbeddedPostgres, make_bench: BenchMaker, embedder: Embedder, embedded: bool
) -> None:
    before = make_bench(embedder=embedder)
    founder = await before.account()
    caller = await before.caller(founder)
    stored = await before.remember(caller, "Anna prefers tea.", source="kitchen", tags=("drinks",))
    if embedded:
        await before.embed(caller, stored)
    source = await before.value("SELECT source FROM memories")
    assert source is not None
    async with database_at(postgres, "0001") as earlier:
        old = await asyncpg.connect(**earlier["connect_args"])
        await copy_rows(before.storage.database, old, WORDS)
        await old.execute("UPDATE memories SET index_version = 1")
        # Objects that name namespaces are of today.
        await old.execute(
            "DELETE FROM blobs WHERE get_byte(bytes, 0) = 123 AND bytes NOT IN"
            " (SELECT object FROM grants)"
        )
        await old.close()
        await migrate.migrate(**earlier)
        database = await Database.connect(earlier["connect_args"], connections=5)
        bench = bench_on(
            before.settings,
            earlier["connect_args"],
            database,
            embedder=embedder,
            identity=before.storage.identity,
            clock=before.clock,
        )
        assert await bench.value("SELECT source FROM memories") is None
        caller = await bench.caller(founder)
        assert await bench.texts(caller, "Anna's tea", mode="keyword") == ["Anna prefers tea."]
        bench.clock.advance(121)
        await bench.services.sweeper.sweep()
        async with bench.working():
            await bench.until("SELECT count(*) FROM pgqueuer", 0)
        row = (await bench.sql("SELECT * FROM memories"))[0]
        assert (row["source"], row["index_version"]) == (source, INDEX_VERSION)
        assert row["embedding_version"] == embedder.version
        found = await bench.texts(caller, "Which hot drink does Anna like?", mode="vector")
        assert found == ["Anna prefers tea."]
        assert await bench.texts(caller, "tea", source="kitchen", namespaces=[TEAM]) == found
        assert (await check.check(bench.storage)).problems == []
        await database.close()


async def test_ids_and_names_in_rows_become_short(
    postgres: EmbeddedPostgres, make_bench: BenchMaker, embedder: Embedder
) -> None:
    """Nothing is embedded anew for that: the version says the same of a vector."""
    before = make_bench(embedder=embedder)
    founder = await before.account()
    caller = await before.caller(founder)
    await before.embed(caller, await before.remember(caller, "Anna prefers tea."))
    async with database_at(postgres, "0026") as earlier:
        old = await asyncpg.connect(**earlier["connect_args"])
        await copy_rows(before.storage.database, old, "postings")
        await old.execute(
            "UPDATE memories SET embedding_version = 'all-MiniLM-L6-v2/int8 126+16 tokens',"
            " index_bytes = 1"
        )
        assert await old.fetchval("SELECT account_id FROM memories") == founder.account
        await old.close()
        await migrate.migrate(**earlier)
        database = await Database.connect(earlier["connect_args"], connections=5)
        bench = bench_on(
            before.settings,
            earlier["connect_args"],
            database,
            embedder=embedder,
            identity=before.storage.identity,
            clock=before.clock,
        )
        [row] = await bench.sql("SELECT account_id, embedding_version FROM memories")
        assert tuple(row) == (int(founder.account), embedder.version)
        caller = await bench.caller(founder)
        found = await bench.texts(caller, "Which hot drink does Anna like?", mode="vector")
        assert found == ["Anna prefers tea."]
        assert (await check.check(bench.storage)).problems == []
        await database.close()


async def test_an_upgraded_schema_is_a_new_one(
    postgres: EmbeddedPostgres, database: Database
) -> None:
    described = """
        SELECT table_name || '.' || column_name || ' ' || udt_name || coalesce(column_default, '')
        FROM information_schema.columns WHERE table_schema = 'public'
        UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1
    """
    async with database_at(postgres, "0001") as earlier:
        await migrate.migrate(**earlier)
        upgraded = await asyncpg.connect(**earlier["connect_args"])
        assert await upgraded.fetch(described) == await database.fetch(described)
        await upgraded.close()


def test_the_last_revision_is_told_by_the_names_of_files() -> None:
    """A start reads nothing else of them: alembic has to find the same order in what they say."""
    revisions = list(ScriptDirectory(str(migrate.folder())).walk_revisions())  # the last one first
    named = [Path(one.path).name.partition("_")[0] for one in revisions]
    assert [one.revision for one in revisions] == named == sorted(named, reverse=True)
    assert migrate.head() == named[0]


async def test_a_later_release_s_schema_is_left_alone(postgres: EmbeddedPostgres) -> None:
    async with database_at(postgres, "head") as later:
        connection = await asyncpg.connect(**later["connect_args"])
        await connection.execute("UPDATE alembic_version SET version_num = '9999'")
        await connection.close()
        with pytest.raises(PostgresError, match="install the newer release"):
            await migrate.migrate(**later)
        assert await migrate.revision(**later) == "9999"


@pytest.mark.parametrize(("caught_up", "ahead"), [(0, 0), (8, 0), (34, 24)])
async def test_a_mark_stays_ahead_by_what_it_was(
    postgres: EmbeddedPostgres, caught_up: int, ahead: int
) -> None:
    """What 0009 said of an account whose store was told of more than its ten receipts."""
    async with database_at(postgres, "0009") as earlier:
        old = await asyncpg.connect(**earlier["connect_args"])
        await old.execute(
            "INSERT INTO accounts"
            " (account_id, label, created_at, grant_serial, receipt_head, receipt_seq, caught_up)"
            " VALUES ($1, '', now(), 1, '', 10, $2)",
            bytes(32),
            caught_up,
        )
        await migrate.migrate(**earlier)
        assert await old.fetchval("SELECT store_ahead FROM accounts") == ahead
        await old.close()
