"""What is rebuilt of an account whose keys, or its relayer's, were replaced before the loss."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from relayer.clock import to_ms
from relayer.embedding.embedders import Embedder
from relayer.installation import open_storage
from relayer.journal.states import Change
from relayer.llm import LanguageModel
from relayer.memories.opener import Caller
from relayer.memories.revisions import Edit
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.sealed.keys import Namespace
from relayer.services import build_services
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.tenants.custody import LentKeys
from relayer.upkeep.check import check
from relayer.upkeep.rebuild import REBUILT
from relayer.upkeep.succession import rotate
from tests.conftest import database_copy
from tests.moving import moved, packed
from tests.openai_server import OpenAIServer
from tests.rebuilding import ROWS, Leave, Lose, bench, completed, elsewhere, lose, rebuilt
from tests.rotator import (
    ALWAYS,
    CUSTODIES,
    NOT_NOW,
    Rotator,
    admitted,
    epochs,
    opened_by,
    refused,
    rotator,
)
from tests.services import OTHER, TEAM, Bench, FakeClock
from tests.talking import AWAY, analyze, choose, facts
from tests.thinking import model, server

__all__ = ["bench", "elsewhere", "lose", "model", "server"]  # fixtures

MODES = ("keyword", "vector", "hybrid")
EPISODES = "SELECT epoch, state FROM episodes"
ALL = """
SELECT memory_id, revision, revision_of, epoch, pinned, stored_at, superseded_at IS NULL AS living
FROM memories ORDER BY memory_id
"""


async def answers(bench: Bench, caller: Caller) -> list[Sequence[str | None]]:
    """What each leg of recall finds, best first."""
    return [await bench.texts(caller, "who prefers a drink", mode=mode) for mode in MODES]


async def embedded(bench: Bench, caller: Caller) -> None:
    ids = [row["memory_id"] for row in await bench.sql("SELECT memory_id FROM memories")]
    await bench.services.indexer.embed(caller.access.account, caller.keys, ids)


async def come_back(owner: Rotator, lose: Lose, *namespaces: Namespace) -> Caller:
    """Lose the database, and have everything back that the owner's keys open."""
    bench = owner.bench
    lost = await lose(bench)
    assert await rebuilt(lost, bench) == [REBUILT]
    owner.bench = lost
    caller = await owner.caller(None, *(namespaces or (TEAM,)), hold_s=300)
    await completed(lost, owner.owner)
    return caller


async def clean(owner: Rotator) -> None:
    """What housekeeping does: the old bytes of what was sealed anew go."""
    await owner.bench.services.collector.collect()
    await owner.drop_old_bytes()


@pytest.mark.parametrize("custody", CUSTODIES)
class TestTwoEpochs:
    async def test_what_was_sealed_under_each_is_found(
        self, bench: Bench, lose: Lose, custody: str
    ) -> None:
        owner = await rotator(bench, custody)
        agent = await bench.key(owner.owner, TEAM)
        caller = await owner.caller()
        [edited] = await bench.remember(caller, "Ann likes milk.")
        bench.clock.advance(1)  # those of one millisecond may change places
        await bench.remember(caller, "Ben prefers tea as a drink.")
        await owner.rotate(reseal="none")
        bench.clock.advance(60)
        caller = await owner.caller()
        [new] = await bench.remember(caller, "Cleo prefers coffee.")
        bench.clock.advance(60)
        edit = Edit(changes={"text": "Ann prefers cocoa, a drink."})
        await bench.services.reviser.edit(caller, edited.id, edit)
        await embedded(bench, caller)
        rows, found = await bench.sql(ROWS), await answers(bench, caller)
        assert await epochs(bench) == {1: 2, 2: 2}
        again = await come_back(owner, lose)
        lost = owner.bench
        assert await lost.sql(ROWS) == rows
        await embedded(lost, again)
        assert await answers(lost, again) == found
        history = await lost.services.histories.history(again, edited.id)
        assert [m.text for m in history.revisions] == [edit.changes["text"], "Ann likes milk."]
        # Its agents go on where they were.
        assert await lost.storage.accounts.claim(owner.owner.account, agent.identity.public_key)
        agents = await owner.caller(agent)
        assert (await lost.services.memory.get(agents, new.id)).text == "Cleo prefers coffee."
        await lost.remember(again, "Dan prefers water.")
        assert (await epochs(lost))[2] == 3
        assert (await check(lost.storage)).problems == []

    async def test_what_was_half_sealed_anew_comes_back_once(
        self, bench: Bench, lose: Lose, custody: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The store holds old and new bytes of the same revisions; the new ones count."""
        monkeypatch.setattr("relayer.memories.reseal.PAGE", 6)
        owner = await rotator(bench, custody)
        caller = await owner.caller()
        texts = [f"Harbour note {n}." for n in range(8)]
        [edited, *_] = await bench.remember(caller, *texts)
        bench.clock.advance(60)
        await bench.services.reviser.edit(caller, edited.id, Edit(changes={"text": "Quay note."}))
        await owner.rotate(reseal="all")
        assert not await owner.reseal(go_on=NOT_NOW)
        half, rows = await epochs(bench), await bench.sql(ROWS)
        assert half == {1: 3, 2: 6}
        again = await come_back(owner, lose)
        lost = owner.bench
        assert await epochs(lost) == half
        assert await lost.sql(ROWS) == rows
        assert len(await lost.texts(again, "note", limit=50, mode="keyword")) == 8
        assert await lost.texts(again, "quay", mode="keyword") == ["Quay note."]
        # That everything was to be sealed anew has to be said again.
        await owner.send([], [], "all")
        assert await owner.reseal(go_on=ALWAYS)
        assert await epochs(lost) == {2: 9}
        await clean(owner)
        assert await opened_by(lost, owner.owner.account, owner.keys(TEAM)[:1]) == set()
        assert len(await opened_by(lost, owner.owner.account, owner.keys(TEAM)[1:])) == 9
        assert (await check(lost.storage)).problems == []

    async def test_an_epoch_that_is_over_stays_over(
        self, bench: Bench, lose: Lose, custody: str
    ) -> None:
        owner = await rotator(bench, custody)
        gone = await bench.key(owner.owner, TEAM)
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        await owner.rotate(revoke=[gone.identity.public_key], reseal="all")
        await owner.reseal()
        await owner.send(*await owner.objects(owner.roots[1:]))
        old = owner.keys(TEAM)[:1]
        del owner.roots[0]
        await owner.drop_old_bytes()
        caller = await come_back(owner, lose)
        lost = owner.bench
        assert [key.epoch for key in caller.keys.of(TEAM)] == [2]
        assert await lost.texts(caller, "tea", mode="keyword") == ["Anna prefers tea."]
        assert await opened_by(lost, owner.owner.account, old) == set()
        assert not await lost.storage.accounts.claim(owner.owner.account, gone.identity.public_key)


@pytest.mark.parametrize("custody", CUSTODIES)
class TestRetiringBeforeItIsBack:
    """What has no row yet needs the key of its epoch, too."""

    async def lost(self, bench: Bench, lose: Lose, custody: str) -> Rotator:
        """Lose the database and begin a new epoch before anything is back."""
        owner = await rotator(bench, custody)
        agent = await bench.key(owner.owner, TEAM)
        await bench.remember(await owner.caller(), "Anna prefers tea.", "Ben prefers coffee.")
        owner.bench = await lose(bench)
        assert await rebuilt(owner.bench, bench) == [REBUILT]
        await owner.rotate(revoke=[agent.identity.public_key])
        return owner

    async def unrestored(self, owner: Rotator) -> bool:
        rotations = owner.bench.services.rotations
        progress = await rotations.progress(await admitted(owner.bench, owner.owner))
        assert progress.older == 0
        return progress.unrestored

    async def test_an_epoch_is_not_over_while_something_may_need_it(
        self, bench: Bench, lose: Lose, custody: str
    ) -> None:
        owner = await self.lost(bench, lose, custody)
        assert await self.unrestored(owner)
        await refused("epoch.in_use", owner.send(*await owner.objects(owner.roots[1:])))
        caller = await owner.caller(hold_s=300)
        await completed(owner.bench, owner.owner)
        assert await owner.bench.texts(caller, "tea", mode="keyword") == ["Anna prefers tea."]
        await owner.send([], [], "all")
        assert await owner.reseal()
        assert not await self.unrestored(owner)
        await owner.send(*await owner.objects(owner.roots[1:]))
        del owner.roots[0]
        caller = await owner.caller()
        assert await owner.bench.texts(caller, "tea", mode="keyword") == ["Anna prefers tea."]

    async def test_bytes_of_an_epoch_that_is_over_keep_no_other_one(
        self, bench: Bench, lose: Lose, custody: str
    ) -> None:
        """Nobody has their key any more: the account waits for it in vain."""
        owner = await rotator(bench, custody)
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        await owner.rotate(reseal="all")
        await owner.reseal()
        await owner.send(*await owner.objects(owner.roots[1:]))
        del owner.roots[0]
        await come_back(owner, lose)  # with the old bytes, whose grace has not passed
        await owner.rotate(reseal="all")
        await owner.reseal()
        assert await self.unrestored(owner)
        await owner.send(*await owner.objects(owner.roots[1:]))
        del owner.roots[0]
        caller = await owner.caller()
        assert await owner.bench.texts(caller, "tea", mode="keyword") == ["Anna prefers tea."]

    async def test_nor_by_an_import_from_where_it_is_over(
        self, bench: Bench, lose: Lose, elsewhere: Leave, custody: str
    ) -> None:
        owner = await rotator(bench, custody)
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        there = await elsewhere(bench)
        await moved(bench, there, owner.owner)
        await owner.rotate(reseal="all")
        await owner.reseal()
        await owner.send(*await owner.objects(owner.roots[1:]))
        arrival = await packed(bench, await owner.caller())
        await there.storage.outbox.publish()
        lost = await lose(there)
        assert await rebuilt(lost, bench) == [REBUILT]
        access = (await lost.caller(owner.owner)).access
        await refused("epoch.in_use", lost.services.importer.take_in(access, arrival))
        chain = await lost.storage.accounts.chain(owner.owner.account)
        assert chain.oldest_alive(to_ms(lost.clock())) == 1


async def test_equal_memories_of_two_epochs_both_come_back(bench: Bench, lose: Lose) -> None:
    """Each with its history and its pin; one of them is the one that is recognised."""
    owner = await rotator(bench, "sealed")
    [older] = await bench.remember(await owner.caller(), "Anna prefers tea.")
    await owner.rotate(reseal="none")
    bench.clock.advance(60)
    caller = await owner.caller()
    newest = Caller(caller.access, LentKeys({TEAM: owner.keys(TEAM)[1:]}))
    [newer] = await bench.remember(newest, "Anna adores tea.")
    bench.clock.advance(60)
    edit = Edit(changes={"text": "Anna prefers tea."})
    await bench.services.reviser.edit(newest, newer.id, edit)
    for memory in (older, newer):
        await bench.services.state_changer.set_state(caller.access, memory.id, Change(pinned=True))
    await owner.send([], [], "all")
    await owner.reseal()
    await owner.drop_old_bytes()
    rows = await bench.sql(ALL)
    again = await come_back(owner, lose)
    lost = owner.bench
    assert await lost.sql(ALL) == rows
    assert (await check(lost.storage)).problems == []
    [said] = await lost.remember(again, "Anna prefers tea.")
    assert said.duplicate
    assert await lost.value("SELECT count(*) FROM memories WHERE fingerprint IS NULL") == 1


@pytest.mark.parametrize("back", [False, True], ids=["kept", "waiting"])
async def test_a_turn_that_was_just_sealed_anew_comes_back_once(
    bench: Bench, lose: Lose, model: LanguageModel, server: OpenAIServer, back: bool
) -> None:
    thinking = bench.another(language_model=model)
    owner = await rotator(thinking, "managed")
    caller = await choose(thinking, await owner.caller(), keep_turns=not back)
    server.script(facts("The user prefers tea.") if not back else AWAY)
    await analyze(thinking, caller, "1. user: I prefer tea.")
    await owner.rotate(reseal="all")
    await owner.reseal()
    before = await thinking.sql(EPISODES)
    assert [row["epoch"] for row in before] == [2]
    again = await come_back(owner, lose)
    lost = owner.bench
    assert await lost.sql(EPISODES) == before
    await clean(owner)
    assert await opened_by(lost, owner.owner.account, again.keys.of(TEAM)[1:]) == set()
    assert (await check(lost.storage)).problems == []


async def test_what_the_relayers_earlier_key_signed_counts(
    settings: Settings,
    postgres: EmbeddedPostgres,
    template: str,
    embedder: Embedder,
    tmp_path: Path,
) -> None:
    """Erasures, states and names of namespaces; and custody has followed to the new key."""
    settings = replace(settings, blob_store=f"file:{tmp_path / 'blobs'}")
    clock = FakeClock()

    def bench_of(storage: Storage, settings: Settings) -> Bench:
        services = build_services(
            storage, settings, embedder=embedder, language_model=None, clock=clock
        )
        return Bench(settings, storage, services, clock)

    async with open_storage(settings, clock) as storage:
        bench = bench_of(storage, settings)
        founders = {custody: await bench.account(custody) for custody in CUSTODIES}
        roots, doomed, pinned = bench.root, {}, {}
        for custody, founder in founders.items():
            caller = await bench.unlocked(founder, TEAM)
            stored = await bench.remember(caller, "Anna prefers tea.", "Ben prefers coffee.")
            doomed[custody], pinned[custody] = stored[0].id, stored[1].id
            await bench.services.deletion.forget(caller.access, stored[0].id)
            await bench.services.state_changer.set_state(
                caller.access, stored[1].id, Change(pinned=True, review="contradiction")
            )
    await rotate(settings, clock)
    async with open_storage(settings, clock) as storage:
        bench = bench_of(storage, settings)
        bench.root = roots
        for founder in founders.values():
            caller = await bench.unlocked(founder, TEAM, OTHER)
            await bench.remember(caller, "Cleo prefers milk.", namespace=OTHER)
        rows = await bench.sql(ROWS)
        await storage.outbox.publish()
    async with AsyncExitStack() as stack:
        copy = await stack.enter_async_context(database_copy(postgres, template))
        after = replace(settings, database_url=copy.url)
        storage = await stack.enter_async_context(open_storage(after, clock))
        lost = bench_of(storage, after)
        assert await rebuilt(lost, bench) == [REBUILT, REBUILT]
        for custody, founder in founders.items():
            caller = await lost.unlocked(founder, TEAM, OTHER, hold_s=300)
            assert caller.access.custody == custody
            await completed(lost, founder)
            assert await lost.texts(caller, "prefers", mode="keyword") == ["Ben prefers coffee."]
            memory = await lost.services.memory.get(caller, pinned[custody])
            assert (memory.state.pinned, memory.state.review) == (True, "contradiction")
        assert await lost.sql(ROWS) == rows
        stones = await lost.sql("SELECT memory_id FROM tombstones")
        assert {row["memory_id"] for row in stones} == set(doomed.values())
        assert (await check(lost.storage)).problems == []
