"""What held of memories and turns before the database was lost holds after it."""

from datetime import timedelta
from typing import Any

import pytest

from relayer.database.pool import Row
from relayer.errors import NotFound
from relayer.journal.states import Change
from relayer.llm import LanguageModel
from relayer.memories.opener import Caller
from relayer.memories.revisions import Edit
from relayer.sealed.receipts import open_receipt
from relayer.upkeep.check import check
from relayer.upkeep.rebuild import REBUILT
from tests.chains import chain_of
from tests.erasing import living
from tests.openai_server import OpenAIServer
from tests.rebuilding import ROWS, Lose, bench, completed, lose, rebuilt
from tests.services import OTHER, TEAM, Bench
from tests.talking import AWAY, BERLIN, MUNICH, analyze, choose, facts
from tests.thinking import model, server

__all__ = ["bench", "lose", "model", "server"]  # fixtures

HOUR = 3600
CUSTODIES = ("managed", "sealed")
EXPIRIES = "SELECT memory_id, expires_at FROM memories ORDER BY memory_id"


async def come_back(bench: Bench, lose: Lose, founder: Any) -> tuple[Bench, Caller]:
    """Lose the database, and have everything back that the founder's keys open."""
    lost = await lose(bench)
    assert await rebuilt(lost, bench) == [REBUILT]
    await lost.unlocked(founder, TEAM, OTHER, hold_s=300)
    await completed(lost, founder)
    return lost, await lost.unlocked(founder, TEAM, OTHER, hold_s=300)


@pytest.mark.parametrize("custody", CUSTODIES)
class TestStates:
    async def test_each_of_them(self, bench: Bench, lose: Lose, custody: str) -> None:
        """Also of what was edited, or decided otherwise, since; recall leaves out the same."""
        founder = await bench.account(custody)
        caller = await bench.unlocked(founder, TEAM, OTHER)
        names = ("pinned", "rejected", "flagged", "pending", "replaced", "stale", "freed", "edited")
        then = bench.clock()
        stored = await bench.remember(caller, *(f"Note {name}." for name in names))
        of = dict(zip(names, (one.id for one in stored), strict=True))
        bench.clock.advance(1)
        for name in ("rejected", "pending"):
            reworded = Edit(changes={"text": f"Note {name} anew."})
            await bench.services.reviser.edit(caller, of[name], reworded)
        say = bench.services.state_changer.set_state
        for name, change in (
            ("pinned", Change(pinned=True)),
            ("rejected", Change(review="rejected")),
            ("flagged", Change(review="contradiction")),
            ("pending", Change(review="pending")),
            ("replaced", Change(superseded_by=of["pinned"])),
            ("stale", Change(stale=True)),
            ("freed", Change(pinned=True, review="pending")),
            ("edited", Change(pinned=True, stale=True)),
        ):
            bench.clock.advance(1)
            await say(caller.access, of[name], change)
        bench.clock.advance(1)
        await say(caller.access, of["freed"], Change(pinned=False, review=None))
        await bench.services.reviser.edit(caller, of["edited"], Edit(changes={"text": "Note new."}))
        rows, found = await bench.sql(ROWS), await bench.texts(caller, "note", mode="keyword")
        assert {*found} == {f"Note {n}." for n in ("pinned", "flagged", "stale", "freed", "new")}
        lost, again = await come_back(bench, lose, founder)
        assert await lost.sql(ROWS) == rows
        assert {*await lost.texts(again, "note", mode="keyword")} == {*found}
        past = await lost.texts(again, "note", mode="keyword", as_of=then)
        assert {*past} == {f"Note {n}." for n in names} - {"Note rejected.", "Note pending."}
        # Whoever decides goes on where it stood, and a second loss finds that, too.
        await lost.services.state_changer.set_state(
            again.access, of["pending"], Change(review=None)
        )
        await lost.services.state_changer.set_state(
            again.access, of["pinned"], Change(pinned=False)
        )
        await lost.services.collector.collect()
        await lost.storage.outbox.empty()
        assert (await check(lost.storage)).problems == []
        rows = await lost.sql(ROWS)
        lost, again = await come_back(lost, lose, founder)
        assert await lost.sql(ROWS) == rows
        assert "Note pending anew." in await lost.texts(again, "note", mode="keyword")

    async def test_what_has_expired_does_not_come_back(
        self, bench: Bench, lose: Lose, custody: str
    ) -> None:
        """Neither what was erased for that, nor what housekeeping had not come to."""
        founder = await bench.account(custody)
        caller = await bench.unlocked(founder, TEAM, OTHER)
        soon, later = (bench.clock() + timedelta(seconds=s) for s in (60, 120))
        [erased] = await bench.remember(caller, "Anna prefers tea.", expires_at=soon)
        [due] = await bench.remember(caller, "Ben prefers tea.", expires_at=later)
        [shorter, longer] = await bench.remember(caller, "Cleo and tea.", "Dan and tea.")
        change = bench.services.reviser.edit
        await change(caller, shorter.id, Edit(changes={"expires_at": later}))
        await change(caller, longer.id, Edit(changes={"expires_at": later + timedelta(days=9)}))
        bench.clock.advance(61)
        await bench.services.expiry.expire()
        assert erased.id not in await living(bench)
        bench.clock.advance(60)
        lost, again = await come_back(bench, lose, founder)
        assert await lost.texts(again, "tea", mode="keyword") == ["Dan and tea."]
        for gone in (erased, due, shorter):
            with pytest.raises(NotFound):
                await lost.services.memory.get(again, gone.id)
        await lost.services.expiry.expire()
        assert await living(lost) == {longer.id}
        receipts = await chain_of(lost, founder.account)
        last = open_receipt(receipts[-1], lost.storage.identity.public_key)
        assert (last.op, {item.memory for item in last.items}) == ("expire", {due.id, shorter.id})
        await completed(lost, founder)
        assert await living(lost) == {longer.id}
        assert (await check(lost.storage)).problems == []

    async def test_a_namespaces_life_span_has_to_be_said_again(
        self, bench: Bench, lose: Lose, custody: str
    ) -> None:
        """Then it counts from when each memory was stored; what it had erased stays erased."""
        founder = await bench.account(custody)
        caller = await bench.unlocked(founder, TEAM, OTHER)
        [short] = await bench.remember(caller, "Anna prefers tea.")
        await bench.services.expiry.keep(caller.access, TEAM, HOUR)
        bench.clock.advance(HOUR // 2)
        [long] = await bench.remember(caller, "Ben prefers tea.")
        [pinned] = await bench.remember(caller, "Cleo prefers tea.")
        await bench.services.state_changer.set_state(caller.access, pinned.id, Change(pinned=True))
        bench.clock.advance(HOUR // 2)
        await bench.services.expiry.expire()
        ends = await bench.sql(EXPIRIES)
        assert await living(bench) == {long.id, pinned.id}
        lost, again = await come_back(bench, lose, founder)
        assert await living(lost) == {long.id, pinned.id}
        assert [row["expires_at"] for row in await lost.sql(EXPIRIES)] == [None, None]
        await lost.services.expiry.keep(again.access, TEAM, HOUR)
        assert await lost.sql(EXPIRIES) == ends
        lost.clock.advance(HOUR // 2)
        assert await lost.texts(again, "tea", mode="keyword") == ["Cleo prefers tea."]
        assert short.id not in await living(lost)


class TestTurns:
    """With a model that is away at times, as before the loss."""

    @pytest.fixture
    def thinking(self, bench: Bench, model: LanguageModel) -> Bench:
        return bench.another(language_model=model)

    async def turns(self, bench: Bench) -> list[Row]:
        return await bench.sql("SELECT state, writer, created_at FROM episodes ORDER BY state")

    async def test_of_a_sealed_account_wait_for_their_key(
        self, thinking: Bench, server: OpenAIServer, lose: Lose
    ) -> None:
        founder = await thinking.account("sealed")
        caller = await choose(thinking, await thinking.unlocked(founder, TEAM), keep_turns=True)
        server.script(facts("The user prefers tea."), AWAY)
        kept = await analyze(thinking, caller, "1. user: I prefer tea.")
        thinking.clock.advance(1)
        await analyze(thinking, caller, "1. user: I am allergic to peanuts.")
        before = await self.turns(thinking)
        assert [row["state"] for row in before] == ["kept", "pending"]
        lost = await lose(thinking)
        await rebuilt(lost, thinking)
        await lost.unlocked(founder, OTHER, hold_s=300)
        await completed(lost, founder)
        assert await self.turns(lost) == []
        again = await lost.unlocked(founder, TEAM, hold_s=300)
        await completed(lost, founder)
        assert await self.turns(lost) == before
        assert kept.kept is not None
        turn = await lost.services.episodes.get(again, kept.kept)
        assert (turn.text, list(turn.fact_ids)) == (
            "1. user: I prefer tea.",
            [one.id for one in kept.facts],
        )

    async def test_what_waited_for_a_person_waits_again(
        self, thinking: Bench, server: OpenAIServer, lose: Lose
    ) -> None:
        """A fact that speaks against another, and the fact that it would replace."""
        founder = await thinking.account()
        caller = await choose(
            thinking, await thinking.caller(founder), contradictions="review", keep_turns=True
        )
        [old] = await thinking.remember(caller, BERLIN)
        server.script(facts(MUNICH, contradicts=1))
        said = await analyze(thinking, caller, "1. user: I moved to Munich.")
        waiting = await thinking.services.reviewer.list_doubtful(
            caller, [TEAM], before_seq=2**62, limit=9
        )
        rows = await thinking.sql(ROWS)
        lost, again = await come_back(thinking, lose, founder)
        assert await lost.sql(ROWS) == rows
        now = await lost.services.reviewer.list_doubtful(again, [TEAM], before_seq=2**62, limit=9)
        assert [one.memory.id for one in now] == [one.memory.id for one in waiting]
        assert {old.id} | {one.id for one in said.facts} == await living(lost)

    async def test_what_was_erased_stays_so_beside_what_waits(
        self, thinking: Bench, server: OpenAIServer, lose: Lose
    ) -> None:
        founder = await thinking.account()
        caller = await choose(thinking, await thinking.caller(founder), keep_turns=True)
        server.script(facts("The user prefers tea."), AWAY)
        kept = await analyze(thinking, caller, "1. user: I prefer tea.")
        waits = await analyze(thinking, caller, "1. user: I am allergic to peanuts.")
        await thinking.services.deletion.forget(caller.access, kept.facts[0].id)
        lost, again = await come_back(thinking, lose, founder)
        assert [row["state"] for row in await self.turns(lost)] == ["pending"]
        assert await living(lost) == set()
        assert waits.pending is not None
        await lost.services.deletion.forget(again.access, waits.pending)
        lost, _ = await come_back(lost, lose, founder)
        assert await self.turns(lost) == []
        assert (await check(lost.storage)).problems == []
