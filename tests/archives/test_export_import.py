"""What leaves one relayer and arrives at another: two databases, two identities."""

import uuid
from dataclasses import replace
from datetime import timedelta
from os import urandom

import msgspec
import pytest

from relayer.database.namespaces import summaries
from relayer.journal.states import Change
from relayer.llm import LanguageModel
from relayer.memories.opener import Caller
from relayer.memories.revisions import Edit
from relayer.portable import LINKS_MAX, MovedMemory, MovedTombstone
from relayer.record import new_id
from relayer.sealed.envelope import blob_id
from relayer.sealed.grants import issue_grant, parse_any
from relayer.upkeep.check import check
from tests.chains import assert_chain_holds
from tests.collecting import FORMER
from tests.consolidating import MEETINGS, consolidated, happened, week
from tests.erasing import keep_turn
from tests.moving import (
    EMPTY,
    POSTINGS,
    ROWS,
    VECTORS,
    everything,
    founded,
    here,
    leaving,
    moved,
    packed,
    there,
)
from tests.openai_server import OpenAIServer
from tests.services import OTHER, TEAM, Bench, new_identity
from tests.talking import AWAY, BERLIN, OSLO, analyze, choose, facts
from tests.thinking import model, server

__all__ = ["here", "model", "server", "there"]  # fixtures

PINNED = Change(pinned=True)
COUNTS = """
SELECT name, memory_count, word_count, storage_bytes, index_bytes FROM namespaces ORDER BY name
"""


@pytest.mark.parametrize("custody", ["sealed", "managed"])
async def test_rows_arrive_as_they_were(here: Bench, there: Bench, custody: str) -> None:
    founder = await here.account(custody)
    caller = await here.unlocked(founder, TEAM, OTHER)
    stored = await here.remember(caller, "Anna prefers tea.", source="chat:7", tags=("a", "b"))
    stored += await here.remember(caller, "Ben sells cups.", kind="decision")
    stored += await here.remember(caller, "Elsewhere.", namespace=OTHER)
    await here.embed(caller, stored)
    arrival = await packed(here, caller)
    new = await founded(here, there, founder)
    done = await there.services.importer.take_in(new.access, arrival)
    assert {status for _, status in done.results} == {"imported"}
    for statement in (ROWS, POSTINGS, VECTORS, COUNTS):
        assert await there.sql(statement) == await here.sql(statement)
    # Whoever was a custodian there is nobody here.
    assert (await there.caller(founder)).access.custody == "sealed"
    reader = await there.unlocked(founder, TEAM)
    for mode in ("hybrid", "keyword", "vector"):
        assert await there.texts(reader, "Anna's tea", mode=mode) == await here.texts(
            caller, "Anna's tea", mode=mode
        )


async def test_again_changes_nothing(here: Bench, there: Bench) -> None:
    founder = await here.account()
    await here.remember(await here.caller(founder), "Anna prefers tea.", "Ben sells cups.")
    arrival = await moved(here, there, founder)
    before = await there.sql(ROWS), await there.sql(COUNTS)
    receipts = await there.value("SELECT receipt_seq FROM accounts")
    again = await there.services.importer.take_in((await there.caller(founder)).access, arrival)
    assert (again.grants, again.receipts) == (0, [])
    assert {status for _, status in again.results} == {"unchanged"}
    assert (await there.sql(ROWS), await there.sql(COUNTS)) == before
    assert await there.value("SELECT receipt_seq FROM accounts") == receipts


async def test_revisions_and_states_arrive(here: Bench, there: Bench) -> None:
    founder = await here.account()
    caller = await here.caller(founder)
    [edited, old, new] = await here.remember(caller, "One apple.", "Two pears.", "Three plums.")
    here.clock.advance(60)
    await here.services.reviser.edit(caller, edited.id, Edit(changes={"text": "Four figs."}))
    await here.services.state_changer.set_state(caller.access, edited.id, Change(pinned=True))
    await here.services.state_changer.set_state(caller.access, old.id, Change(superseded_by=new.id))
    await moved(here, there, founder)
    assert await there.sql(ROWS) == await here.sql(ROWS)
    states = await there.sql("SELECT memory_id FROM memories WHERE state_blob IS NOT NULL")
    assert {r["memory_id"] for r in states} == {edited.id, old.id}
    assert (await check(there.storage)).problems == []
    reader = await there.unlocked(founder, TEAM)
    earlier = there.clock() - timedelta(seconds=30)
    assert await there.texts(reader, "apple", mode="keyword") == []
    assert await there.texts(reader, "apple", mode="keyword", as_of=earlier) == ["One apple."]


async def test_what_was_erased_does_not_come(here: Bench, there: Bench) -> None:
    founder = await here.account()
    caller = await here.caller(founder)
    [doomed, kept] = await here.remember(caller, "Anna prefers tea.", "Ben sells cups.")
    before = await packed(here, caller)
    await here.services.deletion.forget(caller.access, doomed.id)
    await moved(here, there, founder)
    assert [r["memory_id"] for r in await there.sql(ROWS)] == [kept.id]
    # Neither does it come with an archive that was made before.
    late = await there.services.importer.take_in((await there.caller(founder)).access, before)
    assert dict(late.results)[doomed.id] == "erased"
    assert [r["memory_id"] for r in await there.sql(ROWS)] == [kept.id]


async def test_a_namespace_is_listed_as_it_was(here: Bench, there: Bench) -> None:
    """With the time of its last write; one that was emptied only once something is written."""
    founder = await here.account()
    caller = await here.caller(founder)
    await here.remember(caller, "Anna prefers tea.")
    here.clock.advance(60)
    await here.remember(caller, "Ben sells cups.")
    await here.remember(caller, "Elsewhere.", namespace=OTHER)
    await here.services.deletion.forget_namespace(caller.access, OTHER)
    listed = await summaries(here.storage.database, founder.account, None)
    here.clock.advance(3_600)
    await moved(here, there, founder)
    arrived = await summaries(there.storage.database, founder.account, None)
    assert [one["name"] for one in arrived] == [TEAM]
    assert arrived[0]["updated_at"] == listed[0]["updated_at"]
    reader = await there.unlocked(founder, OTHER)
    await there.remember(reader, "Elsewhere again.", namespace=OTHER)
    arrived = await summaries(there.storage.database, founder.account, None)
    assert [(one["name"], one["memory_count"]) for one in arrived] == [(OTHER, 1), (TEAM, 2)]


async def test_what_was_erased_there_since_goes_here(here: Bench, there: Bench) -> None:
    founder = await here.account()
    caller = await here.caller(founder)
    [doomed] = await here.remember(caller, "Anna prefers tea.")
    await moved(here, there, founder)
    await here.services.deletion.forget(caller.access, doomed.id)
    later = await packed(here, caller)
    await there.services.importer.take_in((await there.caller(founder)).access, later)
    assert await there.sql(ROWS) == []
    assert await there.sql("SELECT blob_id FROM blobs b WHERE get_byte(bytes, 0) = 1") == []


@pytest.mark.parametrize("made", ["here", "there"])
@pytest.mark.parametrize("how", ["expired", "forgotten"])
async def test_what_expired_there_leaves_what_is_somebody_s_own(
    here: Bench, there: Bench, made: str, how: str
) -> None:
    """A pinned summary of it, made at either of both, ends only when it was forgotten."""
    founder = await here.account()
    caller, end = await here.caller(founder), here.clock() + timedelta(days=20)
    dog = "Anna met the landlord's dog."
    await happened(here, caller, *MEETINGS, day=week(here))
    [source] = await happened(here, caller, dog, day=week(here), expires_at=end)
    if made == "here":
        _, [action] = await consolidated(here, caller)
        await here.services.state_changer.set_state(caller.access, action["memory_id"], PINNED)
    await moved(here, there, founder)
    reader = await there.unlocked(founder, TEAM)
    if made == "there":
        _, [action] = await consolidated(there, reader)
        await there.services.state_changer.set_state(reader.access, action["memory_id"], PINNED)
    assert source.id in action["other_ids"]
    if how == "expired":
        here.clock.advance(21 * 86_400)
        await here.services.expiry.expire()
    else:
        await here.services.deletion.forget(caller.access, source.id)
    reader = await there.unlocked(founder, TEAM)
    await there.services.importer.take_in(reader.access, await packed(here, caller))
    left = {r["memory_id"] for r in await there.sql(ROWS)}
    assert len(left - {action["memory_id"]}) == len(MEETINGS)
    assert (action["memory_id"] in left) == (how == "expired")
    stones = {stone.id: stone for stone in (await packed(there, reader)).tombstones}
    assert stones[source.id].expired == (how == "expired")
    assert (await check(there.storage)).problems == []
    await assert_chain_holds(there, founder.account)


async def test_what_expired_before_it_came_is_remembered_so(here: Bench, there: Bench) -> None:
    founder = await here.account()
    caller, end = await here.caller(founder), here.clock() + timedelta(days=1)
    [source] = await here.remember(caller, "Anna met the landlord's dog.", expires_at=end)
    here.clock.advance(2 * 86_400)
    await here.services.expiry.expire()
    await moved(here, there, founder)
    [stone] = (await packed(there, await there.caller(founder))).tombstones
    assert (stone.id, stone.expired) == (source.id, True)


async def test_a_place_that_is_taken(here: Bench, there: Bench) -> None:
    """Written here before the rest arrived: both stay, each with a number of its own."""
    founder = await here.account()
    await here.remember(await here.caller(founder), "Anna prefers tea.")
    arrival = await packed(here, await here.caller(founder))
    await founded(here, there, founder)
    await there.remember(await there.unlocked(founder, TEAM), "Ben sells cups.")
    caller = await there.caller(founder)
    done = await there.services.importer.take_in(caller.access, arrival)
    assert [status for _, status in done.results] == ["imported"]
    assert [r["seq"] for r in await there.sql(ROWS)] == [1, 2]


async def test_a_fact_that_is_said_here_by_now(here: Bench, there: Bench) -> None:
    founder = await here.account()
    await here.remember(await here.caller(founder), "Anna prefers tea.")
    arrival = await packed(here, await here.caller(founder))
    await founded(here, there, founder)
    unlocked = await there.unlocked(founder, TEAM)
    [said] = await there.remember(unlocked, "Anna prefers tea.")
    await there.services.importer.take_in(unlocked.access, arrival)
    assert await there.texts(unlocked, "tea", mode="keyword") == ["Anna prefers tea."]
    [row] = await there.sql("SELECT superseded_by FROM memories WHERE superseded_at IS NOT NULL")
    assert row["superseded_by"] == said.id
    # That it gave way is signed, as every state is.
    assert await there.value("SELECT state_blob FROM memories WHERE superseded_by IS NOT NULL")
    await assert_chain_holds(there, founder.account)


async def test_many_erasures_of_many_revisions(here: Bench, there: Bench) -> None:
    """More than one receipt has room for."""
    founder = await here.account()
    await here.remember(await here.caller(founder), "Anna prefers tea.")
    await moved(here, there, founder)
    stones = [
        MovedTombstone(
            id=new_id(),
            namespace="team",
            blob_ids=[blob_id(urandom(8)) for _ in range(8)],
            erased_at=here.clock(),
        )
        for _ in range(100)
    ]
    access = (await there.caller(founder)).access
    done = await there.services.importer.take_in(access, replace(EMPTY, tombstones=stones))
    assert len(done.receipts) == 2
    assert await there.value("SELECT count(*) FROM tombstones") == 100
    await assert_chain_holds(there, founder.account)


async def test_what_has_grown_for_years_can_leave_and_arrive(here: Bench, there: Bench) -> None:
    """More links, passages and epochs than anything usually has."""
    founder = await here.account()
    caller = await here.caller(founder)
    [memory, other] = await here.remember(caller, "Anna prefers tea.", "Ben sells cups.")
    await here.embed(caller, [memory])
    [before] = await everything(here, caller, "namespaces")
    await here.sql(
        "INSERT INTO links SELECT account_id, memory_id, 'merged', gen_random_uuid(), now()"
        " FROM memories, generate_series(1, $2) WHERE memory_id = $1", memory.id, LINKS_MAX,
    )  # fmt: skip
    await here.sql(
        "INSERT INTO links SELECT account_id, memory_id, 'source', $2, now()"
        " FROM memories WHERE memory_id = $1", memory.id, other.id,
    )  # fmt: skip
    await here.sql(
        "INSERT INTO vectors (account_id, memory_id, part, namespace_id, epoch, model, embedding)"
        " SELECT account_id, memory_id, n, namespace_id, epoch, model, embedding"
        " FROM vectors, generate_series(1, 5000) n"
    )
    await here.sql(
        "INSERT INTO namespace_keys (account_id, namespace_id, epoch, key_id)"
        " SELECT account_id, namespace_id, n, decode(md5(n::text) || md5(n::text), 'hex')"
        " FROM namespace_keys, generate_series(2, 300) n"
    )
    [row, _] = await everything(here, caller, "memories")
    assert (len(row.links), row.links[0].relation, len(row.vectors)) == (LINKS_MAX, "source", 5001)
    [namespace] = await everything(here, caller, "namespaces")
    assert [key.epoch for key in namespace.keys] == [*range(45, 301)]
    mine = await founded(here, there, founder)
    arrival = replace(EMPTY, namespaces=[before], memories=[row])
    done = await there.services.importer.take_in(mine.access, arrival)
    assert done.results == [(memory.id, "imported")]
    assert await there.value("SELECT count(*) FROM links") == LINKS_MAX


async def test_an_answer_ends_with_its_bytes(here: Bench) -> None:
    caller = await here.caller(await here.account())
    [long] = await here.remember(caller, "word " * 100_000)
    for n in range(3):
        edit = Edit(changes={"text": f"{n} " + "word " * 100_000})
        await here.services.reviser.edit(caller, long.id, edit)
    await here.remember(caller, "Another.")
    cursor: str | None = ""
    sizes, found = [], []
    while cursor is not None:
        page, cursor = await leaving(here).memories(caller.access, [long.id], cursor)
        rows = [row for row in page if isinstance(row, MovedMemory)]
        sizes.append(sum(len(row.blob or b"") for row in rows))
        found += [(row.memory_id, row.revision) for row in rows]
    assert max(sizes) < 2**21
    assert sorted(found) == [(long.id, n) for n in (1, 2, 3, 4)]


class TestLater:
    """The same account comes again, after it went on where it was."""

    async def edited(self, bench: Bench, caller: Caller, memory: uuid.UUID, text: str) -> None:
        bench.clock.advance(60)
        await bench.services.reviser.edit(caller, memory, Edit(changes={"text": text}))

    @pytest.mark.parametrize("times", [1, 2])
    async def test_newer_revisions_come(self, here: Bench, there: Bench, times: int) -> None:
        founder = await here.account()
        caller = await here.caller(founder)
        stored = await here.remember(caller, "One apple.", "Two pears.", tags=("fruit",))
        await here.embed(caller, stored)
        await moved(here, there, founder)
        await there.remember(await there.unlocked(founder, TEAM), "Written here.")
        early = there.clock()
        for n in range(times):
            await self.edited(here, caller, stored[0].id, f"Three plums, {n}.")
        await here.services.state_changer.set_state(
            caller.access, stored[0].id, Change(pinned=True)
        )
        later = await packed(here, caller)
        access = (await there.caller(founder)).access
        done = await there.services.importer.take_in(access, later)
        assert dict(done.results)[stored[0].id] == "imported"
        reader = await there.unlocked(founder, TEAM)
        memory = await there.services.memory.get(reader, stored[0].id)
        assert (memory.text, memory.revision) == (f"Three plums, {times - 1}.", times + 1)
        assert memory.state.pinned
        history = await there.services.histories.history(reader, stored[0].id)
        assert len(history.revisions) == times + 1
        assert await there.texts(reader, "apple", mode="keyword") == []
        found = await there.texts(reader, "apple", mode="keyword", as_of=early)
        assert found == ["One apple."]
        assert (await check(there.storage)).problems == []
        await assert_chain_holds(there, founder.account)
        again = await there.services.importer.take_in(access, later)
        assert {status for _, status in again.results} == {"unchanged"}

    @pytest.mark.parametrize("rejected_here", [True, False])
    async def test_what_holds_of_it_holds_of_what_it_said_here(
        self, here: Bench, there: Bench, rejected_here: bool
    ) -> None:
        """The life and the review that come with a later revision are the whole memory's."""
        founder = await here.account()
        caller = await here.caller(founder)
        [stored] = await here.remember(caller, "One apple.")
        await moved(here, there, founder)
        reader, early = await there.unlocked(founder, TEAM), there.clock()
        there.clock.advance(60)
        at = here if rejected_here else there
        await at.services.state_changer.set_state(
            reader.access, stored.id, Change(review="rejected")
        )
        end = here.clock() + timedelta(days=1)
        changes = Edit(changes={"text": "Two pears.", "expires_at": end})
        await here.services.reviser.edit(caller, stored.id, changes)
        await there.services.importer.take_in(reader.access, await packed(here, caller))
        found = await there.texts(reader, "apple", mode="keyword", as_of=early)
        assert found == ([] if rejected_here else ["One apple."])
        ends = await there.sql("SELECT expires_at FROM memories")
        assert [row["expires_at"] for row in ends] == [end, end]

    async def test_a_namespaces_life_span_there_is_that_of_what_comes(
        self, here: Bench, there: Bench
    ) -> None:
        founder = await here.account()
        caller = await here.caller(founder)
        await here.remember(caller, "One apple.")
        await moved(here, there, founder)
        access = (await there.unlocked(founder, TEAM)).access
        await there.services.expiry.keep(access, TEAM, 3600)
        soon = here.clock() + timedelta(minutes=5)
        one, ending, pinned = (
            *await here.remember(caller, "Two pears."),
            *await here.remember(caller, "Three plums.", expires_at=soon),
            *await here.remember(caller, "Four figs."),
        )
        await here.services.state_changer.set_state(caller.access, pinned.id, Change(pinned=True))
        await there.services.importer.take_in(access, await packed(here, caller))
        rows = await there.sql("SELECT memory_id, expires_at FROM memories")
        ends = {row["memory_id"]: row["expires_at"] for row in rows}
        assert ends[one.id] == here.clock() + timedelta(hours=1)
        assert (ends[ending.id], ends[pinned.id]) == (soon, None)

    async def test_what_was_edited_here_too_stays(self, here: Bench, there: Bench) -> None:
        founder = await here.account()
        caller = await here.caller(founder)
        [stored] = await here.remember(caller, "One apple.")
        await moved(here, there, founder)
        mine = await there.unlocked(founder, TEAM)
        await self.edited(there, mine, stored.id, "Two pears.")
        for text in ("Three plums.", "Four figs."):
            await self.edited(here, caller, stored.id, text)
        before = await there.sql(ROWS)
        done = await there.services.importer.take_in(mine.access, await packed(here, caller))
        assert set(dict(done.results).values()) == {"differs", "unchanged"}
        assert dict(done.results)[stored.id] == "differs"
        assert await there.sql(ROWS) == before
        assert (await check(there.storage)).problems == []

    async def test_without_the_one_that_is_here_nothing_is_passed_over(
        self, here: Bench, there: Bench
    ) -> None:
        """Neither a later revision nor an earlier one that is not earlier here."""
        founder = await here.account()
        caller = await here.caller(founder)
        [stored] = await here.remember(caller, "One apple.")
        await moved(here, there, founder)
        await self.edited(here, caller, stored.id, "Two pears.")
        later = await packed(here, caller)
        access = (await there.caller(founder)).access
        before = await there.sql(ROWS)
        for row in later.memories:
            done = await there.services.importer.take_in(access, replace(EMPTY, memories=[row]))
            assert [status for _, status in done.results] == ["differs"]
        assert await there.sql(ROWS) == before

    async def test_what_was_erased_here_does_not_come_in_a_later_revision(
        self, here: Bench, there: Bench
    ) -> None:
        founder = await here.account()
        caller = await here.caller(founder)
        [stored] = await here.remember(caller, "One apple.")
        await moved(here, there, founder)
        mine = await there.caller(founder)
        await there.services.deletion.forget(mine.access, stored.id)
        await self.edited(here, caller, stored.id, "Two pears.")
        done = await there.services.importer.take_in(mine.access, await packed(here, caller))
        assert set(dict(done.results).values()) == {"erased"}
        assert await there.sql(ROWS) == []

    async def test_a_turn_that_was_erased_here_does_not_come_again(
        self, here: Bench, there: Bench
    ) -> None:
        founder = await here.account()
        caller = await choose(here, await here.caller(founder), keep_turns=True)
        analyzed = await analyze(here, caller, "1. user: I prefer window seats on trains.")
        arrival = await moved(here, there, founder)
        turns = "SELECT count(*) FROM episodes"
        assert await there.value(turns) == 1
        mine = await there.caller(founder)
        await there.services.deletion.forget(mine.access, analyzed.facts[0].id)
        assert await there.value(turns) == 0
        done = await there.services.importer.take_in(mine.access, arrival)
        assert set(dict(done.results).values()) == {"erased"}
        assert await there.value(turns) == 0
        # Nor at a third relayer, which only hears that it was erased.
        stones = await everything(there, mine, "tombstones")
        assert {stone.id for stone in stones} == {analyzed.facts[0].id, analyzed.kept}

    async def test_a_turn_is_recognised_at_the_next_relayer(
        self, here: Bench, there: Bench
    ) -> None:
        """By its fingerprint, which comes along; one that was said there meanwhile stays known."""
        founder = await here.account()
        caller = await choose(here, await here.caller(founder), keep_turns=True)
        talk, other = "1. user: I prefer window seats.", "1. user: I prefer aisle seats."
        moving = [(await analyze(here, caller, text)).kept for text in (talk, other)]
        await founded(here, there, founder)
        mine = await choose(there, await there.unlocked(founder, TEAM), keep_turns=True)
        meanwhile = await analyze(there, mine, other)
        await there.services.importer.take_in(mine.access, await packed(here, caller))
        turns = "SELECT episode_id FROM episodes"
        assert {r[0] for r in await there.sql(turns)} == {*moving, meanwhile.kept}
        said = [(await analyze(there, mine, text)).kept for text in (talk, other)]
        assert said == [moving[0], meanwhile.kept]
        assert (await check(there.storage)).problems == []

    @pytest.mark.parametrize("brought", [False, True])
    @pytest.mark.parametrize("name", [None, FORMER])
    async def test_a_turn_that_was_erased_there(
        self, here: Bench, there: Bench, brought: bool, name: uuid.UUID | None
    ) -> None:
        """Neither does it come, if it was read before that, nor stay, if it had come; one with a
        former name, whose tombstone has another, neither."""
        founder = await here.account()
        caller = await here.caller(founder)
        await here.remember(caller, "One apple.")
        turn = await keep_turn(here, caller, "Anna: 4111 is my number.", "pending", name)
        early = await packed(here, caller)
        access = (await founded(here, there, founder)).access
        if brought:
            await there.services.importer.take_in(access, early)
        await here.services.deletion.forget(caller.access, turn)
        late = replace(early, tombstones=(await packed(here, caller)).tombstones)
        done = await there.services.importer.take_in(access, late)
        assert dict(done.results)[turn] == "erased"
        assert await there.value("SELECT count(*) FROM episodes") == 0
        assert (await check(there.storage)).problems == []

    @pytest.mark.parametrize("brought", [False, True])
    async def test_a_turn_whose_facts_were_taken_there_does_not_give_them_again(
        self, here: Bench, there: Bench, model: LanguageModel, server: OpenAIServer, brought: bool
    ) -> None:
        """What was forgotten of them would come back; the others come as memories."""
        thinking = here.another(language_model=model)
        founder = await thinking.account()
        caller = await thinking.caller(founder)
        server.script(AWAY, facts(OSLO, BERLIN))
        turn = (await analyze(thinking, caller, "1. user: I moved to Berlin.")).pending
        assert turn is not None
        early = await packed(here, caller)
        await founded(here, there, founder)
        reader = await there.unlocked(founder, TEAM)
        if brought:
            await there.services.importer.take_in(reader.access, early)
        await thinking.services.analysis.extract_episode(founder.account, caller.keys, turn)
        forgotten = await here.value("SELECT memory_id FROM memories ORDER BY seq LIMIT 1")
        await here.services.deletion.forget(caller.access, forgotten)
        for _ in range(2):
            late = replace(await packed(here, caller), episodes=early.episodes)
            done = await there.services.importer.take_in(reader.access, late)
            assert dict(done.results)[turn] == "erased"
        assert await there.value("SELECT count(*) FROM episodes") == 0
        assert await there.texts(reader, "user", mode="keyword") == [BERLIN]
        assert (await check(there.storage)).problems == []
        await assert_chain_holds(there, founder.account)

    async def test_a_turn_that_is_kept_here_stays_though_its_facts_were_taken_there(
        self, here: Bench, there: Bench, model: LanguageModel, server: OpenAIServer
    ) -> None:
        thinking = here.another(language_model=model)
        founder = await thinking.account()
        caller = await thinking.caller(founder)
        server.script(AWAY, facts(BERLIN), facts(BERLIN))
        turn = (await analyze(thinking, caller, "1. user: I moved to Berlin.")).pending
        assert turn is not None
        await moved(here, there, founder)
        keeping = there.another(language_model=model)
        reader = await choose(there, await there.unlocked(founder, TEAM), keep_turns=True)
        for bench, keys in ((thinking, caller.keys), (keeping, reader.keys)):
            await bench.services.analysis.extract_episode(founder.account, keys, turn)
        late = await packed(here, caller)
        done = await there.services.importer.take_in(reader.access, late)
        assert dict(done.results)[turn] == "unchanged"
        assert (await there.services.episodes.get(reader, turn)).state == "kept"
        assert (await check(there.storage)).problems == []


class TestKeys:
    async def test_a_key_claims_itself(self, here: Bench, there: Bench) -> None:
        """Its grant came along; it belongs to the account when it asks for it, not before."""
        founder = await here.account("sealed")
        writer = await here.key(founder, TEAM)
        await moved(here, there, founder)
        key = writer.identity.public_key
        owner = "SELECT whole_id FROM key_owner WHERE public_key = $1"
        assert await there.sql(owner, key) == []
        assert await there.storage.accounts.claim(founder.account, key)
        assert await there.value(owner, key) == founder.account

    async def test_nobody_claims_for_another(self, here: Bench, there: Bench) -> None:
        founder = await here.account("sealed")
        await moved(here, there, founder)
        accounts = there.storage.accounts
        assert not await accounts.claim(founder.account, new_identity().public_key)
        # The former relayer was a custodian, and is nobody's key.
        assert not await accounts.claim(founder.account, here.storage.identity.public_key)
        # An account that is not here.
        assert not await accounts.claim(
            type(founder.account)(bytes(32)), founder.identity.public_key
        )

    async def test_a_grant_does_not_take_a_strangers_key(self, here: Bench, there: Bench) -> None:
        """An owner granted to a key that never joined: the stranger founds its own account."""
        founder, stranger = await here.account("sealed"), new_identity()
        arrival = await packed(here, await here.caller(founder))
        caller = await founded(here, there, founder)
        signed = issue_grant(
            founder.identity,
            account=founder.account,
            serial=2,
            recipient=stranger.public_key,
            role="writer",
            keys=[here.namespace_key(founder.account, TEAM)],
            created_ms=round(here.clock().timestamp() * 1000),
        )
        planted = msgspec.structs.replace(arrival.grants[0], serial=2, object=signed)
        await there.services.importer.take_in(caller.access, replace(EMPTY, grants=[planted]))
        assert parse_any(signed).serial == 2
        owner = "SELECT whole_id FROM key_owner WHERE public_key = $1"
        assert await there.sql(owner, stranger.public_key) == []

    async def test_a_revoked_key_stays_revoked(self, here: Bench, there: Bench) -> None:
        founder = await here.account("sealed")
        writer = await here.key(founder, TEAM)
        await here.revoke(founder, writer.identity.public_key)
        await moved(here, there, founder)
        key = writer.identity.public_key
        assert not await there.storage.accounts.claim(founder.account, key)
