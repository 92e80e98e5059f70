"""Accounts that move after their keys were replaced, to relayers that search by other vectors."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec
import pytest
import pytest_asyncio

from relayer.archives.importer import Arrival
from relayer.database.accounts import lock_account
from relayer.database.pool import Database
from relayer.embedding.embedders import Embedder
from relayer.embedding.endpoints import Endpoint
from relayer.embedding.openai import OpenAIEmbedder
from relayer.errors import Conflict, Misdirected
from relayer.llm import LanguageModel
from relayer.memories.opener import Caller
from relayer.memories.revisions import Edit
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.settings import Settings
from relayer.upkeep import provision
from relayer.upkeep.check import check
from tests.chains import assert_chain_holds, chain_of
from tests.conftest import database_copy
from tests.embeddings_server import DIM, KEY, MODEL, EmbeddingsServer
from tests.erasing import living
from tests.moving import (
    EMPTY,
    ROWS,
    everything,
    founded,
    here,
    leaving,
    moved,
    packed,
    there,
)
from tests.openai_server import OpenAIServer
from tests.racing import WAITING, race
from tests.rotator import CUSTODIES, NOT_NOW, Rotator, epochs, opened_by, rotator
from tests.services import TEAM, Bench, bench_on
from tests.talking import AWAY, analyze, choose, facts
from tests.thinking import model, server

__all__ = ["here", "model", "server", "there"]  # fixtures

MODES = ("keyword", "vector", "hybrid")
GRANTS = "SELECT serial, object FROM grants ORDER BY serial"
TURNS = "SELECT state, epoch, writer, created_at, blob_id FROM episodes ORDER BY state"


def arrived_at(owner: Rotator, there: Bench) -> Rotator:
    """The same owner with the same roots at the other relayer."""
    other = Rotator(there, owner.owner)
    other.roots = list(owner.roots)
    return other


async def brought(owner: Rotator, there: Bench) -> Arrival:
    """Bring everything that is here by now; the account is there already."""
    arrival = await packed(owner.bench, await owner.caller())
    await there.services.importer.take_in((await there.caller(owner.owner)).access, arrival)
    return arrival


async def tea_drinker(here: Bench) -> Rotator:
    """The owner of a sealed account that has one memory."""
    owner = await rotator(here, "sealed")
    await here.remember(await owner.caller(), "Anna prefers tea.")
    return owner


async def sealed_anew(owner: Rotator) -> None:
    """Everything, under a new epoch."""
    await owner.rotate(reseal="all")
    await owner.reseal()


async def first_epoch_ended(owner: Rotator) -> None:
    """By grants that do not hold its keys any more."""
    await owner.send(*await owner.objects(owner.roots[1:]))


class TestTwoEpochs:
    @pytest.mark.parametrize("custody", CUSTODIES)
    async def test_what_was_sealed_under_each_is_found(
        self, here: Bench, there: Bench, custody: str
    ) -> None:
        owner = await rotator(here, custody)
        agent = await here.key(owner.owner, TEAM)
        [edited, _] = await here.remember(
            await owner.caller(), "Anna prefers tea.", "Ben prefers coffee."
        )
        await owner.rotate(reseal="none")
        here.clock.advance(60)
        caller = await owner.caller()
        await here.remember(caller, "Cleo prefers milk.")
        edit = Edit(changes={"text": "Anna prefers cocoa."})
        await here.services.reviser.edit(caller, edited.id, edit)
        await here.services.indexer.embed(
            caller.access.account, caller.keys, list(await living(here))
        )
        await moved(here, there, owner.owner)
        assert await there.sql(ROWS) == await here.sql(ROWS)
        assert await epochs(there) == {1: 2, 2: 2}
        assert await there.sql(GRANTS) == await here.sql(GRANTS)
        other = arrived_at(owner, there)
        reader = await other.caller()
        for mode in MODES:
            asked = "who prefers"
            assert await there.texts(reader, asked, mode=mode) == await here.texts(
                caller, asked, mode=mode
            )
        # Agents come along, and nobody writes under what is over.
        assert await there.storage.accounts.claim(owner.owner.account, agent.identity.public_key)
        assert await there.texts(await other.caller(agent), "cocoa", mode="keyword")
        with pytest.raises(Misdirected):
            await there.caller(agent, there.unlock(agent, owner.keys(TEAM)[:1]))
        # A rotation goes on where it stood.
        await other.send([], [], "all")
        assert await other.reseal()
        assert await epochs(there) == {2: 4}
        former = here.storage.identity.public_key
        await other.send(*await other.objects(other.roots[1:], without=[former]))
        assert (await check(there.storage)).problems == []
        await assert_chain_holds(there, owner.owner.account)

    async def test_in_the_middle_of_sealing_anew(
        self, here: Bench, there: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("relayer.memories.reseal.PAGE", 3)
        owner = await rotator(here, "sealed")
        texts = {f"Harbour note {n}." for n in range(5)}
        await here.remember(await owner.caller(), *texts)
        await owner.rotate(reseal="all")
        assert not await owner.reseal(go_on=NOT_NOW)
        await moved(here, there, owner.owner)
        assert await epochs(there) == {1: 2, 2: 3}
        other = arrived_at(owner, there)
        reader = await other.caller()
        assert {*await there.texts(reader, "harbour", mode="keyword")} == texts
        await other.send([], [], "all")
        assert await other.reseal()
        await other.drop_old_bytes()
        old, new = owner.keys(TEAM)
        assert await opened_by(there, owner.owner.account, [old]) == set()
        assert len(await opened_by(there, owner.owner.account, [new])) == 5

    async def test_rows_of_an_epoch_that_the_grants_do_not_name_are_refused(
        self, here: Bench, there: Bench
    ) -> None:
        owner = await tea_drinker(here)
        early = await packed(here, await owner.caller())
        await sealed_anew(owner)
        late = await packed(here, await owner.caller())
        access = (await founded(here, there, owner.owner)).access
        await there.services.importer.take_in(access, replace(early, memories=[]))
        done = await there.services.importer.take_in(access, replace(EMPTY, memories=late.memories))
        assert [status for _, status in done.results] == ["refused"]
        assert await living(there) == set()


class TestSealedAnewSince:
    """The same account comes again after everything was sealed anew where it was."""

    async def test_what_is_here_stays_and_what_is_new_comes(
        self, here: Bench, there: Bench
    ) -> None:
        owner = await rotator(here, "sealed")
        [known] = await here.remember(await owner.caller(), "Anna prefers tea.")
        await moved(here, there, owner.owner)
        before = await there.sql(ROWS)
        await sealed_anew(owner)
        [new] = await here.remember(await owner.caller(), "Ben prefers coffee.")
        later = await packed(here, await owner.caller())
        access = (await there.caller(owner.owner)).access
        for status in ("imported", "unchanged"):
            done = await there.services.importer.take_in(access, later)
            assert dict(done.results) == {known.id: "differs", new.id: status}
        assert (await there.sql(ROWS))[:1] == before
        other = arrived_at(owner, there)
        reader = await other.caller()
        found = await there.texts(reader, "prefers", mode="keyword")
        assert {*found} == {"Anna prefers tea.", "Ben prefers coffee."}
        await other.send([], [], "all")
        assert await other.reseal()
        assert await epochs(there) == {2: 2}
        assert (await check(there.storage)).problems == []

    async def test_an_epoch_ends_only_when_nothing_here_needs_it(
        self, here: Bench, there: Bench
    ) -> None:
        """Else what is here could not be opened any more."""
        owner = await tea_drinker(here)
        await moved(here, there, owner.owner)
        await sealed_anew(owner)
        await first_epoch_ended(owner)
        with pytest.raises(Conflict) as caught:
            await brought(owner, there)
        assert caught.value.code == "epoch.in_use"
        other = arrived_at(owner, there)
        reader = await other.caller()
        assert await there.texts(reader, "tea", mode="keyword") == ["Anna prefers tea."]
        # The new epoch has come, so that what is here can follow it; then all of it comes.
        await other.send([], [], "all")
        assert await other.reseal()
        await brought(owner, there)
        assert await there.sql(GRANTS) == await here.sql(GRANTS)
        del other.roots[0]
        reader = await other.caller()
        assert [key.epoch for key in reader.keys.of(TEAM)] == [2]
        assert await there.texts(reader, "tea", mode="keyword") == ["Anna prefers tea."]
        await assert_chain_holds(there, owner.owner.account)

    async def test_nothing_new_comes_under_an_epoch_that_is_over(
        self, here: Bench, there: Bench
    ) -> None:
        """Nobody is given its key any more. What was sealed anew since, and is there, stays so."""
        owner = await rotator(here, "sealed")
        caller = await choose(here, await owner.caller(), keep_turns=True)
        [memory] = await here.remember(caller, "Anna prefers tea.")
        turn = (await analyze(here, caller, "1. user: I prefer window seats on trains.")).kept
        assert turn is not None
        old = await packed(here, caller)
        await sealed_anew(owner)
        await first_epoch_ended(owner)
        new = await packed(here, await owner.caller())
        access = (await founded(here, there, owner.owner)).access
        late = replace(new, memories=old.memories, episodes=old.episodes)
        done = await there.services.importer.take_in(access, late)
        assert {status for _, status in done.results} == {"refused"}
        assert await epochs(there) == {}
        done = await there.services.importer.take_in(access, new)
        assert {status for _, status in done.results} == {"imported"}
        done = await there.services.importer.take_in(access, late)
        assert {memory.id, turn} <= {row for row, _ in done.results}
        assert {status for _, status in done.results} == {"differs"}
        assert (await check(there.storage)).problems == []

    async def test_nothing_comes_under_it_when_it_was_over_in_between(
        self, here: Bench, there: Bench
    ) -> None:
        owner = await tea_drinker(here)
        old = await packed(here, await owner.caller())
        await sealed_anew(owner)
        account, access = owner.owner.account, (await founded(here, there, owner.owner)).access
        arriving, early = there.services.importer, await packed(here, await owner.caller())
        await arriving.take_in(access, replace(early, memories=[]))
        await first_epoch_ended(owner)
        last = replace(EMPTY, grants=(await packed(here, await owner.caller())).grants)
        late = replace(EMPTY, memories=old.memories)
        ended, done = await race(
            there, account, arriving.take_in(access, last), arriving.take_in(access, late)
        )
        assert ended.grants > 0
        assert {status for _, status in done.results} == {"refused"}
        assert await epochs(there) == {}

    async def test_what_comes_under_it_meanwhile_keeps_it(self, here: Bench, there: Bench) -> None:
        """A restore may bring something of an old epoch while the grants that end it come."""
        owner = await tea_drinker(here)
        await sealed_anew(owner)
        await moved(here, there, owner.owner)
        await first_epoch_ended(owner)
        arrival = await packed(here, await owner.caller())
        access, before = (await there.caller(owner.owner)).access, await there.sql(GRANTS)
        async with there.storage.database.transaction() as connection:
            await lock_account(connection, owner.owner.account)
            taking = asyncio.ensure_future(there.services.importer.take_in(access, arrival))
            await there.until(WAITING, 1)
            await connection.execute("UPDATE memories SET epoch = 1")
        with pytest.raises(Conflict) as caught:
            await taking
        assert caught.value.code == "epoch.in_use"
        assert await there.sql(GRANTS) == before

    async def test_an_epoch_that_was_over_before_the_move_is_over_there(
        self, here: Bench, there: Bench
    ) -> None:
        owner = await tea_drinker(here)
        await sealed_anew(owner)
        await first_epoch_ended(owner)
        await moved(here, there, owner.owner)
        other = arrived_at(owner, there)
        del other.roots[0]
        reader = await other.caller()
        assert await there.texts(reader, "tea", mode="keyword") == ["Anna prefers tea."]
        assert (await check(there.storage)).problems == []


class TestAgain:
    async def test_what_was_erased_here_in_between_stays_erased(
        self, here: Bench, there: Bench
    ) -> None:
        """By id, whatever the later archive says of it: edited, sealed anew, or as it was."""
        owner = await rotator(here, "sealed")
        stored = await here.remember(await owner.caller(), "One tea.", "Two teas.", "Three teas.")
        edited, _, kept = stored
        await moved(here, there, owner.owner)
        mine = await there.caller(owner.owner)
        for doomed in stored[:2]:
            await there.services.deletion.forget(mine.access, doomed.id)
        here.clock.advance(60)
        caller = await owner.caller()
        await here.services.reviser.edit(caller, edited.id, Edit(changes={"text": "No tea."}))
        await sealed_anew(owner)
        await brought(owner, there)
        receipts = await chain_of(there, owner.owner.account)
        await brought(owner, there)
        assert await living(there) == {kept.id}
        assert await chain_of(there, owner.owner.account) == receipts
        assert (await check(there.storage)).problems == []

    async def test_in_any_order_and_with_parts_missing_it_ends_the_same(
        self, here: Bench, there: Bench
    ) -> None:
        """As an import goes that broke off and was begun anew, page by page."""
        owner = await rotator(here, "sealed")
        caller = await owner.caller()
        stored = await here.remember(caller, *(f"Note {n}." for n in range(6)))
        here.clock.advance(60)
        await here.services.reviser.edit(caller, stored[0].id, Edit(changes={"text": "New."}))
        await here.services.deletion.forget(caller.access, stored[1].id)
        arrival = await packed(here, caller)
        access = (await founded(here, there, owner.owner)).access
        take_in = there.services.importer.take_in
        await take_in(access, replace(arrival, memories=[], tombstones=[]))
        await take_in(access, replace(EMPTY, memories=arrival.memories[:2]))
        for _ in range(2):
            for row in reversed(arrival.memories):
                await take_in(access, replace(EMPTY, memories=[row]))
            await take_in(access, replace(arrival, memories=[]))
        await take_in(access, arrival)
        assert await there.sql(ROWS) == await here.sql(ROWS)
        assert (await check(there.storage)).problems == []
        await assert_chain_holds(there, owner.owner.account)


class TestTurns:
    @pytest.mark.parametrize("custody", CUSTODIES)
    async def test_kept_and_waiting_ones_come_along(
        self,
        here: Bench,
        there: Bench,
        model: LanguageModel,
        server: OpenAIServer,
        custody: str,
    ) -> None:
        """What was said can be read there, beside its facts, and what waits gives its facts."""
        thinking, said = here.another(language_model=model), "1. user: I prefer tea."
        founder = await thinking.account(custody)
        caller = await choose(thinking, await thinking.unlocked(founder, TEAM), keep_turns=True)
        server.script(facts("The user prefers tea."), AWAY)
        kept = await analyze(thinking, caller, said)
        waits = await analyze(thinking, caller, "1. user: I am allergic to peanuts.")
        arrival = await moved(thinking, there, founder)
        assert await there.sql(TURNS) == await here.sql(TURNS)
        reader = await there.unlocked(founder, TEAM)
        assert kept.kept is not None
        turn = await there.services.episodes.get(reader, kept.kept)
        assert (turn.text, list(turn.fact_ids)) == (said, [one.id for one in kept.facts])
        again = await there.services.importer.take_in(reader.access, arrival)
        assert {status for _, status in again.results} == {"unchanged"}
        assert waits.pending is not None
        await there.services.analysis.extract_episode(founder.account, reader.keys, waits.pending)
        assert await there.texts(reader, "peanuts", mode="keyword")
        assert await there.sql("SELECT 1 FROM episodes WHERE state = 'pending'") == []
        # What gave its facts here does not wait once more.
        await there.services.importer.take_in(reader.access, arrival)
        assert await there.sql("SELECT 1 FROM episodes WHERE state = 'pending'") == []
        kept_turns = "SELECT count(*) FROM episodes WHERE state = 'kept'"
        assert await there.value(kept_turns) == 2
        await there.services.deletion.forget(reader.access, kept.facts[0].id)
        assert await there.value(kept_turns) == 1
        assert (await check(there.storage)).problems == []

    async def test_they_are_read_again_by_name_as_long_as_they_are_there(
        self, here: Bench, there: Bench, model: LanguageModel, server: OpenAIServer
    ) -> None:
        thinking = here.another(language_model=model)
        founder = await thinking.account()
        server.script(AWAY)
        caller = await thinking.caller(founder)
        [memory] = await here.remember(caller, "Ben sells cups.")
        waits = await analyze(thinking, caller, "1. user: I am allergic to peanuts.")
        assert waits.pending is not None
        ids = [memory.id, waits.pending]
        page, following = await leaving(here).episodes(caller.access, ids)
        assert (page, following) == (await everything(here, caller, "episodes"), None)
        stranger = await here.caller(await here.account())
        assert await leaving(here).episodes(stranger.access, ids) == ([], None)
        await thinking.services.analysis.extract_episode(founder.account, caller.keys, ids[1])
        assert await leaving(here).episodes(caller.access, ids) == ([], None)

    async def test_one_that_gave_its_facts_here_does_not_come_again(
        self, here: Bench, there: Bench, model: LanguageModel, server: OpenAIServer
    ) -> None:
        """It was not to be kept, so that its bytes are gone, and what is new comes all the same."""
        thinking = here.another(language_model=model)
        founder = await thinking.account()
        server.script(AWAY)
        caller = await thinking.caller(founder)
        waits = await analyze(thinking, caller, "1. user: I am allergic to peanuts.")
        assert waits.pending is not None
        await moved(thinking, there, founder)
        reader = await there.unlocked(founder, TEAM)
        await there.services.analysis.extract_episode(founder.account, reader.keys, waits.pending)
        facts_there = await living(there)
        assert len(facts_there) == 1
        [new] = await here.remember(caller, "Ben sells cups.")
        arrival = await packed(here, caller)
        done = await there.services.importer.take_in(reader.access, arrival)
        assert dict(done.results) == {waits.pending: "unchanged", new.id: "imported"}
        assert await living(there) == {*facts_there, new.id}
        assert await there.sql("SELECT 1 FROM episodes WHERE state <> 'done'") == []
        assert (await check(there.storage)).problems == []


class TestAnotherModel:
    """The relayer there has another embedding model, with vectors of another length."""

    @pytest_asyncio.fixture
    async def other(
        self,
        settings: Settings,
        postgres: EmbeddedPostgres,
        template: str,
        here: Bench,
    ) -> AsyncIterator[Bench]:
        async with (
            EmbeddingsServer() as endpoint,
            database_copy(postgres, template) as copy,
        ):
            embedder: Embedder = OpenAIEmbedder(
                endpoints=[Endpoint(endpoint.url, KEY)], model=MODEL, dim=DIM
            )
            database = await Database.connect(copy.connect_args, connections=5)
            yield bench_on(
                settings, copy.connect_args, database, embedder=embedder, clock=here.clock
            )
            await database.close()
            assert endpoint.complaints == []

    @pytest.mark.parametrize("custody", CUSTODIES)
    async def test_vectors_are_made_anew_and_found_by(
        self, here: Bench, other: Bench, custody: str
    ) -> None:
        """Until all are, those that came along find their memories."""
        owner = await rotator(here, custody)
        stored = await here.remember(await owner.caller(), "Anna prefers tea.", "Ben sells cups.")
        await here.embed(await owner.caller(), stored)
        await owner.rotate(reseal="none")
        later = await here.remember(await owner.caller(), "Cleo prefers milk.")
        await here.embed(await owner.caller(), later)
        await moved(here, other, owner.owner)
        [before] = await other.sql("SELECT array_agg(DISTINCT model) AS models FROM vectors")
        there = arrived_at(owner, other)
        reader = await there.caller(hold_s=300)
        texts = ("Anna prefers tea.", "Ben sells cups.", "Cleo prefers milk.")
        for text in texts:
            assert (await other.texts(reader, text, mode="vector"))[0] == text
        await self.reindexed(other, owner.owner)
        [after] = await other.sql("SELECT array_agg(DISTINCT model) AS models FROM vectors")
        assert not {*before["models"]} & {*after["models"]}
        assert await other.value("SELECT count(*) FROM vectors") == 3
        for text in texts:
            assert (await other.texts(reader, text, mode="vector"))[0] == text
        assert (await check(other.storage)).problems == []

    async def test_those_that_came_are_out_of_date_whatever_they_say(
        self, here: Bench, other: Bench
    ) -> None:
        caller = await here.caller(founder := await here.account())
        await here.embed(caller, await here.remember(caller, "Anna prefers tea."))
        arrival = await packed(here, caller)
        current = other.services.indexer.versions.embedding
        said = [msgspec.structs.replace(m, embedding_version=current) for m in arrival.memories]
        owner = await founded(here, other, founder)
        await other.services.importer.take_in(owner.access, replace(arrival, memories=said))
        assert await other.value("SELECT count(*) FROM vectors") == 1
        assert await other.services.indexer.waits(founder.account)

    async def reindexed(self, bench: Bench, founder: provision.NewKey) -> None:
        """What the worker does when keys are lent."""
        keys = await bench.storage.custody.job_keys(founder.account)
        assert keys is not None
        await bench.services.sweeper.sweep()
        async with bench.working():
            await bench.until("SELECT count(*) FROM vectors WHERE vector_dims(embedding) <> 6", 0)
            await bench.until("SELECT count(*) FROM vectors", 3)


async def test_memories_of_the_largest_size_move(here: Bench, there: Bench) -> None:
    """Each page ends behind one of them, and each request takes it."""
    caller: Caller = await here.caller(founder := await here.account())
    text = "tea " * (2**18)
    assert len(text.encode()) == 2**20
    [large, small] = await here.remember(caller, text, "Ben sells cups.")
    await moved(here, there, founder)
    reader = await there.unlocked(founder, TEAM)
    assert (await there.services.memory.get(reader, large.id)).text == text
    assert await living(there) == {large.id, small.id}
