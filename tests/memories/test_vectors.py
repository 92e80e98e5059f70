"""Vectors of memories: what the embedder makes of each, and what gets none."""

import asyncio

import pytest

from relayer.errors import NotAllowed, Unavailable
from relayer.query.query import Query
from tests.conftest import BenchMaker
from tests.embeddings_server import EmbeddingsServer, embedder_of
from tests.services import TEAM, Bench


class TestEmbed:
    async def test_long_text_gets_several_vectors(self, hybrid: Bench) -> None:
        """capability 4.15: long texts are split by the model's own tokenizer.
        capability 4.25: no passage is longer than the model's limit in tokens.
        """
        caller = await hybrid.caller(await hybrid.account())
        filler = "The committee met again and nothing was decided about the roof. " * 120
        stored = await hybrid.remember(caller, filler + "The vault is opened by a tuning fork.")
        await hybrid.embed(caller, stored)
        assert await hybrid.value("SELECT count(*) FROM vectors") > 3
        query = Query(text="a tuning fork opens the vault", namespaces=[TEAM], mode="vector")
        [found] = (await hybrid.services.recaller.recall(caller, query)).found
        assert found.hit.cosine is not None
        assert found.hit.cosine > 0.4
        assert found.hit.relevance == 0
        assert found.hit.distance == pytest.approx(1 - found.hit.cosine)

    async def test_again_changes_nothing(self, hybrid: Bench) -> None:
        """capability 2.21: what has its vector is not embedded again."""
        caller = await hybrid.caller(await hybrid.account())
        stored = await hybrid.remember(caller, "Anna prefers tea.")
        await hybrid.embed(caller, stored)
        before = await hybrid.sql("SELECT embedding::text, model FROM vectors")
        await asyncio.gather(*(hybrid.embed(caller, stored) for _ in range(3)))
        assert await hybrid.sql("SELECT embedding::text, model FROM vectors") == before
        assert len(before) == 1

    async def test_without_an_embedder_nothing_is_queued(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        stored = await bench.remember(caller, "Anna prefers tea.")
        assert await bench.value("SELECT count(*) FROM pgqueuer") == 0
        await bench.embed(caller, stored)
        states = await bench.services.memory.states(caller.access, [stored[0].id])
        assert states[stored[0].id]["state"] == "done"

    async def test_one_altered_blob_does_not_hold_up_its_batch(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        stored = await hybrid.remember(caller, "one apple", "two pears", "three plums")
        await hybrid.sql(
            "UPDATE blobs SET bytes = set_byte(bytes, 200, get_byte(bytes, 200) # 1)"
            " WHERE blob_id = (SELECT blob_id FROM memories WHERE seq = 2)"
        )
        await hybrid.sql(
            "DELETE FROM blobs WHERE blob_id = (SELECT blob_id FROM memories WHERE seq = 3)"
        )
        await hybrid.embed(caller, stored)
        rows = await hybrid.sql("SELECT memory_id FROM vectors")
        assert [r["memory_id"] for r in rows] == [stored[0].id]

    async def test_a_refused_text_does_not_hold_up_its_batch(self, make_bench: BenchMaker) -> None:
        async with EmbeddingsServer(refuse="pears") as server:
            bench = make_bench(embedder=embedder_of(server))
            caller = await bench.caller(await bench.account())
            stored = await bench.remember(caller, "one apple", "two pears", "three plums")
            await bench.embed(caller, stored)
            assert server.complaints == []
        rows = await bench.sql("SELECT memory_id FROM vectors")
        assert {r["memory_id"] for r in rows} == {stored[0].id, stored[2].id}

    async def test_embedder_away_is_the_callers_to_retry(self, make_bench: BenchMaker) -> None:
        async with EmbeddingsServer() as server:
            server.always = "503"
            bench = make_bench(embedder=embedder_of(server))
            caller = await bench.caller(await bench.account())
            stored = await bench.remember(caller, "one apple")
            with pytest.raises(Unavailable):
                await bench.embed(caller, stored)

    async def test_needs_the_key(self, hybrid: Bench) -> None:
        founder = await hybrid.account("sealed")
        stored = await hybrid.remember(await hybrid.unlocked(founder, TEAM), "one apple")
        with pytest.raises(NotAllowed) as caught:
            await hybrid.embed(await hybrid.caller(founder), stored)
        assert caught.value.code == "unlock_required"
