"""The rules of the schema, and the statements reviewable.

Not here: what a cluster asks of statements and tables beside it (`tests/distribution/`).
"""

import ast
import asyncio
import re
from pathlib import Path

import relayer
from relayer.database import migrate, recall
from relayer.database.pool import Database
from tests.conftest import TestDatabase
from tests.readable import COUNTED, READABLE
from tests.statements import HOUSEKEEPING, OVER_ALL, STATEMENTS, tenant_tables

# Not unique, so that a cluster takes them: for a statement of all accounts in another order, and of
# hashes, of which no two accounts have the same.
OVER_ALL_ACCOUNTS = {
    "blob_outbox_due": "due_at",
    "memories_blob": "blob_id",
    "memories_tokens": "tokens",
}


class TestTables:
    async def test_every_key_begins_with_the_account(self, database: Database) -> None:
        tables = await tenant_tables(database)
        rows = await database.fetch(
            """
            SELECT i.indrelid, i.indexrelid::regclass::text AS name, a.attname
            FROM pg_index i
            JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
            WHERE i.indrelid = ANY ($1)
            """,
            list(tables),
        )
        assert {tables[r["indrelid"]] for r in rows} == set(tables.values()), "a key each"
        first = {r["name"]: "account_id" for r in rows}
        assert {r["name"]: r["attname"] for r in rows} == first | OVER_ALL_ACCOUNTS

    async def test_every_reference_stays_in_its_account(self, database: Database) -> None:
        tables = await tenant_tables(database)
        rows = await database.fetch(
            """
            SELECT c.conname, c.conrelid, c.confrelid, a.attname AS own, f.attname AS other,
                   c.confdeltype::text AS rule
            FROM pg_constraint c
            JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1]
            JOIN pg_attribute f ON f.attrelid = c.confrelid AND f.attnum = c.confkey[1]
            WHERE c.contype = 'f' AND c.conrelid::regclass::text NOT LIKE 'pgqueuer%'
            """
        )
        assert rows
        for r in rows:
            assert {r["conrelid"], r["confrelid"]} <= set(tables), r["conname"]
            assert (r["own"], r["other"]) == ("account_id", "account_id"), r["conname"]
            assert r["rule"] in "ca", r["conname"]  # SET NULL cannot be distributed

    async def test_no_triggers_and_no_sequences(self, database: Database) -> None:
        triggers = await database.fetch(
            "SELECT tgrelid::regclass::text AS name FROM pg_trigger WHERE NOT tgisinternal"
        )
        assert all(r["name"].startswith("pgqueuer") for r in triggers)
        sequences = await database.fetch("SELECT relname FROM pg_class WHERE relkind = 'S'")
        assert all(r["relname"].startswith("pgqueuer") for r in sequences)

    async def test_vectors_lie_flat(self, database: Database) -> None:
        rows = await database.fetch(
            """
            SELECT a.attstorage::text, format_type(a.atttypid, a.atttypmod) AS type
            FROM pg_attribute a
            WHERE a.attrelid = 'vectors'::regclass AND a.attname = 'embedding'
            """
        )
        assert [tuple(r) for r in rows] == [("p", "halfvec")]

    async def test_only_what_a_crash_may_empty_is_unlogged(self, database: Database) -> None:
        rows = await database.fetch(
            "SELECT relname FROM pg_class WHERE relpersistence = 'u' AND relkind = 'r'"
        )
        unlogged = {r["relname"] for r in rows if not r["relname"].startswith("pgqueuer")}
        assert unlogged == {"nonces", "request_windows", "index_steps", "lasting_objects"}

    async def test_no_column_is_made_for_a_readable_word(self, database: Database) -> None:
        """Every text column of a tenant's table is told to be readable; memory text is in none."""
        tables = await tenant_tables(database)
        rows = await database.fetch(
            """
            SELECT attrelid, attname FROM pg_attribute
            WHERE attrelid = ANY ($1) AND attnum > 0
              AND atttypid::regtype::text IN ('text', 'character varying', 'json', 'jsonb')
            """,
            list(tables),
        )
        assert {f"{tables[r['attrelid']]}.{r['attname']}" for r in rows} == set(READABLE)

    async def test_what_is_counted_of_memories_and_requests_is_told(
        self, database: Database
    ) -> None:
        rows = await database.fetch(
            """
            SELECT table_name || '.' || column_name AS place FROM information_schema.columns
            WHERE table_schema = 'public' AND table_name = ANY ($1)
              AND column_name <> 'account_id'
              AND data_type NOT IN ('text', 'bytea', 'uuid', 'ARRAY', 'USER-DEFINED')
            """,
            list({place.partition(".")[0] for place in COUNTED}),
        )
        assert {r["place"] for r in rows} == set(COUNTED)

    async def test_migrating_again_and_at_once_changes_nothing(
        self, fresh_database: TestDatabase, database: Database
    ) -> None:
        tables = "SELECT relname, relfilenode FROM pg_class WHERE relkind = 'r' ORDER BY 1"
        before = await database.fetch(tables)
        await asyncio.gather(*(migrate.migrate(fresh_database.connect_args) for _ in range(3)))
        assert await database.fetch(tables) == before


class TestStatements:
    def test_there_are_some(self) -> None:
        assert len(STATEMENTS) > 50
        assert set(STATEMENTS) >= HOUSEKEEPING | OVER_ALL

    async def test_postgres_takes_every_one(self, database: Database) -> None:
        async with database.connection() as connection:
            for text in STATEMENTS.values():
                await connection.prepare(text)

    def test_numbers_of_the_ranking_are_float8(self) -> None:
        bare = re.findall(r"(?<![\w$.'])\d+\.\d+(?!\d*::float8)", recall._EVIDENCE)
        assert bare == []

    def test_all_statements_live_in_one_package(self) -> None:
        """The embedded server looks after databases, not after data; a probe asks nothing."""
        package = Path(relayer.__file__).parent
        elsewhere = [
            path
            for path in package.rglob("*.py")
            if not {"database", "postgres"} & {p.name for p in path.relative_to(package).parents}
        ]
        assert len(elsewhere) > 25
        for path in elsewhere:
            for text in _strings(path):
                words = r"\s*(?:SELECT|INSERT INTO|UPDATE \w+ SET|DELETE FROM|WITH \w+ AS)\b"
                assert text == "SELECT 1" or not re.match(words, text), (path.name, text[:60])

    def test_one_statement_each_in_migrations(self) -> None:
        folder = migrate.folder() / "versions"
        revisions = sorted(p.stem for p in folder.glob("[0-9]*.py"))
        assert revisions
        for stem in revisions:
            assert re.fullmatch(r"\d{4}_[a-z]+(?:_[a-z]+)+", stem)
            text = (folder / f"{stem}.py").read_text()
            assert "lock_timeout" in text
            assert "statement_timeout" in text
            for statement in _strings(folder / f"{stem}.py"):
                assert not re.search(r";\s*\S", statement), stem
                assert not re.search(r"ADD COLUMN[^,]*CHECK", statement), stem


def _strings(path: Path) -> list[str]:
    """The text constants of a module without its docstrings."""
    tree = ast.parse(path.read_text())
    texts = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return [str(n.value) for n in texts if id(n) not in docstrings]
