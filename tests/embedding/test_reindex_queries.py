"""Queries while models change: embedded by every model in use, and none waits for another."""

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from relayer.database import vectors as vector_rows
from relayer.embedding import models
from relayer.embedding.embedders import FULL_COVERAGE, Embedder
from relayer.embedding.endpoints import Endpoint
from relayer.embedding.models import Embedders
from relayer.embedding.older import OTHERS_MAX
from relayer.embedding.openai import OpenAIEmbedder, splitter_of
from relayer.errors import Unavailable
from relayer.query.vectors import KEPT_S, QueryEmbedder
from tests.embeddings_server import KEY, EmbeddingsServer
from tests.reindex_scene import NEW, OLD, TEXTS, changed, embedder, old, recalled, server, written
from tests.services import OTHER, TEAM, Bench

__all__ = ["old", "server"]  # fixtures


class Older:
    """Embedders of older models behind the endpoint, and what becomes of them."""

    def __init__(self, server: EmbeddingsServer) -> None:
        self._server = server
        self.loaded: list[str] = []
        self.closed: list[str] = []
        self.slow: set[str] = set()
        self.begun, self.end, self._change = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def load(self, model_id: str) -> Embedder:
        older = self

        class Watched(OpenAIEmbedder):
            async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Any:
                if model_id in older.slow:
                    older.begun.set()
                    await older.end.wait()
                return await super().embed(texts, account=account)

            async def close(self) -> None:
                await super().close()
                older.closed.append(model_id)
                older._change.set()

        self.loaded.append(model_id)
        return Watched(endpoints=[Endpoint(self._server.url, KEY)], model=OLD, dim=6)

    async def until_closed(self, model_id: str) -> None:
        while model_id not in self.closed:
            self._change.clear()
            await self._change.wait()


class TestQueries:
    """What a recall pays for models that are changing."""

    async def test_models_in_use_are_looked_up_once_in_a_while(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, stored = await written(old)
        now = 100.0
        queries = QueryEmbedder(
            database=old.storage.database,
            embedders=Embedders(current=embedder(server, NEW), load=lambda _: None),
            seconds=lambda: now,
        )
        account = caller.access.account
        assert not (await queries.embed(account, [1], "x")).complete
        await changed(old, server).embed(caller, stored)
        assert not (await queries.embed(account, [1], "x")).complete
        now += KEPT_S
        assert (await queries.embed(account, [1], "x")).complete

    async def test_each_namespace_is_asked_for_its_own_models(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, _ = await written(old)
        new = changed(old, server)
        await new.embed(caller, await new.remember(caller, *TEXTS, namespace=OTHER))
        rows = await new.sql("SELECT namespace_id FROM namespaces ORDER BY name")
        numbers = [r["namespace_id"] for r in rows]
        found = await vector_rows.models(
            new.storage.database, account=caller.access.account, namespace_ids=[*numbers, 77]
        )
        assert found == {
            numbers[0]: frozenset({f"{NEW}/6"}),
            numbers[1]: frozenset({f"{OLD}/6"}),
            77: frozenset(),
        }
        server.gone.add(OLD)
        answer = await recalled(new, caller, TEXTS[0], namespaces=[OTHER])
        assert not answer.degraded
        assert (await recalled(new, caller, TEXTS[0], namespaces=[OTHER, TEAM])).degraded

    async def test_another_model_that_hangs_is_not_waited_for(
        self, server: EmbeddingsServer
    ) -> None:
        class Hanging(OpenAIEmbedder):
            async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Any:
                asked.append(texts)
                await asyncio.Event().wait()

        asked: list[Sequence[str]] = []
        hanging = Hanging(endpoints=[Endpoint(server.url, KEY)], model=OLD, dim=6)
        embedders = Embedders(current=embedder(server, NEW), load=lambda _: hanging)
        for _ in range(3):
            found = await embedders.embed_queries(["x"], [f"{OLD}/6", f"{NEW}/6"], account=b"")
            assert list(found) == [f"{NEW}/6"]
        assert len(asked) == 1

    async def test_a_refused_text_switches_no_model_off(self, server: EmbeddingsServer) -> None:
        server.refuse = "poison"
        old, new = f"{OLD}/6", f"{NEW}/6"
        embedders = Embedders(current=embedder(server, NEW), load=lambda _: embedder(server, OLD))
        assert await embedders.embed_queries(["poison"], [old, new], account=b"mallory") == {}
        assert set(await embedders.embed_queries(["tea"], [old, new], account=b"anna")) == {
            old,
            new,
        }

    async def test_the_end_of_a_query_that_is_refused_costs_not_its_beginning(
        self, server: EmbeddingsServer
    ) -> None:
        embedders = Embedders(
            current=embedder(server, NEW, splitter=splitter_of(64)), load=lambda _: None
        )
        question = "Where is the key? " * 20
        short, long = [
            (await embedders.embed_queries(texts, [f"{NEW}/6"], account=b""))[f"{NEW}/6"]
            for texts in ([question, "tea"], [question + "poison", "tea"])
        ]
        assert short.shape == long.shape == (3, 6)
        server.refuse = "poison"
        texts = [question + " poison", "tea"]
        found = await embedders.embed_queries(texts, [f"{NEW}/6"], account=b"mallory")
        assert found[f"{NEW}/6"] == pytest.approx(short[[0, 2]], abs=1e-6)

    @pytest.mark.parametrize("blank", [" ", "\n", "\t \n"])
    async def test_blanks_are_no_end_of_a_query(self, server: EmbeddingsServer, blank: str) -> None:
        embedders = Embedders(
            current=embedder(server, NEW, splitter=splitter_of(64)), load=lambda _: None
        )
        await embedders.embed_queries(["tea" + blank * 200], [f"{NEW}/6"], account=b"")
        [texts] = server.requests
        assert [text.strip() for text in texts] == ["tea"]

    async def test_a_slow_model_rests_for_the_account_it_was_slow_for(
        self, server: EmbeddingsServer
    ) -> None:
        class Slow(OpenAIEmbedder):
            async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Any:
                if account == b"mallory":
                    asked.append(texts)
                    await asyncio.Event().wait()
                return await super().embed(texts, account=account)

        asked: list[Sequence[str]] = []
        slow = Slow(endpoints=[Endpoint(server.url, KEY)], model=OLD, dim=6)
        embedders = Embedders(current=embedder(server, NEW), load=lambda _: slow)
        for account, found in ((b"mallory", 0), (b"anna", 1), (b"mallory", 0)):
            answers = await embedders.embed_queries(["x"], [f"{OLD}/6"], account=account)
            assert len(answers) == found
        assert len(asked) == 1

    async def test_no_query_is_longer_than_its_model_takes(self, server: EmbeddingsServer) -> None:
        embedders = Embedders(
            current=embedder(server, NEW),
            load=lambda _: embedder(server, OLD, splitter=splitter_of(64)),
        )
        text = "Where is the key? " * 500
        await embedders.embed_queries([text, "tea"], [f"{OLD}/6", f"{NEW}/6"], account=b"")
        limits = {OLD: 64, NEW: 512}
        for body, texts in zip(server.bodies, server.requests, strict=True):
            first, last, short = texts
            tokens_max = limits.pop(str(body["model"]))
            assert 40 < len(first.encode()) <= tokens_max
            assert 10 < len(last.encode()) <= tokens_max
            assert text.startswith(first)
            assert text.endswith(last)
            assert short.startswith("tea")
        assert limits == {}

    @pytest.mark.parametrize("error", [Unavailable("no files"), RuntimeError("a secret path")])
    async def test_a_model_that_does_not_load_is_loaded_again_later(
        self, server: EmbeddingsServer, error: Exception, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Two recalls wait for the same failure, and both go on without it."""

        def load(_: str) -> Embedder:
            assert ready.wait(10)
            loads.append(1)
            if len(loads) == 1:
                raise error
            return embedder(server, OLD)

        ready, loads = threading.Event(), list[int]()
        embedders = Embedders(current=embedder(server, NEW), load=load)
        models = [f"{OLD}/6", f"{NEW}/6"]
        recalls = [
            asyncio.create_task(embedders.embed_queries(["x"], models, account=b""))
            for _ in range(2)
        ]
        await server.asked.wait()
        ready.set()
        assert [list(found) for found in await asyncio.gather(*recalls)] == [[f"{NEW}/6"]] * 2
        assert list(await embedders.embed_queries(["x"], models, account=b"")) == [f"{NEW}/6"]
        assert len(loads) == 1
        embedders._away_until.clear()  # a minute later
        assert list(await embedders.embed_queries(["x"], models, account=b"")) == sorted(models)
        assert "secret" not in caplog.text

    async def test_the_embedders_of_models_used_last_are_kept(
        self, server: EmbeddingsServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One that gives way to them is closed once nobody waits for its answer any more."""
        monkeypatch.setattr(models, "OTHER_WAIT_S", 300.0)
        older = Older(server)
        embedders = Embedders(current=embedder(server, NEW), load=older.load)
        asked, first = f"{OLD}/0", f"{OLD}/1"
        assert list(await embedders.embed_queries(["x"], [first], account=b"")) == [first]
        older.slow.add(asked)
        waiting = asyncio.create_task(embedders.embed_queries(["x"], [asked], account=b""))
        await older.begun.wait()
        for n in range(1, OTHERS_MAX + 2):
            await embedders.embed_queries(["x"], [f"{OLD}/{n}"], account=b"")
        await older.until_closed(first)
        assert older.closed == [first]
        older.end.set()
        assert list(await waiting) == [asked]
        await older.until_closed(asked)
        assert older.closed == [first, asked]
        await embedders.embed_queries(["x"], [f"{OLD}/{OTHERS_MAX + 1}"], account=b"")
        assert len(older.loaded) == OTHERS_MAX + 2
        await embedders.embed_queries(["x"], [first], account=b"")
        assert older.loaded[-1] == first

    async def test_all_are_closed_with_the_current_one(
        self, server: EmbeddingsServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One that a query still has, when that is done."""
        monkeypatch.setattr(models, "OTHER_WAIT_S", 300.0)
        older = Older(server)
        current, idle, asked = (f"{OLD}/{n}" for n in range(3))
        embedders = Embedders(current=older.load(current), load=older.load)
        await embedders.embed_queries(["x"], [idle], account=b"")
        older.slow.add(asked)
        waiting = asyncio.create_task(embedders.embed_queries(["x"], [asked], account=b""))
        await older.begun.wait()
        await embedders.close()
        assert older.closed == [idle, current]
        older.end.set()
        assert list(await waiting) == [asked]
        await older.until_closed(asked)

    async def test_a_query_is_embedded_by_so_many_models_at_most(
        self, server: EmbeddingsServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(models, "OTHER_WAIT_S", 300.0)
        older = Older(server)
        embedders = Embedders(current=embedder(server, NEW), load=older.load)
        used = [f"{OLD}/{n}" for n in range(2 * OTHERS_MAX)] + [f"{NEW}/6"]
        for _ in range(2):
            found = await embedders.embed_queries(["x"], used, account=b"")
            assert len(found) == OTHERS_MAX + 1
            assert f"{NEW}/6" in found
        assert len(older.loaded) == OTHERS_MAX

    async def test_models_without_an_embedder_take_no_others_place(
        self, server: EmbeddingsServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However many an archive named, and whatever they are called."""
        monkeypatch.setattr(models, "OTHER_WAIT_S", 300.0)
        older, real = Older(server), f"{OLD}/6"
        asked: list[str] = []

        def load(model_id: str) -> Embedder | None:
            asked.append(model_id)
            return older.load(model_id) if model_id == real else None

        embedders = Embedders(current=embedder(server, NEW), load=load)
        used = [*(f"invented {n}" for n in range(2 * OTHERS_MAX)), real]
        for n in range(4):
            found = await embedders.embed_queries([f"x{n}"], used, account=b"")
        assert list(found) == [real]
        assert sorted(asked) == sorted(used)
        assert older.closed == []

    async def test_what_a_query_is_known_by_is_the_least_any_model_in_use_knows(
        self, hybrid: Bench, server: EmbeddingsServer, embedder: Embedder
    ) -> None:
        caller, _ = await written(hybrid)
        account = caller.access.account
        endpoint = OpenAIEmbedder(endpoints=[Endpoint(server.url, KEY)], model=NEW, dim=6)
        queries = QueryEmbedder(
            database=hybrid.storage.database,
            embedders=Embedders(current=endpoint, load=lambda _: embedder),
        )
        thai = "กุญแจอยู่ที่ไหน"
        number = await hybrid.value("SELECT namespace_id FROM namespaces")
        written_by = (await queries.embed(account, [number], "tea")).used
        unwritten = (await queries.embed(account, [77], "tea")).used
        assert queries.coverage(thai, written_by) == embedder.coverage(thai)
        assert embedder.coverage(thai).share < 1
        assert queries.coverage("tea", written_by) == FULL_COVERAGE
        assert queries.coverage(thai, unwritten) == FULL_COVERAGE

    async def test_finding_what_waits_reads_what_waits_only(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, stored = await written(old)
        await changed(old, server).embed(caller, stored[:3])
        await old.sql(
            """
            INSERT INTO memories (account_id, memory_id, namespace_id, epoch, seq, revision, type,
                format, kind, importance, confidence, writer, created_at, blob_id, size_bytes,
                word_count, tokens, index_version, embedding_version, stored_at)
            SELECT account_id, gen_random_uuid(), namespace_id, epoch, 1000 + n, 1, 1, 'sealed',
                kind, importance, confidence, writer, created_at, sha256(n::text::bytea), 400, 3,
                '{1}', index_version, embedding_version, stored_at
            FROM memories, generate_series(1, 5000) n WHERE memory_id = $1
            """,
            stored[9].id,
        )
        await old.sql("ANALYZE")
        versions = old.services.indexer.versions
        arguments = (versions.index, versions.embedding, *vector_rows.START, None, 64)
        [row] = await old.sql(
            "EXPLAIN (ANALYZE, FORMAT JSON) " + vector_rows._DUE, caller.access.account, *arguments
        )
        nodes = list(_nodes(json.loads(row[0])[0]["Plan"]))
        scans = [n for n in nodes if n.get("Relation Name") == "memories"]
        assert {n.get("Index Name") for n in scans} == {"memories_versions"}
        assert sum(n["Actual Rows"] * n["Actual Loops"] for n in scans) == 3
        assert sum(n.get("Rows Removed by Filter", 0) for n in scans) == 0


def _nodes(plan: dict[str, Any]) -> Any:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)
