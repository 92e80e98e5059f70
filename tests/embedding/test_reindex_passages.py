"""Another way to count words or to cut passages: what is stored is counted and cut again."""

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any

import pytest

from relayer.database import vectors as vector_rows
from relayer.embedding.embedders import Embedder
from relayer.embedding.endpoints import Endpoint
from relayer.embedding.openai import OpenAIEmbedder, splitter_of
from relayer.memories.indexer import Page
from relayer.words.tokens import INDEX_VERSION
from tests.embeddings_server import EmbeddingsServer
from tests.reindex_scene import (
    JOBS,
    NEW,
    OLD,
    TEXTS,
    assert_holds,
    changed,
    finish,
    models_of,
    old,
    progress,
    recalled,
    server,
    written,
)
from tests.services import Bench
from tests.stored_words import WORDS, make_rows

__all__ = ["old", "server"]  # fixtures


class TestWords:
    async def outdate(self, bench: Bench) -> list[Any]:
        """Make all words those of an earlier release, and return how they were."""
        before = await self.postings(bench)
        await make_rows(bench)
        await bench.sql("DELETE FROM postings WHERE token % 3 = 0")
        await bench.sql("UPDATE postings SET token = token + 1 WHERE token % 2 = 0")
        await bench.sql("UPDATE postings SET frequency = 9, word_count = 7")
        await bench.sql(
            "UPDATE memories m SET index_version = 0, word_count = 7, tokens = coalesce((SELECT"
            " array_agg(token) FROM postings p WHERE p.memory_id = m.memory_id), '{}')"
        )
        await bench.sql(
            "UPDATE namespaces SET word_count = coalesce((SELECT sum(m.word_count) FROM memories m"
            " WHERE m.account_id = namespaces.account_id"
            " AND m.namespace_id = namespaces.namespace_id), 0)"
        )
        for table in ("memories", "namespaces", "accounts"):  # that release did not count them
            await bench.sql(f"UPDATE {table} SET index_bytes = 0")
        await assert_holds(bench)
        return before

    async def postings(self, bench: Bench) -> list[Any]:
        return [
            tuple(r)
            for r in await bench.sql(
                "SELECT p.memory_id, token, frequency, p.word_count, m.word_count, n.word_count"
                f" FROM {WORDS} p JOIN memories m USING (account_id, memory_id)"
                " JOIN namespaces n ON n.account_id = m.account_id"
                " AND n.namespace_id = m.namespace_id ORDER BY 1, 2"
            )
        ]

    @pytest.mark.parametrize("embedding", [OLD, NEW, None])
    async def test_of_an_earlier_release_are_counted_again(
        self, old: Bench, server: EmbeddingsServer, embedding: str | None
    ) -> None:
        """With and without a change of model, and without an embedder."""
        caller, _ = await written(old, tags=("colour",), source="wall", metadata={"by": "Ben"})
        before = await self.outdate(old)
        asked = len(server.requests)
        if embedding is None:
            old.clock.advance(121)
            new = old.another(embedder=None)
        else:
            new = changed(old, server, embedding)
        assert (await progress(new, caller)).waiting == 10
        await finish(new)
        assert await self.postings(new) == before
        assert await models_of(new) == {f"{embedding or OLD}/6": 10}
        assert len(server.requests) == asked + (embedding == NEW)
        assert await new.value("SELECT min(index_version) FROM memories") == INDEX_VERSION
        answer = await recalled(new, caller, TEXTS[6], mode="keyword", tags=("colour",))
        assert answer.found[0].memory.text == TEXTS[6]
        await assert_holds(new)

    async def test_an_altered_blob_does_not_wait_for_ever(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, _ = await written(old)
        await self.outdate(old)
        await old.sql("UPDATE blobs SET bytes = substr(bytes, 1, 300)")
        old.clock.advance(121)
        await finish(old.another(embedder=None))
        assert (await progress(old, caller)).waiting == 0

    async def test_of_long_texts_are_not_all_held_open_at_once(self, old: Bench) -> None:
        caller = await old.caller(await old.account())
        for n in range(3):
            await old.remember(caller, f"{n} " + "tea " * 150_000)
        await old.sql("UPDATE memories SET index_version = 0")
        here = old.another(embedder=None)
        first = await here.services.indexer.next_page(
            caller.access.account, caller.keys, vector_rows.START, None
        )
        assert first == Page((0, "", 1), changed=True)
        assert (await progress(here, caller)).waiting == 2

    async def test_of_a_later_release_are_left_to_it(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, _ = await written(old)
        await old.sql("UPDATE memories SET index_version = $1", INDEX_VERSION + 1)
        new = changed(old, server, OLD)
        await new.services.sweeper.sweep()
        assert await new.value(JOBS) == 0
        assert (await progress(new, caller)).waiting == 0

    async def test_writes_and_erasures_meanwhile_keep_the_counts_right(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, stored = await written(old, *(f"note number {n}" for n in range(130)))
        await self.outdate(old)
        new = changed(old, server)
        await new.services.sweeper.sweep()
        async with new.working():
            for n in range(20):
                await new.remember(caller, f"a later note {n}")
                await new.services.memory.forget(caller.access, stored[n * 6].id)
            await new.until(JOBS, 0)
        assert await models_of(new) == {f"{NEW}/6": 130}
        await assert_holds(new)


class TestPassages:
    FACT = "The spare key of the boathouse hangs behind the blue barrel."

    def long_text(self) -> str:
        lines = [
            f"Entry {n}: the pump was oiled and the {n} valves were closed." for n in range(600)
        ]
        text = " ".join(lines)[:29_800]
        return f"{text} {self.FACT} Then we went home."

    async def test_a_fact_near_the_end_of_a_long_text_is_found_by_meaning(
        self, hybrid: Bench
    ) -> None:
        caller, _ = await written(hybrid, self.long_text(), *TEXTS)
        parts = await hybrid.value("SELECT max(part) FROM vectors")
        assert parts > 20
        answer = await recalled(hybrid, caller, "Where is the spare key of the boathouse?")
        assert answer.found[0].memory.text == self.long_text()

    async def test_an_endpoint_without_a_tokenizer_sees_every_passage_too(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, _ = await written(old, self.long_text(), *TEXTS)
        passages = [text for request in server.requests for text in request]
        assert max(len(passage.encode()) for passage in passages) <= 512
        [last] = [passage for passage in passages if passage.endswith("home.")]
        answer = await recalled(old, caller, last)
        assert answer.found[0].memory.text == self.long_text()
        assert answer.found[0].hit.cosine == pytest.approx(1, abs=0.001)

    async def test_other_passages_of_the_same_model_are_another_version(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, _ = await written(old, self.long_text())
        few = await old.value("SELECT count(*) FROM vectors")
        new = changed(old, server, OLD, splitter=splitter_of(128))
        assert (await progress(new, caller)).waiting == 1
        assert not (await recalled(new, caller, "anything")).degraded  # it is the same model
        await finish(new)
        assert await new.value("SELECT count(*) FROM vectors") > 3 * few
        assert list(await models_of(new)) == [f"{OLD}/6"]
        assert (await progress(new, caller)).waiting == 0

    async def test_the_version_names_model_and_passages(
        self, server: EmbeddingsServer, embedder: Embedder
    ) -> None:
        of_names = ("all-MiniLM-L6-v2/int8 126+16 tokens", "m/6 504+32 bytes")
        other = OpenAIEmbedder(endpoints=[Endpoint(server.url)], model="m", dim=6)
        assert [embedder.version, other.version] == [
            urlsafe_b64encode(sha256(name.encode()).digest()[:6]).decode() for name in of_names
        ]
