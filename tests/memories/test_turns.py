"""Turns have random names: equal ones are one by a fingerprint that goes with the row, and nothing
else of the account holds it."""

import asyncio
import base64
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from relayer.errors import Corrupted, NotFound
from relayer.journal.states import Change
from relayer.llm import LanguageModel
from relayer.memories.episodes import Episode
from relayer.memories.opener import Caller
from relayer.memories.sealed_drafts import fingerprint_of
from relayer.record import Draft
from relayer.sealed.receipts import open_receipt
from relayer.upkeep import check
from tests.chains import assert_chain_holds, chain_of
from tests.conftest import BenchMaker
from tests.erasing import keep_turn, link
from tests.openai_server import OpenAIServer
from tests.optional import unwrap
from tests.rotator import rotator
from tests.services import TEAM, Bench
from tests.talking import AWAY, analyze, choose, facts
from tests.thinking import model, server

__all__ = ["model", "server"]  # fixtures

HOUR = 3600
TALK = "1. user: I prefer window seats on trains."
FACT = "The user prefers window seats."
TURNS = "SELECT episode_id FROM episodes WHERE state IN ('pending', 'kept') ORDER BY created_at"
COLUMNS = """
SELECT table_name, array_agg(column_name::text) AS names FROM information_schema.columns
WHERE table_schema = current_schema() GROUP BY table_name
"""
FINGERPRINTS = {("memories", "fingerprint"), ("episodes", "fingerprint")}


@pytest.fixture
def thinking(make_bench: BenchMaker, model: LanguageModel) -> Bench:
    return make_bench(language_model=model)


async def keeper(bench: Bench) -> Caller:
    """The owner of an account whose conversations are kept."""
    return await choose(bench, await bench.caller(await bench.account()), keep_turns=True)


async def turns(bench: Bench) -> list[uuid.UUID]:
    return [row["episode_id"] for row in await bench.sql(TURNS)]


async def holds(bench: Bench, caller: Caller) -> None:
    await assert_chain_holds(bench, caller.access.account)
    assert (await check.check(bench.storage)).problems == []


class TestSaidTwice:
    async def test_a_kept_turn_is_one(self, thinking: Bench, server: OpenAIServer) -> None:
        """Its id is random: the same words in another account have another."""
        caller, neighbour = await keeper(thinking), await keeper(thinking)
        server.script(facts(FACT), facts(FACT), facts(FACT))
        first, again = [await analyze(thinking, caller, TALK) for _ in range(2)]
        other = await analyze(thinking, neighbour, TALK)
        assert first.kept == again.kept
        assert first.kept is not None
        assert other.kept is not None
        assert {first.kept.version, other.kept.version} == {7}
        assert await turns(thinking) == [first.kept, other.kept]
        await holds(thinking, caller)

    async def test_said_at_once_it_is_one_and_every_fact_leads_to_it(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await keeper(thinking)
        said = [FACT, "The user rides trains.", "The user looks out of windows."]
        server.script(*map(facts, said))
        results = await asyncio.gather(*(analyze(thinking, caller, TALK) for _ in said))
        [turn] = await turns(thinking)
        assert {result.kept for result in results} == {turn}
        found = await thinking.services.episodes.get(caller, turn)
        assert set(found.fact_ids) == {fact.id for r in results for fact in r.facts}
        assert len(found.fact_ids) == 3
        await holds(thinking, caller)

    async def test_beside_one_that_is_kept_another_waits(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await keeper(thinking)
        server.script(facts(FACT), AWAY)
        kept = await analyze(thinking, caller, TALK)
        again = await analyze(thinking, caller, TALK)
        assert again.pending not in (None, kept.kept)
        assert (len(again.receipts), len(await turns(thinking))) == (1, 2)
        await holds(thinking, caller)

    @pytest.mark.parametrize(
        "members", [{"text": TALK.replace("user", "User")}, {"occurred_at": True}]
    )
    async def test_one_of_another_text_or_time_is_another(
        self, thinking: Bench, server: OpenAIServer, members: dict[str, Any]
    ) -> None:
        caller = await keeper(thinking)
        server.script(facts(FACT), facts(FACT))
        if "occurred_at" in members:
            members = {"occurred_at": thinking.clock() - timedelta(days=1)}
        await analyze(thinking, caller, TALK)
        await analyze(thinking, caller, **{"text": TALK, **members})
        assert len(await turns(thinking)) == 2

    @pytest.mark.parametrize("state", ["pending", "kept"])
    @pytest.mark.parametrize("resealed", [False, True])
    async def test_after_a_rotation_it_is_recognised(
        self, thinking: Bench, server: OpenAIServer, state: str, resealed: bool
    ) -> None:
        """Under its old epoch, and under the new one when it was sealed anew."""
        owner = await rotator(thinking, "managed")
        caller = await choose(thinking, await owner.caller(), keep_turns=True)
        server.script(*[AWAY if state == "pending" else facts(FACT)] * 2)
        await analyze(thinking, caller, TALK)
        [turn] = await turns(thinking)
        was = await thinking.value("SELECT fingerprint FROM episodes")
        await owner.rotate(reseal="all" if resealed else "none")
        if resealed:
            await owner.reseal()
        assert (await thinking.value("SELECT fingerprint FROM episodes") != was) is resealed
        again = await analyze(thinking, await owner.caller(), TALK)
        assert turn == (again.pending if state == "pending" else again.kept)
        assert await turns(thinking) == [turn]
        await holds(thinking, caller)

    async def test_sealed_anew_beside_an_equal_one_both_stay(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """As if they had been said in two epochs, by somebody who did not hold the older key."""
        owner = await rotator(thinking, "managed")
        caller = await choose(thinking, await owner.caller(), keep_turns=True)
        server.script(*[facts(FACT)] * 3)
        first = await analyze(thinking, caller, TALK)
        await thinking.sql("UPDATE episodes SET fingerprint = NULL")
        second = await analyze(thinking, caller, TALK)
        assert first.kept != second.kept
        await owner.rotate(reseal="all")
        await owner.reseal()
        rows = await thinking.sql("SELECT epoch, fingerprint FROM episodes")
        assert [row["epoch"] for row in rows] == [2, 2]
        assert sum(row["fingerprint"] is None for row in rows) == 1
        again = await analyze(
            thinking, await choose(thinking, await owner.caller(), keep_turns=True), TALK
        )
        assert again.kept in {first.kept, second.kept}
        await holds(thinking, caller)

    async def test_restored_beside_one_that_was_said_since_both_stay(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await keeper(thinking)
        server.script(*[facts(FACT)] * 3)
        lost = await analyze(thinking, caller, TALK)
        await thinking.sql("DELETE FROM episodes")
        since = await analyze(thinking, caller, TALK)
        assert (await thinking.services.restore.restore(caller, TEAM, 9)).restored == 1
        assert set(await turns(thinking)) == {lost.kept, since.kept}
        assert (await analyze(thinking, caller, TALK)).kept == since.kept
        await holds(thinking, caller)


class TestErased:
    @pytest.mark.parametrize("state", ["pending", "kept"])
    async def test_said_again_it_is_a_new_one(
        self, thinking: Bench, server: OpenAIServer, state: str
    ) -> None:
        caller = await keeper(thinking)
        server.script(*[AWAY if state == "pending" else facts(FACT)] * 2)
        await analyze(thinking, caller, TALK)
        [turn] = await turns(thinking)
        await thinking.services.deletion.forget(caller.access, turn)
        assert await turns(thinking) == []
        stones = await thinking.sql("SELECT memory_id FROM tombstones")
        assert turn in {row["memory_id"] for row in stones}
        await analyze(thinking, caller, TALK)
        [again] = await turns(thinking)
        assert again != turn
        await holds(thinking, caller)

    async def test_a_late_job_takes_nothing_from_the_one_said_again(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await keeper(thinking)
        server.script(AWAY, AWAY)
        first = await analyze(thinking, caller, TALK)
        assert first.pending is not None
        await thinking.services.deletion.forget(caller.access, first.pending)
        again = await analyze(thinking, caller, TALK)
        extract = thinking.services.analysis.extract_episode
        await extract(caller.access.account, caller.keys, first.pending)
        assert await thinking.value("SELECT count(*) FROM memories") == 0
        assert await turns(thinking) == [again.pending]

    async def test_erased_while_its_facts_are_taken_once_more(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """What the model found in it is dropped."""
        caller = await keeper(thinking)
        server.script(facts(FACT))
        kept = await analyze(thinking, caller, TALK)
        assert kept.kept is not None
        answered = threading.Event()
        server.script(replace(facts("The user rides trains."), held=answered))
        asked = len(server.received)
        late = asyncio.create_task(thinking.services.analysis.again(caller, kept.kept))
        while len(server.received) == asked:
            await asyncio.sleep(0.01)
        await thinking.services.deletion.forget(caller.access, kept.kept)
        answered.set()
        with pytest.raises(NotFound):
            await late
        assert server.scripted_left == 0
        texts = await thinking.services.memory.newest(caller, [TEAM], limit=5)
        assert [memory.text for memory in texts] == [FACT]

    @pytest.mark.parametrize("told", ["failed", "done"])
    async def test_what_it_said_goes_with_its_blob(
        self, thinking: Bench, server: OpenAIServer, told: str
    ) -> None:
        """Of a turn whose facts were taken, or that cannot be opened, a row is left, no more."""
        caller = await thinking.caller(await thinking.account())
        server.script(AWAY)
        waits = await analyze(thinking, caller, TALK)
        assert waits.pending is not None
        extract = thinking.services.analysis.extract_episode
        if told == "failed":
            flip = "UPDATE blobs SET bytes = set_byte(bytes, 300, get_byte(bytes, 300) # 1)"
            await thinking.sql(flip)
            with pytest.raises(Corrupted):
                await extract(caller.access.account, caller.keys, waits.pending)
        else:
            server.script(facts(FACT))
            await extract(caller.access.account, caller.keys, waits.pending)
        rows = await thinking.sql("SELECT state, fingerprint FROM episodes")
        assert [tuple(row) for row in rows] == [(told, None)]
        server.script(AWAY)
        again = await analyze(thinking, caller, TALK)
        assert again.pending not in (None, waits.pending)


def forms(fingerprint: bytes) -> Iterator[bytes]:
    """How a fingerprint could stand somewhere: as bytes, as text, or as the id of something."""
    for raw in (fingerprint, *(_as_id(fingerprint, version) for version in range(1, 9))):
        yield raw
        yield raw.hex().encode()
        yield str(uuid.UUID(bytes=raw)).encode()
        yield base64.b64encode(raw).rstrip(b"=")
        yield base64.urlsafe_b64encode(raw).rstrip(b"=")


def _as_id(fingerprint: bytes, version: int) -> bytes:
    raw = bytearray(fingerprint)
    raw[6] = raw[6] & 0x0F | version << 4
    raw[8] = raw[8] & 0x3F | 0x80
    return bytes(raw)


def parts(value: Any) -> Iterator[bytes]:
    """The bytes of a stored value, of each member of a list; an id as bytes and as text."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from parts(one)
    elif isinstance(value, uuid.UUID):
        yield value.bytes
        yield str(value).encode()
    else:
        yield value if isinstance(value, bytes) else str(value).encode()


async def places(bench: Bench, fingerprints: list[bytes]) -> set[tuple[str, str]]:
    """(table, column) of everything in the database that holds one of these in any form."""
    needles = [form for fingerprint in fingerprints for form in forms(fingerprint)]
    found = set()
    for table in await bench.sql(COLUMNS):
        for row in await bench.sql(f'SELECT * FROM "{table["table_name"]}"'):
            for column, value in row.items():
                if any(needle in part for part in parts(value) for needle in needles):
                    found.add((table["table_name"], column))
    return found


class TestOver:
    """A namespace's time to live is that of the conversations in it, too."""

    async def test_a_kept_turn_ends_also_where_its_facts_stay(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await keeper(thinking)
        server.script(facts(FACT), facts())
        told = await analyze(thinking, caller, TALK)
        silent = await analyze(thinking, caller, "1. user: Hello!")
        await self.keep_an_hour(thinking, caller)
        fact = told.facts[0].id
        await thinking.services.state_changer.set_state(caller.access, fact, Change(pinned=True))
        thinking.clock.advance(HOUR - 1)
        assert {told.kept, silent.kept} == {turn.id for turn in await self.shown(thinking, caller)}
        thinking.clock.advance(1)
        assert await self.shown(thinking, caller) == []
        for use in (thinking.services.episodes.get, thinking.services.analysis.again):
            with pytest.raises(NotFound):
                await use(caller, unwrap(told.kept))
        await thinking.services.expiry.expire()
        assert await turns(thinking) == []
        assert await thinking.texts(caller, "window seats", mode="keyword") == [FACT]
        [receipt] = (await chain_of(thinking, caller.access.account))[-1:]
        last = open_receipt(receipt, thinking.storage.identity.public_key)
        assert (last.op, {item.memory for item in last.items}) == (
            "expire",
            {told.kept, silent.kept},
        )
        await holds(thinking, caller)

    async def test_one_that_waited_too_long_gives_no_facts(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await thinking.caller(await thinking.account())
        server.script(AWAY)
        waits = (await analyze(thinking, caller, TALK)).pending
        assert waits is not None
        await self.keep_an_hour(thinking, caller)
        thinking.clock.advance(HOUR)
        server.script(facts(FACT))
        extract = thinking.services.analysis.extract_episode
        await extract(caller.access.account, caller.keys, waits)
        assert server.scripted_left == 1
        assert await thinking.texts(caller, "window seats", mode="keyword") == []

    async def test_said_again_before_it_is_erased_it_is_another(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """Else what was just acknowledged would end with what it repeats."""
        caller = await thinking.caller(await thinking.account())
        server.script(AWAY, AWAY)
        over = (await analyze(thinking, caller, TALK)).pending
        await self.keep_an_hour(thinking, caller)
        thinking.clock.advance(HOUR)
        again = (await analyze(thinking, caller, TALK)).pending
        assert again != over
        await thinking.services.expiry.expire()
        assert await turns(thinking) == [again]
        await holds(thinking, caller)

    async def test_a_longer_life_span_brings_none_back(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """Memories whose time is over stay so, whether or not they are erased yet."""
        caller = await thinking.caller(await thinking.account())
        server.script(AWAY)
        await analyze(thinking, caller, TALK)
        await self.keep_an_hour(thinking, caller)
        thinking.clock.advance(HOUR)
        await thinking.remember(caller, "Ben sells cups.")
        await thinking.services.expiry.keep(caller.access, TEAM, None)
        assert await self.shown(thinking, caller) == []
        assert await thinking.texts(caller, "cups", mode="keyword") == ["Ben sells cups."]
        await holds(thinking, caller)

    async def keep_an_hour(self, bench: Bench, caller: Caller) -> None:
        await bench.services.expiry.keep(caller.access, TEAM, HOUR)

    async def shown(self, bench: Bench, caller: Caller) -> list[Episode]:
        return await bench.services.episodes.newest(caller, [TEAM], limit=5)


class TestNowhereElse:
    """Fingerprints stand in their column, and go with the row."""

    async def test_of_an_account_that_did_everything(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        owner = await rotator(thinking, "managed")
        caller = await choose(thinking, await owner.caller(), keep_turns=True)
        said = [TALK, TALK + " Often.", TALK + " Always."]
        await thinking.remember(caller, FACT, "Anna prefers tea.")
        server.script(facts(FACT), AWAY, AWAY)
        kept, waits, doomed = [await analyze(thinking, caller, text) for text in said]
        assert kept.kept is not None
        assert waits.pending is not None
        assert doomed.pending is not None
        fingerprints = await self.fingerprints(thinking, caller, said)
        assert await places(thinking, fingerprints) == FINGERPRINTS
        await thinking.services.deletion.forget(caller.access, doomed.pending)
        await owner.rotate(reseal="all")
        await owner.reseal()
        caller = await choose(thinking, await owner.caller(), keep_turns=True)
        fingerprints += await self.fingerprints(thinking, caller, said)
        server.script(facts("The user often prefers window seats."))
        extract = thinking.services.analysis.extract_episode
        await extract(caller.access.account, caller.keys, waits.pending)
        assert await places(thinking, fingerprints) == FINGERPRINTS
        await thinking.services.deletion.forget_namespace(caller.access, TEAM)
        assert await places(thinking, fingerprints) == set()
        await holds(thinking, caller)

    async def fingerprints(self, bench: Bench, caller: Caller, said: list[str]) -> list[bytes]:
        """Those that are stored, and those of all that was said, under the newest key."""
        key = caller.keys.of(TEAM)[0]
        of_turns = [Draft(text=text, namespace=TEAM, kind="episodic") for text in said]
        of_facts = [Draft(text=text, namespace=TEAM) for text in (FACT, "Anna prefers tea.")]
        due = [fingerprint_of(key, draft) for draft in of_turns + of_facts]
        stored = await bench.sql(
            "SELECT fingerprint FROM memories UNION ALL SELECT fingerprint FROM episodes"
        )
        assert {row["fingerprint"] for row in stored} & set(due)
        return due

    async def test_a_turn_that_was_named_so_is_found_and_not_named_so_again(
        self, bench: Bench
    ) -> None:
        """What waited when names became random: neither receipt nor tombstone has that name."""
        caller = await bench.caller(await bench.account())
        turn = Draft(text=TALK, namespace=TEAM, kind="episodic")
        fingerprint = fingerprint_of(caller.keys.of(TEAM)[0], turn)
        former = uuid.UUID(bytes=_as_id(fingerprint, 8))
        [memory] = await bench.remember(caller, "Anna prefers tea.")
        await keep_turn(bench, caller, TALK, turn_id=former)
        await link(bench, caller, memory.id, "turn", former)
        blob = await bench.value("SELECT blob_id FROM episodes")
        assert await places(bench, [fingerprint]) == {
            ("episodes", "episode_id"), ("links", "other_id"), ("blobs", "bytes"),
        }  # fmt: skip
        done = await bench.services.deletion.forget(caller.access, memory.id)
        assert set(done.ids) == {memory.id, former}
        assert await places(bench, [fingerprint]) == set()
        [stone] = await bench.sql(
            "SELECT memory_id FROM tombstones WHERE blob_ids = ARRAY[$1::bytea]", blob
        )
        receipt = open_receipt(
            (await chain_of(bench, caller.access.account))[-1], bench.storage.identity.public_key
        )
        assert stone["memory_id"] in {item.memory for item in receipt.items}
        await holds(bench, caller)
