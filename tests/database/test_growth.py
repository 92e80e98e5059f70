"""What is asked often reads what it answers with, however much else an account has."""

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from relayer.database import deletion, inventory, listing, postings, states
from relayer.database.pool import Database, Row
from relayer.memories.episodes import FIRST_PAGE
from relayer.sealed.keys import AccountId, Namespace
from tests.services import OTHER, TEAM, Bench

ROWS = 4_000
FEW = 10  # of them are in each of the states, and have each of the rarer tags
READ_MAX = 100
LAST_SEQ = 2**62


class Reader:
    """A database that counts the rows of what grows that its statements read.

    Of the plan for the values that are asked and the one for any values, the worse counts: a
    connection has the second after some repetitions.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.read = 0.0

    async def fetch(self, statement: str, *arguments: Any) -> list[Row]:
        values = f"({', '.join(map(_literal, arguments))})"
        read = []
        async with self._database.transaction() as connection:
            await connection.execute(f"PREPARE asked AS {statement}")
            for mode in ("force_custom_plan", "force_generic_plan"):
                await connection.execute(f"SET LOCAL plan_cache_mode = {mode}")
                row = await connection.fetchrow(
                    f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE asked {values}"
                )
                assert row is not None
                read.append(sum(map(_rows, _nodes(json.loads(row[0])[0]["Plan"]))))
            await connection.execute("DEALLOCATE asked")
        self.read += max(read)
        return await self._database.fetch(statement, *arguments)

    async def fetchrow(self, statement: str, *arguments: Any) -> Row:
        [row] = await self.fetch(statement, *arguments)
        return row

    @property
    def database(self) -> Database:
        return cast("Database", self)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _rows(node: dict[str, Any]) -> float:
    """How many rows of what grows a node read, whether or not they passed its filter."""
    if node.get("Relation Name") not in ("memories", "episodes", "links"):
        return 0
    rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
    return float(rows * node["Actual Loops"])


def _literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case AccountId():
            return str(int(value))
        case bytes():
            return f"'\\x{value.hex()}'"
        case list() | tuple():
            return f"'{{{', '.join(map(str, value))}}}'"
        case _:
            return f"'{value}'"


@pytest.fixture
async def unknown(bench: Bench) -> AccountId:
    """An account with many memories in its first namespace, and then some in its second, of which
    the server has no statistics."""
    for table in ("memories", "postings"):
        await bench.sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "tea")
    await bench.remember(caller, "coffee", namespace=OTHER)
    account = caller.access.account
    await bench.sql(
        """
        INSERT INTO memories (account_id, memory_id, namespace_id, epoch, seq, revision, type,
            format, kind, importance, confidence, writer, created_at, blob_id, size_bytes,
            word_count, tokens, index_version, stored_at, review, superseded_at)
        SELECT $1, gen_random_uuid(), CASE WHEN n <= $2::int THEN 1 ELSE 2 END, 1, 1000 + n, 1, 1,
            'sealed', 'fact', 'standard', 'high', '', now(), sha256(n::text::bytea), 400, 3,
            ARRAY[1, 1000 + n % ($2 / $3), 1000000 + n], 1, now(),
            CASE n % ($2 / $3) WHEN 3 THEN 'pending' WHEN 4 THEN 'rejected' END,
            CASE n % ($2 / $3) WHEN 5 THEN now() END
        FROM generate_series(1, $2 + $3::int) n
        """,
        account, ROWS, FEW,
    )  # fmt: skip
    await bench.sql(
        """
        INSERT INTO postings (account_id, namespace_id, token, memory_id, frequency, word_count)
        SELECT account_id, namespace_id, t, memory_id, 1, 3 FROM memories, unnest(tokens) t
        WHERE seq > 1000
        """
    )
    return account


@pytest.fixture
async def large(bench: Bench, unknown: AccountId) -> AccountId:
    """The same with statistics."""
    await bench.sql("ANALYZE")
    return unknown


class TestLists:
    async def listed(self, bench: Bench, account: AccountId, **filters: Any) -> tuple[int, float]:
        """How many memories a page has, and how many rows were read for it."""
        reader = Reader(bench.storage.database)
        found = await listing.newest(
            reader.database,
            account=account,
            namespace_ids=[1],
            before_seq=LAST_SEQ,
            limit=20,
            now=bench.clock(),
            filters=listing.Filters(**filters),
        )
        return len(found), reader.read

    @pytest.mark.parametrize("state", ["pending_review", "rejected", "superseded"])
    async def test_of_a_rare_state(self, bench: Bench, large: AccountId, state: str) -> None:
        found, read = await self.listed(bench, large, state=state)
        assert found == FEW
        assert read <= READ_MAX

    @pytest.mark.parametrize("state", ["active", states.ALL])
    async def test_of_what_is_newest(self, bench: Bench, large: AccountId, state: str) -> None:
        found, read = await self.listed(bench, large, state=state)
        assert found == 20
        assert read <= READ_MAX

    async def test_of_a_rare_tag(self, bench: Bench, large: AccountId) -> None:
        tokens = [(1, 0, 1), (1, 1, 1007)]
        found, read = await self.listed(bench, large, wanted=2, tokens=tokens)
        assert found == FEW
        assert read <= READ_MAX

    async def test_of_a_common_tag(self, bench: Bench, large: AccountId) -> None:
        found, read = await self.listed(bench, large, wanted=1, tokens=[(1, 0, 1)])
        assert found == 20
        assert read <= READ_MAX


class TestForgetting:
    @pytest.mark.parametrize("analyzed", [True, False])
    @pytest.mark.parametrize("state", ["pending_review", "rejected", "superseded"])
    async def test_what_is_of_a_rare_state(
        self, bench: Bench, unknown: AccountId, state: str, analyzed: bool
    ) -> None:
        if analyzed:
            await bench.sql("ANALYZE")
        reader = Reader(bench.storage.database)
        match = deletion.Match(state=state)
        where: Any = {"account": unknown, "namespace_id": 1, "match": match}
        assert await deletion.count_matching(reader.database, **where) == FEW
        assert len(await deletion.find_matching(reader.database, **where, limit=500)) == FEW
        assert reader.read <= READ_MAX

    async def test_what_has_a_rare_tag(self, bench: Bench, large: AccountId) -> None:
        reader = Reader(bench.storage.database)
        match = deletion.Match(epoch=1, tokens=[1, 1007])
        where: Any = {"account": large, "namespace_id": 1, "match": match}
        assert await deletion.count_matching(reader.database, **where) == FEW
        assert len(await deletion.find_matching(reader.database, **where, limit=500)) == FEW
        assert reader.read <= READ_MAX

    async def test_whether_there_are_other_epochs(self, bench: Bench, large: AccountId) -> None:
        """Also where an epoch was begun, or left, and nothing is sealed under it."""
        await bench.sql(
            """
            INSERT INTO namespace_keys (account_id, namespace_id, epoch, key_id)
            VALUES ($1, 1, 2, 'other')
            """,
            large,
        )
        reader = Reader(bench.storage.database)
        where: Any = {"account": large, "namespace_id": 1}
        assert not await deletion.has_other_epochs(reader.database, **where, epochs=[1])
        assert await deletion.has_other_epochs(reader.database, **where, epochs=[2])
        assert reader.read <= READ_MAX


@pytest.mark.parametrize("analyzed", [True, False])
async def test_how_much_is_set_aside(bench: Bench, unknown: AccountId, analyzed: bool) -> None:
    if analyzed:
        await bench.sql("ANALYZE")
    reader = Reader(bench.storage.database)
    few, one = (listing.SetAside(superseded=n, pending=n, rejected=n) for n in (FEW, 1))
    assert await listing.count_set_aside(reader.database, unknown, None) == {1: few, 2: one}
    assert await listing.count_set_aside(reader.database, unknown, [2]) == {2: one}
    assert reader.read <= READ_MAX


class TestTurns:
    @pytest.fixture(params=[True, False])
    async def talkative(
        self, bench: Bench, unknown: AccountId, request: pytest.FixtureRequest
    ) -> AccountId:
        """With many turns that are kept in its first namespace, and some in its second, a memory
        of each, and as many turns that are done; with statistics and without."""
        for table in ("episodes", "links"):
            await bench.sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        await bench.sql(
            """
            INSERT INTO episodes (account_id, episode_id, namespace_id, epoch, writer, blob_id,
                size_bytes, state, created_at)
            SELECT account_id, CASE s.state WHEN 'kept' THEN memory_id ELSE gen_random_uuid() END,
                   namespace_id, 1, writer, blob_id, 400, s.state,
                   $1::timestamptz + seq / 3 * interval '1 second'
            FROM memories, (VALUES ('kept'), ('done')) AS s (state) WHERE seq > 1000
            """,
            bench.clock(),
        )
        await bench.sql(
            """
            INSERT INTO links (account_id, memory_id, relation, other_id, created_at)
            SELECT account_id, memory_id, 'turn', memory_id, now() FROM memories WHERE seq > 1000
            """
        )
        if request.param:
            await bench.sql("ANALYZE")
        return unknown

    async def test_page_by_page(self, bench: Bench, talkative: AccountId) -> None:
        expected = await bench.sql(
            """
            SELECT created_at, episode_id FROM episodes WHERE state = 'kept'
            ORDER BY created_at DESC, episode_id DESC LIMIT 60
            """
        )
        found, before = [], FIRST_PAGE
        for _ in range(3):
            reader = Reader(bench.storage.database)
            page = await listing.episodes(
                reader.database,
                account=talkative,
                namespace_ids=[1, 2],
                before=before,
                limit=20,
                now=bench.clock(),
            )
            assert reader.read <= READ_MAX
            before = page[-1]["created_at"], page[-1]["episode_id"]
            found += [(row["created_at"], row["episode_id"]) for row in page]
        assert found == [tuple(row) for row in expected]


async def test_the_inventory_of_a_small_namespace(bench: Bench, large: AccountId) -> None:
    reader = Reader(bench.storage.database)
    found = await inventory.revisions_after(reader.database, large, 0, [OTHER], 200)
    assert [row["seq"] for row in found] == [2, *range(1001 + ROWS, 1001 + ROWS + FEW)]
    assert reader.read <= READ_MAX
    both = await inventory.revisions_after(bench.storage.database, large, 900, [OTHER, TEAM], 200)
    assert both == await inventory.revisions_after(bench.storage.database, large, 900, None, 200)


async def test_the_inventory_of_many_namespaces(bench: Bench, large: AccountId) -> None:
    """A key may be of hundreds, and a page of each would be read for a page of all."""
    await bench.sql(
        "INSERT INTO namespaces (account_id, namespace_id, name, updated_at)"
        " SELECT $1, n, 'of ' || n, now() FROM generate_series(3, 102) n",
        large,
    )
    await bench.sql("UPDATE memories SET namespace_id = 3 + seq % 100 WHERE seq > 1000")
    await bench.sql("VACUUM ANALYZE memories, namespaces")
    reader, names = Reader(bench.storage.database), [Namespace(f"of {n}") for n in range(3, 103)]
    found = await inventory.revisions_after(reader.database, large, 0, names, 50)
    assert [row["seq"] for row in found] == list(range(1001, 1051))
    assert reader.read <= READ_MAX


class Taker:
    """A database that counts the ids which it hands over."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.taken = 0

    async def fetch(self, statement: str, *arguments: Any) -> list[Row]:
        rows = await self._database.fetch(statement, *arguments)
        self.taken += sum(len(row["ids"] or ()) for row in rows)
        return rows


async def test_of_what_is_looked_for_few_ids_are_taken(
    bench: Bench, large: AccountId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tag has a token in each namespace and epoch, and a request has many of both."""
    monkeypatch.setattr(postings, "FEW", FEW)
    taker = Taker(bench.storage.database)
    database = cast("Database", taker)
    spread = [(1, ordinal, 1005 + n) for ordinal in range(3) for n in range(8)]
    assert await postings.few_with(database, large, spread) is None
    assert taker.taken == 0
    rare = await postings.few_with(database, large, [*spread, (1, 3, 1020), (1, 4, 1_000_001)])
    assert rare is not None
    assert (len(rare), taker.taken) == (1, 1)
    assert await postings.few_with(database, large, []) == []


@pytest.mark.parametrize("few", [0, FEW, postings.FEW])
async def test_few_and_many_are_found_alike(
    bench: Bench, large: AccountId, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """In both namespaces, of every state, by one token, by two, by one that is said twice."""
    monkeypatch.setattr(postings, "FEW", few)
    # One was edited: what it said before, with its postings, is an earlier revision.
    await bench.sql(
        "UPDATE memories SET revision_of = memory_id, superseded_at = now() WHERE seq = 1008"
    )
    database, now = bench.storage.database, bench.clock()
    for tags, state, expected in (
        ([1008], "active", FEW - 1),
        ([1, 1008], "active", FEW - 1),
        ([1008, 1008], "all", FEW - 1),
        ([1008, 1009], "all", 0),
        ([1003], "pending_review", FEW),
        ([1003], "active", 0),
        ([1005], "superseded", FEW),
        ([1], "rejected", FEW),
        ([9], "all", 0),
    ):
        tokens = [(namespace, n, tag) for namespace in (1, 2) for n, tag in enumerate(tags)]
        page = await listing.newest(
            database,
            account=large,
            namespace_ids=[1, 2],
            before_seq=LAST_SEQ,
            limit=200,
            now=now,
            filters=listing.Filters(state=state, wanted=len(tags), tokens=tokens),
        )
        in_first = [row["memory_id"] for row in page if row["namespace_id"] == 1]
        match = deletion.Match(epoch=1, tokens=tags, state=state)
        where: Any = {"account": large, "namespace_id": 1, "match": match}
        assert await deletion.count_matching(database, **where) == expected
        assert await deletion.find_matching(database, **where, limit=500) == in_first[::-1]
        other = deletion.Match(epoch=2, tokens=tags, state=state)
        assert await deletion.count_matching(database, **where | {"match": other}) == 0
