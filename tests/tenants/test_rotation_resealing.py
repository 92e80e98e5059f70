"""Sealing anew what an account has: all of it moves, is found as before, and old keys open none."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relayer.database.reseal import accounts_due
from relayer.errors import Conflict
from relayer.memories.opener import Caller
from relayer.memories.recognition import Stored
from relayer.memories.revisions import Edit
from relayer.query.query import Query
from relayer.sealed.primitives import to_base64url
from relayer.sealed.receipts import open_receipt
from relayer.tenants.custody import LentKeys
from relayer.upkeep.check import check
from tests.chains import assert_chain_holds, chain_of
from tests.conftest import BenchMaker
from tests.rotator import (
    CUSTODIES,
    NOT_NOW,
    admitted,
    all_bytes,
    epochs,
    keep_turn,
    opened_by,
    rotator,
)
from tests.services import OTHER, TEAM, Bench

ROWS = """
SELECT memory_id, namespace_id, seq, revision, revision_of, type, kind, importance, confidence,
       writer, event_time, created_at, stored_at, expires_at, superseded_at, size_bytes,
       word_count, index_version, embedding_model, embedding_version
FROM memories ORDER BY memory_id
"""
TRACES = """
SELECT m.blob_id, m.fingerprint, m.source, m.tokens,
       (SELECT array_agg(v.embedding::text ORDER BY part) FROM vectors v
        WHERE v.memory_id = m.memory_id) AS vectors
FROM memories m ORDER BY m.memory_id
"""


async def life(bench: Bench, caller: Caller) -> list[Stored]:
    """Memories of several sorts, one of them edited since, embedded."""
    stored = await bench.remember(
        caller,
        "Anna prefers tea in the morning.",
        "Ben sells cups.",
        tags=("trade",),
        source="chat",
    )
    stored += await bench.remember(caller, "Café Größe 42.", metadata={"place": "Bern"})
    await bench.embed(caller, stored)
    await bench.sql("UPDATE memories SET fingerprint = NULL WHERE seq = 3")  # as a merged one has
    return stored


async def recalled(bench: Bench, caller: Caller) -> list[Any]:
    """What queries find, in order, with their scores."""
    found = []
    for mode in ("keyword", "vector", "hybrid"):
        for text in ("Anna's tea", "who sells cups", "Größe"):
            query = Query(text=text, namespaces=[TEAM], mode=mode)
            answer = await bench.services.recaller.recall(caller, query)
            found += [
                (mode, f.memory.id, f.memory.text, round(f.hit.score, 2)) for f in answer.found
            ]
            assert answer.dropped == 0
    return found


@pytest.mark.parametrize("custody", CUSTODIES)
@pytest.mark.parametrize("outside", [False, True], ids=["postgres", "folder"])
class TestReseal:
    @pytest.fixture
    def bench(self, make_bench: BenchMaker, embedder: Any, tmp_path: Path, outside: bool) -> Bench:
        changes = {"blob_store": f"file:{tmp_path / 'blobs'}"} if outside else {}
        return make_bench(embedder=embedder, **changes)

    async def test_everything_moves_and_is_found_as_before(
        self, bench: Bench, custody: str
    ) -> None:
        """capability 4.20: what memories are found by is rebuilt when their keys change."""
        owner = await rotator(bench, custody)
        await life(bench, await owner.caller())
        rows, traces = await bench.sql(ROWS), await bench.sql(TRACES)
        found = await recalled(bench, await owner.caller())
        await owner.rotate(reseal="all")
        assert await owner.reseal()
        assert await epochs(bench) == {2: 3}
        assert await bench.sql(ROWS) == rows
        for old, new in zip(traces, await bench.sql(TRACES), strict=True):
            assert old["blob_id"] != new["blob_id"]
            assert not set(old["tokens"]) & set(new["tokens"])
            assert old["vectors"] != new["vectors"]
            assert (old["fingerprint"], old["source"]) == (None, None) or old != new
        assert await recalled(bench, await owner.caller()) == found
        await owner.drop_old_bytes()
        assert await recalled(bench, await owner.caller()) == found
        assert (await check(bench.storage)).problems == []
        await assert_chain_holds(bench, owner.owner.account)

    async def test_uploads_are_found_from_every_epoch(self, bench: Bench, custody: str) -> None:
        """Foreign bytes stay as they are; what turns their vectors is replaced like other keys."""
        owner = await rotator(bench, custody)

        async def keep(data: bytes, vector: Any) -> str:
            caller = await owner.caller()
            return (await bench.services.manual.remember(caller, TEAM, data, vector))[1]

        async def look() -> None:
            """By statement first, and then in memory."""
            for _ in range(3):
                for place, asked in enumerate(vectors):
                    caller = await owner.caller()
                    found = await bench.services.manual.recall(caller, TEAM, asked, 2)
                    assert [name for name, _ in found] == [names[place], names[1 - place]]
                    assert abs(found[0][1]) < 1e-3
                await asyncio.gather(*bench.services.memory_index.reading)

        vectors = np.random.default_rng(1).normal(size=(2, 8)).astype(np.float32)
        names = [await keep(b"{first bytes}" * 9, vectors[0])]
        await owner.rotate(reseal="none")
        names.append(await keep(b"{later bytes}" * 9, vectors[1]))
        await look()
        with pytest.raises(Conflict, match="older epoch"):
            await owner.send(*await owner.objects(owner.roots[1:]))
        await owner.send([], [], "all")
        assert await owner.reseal()
        assert await epochs(bench) == {2: 2}
        await owner.drop_old_bytes()
        await owner.send(*await owner.objects(owner.roots[1:]))
        owner.roots = owner.roots[1:]
        await look()
        assert len(await all_bytes(bench, owner.owner.account)) >= len(names)
        assert (await check(bench.storage)).problems == []
        await assert_chain_holds(bench, owner.owner.account)

    async def test_receipts_say_what_moved_where(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        stored = await life(bench, await owner.caller())
        await owner.rotate(reseal="all")
        await owner.reseal()
        relayer = bench.storage.identity.public_key
        last = open_receipt((await chain_of(bench, owner.owner.account))[-1], relayer)
        assert (last.op, last.actor, last.namespace, last.epoch) == ("reseal", relayer, TEAM, 2)
        blobs = {
            r["memory_id"]: to_base64url(r["blob_id"])
            for r in await bench.sql("SELECT memory_id, blob_id FROM memories")
        }
        assert {(i.memory, i.revision, i.blob_id) for i in last.items} == {
            (s.id, 1, blobs[s.id]) for s in stored
        }

    async def test_old_keys_open_nothing_any_more(self, bench: Bench, custody: str) -> None:
        """Every object of the store is tried with every old key."""
        owner = await rotator(bench, custody)
        agent = await bench.key(owner.owner, TEAM)
        caller = await owner.caller()
        await life(bench, caller)
        old = owner.keys(TEAM, OTHER)
        assert len(await opened_by(bench, owner.owner.account, old)) == 3
        await owner.rotate(revoke=[agent.identity.public_key], reseal="none")
        await bench.remember(await owner.caller(), "Said after the rotation.")
        assert len(await opened_by(bench, owner.owner.account, old)) == 3
        await owner.send([], [], "all")
        await owner.reseal()
        await owner.drop_old_bytes()
        assert await opened_by(bench, owner.owner.account, old) == set()
        assert len(await opened_by(bench, owner.owner.account, owner.keys(TEAM)[1:])) == 4

    async def test_old_bytes_stay_for_whoever_just_read_their_names(
        self, bench: Bench, custody: str
    ) -> None:
        owner = await rotator(bench, custody)
        await life(bench, await owner.caller())
        names = [
            to_base64url(r["blob_id"]) for r in await bench.sql("SELECT blob_id FROM memories")
        ]
        await owner.rotate(reseal="all")
        await owner.reseal()
        await bench.storage.outbox.empty()
        assert len(await bench.storage.blobs.get_many(owner.owner.account, names)) == 3
        await owner.drop_old_bytes()
        assert await bench.storage.blobs.get_many(owner.owner.account, names) == {}
        assert (await bench.services.restore.restore(await owner.caller(), TEAM, 9)).restored == 0

    async def test_bytes_of_before_go_with_what_is_forgotten_soon_after(
        self, bench: Bench, custody: str
    ) -> None:
        owner = await rotator(bench, custody)
        account, caller = owner.owner.account, await owner.caller()
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        edit = Edit(changes={"text": "Anna prefers coffee."})
        await bench.services.reviser.edit(caller, stored.id, edit)
        things = [stored.id, await keep_turn(bench, caller)]
        await owner.rotate(reseal="all")
        await owner.reseal()
        assert len(await opened_by(bench, account, owner.keys(TEAM)[:1])) == 3
        access, deletion = (await owner.caller()).access, bench.services.deletion
        for _ in range(2):
            done = await deletion.forget_ids(access, things)
            assert done.pending == bench.storage.outbox.outside
        await bench.storage.outbox.empty()
        assert await opened_by(bench, account, owner.keys(TEAM)) == set()
        assert not (await deletion.forget_ids(access, things)).pending
        assert (await check(bench.storage)).problems == []

    async def test_only_what_was_chosen(self, bench: Bench, custody: str) -> None:
        """By default what revoked keys could read, however long ago they were revoked."""
        owner = await rotator(bench, custody)
        agent = await bench.key(owner.owner, OTHER)
        caller = await owner.caller(None, TEAM, OTHER)
        await bench.remember(caller, "apples")
        await bench.remember(caller, "pears", namespace=OTHER)
        await bench.revoke(owner.owner, agent.identity.public_key)
        await owner.rotate()
        progress = await bench.services.rotations.progress(await admitted(bench, owner.owner))
        assert [(n.name, n.total, n.remaining) for n in progress.namespaces] == [(OTHER, 1, 1)]
        assert progress.older == 2
        await owner.reseal(TEAM, OTHER)
        assert await epochs(bench) == {1: 1, 2: 1}
        # What was sealed anew since is nothing the revoked key could read.
        await owner.rotate()
        await owner.reseal(TEAM, OTHER)
        assert await epochs(bench) == {1: 1, 2: 1}
        await owner.send([], [], [TEAM])
        await owner.reseal(TEAM, OTHER)
        assert await epochs(bench) == {2: 1, 3: 1}
        assert set(
            await bench.texts(
                await owner.caller(None, TEAM, OTHER), "apples pears", namespaces=[TEAM, OTHER]
            )
        ) == {"apples", "pears"}

    @pytest.mark.parametrize("chosen", ["now", "before"])
    async def test_nothing_of_the_newest_epoch_is_due(
        self, bench: Bench, custody: str, chosen: str
    ) -> None:
        """Also where an earlier release chose it: what keys revoked since then could read."""
        owner = await rotator(bench, custody)
        agent = await bench.key(owner.owner, TEAM)
        caller = await owner.caller()
        await bench.remember(caller, "Anna prefers tea.")
        await keep_turn(bench, caller)
        await bench.revoke(owner.owner, agent.identity.public_key)
        await owner.send([], [], "revoked")
        if chosen == "before":
            await bench.sql("UPDATE namespaces SET reseal_below = 2")
        receipts = await chain_of(bench, owner.owner.account)
        assert await accounts_due(bench.storage.database) == []
        assert await owner.reseal()
        assert await chain_of(bench, owner.owner.account) == receipts
        progress = await bench.services.rotations.progress(await admitted(bench, owner.owner))
        assert [(n.total, n.remaining) for n in progress.namespaces] == [(2, 0)]
        # A rotation chooses it again.
        await owner.rotate()
        assert await accounts_due(bench.storage.database) == [owner.owner.account]
        assert await owner.reseal()
        assert await epochs(bench) == {2: 1}
        assert await bench.value("SELECT epoch FROM episodes") == 2

    async def test_it_goes_on_where_it_stopped(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        texts = [f"harbour note {n}" for n in range(70)]
        await bench.remember(await owner.caller(), *texts)
        await owner.rotate(reseal="all")
        assert not await owner.reseal(go_on=NOT_NOW)
        assert await epochs(bench) == {1: 6, 2: 64}
        caller = await owner.caller()
        assert set(await bench.texts(caller, "harbour", limit=100, mode="keyword")) == set(texts)
        assert await owner.reseal()
        assert await epochs(bench) == {2: 70}
        receipts = await chain_of(bench, owner.owner.account)
        assert await owner.reseal()
        assert await chain_of(bench, owner.owner.account) == receipts

    async def test_a_fact_stays_one_fact(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        [first] = await bench.remember(await owner.caller(), "Anna prefers tea.")
        await owner.rotate(reseal="all")
        await bench.sql("UPDATE memories SET fingerprint = NULL")  # so that it is said again
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        await bench.sql("UPDATE memories SET fingerprint = '\\x01' WHERE epoch = 1")
        await owner.reseal()
        assert await epochs(bench) == {2: 2}
        [again] = await bench.remember(await owner.caller(), "Anna prefers tea.")
        assert (again.duplicate, again.id != first.id) == (True, True)

    async def test_a_fact_of_two_epochs_stays_known(self, bench: Bench, custody: str) -> None:
        """However often it is sealed anew: the one that is not known takes it from no other."""
        owner = await rotator(bench, custody)
        [first] = await bench.remember(await owner.caller(), "Anna prefers tea.")
        await owner.rotate(reseal="all")
        caller = await owner.caller()
        newest = Caller(caller.access, LentKeys({TEAM: owner.keys(TEAM)[1:]}))
        [second] = await bench.remember(newest, "Anna prefers tea.")
        assert second.id != first.id
        await owner.reseal()
        for _ in range(2):
            await owner.rotate(reseal="all")
            await owner.reseal()
            [again] = await bench.remember(await owner.caller(), "Anna prefers tea.")
            assert (again.duplicate, again.id) == (True, second.id)

    async def test_earlier_revisions_and_waiting_turns_move_too(
        self, bench: Bench, custody: str
    ) -> None:
        owner = await rotator(bench, custody)
        caller = await owner.caller()
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        episode = await keep_turn(bench, caller)
        was = bench.clock()
        bench.clock.advance(60)
        edit = Edit(changes={"text": "Anna prefers coffee."})
        await bench.services.reviser.edit(await owner.caller(), stored.id, edit)
        await owner.rotate(reseal="all")
        await owner.reseal()
        await owner.drop_old_bytes()
        assert await epochs(bench) == {2: 2}
        assert await bench.value("SELECT epoch FROM episodes WHERE state = 'pending'") == 2
        caller = await owner.caller()
        assert await bench.texts(caller, "Anna prefers") == ["Anna prefers coffee."]
        assert await bench.texts(caller, "Anna prefers", as_of=was) == ["Anna prefers tea."]
        keys = owner.keys(TEAM)[:1]
        assert await opened_by(bench, owner.owner.account, keys) == set()
        assert (await check(bench.storage)).problems == []
        account = owner.owner.account
        await bench.services.analysis.extract_episode(account, caller.keys, episode)
        assert await bench.value("SELECT state FROM episodes WHERE episode_id = $1", episode) != (
            "pending"
        )
