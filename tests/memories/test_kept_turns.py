"""Conversations that are kept beside their facts: listed, read, analyzed again."""

import asyncio
import uuid
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from relayer.errors import Corrupted, NotFound, RelayerError, Unavailable
from relayer.memories.revisions import Edit
from relayer.upkeep.check import check
from tests.chains import assert_chain_holds
from tests.editing import CUSTODIES, refused, writer
from tests.openai_server import OpenAIServer
from tests.services import OTHER, TEAM, Bench
from tests.talking import AWAY, analyze, choose, facts
from tests.thinking import model, server, thinking

__all__ = ["model", "server", "thinking"]  # fixtures


class TestKeptTurns:
    TALK = "1. user: I prefer window seats on trains."

    @CUSTODIES
    async def test_a_turn_is_kept_beside_its_facts(self, bench: Bench, custody: str) -> None:
        """capability 3.19: what was said is kept sealed, opt-in, and each fact names its turn.
        capability 3.4: an episode has its time, source and text, and its facts their confidence.
        """
        caller = await choose(bench, await writer(bench, custody), keep_turns=True)
        when = bench.clock() - timedelta(days=1)
        analyzed = await analyze(bench, caller, self.TALK, source="chat/9", occurred_at=when)
        [fact] = analyzed.facts
        assert (analyzed.pending, analyzed.kept is not None) == (None, True)
        [turn] = await bench.services.episodes.newest(caller, [TEAM], limit=9)
        assert (turn.id, turn.state, turn.namespace) == (analyzed.kept, "kept", TEAM)
        assert (turn.occurred_at, turn.source, list(turn.fact_ids)) == (when, "chat/9", [fact.id])
        assert (await bench.services.episodes.get(caller, turn.id)).text == self.TALK
        for row in await bench.sql("SELECT bytes FROM blobs"):
            assert b"window" not in row["bytes"]
        await assert_chain_holds(bench, caller.access.account)
        assert (await check(bench.storage)).problems == []

    async def test_not_unless_the_account_wants_it(self, bench: Bench) -> None:
        caller = await writer(bench)
        analyzed = await analyze(bench, caller, self.TALK)
        assert (analyzed.kept, await bench.value("SELECT count(*) FROM episodes")) == (None, 0)
        assert await bench.value("SELECT count(*) FROM links") == 0

    async def test_the_same_turn_is_kept_once(self, bench: Bench) -> None:
        caller = await choose(bench, await writer(bench), keep_turns=True)
        first, *more = await asyncio.gather(*(analyze(bench, caller, self.TALK) for _ in range(3)))
        assert {m.kept for m in more} == {first.kept}
        assert await bench.value("SELECT count(*) FROM episodes") == 1
        assert (await check(bench.storage)).problems == []

    async def test_a_turn_is_over_with_what_came_from_it(self, bench: Bench) -> None:
        """It says the same. Said again before it is erased, it is another, with a new fact."""
        caller = await choose(bench, await writer(bench), keep_turns=True)
        first = await analyze(bench, caller, self.TALK)
        [fact] = first.facts
        assert first.kept is not None
        soon = Edit(changes={"expires_at": bench.clock() + timedelta(seconds=9)})
        await bench.services.reviser.edit(caller, fact.id, soon)
        bench.clock.advance(9)
        assert await bench.services.episodes.newest(caller, [TEAM], limit=9) == []
        with pytest.raises(NotFound):
            await bench.services.episodes.get(caller, first.kept)
        again = await analyze(bench, caller, self.TALK)
        assert [f.duplicate for f in again.facts] == [False]
        await bench.services.expiry.expire()
        [turn] = await bench.services.episodes.newest(caller, [TEAM], limit=9)
        assert (turn.id, list(turn.fact_ids)) == (again.kept, [again.facts[0].id])
        assert turn.id != first.kept
        await assert_chain_holds(bench, caller.access.account)
        assert (await check(bench.storage)).problems == []

    async def test_a_turn_without_facts_is_kept_as_well(self, bench: Bench) -> None:
        caller = await choose(bench, await writer(bench), keep_turns=True)
        analyzed = await analyze(bench, caller, "1. hm?\n\n2. ok thanks")
        assert (list(analyzed.facts), len(analyzed.receipts)) == ([], 1)
        [turn] = await bench.services.episodes.newest(caller, [TEAM], limit=9)
        assert (turn.id, list(turn.fact_ids)) == (analyzed.kept, [])

    async def test_a_turn_that_had_to_wait_is_kept_then(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await choose(thinking, await writer(thinking), keep_turns=True)
        server.script(AWAY)
        waits = await analyze(thinking, caller, self.TALK)
        assert waits.pending is not None
        server.script(facts("The user prefers window seats."))
        await thinking.services.analysis.extract_episode(
            caller.access.account, caller.keys, waits.pending
        )
        turn = await thinking.services.episodes.get(caller, waits.pending)
        assert (turn.state, turn.text, len(turn.fact_ids)) == ("kept", self.TALK, 1)
        assert (await check(thinking.storage)).problems == []

    async def test_it_is_analyzed_again(self, thinking: Bench, server: OpenAIServer) -> None:
        """capability 3.19: a kept turn gives new facts to another extraction."""
        caller = await choose(thinking, await writer(thinking), keep_turns=True)
        server.script(facts("The user prefers window seats."))
        first = await analyze(thinking, caller, self.TALK, source="chat/9")
        assert first.kept is not None
        server.script(facts("User prefers window seats", "The user takes trains."))
        again = await thinking.services.analysis.again(caller, first.kept)
        assert [f.text for f in again.facts] == ["The user takes trains."]
        assert list(again.reinforced) == [first.facts[0].id]
        turn = await thinking.services.episodes.get(caller, first.kept)
        assert set(turn.fact_ids) == {first.facts[0].id, again.facts[0].id}
        assert await thinking.value("SELECT count(*) FROM episodes") == 1

    @pytest.mark.parametrize(("hour", "east"), [(23, -5), (1, 9)])
    async def test_its_yesterday_is_still_the_speaker_s(
        self, bench: Bench, hour: int, east: int
    ) -> None:
        """Not the day before in UTC, which would make another fact of it."""
        caller = await choose(bench, await writer(bench), keep_turns=True)
        when = datetime(2026, 5, 4, hour, 30, tzinfo=timezone(timedelta(hours=east)))
        said = "1. user: We decided yesterday to move the launch to Lisbon."
        first = await analyze(bench, caller, said, occurred_at=when)
        memory = await bench.services.memory.get(caller, first.facts[0].id)
        assert memory.event_time is not None
        days = {memory.event_time.astimezone(zone).date() for zone in (UTC, when.tzinfo)}
        assert days == {date(2026, 5, 3)}
        assert first.kept is not None
        again = await bench.services.analysis.again(caller, first.kept)
        assert ([*again.facts], [*again.reinforced]) == ([], [memory.id])

    async def test_again_while_the_model_is_away(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await choose(thinking, await writer(thinking), keep_turns=True)
        server.script(facts("The user prefers window seats."), AWAY)
        first = await analyze(thinking, caller, self.TALK)
        assert first.kept is not None
        with pytest.raises(Unavailable):
            await thinking.services.analysis.again(caller, first.kept)
        assert (await thinking.services.episodes.get(caller, first.kept)).state == "kept"

    async def test_it_goes_with_what_came_from_it(self, bench: Bench) -> None:
        caller = await choose(bench, await writer(bench), keep_turns=True)
        analyzed = await analyze(bench, caller, self.TALK)
        await bench.services.memory.forget(caller.access, analyzed.facts[0].id)
        assert await bench.services.episodes.newest(caller, [TEAM], limit=9) == []
        assert await bench.value("SELECT count(*) FROM episodes WHERE state = 'kept'") == 0
        assert await bench.value("SELECT storage_bytes FROM accounts") == 0
        assert (await check(bench.storage)).problems == []

    async def test_pages_newest_first(self, bench: Bench) -> None:
        caller = await choose(bench, await writer(bench), keep_turns=True)
        made = []
        for n in range(5):
            made.append((await analyze(bench, caller, f"1. Talk number {n}, ok.")).kept)
            bench.clock.advance(n % 2)
        first = await bench.services.episodes.newest(caller, [TEAM], limit=2)
        place = (first[-1].created_at, first[-1].id)
        rest = await bench.services.episodes.newest(caller, [TEAM], before=place, limit=9)
        assert {t.id for t in (*first, *rest)} == set(made)
        assert len(first) + len(rest) == 5

    async def test_strangers_readers_and_the_keyless(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        caller = await choose(bench, await bench.unlocked(founder, TEAM), keep_turns=True)
        kept = (await analyze(bench, caller, self.TALK)).kept
        assert kept is not None
        reader = await bench.unlocked(await bench.key(founder, TEAM, role="reader"), TEAM)
        other = await bench.unlocked(await bench.key(founder, OTHER), OTHER)
        stranger = await bench.unlocked(await bench.account("sealed"), TEAM)
        keyless = await bench.caller(founder)
        turns, again = bench.services.episodes, bench.services.analysis.again
        assert (await turns.get(reader, kept)).text == self.TALK
        await refused("auth.not_allowed", again(reader, kept))
        for who in (other, stranger):
            await refused("not_found", turns.get(who, kept))
            await refused("not_found", again(who, kept))
        await refused("unlock_required", turns.get(keyless, kept))
        with pytest.raises(RelayerError) as caught:
            await again(keyless, kept)
        assert caught.value.code == "unlock_required"
        await refused("not_found", again(caller, uuid.uuid4()))

    async def test_an_altered_turn(self, bench: Bench) -> None:
        caller = await choose(bench, await writer(bench), keep_turns=True)
        kept = (await analyze(bench, caller, "1. hm?")).kept
        assert kept is not None
        await bench.sql(
            "UPDATE blobs SET bytes = set_byte(bytes, 300, get_byte(bytes, 300) # 1)"
            " WHERE blob_id = (SELECT blob_id FROM episodes)"
        )
        [turn] = await bench.services.episodes.newest(caller, [TEAM], limit=9)
        assert (turn.id, turn.text) == (kept, None)
        with pytest.raises(Corrupted):
            await bench.services.episodes.get(caller, kept)
