"""Embedding again what a model refuses, or what cannot be opened: it costs no other memory."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from relayer.database import vectors as vector_rows
from relayer.embedding.endpoints import Endpoint
from relayer.embedding.openai import OpenAIEmbedder
from relayer.errors import Unavailable
from relayer.sealed import envelope
from relayer.tenants.custody import lent
from tests.embeddings_server import KEY, EmbeddingsServer
from tests.optional import unwrap
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
from tests.services import TEAM, Bench

__all__ = ["old", "server"]  # fixtures


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
        whole = len(unwrap(old.services.indexer._embedder).split(text))
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

    async def test_what_another_worker_has_embedded_meanwhile_is_not_given_up(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        """One of an earlier release, which leaves the words out of date."""

        class Overtaken(OpenAIEmbedder):
            async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Any:
                if server.refuse is None:
                    await earlier.embed(caller, stored)
                    server.refuse = "the c is"
                return await super().embed(texts, account=account)

        caller, stored = await written(old)
        earlier = changed(old, server)
        versions = earlier.services.indexer.versions
        earlier.services.indexer.versions = replace(versions, index=versions.index - 1)
        await old.sql("UPDATE memories SET index_version = index_version - 1")
        new = old.another(
            embedder=Overtaken(endpoints=[Endpoint(server.url, KEY)], model=NEW, dim=6)
        )
        await new.embed(caller, stored)
        assert server.refuse is not None
        assert await models_of(new) == {f"{NEW}/6": 10}
        assert await progress(new, caller) == vector_rows.Progress(10, 0, 0, 0)
        await assert_holds(new)

    async def test_an_altered_blob_whose_words_alone_are_out_of_date_is_given_up(
        self, old: Bench
    ) -> None:
        """Else it would wait for ever."""
        caller, stored = await written(old)
        await old.sql(
            "UPDATE blobs SET bytes = substr(bytes, 1, 300) WHERE blob_id ="
            " (SELECT blob_id FROM memories WHERE memory_id = $1)",
            stored[0].id,
        )
        await old.sql("UPDATE memories SET index_version = index_version - 1")
        await old.another().embed(caller, stored)
        assert await progress(old, caller) == vector_rows.Progress(10, 0, 0, 1)

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
            "INSERT INTO blobs SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[],"
            " $4::timestamptz[])",
            *([r[n] for r in lost if r["blob_id"] != still_lost["blob_id"]] for n in range(4)),
        )
        await new.services.sweeper.sweep()
        assert await new.value(JOBS) == 0  # it rests: else each sweep would look at all again
        new.clock.advance(3601)
        await new.services.sweeper.sweep()
        assert await new.value(JOBS) == 1
        await finish(new.another())
        assert await progress(new, caller) == vector_rows.Progress(10, 0, 0, 0, missing=1)
        assert await models_of(new) == {f"{NEW}/6": 9, f"{OLD}/6": 1}

    async def test_a_page_comes_once(self, old: Bench, server: EmbeddingsServer) -> None:
        caller, _ = await written(old)
        await old.sql("DELETE FROM blobs")
        indexer = changed(old, server).services.indexer
        account, position = caller.access.account, vector_rows.START
        seen: list[Any] = []
        while len(seen) < 5 and (
            page := await indexer.next_page(account, caller.keys, position, None)
        ):
            position = page.after
            seen.append(position[1:])
            assert not page.changed
        assert seen == [(old.services.indexer.versions.embedding, 10)]
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
