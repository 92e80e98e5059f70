"""The statement of a recall stays on its indexes, however large the tables are."""

import json
from typing import Any

import numpy as np

from relayer.database import recall as search
from relayer.embedding.embedders import Embedder
from relayer.sealed.keys import AccountId
from tests.services import Bench
from tests.stored_words import WORDS


class TestPlan:
    """The hot statement stays on its indexes when the tables are large."""

    ROWS = 3_000

    async def fill(self, bench: Bench, embedder: Embedder) -> tuple[AccountId, list[int]]:
        """Many accounts of several namespaces, as SQL can make them: bytes do not matter to a plan.

        The one that is asked has 20 memories in the first, and many more in its others.
        """
        caller = await bench.caller(await bench.account())
        await bench.embed(
            caller, await bench.remember(caller, *(f"tea number {n}" for n in range(20)))
        )
        account = caller.access.account
        await bench.sql(
            """
            INSERT INTO accounts
                (account_id, whole_id, label, created_at, grant_serial, receipt_seq, receipt_head)
            SELECT n, int8send(n), '', now(), 0, 0, '' FROM generate_series(1, 20) n
            """
        )
        await bench.sql(
            """
            INSERT INTO namespaces (account_id, namespace_id, name, updated_at)
            SELECT account_id, n, n::text, now() FROM accounts, generate_series(1, 4) n
            WHERE account_id <> $1 OR n > 1
            """,
            account,
        )
        await bench.sql(
            """
            INSERT INTO memories (account_id, memory_id, namespace_id, epoch, seq, revision, type,
                format, kind, importance, confidence, writer, created_at, blob_id, size_bytes,
                word_count, tokens, frequencies, index_version, stored_at)
            SELECT a.account_id, gen_random_uuid(), ns.namespace_id, 1, 1000 + n, 1, 1, 'sealed',
                'fact', 'standard', 'high', '', now(), sha256(n::text::bytea), 400, 3,
                ARRAY[1, 2, 3, 1000 + n], CASE WHEN n % 2 = 0 THEN '\x01010101'::bytea END, 1, now()
            FROM accounts a, generate_series(1, $2::int) n, namespaces ns
            WHERE ns.account_id = a.account_id
              AND ns.namespace_id = CASE WHEN a.account_id = $1 THEN 2 + n % 3 ELSE 1 + n % 4 END
            """,
            account, self.ROWS // 20,
        )  # fmt: skip
        await bench.sql(
            """
            INSERT INTO postings (account_id, namespace_id, token, memory_id, frequency, word_count)
            SELECT account_id, namespace_id, t, memory_id, 1, 3 FROM memories, unnest(tokens) t
            WHERE frequencies IS NULL AND (account_id <> $1 OR namespace_id > 1)
            """,
            account,
        )
        await bench.sql(
            """
            INSERT INTO vectors (account_id, memory_id, part, namespace_id, epoch, model, embedding)
            SELECT m.account_id, m.memory_id, 0, m.namespace_id, 1, $2, v.embedding
            FROM memories m, (SELECT embedding FROM vectors LIMIT 1) v
            WHERE m.account_id <> $1 OR m.namespace_id > 1
            """,
            account, embedder.model_id,
        )  # fmt: skip
        await bench.sql("ANALYZE")
        return account, [
            r[0]
            for r in await bench.sql(
                f"""
                SELECT DISTINCT token FROM {WORDS} w
                WHERE account_id = $1 AND namespace_id = 1 LIMIT 2
                """,
                account,
            )
        ]

    async def explained(
        self, bench: Bench, embedder: Embedder, options: str, *, settings: str = ""
    ) -> list[Any]:
        """The nodes of the plan of a hybrid recall with neighbours, as the service asks for it."""
        account, tokens = await self.fill(bench, embedder)
        scope = search.Scope(
            namespace_id=1,
            epoch=1,
            embeddings={embedder.model_id: np.ones(embedder.dim, np.float16)},
            words=[(token, n, 1.0) for n, token in enumerate(tokens)],
        )
        wanted = search.Search(
            scopes=[scope],
            query_words=len(tokens),
            filters=search.Filters(bench.clock()),
            limit=10,
            neighbours=True,
        )
        statement, arguments = search.evidence_query(account, wanted)
        async with bench.storage.database.transaction() as connection:
            if settings:
                await connection.execute(settings)
            explain = f"EXPLAIN ({options} FORMAT JSON) {statement}"
            row = await connection.fetchrow(explain, *arguments)
        assert row is not None
        return list(_nodes(json.loads(row[0])[0]["Plan"]))

    async def test_hot_recall_uses_its_indexes(self, hybrid: Bench, embedder: Embedder) -> None:
        nodes = await self.explained(hybrid, embedder, "")
        scanned = {n["Relation Name"] for n in nodes if n["Node Type"] == "Seq Scan"}
        assert not scanned & {"memories", "postings", "vectors"}
        used = {n["Index Name"] for n in nodes if "Index Name" in n}
        assert {"postings_pkey", "memories_tokens", "vectors_scope"} <= used
        [tokens] = [n for n in nodes if n.get("Index Name") == "memories_tokens"]
        assert "account_id" not in tokens["Index Cond"]  # it finds few, of whatever account
        by_account = [n for n in nodes if "Index Name" in n and n is not tokens]
        assert all("account_id" in n["Index Cond"] for n in by_account)
        [vectors] = [n for n in nodes if n.get("Index Name") == "vectors_scope"]
        assert all(
            f"{part} = s.{part}" in vectors["Index Cond"]
            for part in ("namespace_id", "model", "epoch")
        )

    async def test_cost_follows_the_namespace_not_the_table(
        self, hybrid: Bench, embedder: Embedder
    ) -> None:
        nodes = await self.explained(hybrid, embedder, "ANALYZE, TIMING OFF,")
        read = [n["Actual Rows"] * n["Actual Loops"] for n in nodes if "Relation Name" in n]
        # Twenty memories, one or two words of each, and of each what lies eight rows around it.
        assert max(read) <= 20 * 8

    async def test_what_is_found_is_not_compared_with_what_is_shown(
        self, hybrid: Bench, embedder: Embedder
    ) -> None:
        """Among many accounts a planner expects few memories, and nests loops over them."""
        nested = "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"
        nodes = await self.explained(hybrid, embedder, "ANALYZE, TIMING OFF,", settings=nested)
        found = {"near", "weighed", "worded"}
        for node in nodes:
            if "Join Filter" in node and found & {n.get("CTE Name") for n in node["Plans"]}:
                assert node["Rows Removed by Join Filter"] < 20, "of twenty that are shown"


def _nodes(plan: dict[str, Any]) -> Any:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)
