"""Another model, other passages, other words: what is stored follows, and recall goes on."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memrelay import SyncMemoryClient
from relayer import check, doctor, reindex
from relayer.clock import utc_now
from relayer.custody import lent
from relayer.database import vectors as vector_rows
from relayer.database.pool import Database
from relayer.embedding.building import build_older_embedder
from relayer.embedding.embedders import Embedder
from relayer.embedding.openai import OpenAIEmbedder
from relayer.embedding.endpoints import Endpoint
from relayer.embedding.models import Embedders
from relayer.errors import NotFound, Unavailable
from relayer.identity import load_identity
from relayer.indexing import Page
from relayer.opening import Caller
from relayer.query.vectors import KEPT_S, QueryEmbedder
from relayer.recall import Query, Recalled
from relayer.recognition import Stored
from relayer.running import announced
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId, account_text
from relayer.settings import Settings
from relayer.words import INDEX_VERSION
from tests.conftest import BenchMaker, TestDatabase
from tests.embeddings_server import KEY, EmbeddingsServer, unit
from tests.processes import RunningRelayer, running_relayer
from tests.services import OTHER, TEAM, Bench

OLD, NEW, WIDE = "old-model", "new-model", "wide-model"
MODELS = {OLD: 6, NEW: 6, WIDE: 16}
TEXTS = [f"Note {n}: the {thing} is green." for n, thing in enumerate("abcdefghij")]
BY_MODEL = "SELECT count(*) FROM vectors WHERE model = $1"
JOBS = "SELECT count(*) FROM pgqueuer"


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingsServer]:
    async with EmbeddingsServer(models=MODELS) as running:
        yield running
        assert running.complaints == []


@pytest.fixture
def old(make_bench: BenchMaker, server: EmbeddingsServer) -> Bench:
    """A relayer with the old model; those made from it know the same endpoint."""
    return make_bench(
        embedder=embedder(server, OLD),
        embedding_base_urls=server.url,
        embedding_model=OLD,
        openai_api_key=KEY,
    )


def embedder(server: EmbeddingsServer, model: str, **options: Any) -> OpenAIEmbedder:
    return OpenAIEmbedder(
        endpoints=[Endpoint(server.url, KEY)], model=model, dim=MODELS[model], **options
    )


def changed(bench: Bench, server: EmbeddingsServer, model: str = NEW, **options: Any) -> Bench:
    """The relayer after a restart with another model, later."""
    bench.clock.advance(121)
    return bench.another(embedder=embedder(server, model, **options))


async def written(bench: Bench, *texts: str, **members: Any) -> tuple[Caller, list[Stored]]:
    """Texts of a new managed account with their vectors."""
    caller = await bench.caller(await bench.account())
    stored = await bench.remember(caller, *(texts or TEXTS), **members)
    await bench.embed(caller, stored)
    await bench.sql("DELETE FROM pgqueuer")
    return caller, stored


async def finish(bench: Bench) -> None:
    """What a worker does after its start, to the end."""
    await bench.services.worker.sweep()
    async with bench.working():
        await bench.until(JOBS, 0)


async def recalled(bench: Bench, caller: Caller, text: str, **members: Any) -> Recalled:
    asked = Query(**{"text": text, "namespaces": [TEAM], "mode": "vector", "limit": 50, **members})
    return await bench.services.recaller.recall(caller, asked)


async def models_of(bench: Bench) -> dict[str, int]:
    rows = await bench.sql("SELECT model, count(*) AS n FROM vectors GROUP BY model")
    return {r["model"]: r["n"] for r in rows}


async def progress(bench: Bench, caller: Caller) -> vector_rows.Progress:
    return await vector_rows.progress(
        bench.storage.database,
        account=caller.access.account,
        versions=bench.services.indexer.versions,
    )


async def assert_holds(bench: Bench) -> None:
    report = await check.check(bench.storage)
    assert report.problems == []


def cosine(model: str, one: str, other: str) -> float:
    return float(unit(one, model, MODELS[model]) @ unit(other, model, MODELS[model]))


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
        await new.services.worker.sweep()
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
            await relayer.services.worker.sweep()
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


class TestRefusals:
    async def test_what_the_old_model_refused_is_offered_to_the_new_one(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        server.refuse = "the c is"
        caller, _ = await written(old)
        assert await progress(old, caller) == vector_rows.Progress(10, 0, 1, 0)
        server.refuse = None
        new = changed(old, server)
        await finish(new)
        assert await models_of(new) == {f"{NEW}/6": 10}

    async def test_what_the_new_model_refuses_is_found_by_words(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, _ = await written(old)
        server.refuse = "the c is"
        new = changed(old, server)
        await finish(new)
        assert await models_of(new) == {f"{NEW}/6": 9}
        assert await progress(new, caller) == vector_rows.Progress(10, 0, 1, 0)
        answer = await recalled(new.another(), caller, TEXTS[2], mode="keyword")
        assert answer.found[0].memory.text == TEXTS[2]
        await assert_holds(new)

    async def test_a_passage_that_is_refused_costs_no_other(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        text = " ".join(f"Entry {n}: the pump was oiled." for n in range(200))
        server.refuse = "Entry 77:"
        caller, _ = await written(old, text)
        whole = len(old.services.indexer._embedder.split(text))
        parts = [r["part"] for r in await old.sql("SELECT part FROM vectors ORDER BY part")]
        assert parts == list(range(len(parts)))
        assert whole - 2 <= len(parts) < whole  # two passages overlap there at most
        assert await progress(old, caller) == vector_rows.Progress(1, 0, 0, 0)
        await assert_holds(old)

    async def test_a_memory_that_is_refused_throughout_costs_few_calls(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        server.refuse = "oiled"
        asked = len(server.requests)
        caller, _ = await written(old, "oiled " * 20_000, "tea")
        assert await progress(old, caller) == vector_rows.Progress(2, 0, 1, 0)
        assert len(server.requests) - asked < 32

    async def test_a_model_that_takes_nothing_costs_no_vector(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        """Some servers answer a mistyped model like a text they cannot take."""
        caller, stored = await written(old)
        new = changed(old, server)
        server.always = "400"
        with pytest.raises(Unavailable):
            await new.embed(caller, stored)
        assert await models_of(new) == {f"{OLD}/6": 10}
        assert (await progress(new, caller)).waiting == 10

    async def test_an_altered_blob_is_given_up_alone(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, stored = await written(old)
        await old.sql(
            "UPDATE blobs SET bytes = substr(bytes, 1, 300) WHERE blob_id ="
            " (SELECT blob_id FROM memories WHERE memory_id = $1)",
            stored[0].id,
        )
        new = changed(old, server)
        await finish(new)
        assert await progress(new, caller) == vector_rows.Progress(10, 0, 0, 1)
        assert await models_of(new) == {f"{NEW}/6": 9}


class TestWhatCannotBeOpened:
    async def test_a_missing_blob_is_passed_over_and_tried_again(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        """It keeps its old vector, hides nothing behind it, and is told apart from what waits."""
        caller, _ = await written(old)
        lost = await old.sql("DELETE FROM blobs RETURNING account_id, blob_id, bytes, created_at")
        [still_lost] = await old.sql("SELECT blob_id FROM memories WHERE seq = 1")
        new = changed(old, server)
        await finish(new)
        assert await progress(new, caller) == vector_rows.Progress(10, 0, 0, 0, missing=10)
        assert await models_of(new) == {f"{OLD}/6": 10}
        await new.sql(
            "INSERT INTO blobs SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[],"
            " $4::timestamptz[])",
            *([r[n] for r in lost if r["blob_id"] != still_lost["blob_id"]] for n in range(4)),
        )
        await new.services.worker.sweep()
        assert await new.value(JOBS) == 0  # it rests: else each sweep would look at all again
        new.clock.advance(3601)
        await new.services.worker.sweep()
        assert await new.value(JOBS) == 1
        await finish(new.another())
        assert await progress(new, caller) == vector_rows.Progress(10, 0, 0, 0, missing=1)
        assert await models_of(new) == {f"{NEW}/6": 9, f"{OLD}/6": 1}

    async def test_a_page_comes_once(self, old: Bench, server: EmbeddingsServer) -> None:
        caller, _ = await written(old)
        await old.sql("DELETE FROM blobs")
        indexer = changed(old, server).services.indexer
        account, seen, position = caller.access.account, [], vector_rows.START
        while len(seen) < 5 and (
            page := await indexer.next_page(account, caller.keys, position, None)
        ):
            position = page.after
            seen.append(position[1:])
            assert not page.changed
        assert seen == [(f"{OLD}/6 504+32 bytes", 10)]
        assert await indexer.waits(caller.access.account)

    async def test_another_key_costs_no_memory(self, old: Bench, server: EmbeddingsServer) -> None:
        """A root holder may lend a namespace's first key, and another one than its memories'."""
        founder = await old.account("sealed")
        caller = await old.unlocked(founder, TEAM)
        stored = await old.remember(caller, *TEXTS)
        right = old.namespace_key(founder.account, TEAM)
        stranger = await old.account("sealed")
        wrong = old.root[stranger.account].namespace_key(founder.account, TEAM)
        assert (wrong.epoch, wrong.key_id != right.key_id) == (right.epoch, True)
        with_wrong = replace(caller, keys=lent([wrong]))
        await old.embed(with_wrong, stored)
        assert await progress(old, caller) == vector_rows.Progress(10, 10, 0, 0)
        await old.embed(caller, stored)
        assert await progress(old, caller) == vector_rows.Progress(10, 0, 0, 0)

    async def test_a_record_of_a_later_release_is_left_to_it(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, [stored] = await written(old, TEXTS[0])
        [row] = await old.sql("SELECT * FROM memories")
        key = caller.keys.of(TEAM)[0]
        address = envelope.Address(row["type"], caller.access.account, stored.id, row["revision"])
        blob = envelope.seal(key, address, b'{"v": 2}', created_ms=1)
        name = envelope.blob_hash(envelope.blob_id(blob))
        await old.sql(
            "UPDATE blobs SET blob_id = $1, bytes = $2 WHERE blob_id = $3",
            *(name, blob, row["blob_id"]),
        )
        await old.sql("UPDATE memories SET blob_id = $1", name)
        new = changed(old, server)
        await finish(new)
        assert await progress(new, caller) == vector_rows.Progress(1, 1, 0, 0)
        assert await models_of(new) == {f"{OLD}/6": 1}


class TestSealedAccounts:
    async def test_each_namespace_is_turned_by_its_own_key(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        """Though both are in one page: each is found by vector where it is."""
        caller, stored = await written(old)
        stored += await old.remember(caller, *TEXTS, namespace=OTHER)
        new = changed(old, server)
        await new.embed(caller, stored)
        for namespace in (TEAM, OTHER):
            answer = await recalled(new, caller, TEXTS[3], namespaces=[namespace])
            assert answer.found[0].memory.text == TEXTS[3]
            assert answer.found[0].hit.cosine == pytest.approx(1, abs=0.01)

    async def test_keys_lent_during_a_pass_have_their_work_done(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        founder = await old.account("sealed")
        both = await old.unlocked(founder, TEAM, OTHER)
        stored = await old.remember(both, *TEXTS)
        stored += await old.remember(both, *TEXTS, namespace=OTHER)
        await old.embed(both, stored)
        await old.sql("DELETE FROM pgqueuer")
        new = changed(old, server)
        server.hold.clear()
        server.asked.clear()
        async with new.working():
            await new.unlocked(founder, TEAM, hold_s=60)
            await server.asked.wait()
            await new.unlocked(founder, OTHER, hold_s=60)
            assert await new.value(JOBS) == 1
            server.hold.set()
            await new.until(JOBS, 0)
        assert await models_of(new) == {f"{NEW}/6": 20}

    async def test_what_becomes_due_behind_a_pass_is_done(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        """As `relayer reindex --force` makes it, which finds the job running already."""
        caller, _ = await written(old, *(f"note number {n}" for n in range(100)))
        new = changed(old, server)
        await new.services.worker.sweep()
        server.hold.clear()
        server.asked.clear()
        async with new.working():
            await server.asked.wait()
            server.asked.clear()
            server.hold.set()
            await server.asked.wait()
            await vector_rows.forget_versions(new.storage.database, account=caller.access.account)
            await new.until(JOBS, 0)
        assert (await progress(new, caller)).waiting == 0

    async def test_wait_for_their_keys_and_follow_namespace_by_namespace(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        founder = await old.account("sealed")
        both = await old.unlocked(founder, TEAM, OTHER)
        stored = await old.remember(both, *TEXTS)
        stored += await old.remember(both, *TEXTS, namespace=OTHER)
        await old.embed(both, stored)
        await old.sql("DELETE FROM pgqueuer")
        new = changed(old, server)
        await finish(new.another())
        assert await models_of(new) == {f"{OLD}/6": 20}
        async with new.working():
            await new.unlocked(founder, TEAM, hold_s=60)
            await new.until(BY_MODEL, 10, f"{NEW}/6")
            await new.until(JOBS, 0)
            assert (await progress(new, both)).waiting == 10
            await new.unlocked(founder, TEAM, OTHER, hold_s=60)
            await new.until(BY_MODEL, 20, f"{NEW}/6")
        await assert_holds(new)

    async def test_keys_that_are_held_already_are_used_by_the_sweep(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        founder = await old.account("sealed")
        caller = await old.unlocked(founder, TEAM)
        await old.embed(caller, await old.remember(caller, *TEXTS))
        await old.sql("DELETE FROM pgqueuer")
        new = changed(old, server)
        await new.unlocked(founder, TEAM, hold_s=300)
        await new.sql("DELETE FROM pgqueuer")  # lost with a process
        await finish(new)
        assert await models_of(new) == {f"{NEW}/6": 10}

    async def test_their_work_comes_before_that_of_managed_accounts(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        founder = await old.account("sealed")
        caller = await old.unlocked(founder, TEAM)
        await old.embed(caller, await old.remember(caller, *TEXTS))
        await written(old)
        new = changed(old, server)
        await new.services.worker.sweep()
        await new.unlocked(founder, TEAM, hold_s=60)
        rows = await new.sql("SELECT priority FROM pgqueuer WHERE entrypoint = 'reindex'")
        assert [r["priority"] for r in rows] == [0, 1]


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
            ({"embedder": "none", "embedding_model": "old"}, False),
        ],
    )
    def test_queries_go_out_only_where_the_settings_let_them(
        self, settings: dict[str, Any], asked: bool
    ) -> None:
        assert (build_older_embedder(Settings(**settings), "old/6") is not None) == asked


class TestWords:
    async def outdate(self, bench: Bench) -> list[Any]:
        """Make all words those of an earlier release, and return how they were."""
        before = await self.postings(bench)
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
        await assert_holds(bench)
        return before

    async def postings(self, bench: Bench) -> list[Any]:
        return [
            tuple(r)
            for r in await bench.sql(
                "SELECT p.memory_id, token, frequency, p.word_count, m.word_count, n.word_count"
                " FROM postings p JOIN memories m USING (account_id, memory_id)"
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
        await new.services.worker.sweep()
        assert await new.value(JOBS) == 0
        assert (await progress(new, caller)).waiting == 0

    async def test_writes_and_erasures_meanwhile_keep_the_counts_right(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        caller, stored = await written(old, *(f"note number {n}" for n in range(130)))
        await self.outdate(old)
        new = changed(old, server)
        await new.services.worker.sweep()
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
        new = changed(old, server, OLD, tokens_max=128)
        assert (await progress(new, caller)).waiting == 1
        assert not (await recalled(new, caller, "anything")).degraded  # it is the same model
        await finish(new)
        assert await new.value("SELECT count(*) FROM vectors") > 3 * few
        assert list(await models_of(new)) == [f"{OLD}/6"]
        assert (await progress(new, caller)).waiting == 0

    async def test_the_version_names_model_and_passages(
        self, server: EmbeddingsServer, embedder: Embedder
    ) -> None:
        assert embedder.version == "all-MiniLM-L6-v2/int8 126+16 tokens"
        assert OpenAIEmbedder(endpoints=[Endpoint(server.url)], model="m", dim=6).version == (
            "m/6 504+32 bytes"
        )


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
        assert not (await queries.embed(account, [1], ["x"])).complete
        await changed(old, server).embed(caller, stored)
        assert not (await queries.embed(account, [1], ["x"])).complete
        now += KEPT_S
        assert (await queries.embed(account, [1], ["x"])).complete

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
            current=embedder(server, NEW), load=lambda _: embedder(server, OLD, tokens_max=64)
        )
        text = "Where is the key? " * 500
        await embedders.embed_queries([text, "tea"], [f"{OLD}/6", f"{NEW}/6"], account=b"")
        limits = {OLD: 64, NEW: 512}
        for body, texts in zip(server.bodies, server.requests, strict=True):
            assert 40 < len(texts[0].encode()) <= limits.pop(str(body["model"]))
            assert text.startswith(texts[0])
            assert texts[1] == "tea"
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

        ready, loads = threading.Event(), []  # type: ignore[var-annotated]
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
        for namespace_id in (number, 77):
            await queries.embed(account, [namespace_id], ["tea"])
        assert queries.known(account, [number], thai) == embedder.known(thai) < 1
        assert queries.known(account, [number], "tea") == 1
        assert queries.known(account, [77], thai) == 1

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


class Installation:
    """A data folder, a database and an embedding endpoint, and the processes on them."""

    def __init__(
        self, folder: Path, model_dir: Path, database: TestDatabase, server: EmbeddingsServer
    ) -> None:
        self._folder = folder
        self._model_dir = model_dir
        self._database = database
        self._server = server

    def environment(self, model: str) -> dict[str, str]:
        """The settings of a relayer with this model."""
        return {
            "RELAYER_EMBEDDING_MODEL": model,
            "RELAYER_EMBEDDING_DIM": str(MODELS[model]),
            "RELAYER_EMBEDDING_BASE_URLS": self._server.url,
            "OPENAI_API_KEY": KEY,
        }

    def settings(self, model: str) -> Settings:
        """The same for a call in this process."""
        return Settings(
            data_dir=self._folder,
            database_url=self._database.url,
            embedding_model=model,
            embedding_dim=MODELS[model],
            embedding_base_urls=self._server.url,
            openai_api_key=KEY,
        )

    def relayer(self, model: str) -> AbstractContextManager[RunningRelayer]:
        """A relayer that serves with this model."""
        return running_relayer(
            self._folder,
            self._model_dir,
            database_url=self._database.url,
            **self.environment(model),
        )

    async def command(self, model: str, *arguments: str) -> "Done":
        """A `relayer` command of its own with this model."""
        inherited = {
            k: v for k, v in os.environ.items() if not k.startswith(("RELAYER_", "OPENAI_"))
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-m", "relayer", *arguments),
            *("--data-dir", str(self._folder), "--database-url", self._database.url),
            env=inherited | self.environment(model),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return Done(process.returncode, out.decode(), err.decode())


@dataclass(frozen=True)
class Done:
    """What became of a command."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def installation(
    tmp_path: Path, model_dir: Path, fresh_database: TestDatabase, server: EmbeddingsServer
) -> Installation:
    return Installation(tmp_path / "data", model_dir, fresh_database, server)


async def remembered(relayer: RunningRelayer, custody: str, texts: Sequence[str]) -> dict[str, Any]:
    """A new account with these texts; its vectors follow."""
    account = await asyncio.to_thread(
        relayer.command, "account", "create", "--label", "test", "--custody", custody
    )
    await asyncio.to_thread(_remember, account, texts)
    return account


def _client(account: dict[str, Any]) -> SyncMemoryClient:
    return SyncMemoryClient(
        url=account["server_url"],
        account_id=account["account_id"],
        private_key=account["private_key"],
        relayer_key=account["relayer_key"],
        custody=account["custody"],
    )


def _remember(account: dict[str, Any], texts: Sequence[str]) -> None:
    with _client(account) as memory:
        for text in texts:
            memory.remember(text)


async def until(database: Database, statement: str, wanted: Any, *arguments: Any) -> None:
    async with asyncio.timeout(60):
        while (await database.fetch(statement, *arguments))[0][0] != wanted:
            await asyncio.sleep(0.05)


async def models_in(database: Database) -> list[str]:
    return [r["model"] for r in await database.fetch("SELECT DISTINCT model FROM vectors")]


def standing(report: dict[str, Any], account_id: str) -> dict[str, Any]:
    [found] = [a for a in report["accounts"] if a["account_id"] == account_id]
    return {k: v for k, v in found.items() if v and k not in ("account_id", "custody")}


class TestProcesses:
    async def test_a_killed_relayer_goes_on_after_its_restart(
        self,
        installation: Installation,
        server: EmbeddingsServer,
        database: Database,
        make_bench: BenchMaker,
    ) -> None:
        """SIGKILL while texts are at the new model, its answer on its way."""
        identity = load_identity(installation.settings(OLD).data_dir / "relayer.key")
        old = make_bench(embedder=embedder(server, OLD), identity=identity, clock=utc_now)
        caller, _ = await written(old)
        await old.sql("UPDATE memories SET created_at = created_at - interval '1 h'")
        server.hold.clear()
        server.asked.clear()
        async with AsyncExitStack() as stack:
            relayer = await _entered(stack, installation.relayer(NEW))
            await server.asked.wait()
            relayer.kill()
        server.hold.set()
        assert (await database.fetch(BY_MODEL, f"{OLD}/6"))[0][0] == 10
        async with AsyncExitStack() as stack:
            relayer = await _entered(stack, installation.relayer(NEW))
            done = await installation.command(NEW, "reindex", "--json")
            assert (done.code, done.data["ok"]) == (0, True), done.err
            assert standing(done.data, account_text(caller.access.account)) == {
                "memories": 10,
                "up_to_date": 10,
            }
            assert (await asyncio.to_thread(relayer.command, "check"))["ok"]
        assert await models_in(database) == [f"{NEW}/6"]

    async def test_the_command_beside_a_relayer_and_without_one(
        self, installation: Installation, server: EmbeddingsServer, database: Database
    ) -> None:
        new = installation.settings(NEW)
        async with AsyncExitStack() as stack:
            relayer = await _entered(stack, installation.relayer(OLD))
            managed = await remembered(relayer, "managed", TEXTS)
            sealed = await remembered(relayer, "sealed", TEXTS[:3])
            await until(database, BY_MODEL, 13, f"{OLD}/6")
            # The running relayer's model counts, whatever this call's settings say.
            beside = await reindex.status(new, account=None)
            assert (beside.ok, beside.versions.embedding) == (True, f"{OLD}/6 504+32 bytes")
            asked = len(server.requests)
            forced = await installation.command(
                NEW, "reindex", "--force", "--json", "--account", managed["account_id"]
            )
            assert (forced.code, len(forced.data["accounts"])) == (0, 1), forced.err
            assert sum(map(len, server.requests[asked:])) == 10
        report = (await reindex.status(new, account=None)).as_json()
        assert not report["ok"]
        assert standing(report, managed["account_id"]) == {"memories": 10, "waiting": 10}
        assert standing(report, sealed["account_id"]) == {"memories": 3, "waiting_for_keys": 3}
        found = {f["check"]: f for f in await doctor.examine(new)}["index"]
        assert (found["ok"], found["do"]) == (False, "relayer reindex")
        assert await models_in(database) == [f"{OLD}/6"]  # both only looked
        alone = await installation.command(NEW, "reindex")
        assert alone.code == 1  # the sealed account is left
        assert "10 of 13 memories up to date, 3 waiting for keys" in alone.out
        assert {f["check"]: f for f in await doctor.examine(new)}["index"]["ok"]

    async def test_a_broken_account_is_told_and_the_others_go_on(
        self, installation: Installation, server: EmbeddingsServer, make_bench: BenchMaker
    ) -> None:
        identity = load_identity(installation.settings(OLD).data_dir / "relayer.key")
        old = make_bench(embedder=embedder(server, OLD), identity=identity, clock=utc_now)
        caller, _ = await written(old)
        broken, _ = await written(old)
        await old.sql(
            "UPDATE accounts SET grant_serial = 1, created_at = created_at - interval '1 h'"
            " WHERE account_id = $1",
            broken.access.account,
        )
        done = await installation.command(NEW, "reindex", "--json")
        assert (done.code, done.data["ok"]) == (1, False), done.err
        good, bad = (account_text(c.access.account) for c in (caller, broken))
        assert standing(done.data, good) == {"memories": 10, "up_to_date": 10}
        assert list(standing(done.data, bad)) == ["problem"]

    async def test_following_ends_when_nothing_advances(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        """Another account's job, which nobody works on, does not keep it either."""
        caller, _ = await written(old)
        other, _ = await written(old)
        new = changed(old, server)
        server.gone.add(NEW)
        await new.services.worker.sweep()
        await new.sql(
            "UPDATE pgqueuer SET execute_after = now() + interval '1 day' WHERE dedupe_key = $1",
            f"reindex:{other.access.account.hex()}",
        )
        account, told = caller.access.account, []
        async with new.working(), asyncio.timeout(40):
            report = await reindex._ask(
                new.storage, new.services.indexer.versions, account, [account], told.append
            )
        assert told
        assert (report.ok, report.total("waiting")) == (False, 10)
        assert "tries again" in report.as_text()

    async def test_the_command_tells_what_it_needs(
        self, installation: Installation, server: EmbeddingsServer
    ) -> None:
        with pytest.raises(NotFound):
            await reindex.status(installation.settings(OLD), account=AccountId(bytes(32)))
        nonsense = await installation.command(OLD, "reindex", "--account", "anna")
        assert nonsense.code == 2
        assert "Usage:" in nonsense.err

    async def test_a_relayer_that_does_not_answer_is_told(
        self, installation: Installation, tmp_path: Path
    ) -> None:
        settings = installation.settings(OLD)
        with announced(tmp_path, "http://127.0.0.1:9"), pytest.raises(Unavailable):
            await reindex.versions_of(replace(settings, data_dir=tmp_path))


async def _entered(
    stack: AsyncExitStack, relayer: AbstractContextManager[RunningRelayer]
) -> RunningRelayer:
    """A relayer that runs until the stack ends, started without holding up this loop's servers."""
    running = await asyncio.to_thread(relayer.__enter__)
    stack.push_async_callback(asyncio.to_thread, relayer.__exit__, None, None, None)
    return running
