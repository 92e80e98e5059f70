"""Another embedding model: what is stored follows it, and recall goes on meanwhile.

Not here: what a model refuses and blobs that do not open (`test_reindex_failures.py`), accounts
whose keys come and go (`test_reindex_sealed.py`), what queries pay (`test_reindex_queries.py`),
another form of words or passages (`test_reindex_passages.py`), the command
(`test_reindex_command.py`).
"""

import asyncio
from typing import Any

import numpy as np
import pytest

from relayer.database import vectors as vector_rows
from relayer.embedding.building import build_older_embedder
from relayer.embedding.embedders import Embedder
from relayer.errors import Unavailable
from relayer.settings import Settings
from tests.conftest import BenchMaker
from tests.embeddings_server import KEY, EmbeddingsServer
from tests.reindex_scene import (
    BY_MODEL,
    JOBS,
    MODELS,
    NEW,
    OLD,
    TEXTS,
    WIDE,
    assert_holds,
    changed,
    cosine,
    finish,
    models_of,
    old,
    progress,
    recalled,
    server,
    written,
)
from tests.services import TEAM, Bench

__all__ = ["old", "server"]  # fixtures


class TestAnotherModel:
    @pytest.mark.parametrize("model", [NEW, WIDE])
    async def test_everything_follows_and_nothing_of_the_old_is_left(
        self, old: Bench, server: EmbeddingsServer, model: str
    ) -> None:
        """capability 4.20: another model or dimension embeds again what is stored."""
        caller, _ = await written(old)
        new = changed(old, server, model)
        assert await progress(new, caller) == vector_rows.Progress(10, 10, 0, 0)
        await finish(new)
        assert await models_of(new) == {f"{model}/{MODELS[model]}": 10}
        assert await progress(new, caller) == vector_rows.Progress(10, 0, 0, 0)
        found = await recalled(new, caller, TEXTS[3])
        assert (found.found[0].memory.text, found.degraded) == (TEXTS[3], False)
        await assert_holds(new)

    @pytest.mark.parametrize("model", [NEW, WIDE])
    async def test_no_vector_meets_a_query_of_another_model(
        self, old: Bench, server: EmbeddingsServer, model: str
    ) -> None:
        """Half of them are of one model, half of the other: each cosine is its own model's."""
        caller, stored = await written(old)
        new = changed(old, server, model)
        await new.embed(caller, stored[::2])
        answer = await recalled(new, caller, "What is green?")
        cosines = {f.memory.text: f.hit.cosine for f in answer.found}
        wanted = {
            text: cosine(OLD if n % 2 else model, text, "What is green?")
            for n, text in enumerate(TEXTS)
        }
        assert set(cosines) == set(wanted)
        for text, value in wanted.items():
            assert cosines[text] == pytest.approx(value, abs=0.01), text
        assert not answer.degraded

    async def test_a_memory_never_has_both_or_none(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, _ = await written(old, *(f"note number {n}" for n in range(150)))
        new = changed(old, server)
        await new.services.sweeper.sweep()
        counts = "SELECT count(*), count(DISTINCT memory_id) FROM vectors"
        async with new.working():
            while await new.value(BY_MODEL, f"{NEW}/6") < 150:
                assert [tuple(r) for r in await new.sql(counts)] == [(150, 150)]
                found = await recalled(new, caller, "note number 7", limit=3)
                assert found.found[0].memory.text == "note number 7"
                assert not found.degraded

    async def test_without_the_old_model_the_rest_answers(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, stored = await written(old)
        new = changed(old, server)
        await new.embed(caller, stored[:4])
        server.gone.add(OLD)
        for _ in range(3):
            answer = await recalled(new, caller, TEXTS[1], mode="hybrid")
            assert answer.found[0].memory.text == TEXTS[1]
            assert answer.degraded
        by_words = await recalled(new, caller, TEXTS[8], mode="hybrid")
        assert by_words.found[0].memory.text == TEXTS[8]
        assert (by_words.found[0].hit.cosine, by_words.degraded) == (None, True)
        asked = [body["model"] for body in server.bodies]
        assert asked[2:].count(OLD) == 1  # it is not asked again by each recall
        await finish(new)
        assert not (await recalled(new.another(), caller, TEXTS[8])).degraded

    async def test_without_the_new_model_the_old_vectors_answer(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, _ = await written(old)
        new = changed(old, server)
        server.gone.add(NEW)
        answer = await recalled(new, caller, TEXTS[5])
        assert (answer.found[0].memory.text, answer.degraded) == (TEXTS[5], True)
        with pytest.raises(Unavailable):
            await new.services.indexer.next_page(
                caller.access.account, caller.keys, vector_rows.START, None
            )
        assert await models_of(new) == {f"{OLD}/6": 10}

    async def test_an_endpoint_nobody_names_any_more_is_not_asked(
        self, old: Bench, server: EmbeddingsServer, make_bench: BenchMaker, embedder: Embedder
    ) -> None:
        """Its address is left for the language model alone: queries stay here."""
        caller, _ = await written(old)
        asked = len(server.requests)
        here = make_bench(
            embedder=embedder,
            identity=old.storage.identity,
            clock=old.clock,
            openai_base_url=server.url,
            openai_api_key=KEY,
        )
        answer = await recalled(here, caller, TEXTS[2], mode="hybrid")
        assert (answer.found[0].memory.text, answer.degraded) == (TEXTS[2], True)
        assert len(server.requests) == asked
        old.clock.advance(121)
        await finish(here)
        assert await models_of(here) == {embedder.model_id: 10}
        assert not (await recalled(here.another(), caller, TEXTS[2])).degraded

    async def test_the_built_in_model_answers_for_its_vectors_when_it_is_the_old_one(
        self, hybrid: Bench, server: EmbeddingsServer
    ) -> None:
        caller, _ = await written(hybrid, "Anna prefers tea.", "The roof leaks.")
        new = changed(hybrid, server)
        answer = await recalled(new, caller, "Which hot drink does Anna like?")
        assert (answer.found[0].memory.text, answer.degraded) == ("Anna prefers tea.", False)

    async def test_a_change_back_in_the_middle(self, old: Bench, server: EmbeddingsServer) -> None:
        caller, stored = await written(old)
        new = changed(old, server)
        await new.embed(caller, stored[:6])
        back = changed(old, server, OLD)
        assert (await progress(back, caller)).waiting == 6
        asked = len(server.requests)
        await finish(back)
        assert await models_of(back) == {f"{OLD}/6": 10}
        assert sum(map(len, server.requests[asked:])) == 6
        await assert_holds(back)

    async def test_without_an_embedder_vectors_stay_and_are_not_searched(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, _ = await written(old)
        old.clock.advance(121)
        none = old.another(embedder=None)
        await finish(none)
        answer = await recalled(none, caller, TEXTS[0], mode="hybrid")
        assert answer.found[0].hit.cosine is None
        assert answer.degraded
        assert await models_of(none) == {f"{OLD}/6": 10}
        again = changed(old, server, OLD)
        assert (await progress(again, caller)).waiting == 0
        assert (await recalled(again, caller, TEXTS[4])).found[0].memory.text == TEXTS[4]

    async def test_two_relayers_at_once(self, old: Bench, server: EmbeddingsServer) -> None:
        caller, _ = await written(old, *(f"note number {n}" for n in range(150)))
        one = changed(old, server)
        two = changed(old, server)
        for relayer in (one, two):
            await relayer.services.sweeper.sweep()
        async with one.working(), two.working():
            await asyncio.gather(
                *(
                    relayer.services.indexer.next_page(
                        caller.access.account, caller.keys, vector_rows.START, None
                    )
                    for relayer in (one, two)
                )
            )
            await one.until(JOBS, 0)
        assert await models_of(one) == {f"{NEW}/6": 150}
        await assert_holds(one)

    async def test_what_is_forgotten_meanwhile_stays_forgotten(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, stored = await written(old)
        await old.sql("UPDATE memories SET index_version = 0")
        new = changed(old, server)
        server.hold.clear()
        server.asked.clear()
        work = asyncio.create_task(new.embed(caller, stored))
        await server.asked.wait()
        await new.services.memory.forget(caller.access, stored[0].id)
        server.hold.set()
        await work
        assert await models_of(new) == {f"{NEW}/6": 9}
        gone = "SELECT count(*) FROM {} WHERE memory_id = $1"
        for table in ("memories", "vectors", "postings"):
            assert await new.value(gone.format(table), stored[0].id) == 0
        await assert_holds(new)

    async def test_manual_uploads_keep_the_vector_their_client_sent(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, _ = await written(old)
        await old.services.manual.remember(
            caller, TEAM, b"x" * 500, np.array([1, 0, 0], np.float32)
        )
        new = changed(old, server)
        await finish(new)
        assert await models_of(new) == {f"{NEW}/6": 10, "manual/3": 1}
        assert await progress(new, caller) == vector_rows.Progress(11, 0, 0, 0)
        assert not (await recalled(new, caller, TEXTS[0])).degraded


class TestOlderEmbedder:
    @pytest.mark.parametrize(
        ("settings", "asked"),
        [
            ({"embedding_model": "new", "embedding_base_urls": ""}, True),
            ({"embedder": "openai", "embedding_model": "new"}, True),
            ({"embedding_base_urls": "http://127.0.0.1:9/v1"}, True),
            ({}, False),
            ({"embedder": "builtin", "embedding_model": "old"}, False),
            ({"embedder": "builtin", "embedding_base_urls": "http://127.0.0.1:9/v1"}, False),
            ({"embedder": "multilingual", "embedding_model": "old"}, False),
            ({"embedder": "none", "embedding_model": "old"}, False),
        ],
    )
    def test_queries_go_out_only_where_the_settings_let_them(
        self, settings: dict[str, Any], asked: bool
    ) -> None:
        assert (build_older_embedder(Settings(**settings), "old/6") is not None) == asked
