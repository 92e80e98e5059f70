"""What speaks against a memory: which of the two stands, and what waits for somebody to look."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from relayer.memories.conversations import Analyzed
from relayer.memories.opener import PAGE_BYTES_MAX, Caller
from relayer.memories.reviews import Doubtful
from relayer.record import State
from relayer.upkeep.check import check
from tests.chains import assert_chain_holds
from tests.editing import edit, writer
from tests.openai_server import OpenAIServer, Step
from tests.services import TEAM, Bench
from tests.talking import AWAY, BERLIN, MUNICH, OSLO, analyze, change, choose, facts, state, waiting
from tests.thinking import model, server, thinking

__all__ = ["model", "server", "thinking"]  # fixtures

PETS = ("a dog", "two cats", "one horse", "some hens", "an owl", "bees", "fish")


class TestContradictions:
    async def contradict(
        self, bench: Bench, caller: Caller, server: OpenAIServer, **members: Any
    ) -> Analyzed:
        server.script(facts(MUNICH, contradicts=1, **members))
        return await analyze(bench, caller, "1. user: Berlin is history, I moved to Munich.")

    async def test_the_newer_wins(self, thinking: Bench, server: OpenAIServer) -> None:
        """capability 3.18: what a newer fact contradicts is superseded by it, never overwritten."""
        caller = await writer(thinking)
        [old] = await thinking.remember(caller, BERLIN)
        then = thinking.clock()
        thinking.clock.advance(60)
        analyzed = await self.contradict(thinking, caller, server)
        [fact] = analyzed.facts
        assert (list(fact.contradicts), list(fact.superseded), fact.review) == (
            [old.id],
            [old.id],
            None,
        )
        assert (len(analyzed.receipts), len(analyzed.others)) == (1, 1)
        assert await thinking.texts(caller, "user lives") == [MUNICH]
        assert await thinking.texts(caller, "user lives", as_of=then) == [BERLIN]
        assert await state(thinking, caller, old.id) == State(
            superseded_at=thinking.clock(), superseded_by=fact.id
        )
        history = await thinking.services.histories.history(caller, old.id)
        assert [(one.memory_id, one.relation, one.other_id) for one in history.links] == [
            (fact.id, "contradicts", old.id)
        ]
        assert await waiting(thinking, caller) == []
        await assert_chain_holds(thinking, caller.access.account)
        assert (await check(thinking.storage)).problems == []

    async def test_both_stay_until_somebody_looked(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """capability 3.18: a contradiction can be kept, flagged, for review."""
        caller = await choose(thinking, await writer(thinking), contradictions="review")
        [old] = await thinking.remember(caller, BERLIN)
        analyzed = await self.contradict(thinking, caller, server)
        [fact] = analyzed.facts
        assert (fact.review, list(fact.superseded)) == ("contradiction", [])
        assert sorted(await thinking.texts(caller, "user lives")) == [BERLIN, MUNICH]
        [found] = await waiting(thinking, caller)
        assert (found.memory.id, found.reason) == (fact.id, "contradiction")
        assert [m.id for m in found.others] == [old.id]
        await change(thinking, caller, fact.id, review=None)
        assert await waiting(thinking, caller) == []
        assert sorted(await thinking.texts(caller, "user lives")) == [BERLIN, MUNICH]

    async def test_a_page_of_the_review_ends_by_what_it_shows_with_the_others(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """Each of them is shown with the long text that it contradicts."""
        caller = await choose(thinking, await writer(thinking), contradictions="review")
        await thinking.remember(caller, f"{BERLIN} {'It is a nice place. ' * 45_000}")
        count = PAGE_BYTES_MAX // 900_000 + 2
        said = [f"The user has {pet} in Munich." for pet in PETS[:count]]
        server.script(facts(*said, contradicts=1))
        assert len((await analyze(thinking, caller, "1. user: I left Berlin.")).facts) == count
        before, found = 2**62, list[Doubtful]()
        while True:
            page = await thinking.services.reviewer.list_doubtful(
                caller, [TEAM], before_seq=before, limit=50
            )
            shown = sum(len(o.text or "") for one in page for o in one.others)
            assert 0 < shown <= PAGE_BYTES_MAX
            found += page
            if page.cursor is None:
                break
            before = page.cursor
        assert len({one.memory.id for one in found}) == len(found) == count

    async def test_what_was_superseded_since_is_not_among_the_others(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await choose(thinking, await writer(thinking), contradictions="review")
        [old] = await thinking.remember(caller, BERLIN)
        await self.contradict(thinking, caller, server)
        [third] = await thinking.remember(caller, OSLO)
        await change(thinking, caller, old.id, superseded_by=third.id)
        [found] = await waiting(thinking, caller)
        assert list(found.others) == []

    async def test_no_rule_supersedes_what_is_pinned(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await writer(thinking)
        [old] = await thinking.remember(caller, BERLIN)
        await change(thinking, caller, old.id, pinned=True)
        [fact] = (await self.contradict(thinking, caller, server)).facts
        assert (fact.review, list(fact.superseded)) == ("contradiction", [])
        assert sorted(await thinking.texts(caller, "user lives")) == [BERLIN, MUNICH]

    @pytest.mark.parametrize("doubt", [{"confidence": "low"}, {"said_by": "other"}])
    async def test_what_is_second_hand_supersedes_nothing(
        self, thinking: Bench, server: OpenAIServer, doubt: dict[str, str]
    ) -> None:
        """A quoted stranger says what he likes."""
        caller = await writer(thinking)
        [old] = await thinking.remember(caller, BERLIN, importance="vital")
        [fact] = (await self.contradict(thinking, caller, server, **doubt)).facts
        assert (fact.review, list(fact.superseded)) == ("contradiction", [])
        assert sorted(await thinking.texts(caller, "user lives")) == [BERLIN, MUNICH]
        [found] = await waiting(thinking, caller)
        assert [m.id for m in found.others] == [old.id]

    @pytest.mark.parametrize(
        ("known", "less", "wins"),
        [
            ("high", {"said_by": "assistant"}, False),
            ("high", {"confidence": "medium"}, False),
            ("medium", {"said_by": "assistant"}, True),
            ("medium", {"confidence": "high"}, True),
            ("low", {"confidence": "low"}, False),
        ],
    )
    async def test_what_is_of_less_confidence_than_a_memory_does_not_supersede_it(
        self,
        thinking: Bench,
        server: OpenAIServer,
        known: str,
        less: dict[str, str],
        wins: bool,
    ) -> None:
        """What an assistant says is no more than its word."""
        caller = await writer(thinking)
        [old] = await thinking.remember(caller, BERLIN, confidence=known)
        [fact] = (await self.contradict(thinking, caller, server, **less)).facts
        assert list(fact.superseded) == [old.id] * wins
        assert fact.review == (None if wins else "contradiction")

    @pytest.mark.parametrize("again", [BERLIN, BERLIN.replace("lives", "really lives")])
    async def test_what_the_same_request_says_again_stands(
        self, thinking: Bench, server: OpenAIServer, again: str
    ) -> None:
        """A model that says both has not decided."""
        caller = await writer(thinking)
        [old] = await thinking.remember(caller, BERLIN)
        every = {"said_by": "user", "kind": "fact", "confidence": "high"}
        both = [{"text": MUNICH, "contradicts": 1, **every}, {"text": again, **every}]
        server.script(Step(content=json.dumps({"facts": both})))
        analyzed = await analyze(thinking, caller, "1. user: I live in Berlin, no, in Munich.")
        [fact] = [fact for fact in analyzed.facts if fact.text == MUNICH]
        assert (fact.review, list(fact.superseded)) == ("contradiction", [])
        assert (await thinking.services.memory.get(caller, old.id)).seen_count == 2
        assert sorted(await thinking.texts(caller, "user lives")) == [BERLIN, MUNICH]

    async def test_what_waits_for_approval_supersedes_nothing(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await choose(thinking, await writer(thinking), low_confidence="review")
        [old] = await thinking.remember(caller, BERLIN)
        [fact] = (await self.contradict(thinking, caller, server, confidence="low")).facts
        assert (fact.review, list(fact.superseded)) == ("pending", [])
        assert await thinking.texts(caller, "user lives") == [BERLIN]
        [found] = await waiting(thinking, caller)
        assert [m.id for m in found.others] == [old.id]

    async def test_what_is_gone_meanwhile_is_not_named(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await writer(thinking)
        [old] = await thinking.remember(caller, BERLIN)

        async def forget() -> None:
            await thinking.services.memory.forget(caller.access, old.id)

        [fact] = (await self.meanwhile(thinking, caller, server, forget, contradicts=1)).facts
        assert (fact.review, list(fact.superseded)) == (None, [])
        assert await thinking.texts(caller, "user lives") == [MUNICH]
        assert (await check(thinking.storage)).problems == []

    @pytest.mark.parametrize("meanwhile", ["said", "said again", "edited"])
    async def test_what_was_said_since_a_turn_waits_stands(
        self, thinking: Bench, server: OpenAIServer, meanwhile: str
    ) -> None:
        """The model was away: what it finds late is older than what was said meanwhile."""
        caller = await writer(thinking)
        old = [] if meanwhile == "said" else await thinking.remember(caller, OSLO)
        server.script(AWAY)
        kept = await analyze(thinking, caller, "1. user: I moved to Munich.")
        thinking.clock.advance(60)
        if meanwhile == "edited":
            await edit(thinking, caller, old[0].id, text=BERLIN)
        else:
            await thinking.remember(caller, OSLO if old else BERLIN)
        server.script(facts(MUNICH, contradicts=1))
        assert kept.pending is not None
        await thinking.services.analysis.extract_episode(
            caller.access.account, caller.keys, kept.pending
        )
        [found] = await waiting(thinking, caller)
        stands = OSLO if meanwhile == "said again" else BERLIN
        assert (found.reason, [m.text for m in found.others]) == ("contradiction", [stands])
        assert sorted(await thinking.texts(caller, "user lives")) == sorted([stands, MUNICH])

    async def test_turns_that_waited_follow_each_other(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """What a fact was said at is kept: both are stored after both were said."""
        caller = await writer(thinking)
        server.script(AWAY, AWAY)
        turns = []
        for said in ("1. user: I moved to Berlin.", "1. user: I moved to Munich."):
            turns.append((await analyze(thinking, caller, said)).pending)
            thinking.clock.advance(60)
        server.script(facts(BERLIN), facts(MUNICH, contradicts=1))
        for turn in turns:
            assert turn is not None
            thinking.clock.advance(60)
            await thinking.services.analysis.extract_episode(
                caller.access.account, caller.keys, turn
            )
        assert await thinking.texts(caller, "user lives") == [MUNICH]
        assert await waiting(thinking, caller) == []

    async def test_an_old_conversation_supersedes_older_things_only(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """Old conversations that are brought in, in order, and one from between them."""
        caller = await writer(thinking)
        now = thinking.clock()
        server.script(facts(BERLIN), facts(MUNICH, contradicts=1), facts(OSLO, contradicts=1))
        for text, days in (("Berlin", 300), ("Munich", 100), ("Oslo", 200)):
            said = now - timedelta(days=days)
            await analyze(thinking, caller, f"1. user: I moved to {text}.", occurred_at=said)
            thinking.clock.advance(60)
        assert sorted(await thinking.texts(caller, "user lives")) == [MUNICH, OSLO]
        [found] = await waiting(thinking, caller)
        assert (found.memory.text, [m.text for m in found.others]) == (OSLO, [MUNICH])

    async def test_what_is_edited_meanwhile_stands(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """The model compared with what it said before."""
        caller = await writer(thinking)
        [old] = await thinking.remember(caller, OSLO)

        async def correct() -> None:
            await edit(thinking, caller, old.id, text=BERLIN)

        [fact] = (await self.meanwhile(thinking, caller, server, correct, contradicts=1)).facts
        assert (fact.review, list(fact.superseded)) == ("contradiction", [])
        assert sorted(await thinking.texts(caller, "user lives")) == [BERLIN, MUNICH]

    @pytest.mark.parametrize("change_to", ["edited", "superseded"])
    async def test_what_is_changed_meanwhile_does_not_say_the_same(
        self, thinking: Bench, server: OpenAIServer, change_to: str
    ) -> None:
        """A fact is not taken for known by a memory that no longer says it."""
        caller = await writer(thinking)
        [known, other] = await thinking.remember(caller, "User lives in Munich now!", OSLO)

        async def correct() -> None:
            if change_to == "edited":
                await edit(thinking, caller, known.id, text=BERLIN)
            else:
                await change(thinking, caller, known.id, superseded_by=other.id)

        analyzed = await self.meanwhile(thinking, caller, server, correct)
        assert [fact.text for fact in analyzed.facts] == [MUNICH]
        assert list(analyzed.reinforced) == []
        assert MUNICH in await thinking.texts(caller, "user lives")

    async def meanwhile(
        self,
        bench: Bench,
        caller: Caller,
        server: OpenAIServer,
        happens: Callable[[], Awaitable[None]],
        **members: Any,
    ) -> Analyzed:
        """What comes of it when something happens while the model thinks."""
        answered = threading.Event()
        server.script(replace(facts(MUNICH, **members), held=answered))
        asked = len(server.received)
        task = asyncio.create_task(analyze(bench, caller, "1. user: I moved to Munich."))
        while len(server.received) == asked:
            await asyncio.sleep(0.01)
        await happens()
        answered.set()
        return await task

    async def test_of_a_turn_that_had_to_wait(self, thinking: Bench, server: OpenAIServer) -> None:
        """The account's choice counts for its late extraction, too."""
        caller = await choose(thinking, await writer(thinking), contradictions="review")
        [old] = await thinking.remember(caller, BERLIN)
        server.script(AWAY)
        kept = await analyze(thinking, caller, "1. user: I moved to Munich.")
        assert kept.pending is not None
        server.script(facts(MUNICH, contradicts=1))
        await thinking.services.analysis.extract_episode(
            caller.access.account, caller.keys, kept.pending
        )
        [found] = await waiting(thinking, caller)
        assert (found.reason, [m.id for m in found.others]) == ("contradiction", [old.id])

    async def test_what_says_the_same_is_none(self, thinking: Bench, server: OpenAIServer) -> None:
        """A model may say so; the memory would lose its tags to a copy."""
        caller = await writer(thinking)
        [old] = await thinking.remember(caller, BERLIN, tags=["home"])
        server.script(facts(BERLIN, contradicts=1))
        analyzed = await analyze(thinking, caller, "1. user: I live in Berlin.")
        assert (list(analyzed.facts), list(analyzed.reinforced)) == ([], [old.id])
        [memory] = await thinking.services.memory.newest(caller, [TEAM], limit=9)
        assert (memory.id, memory.tags, memory.seen_count) == (old.id, ["home"], 2)

    async def test_of_another_time_it_is_one(self, thinking: Bench, server: OpenAIServer) -> None:
        caller = await writer(thinking)
        [old] = await thinking.remember(caller, "The launch party is at the lake.", kind="event")
        moved = facts(
            "The launch party is at the lake.",
            kind="event",
            event_time="2031-05-09",
            contradicts=1,
        )
        server.script(moved)
        [fact] = (await analyze(thinking, caller, "1. user: The party is on 2031-05-09.")).facts
        assert list(fact.superseded) == [old.id]

    @pytest.mark.parametrize("again", [False, True])
    async def test_what_came_after_the_turn_is_newer_than_its_facts(
        self, thinking: Bench, server: OpenAIServer, again: bool
    ) -> None:
        """Whether it had to wait, or is analyzed once more."""
        caller = await choose(thinking, await writer(thinking), keep_turns=True)
        server.script(facts() if again else AWAY)
        kept = await analyze(thinking, caller, "1. user: I live in Berlin.")
        turn = kept.kept or kept.pending
        assert turn is not None
        thinking.clock.advance(86400)
        [newer] = await thinking.remember(caller, MUNICH)
        server.script(facts(BERLIN, contradicts=1))
        if again:
            await thinking.services.analysis.again(caller, turn)
        else:
            await thinking.services.analysis.extract_episode(
                caller.access.account, caller.keys, turn
            )
        assert sorted(await thinking.texts(caller, "user lives")) == [BERLIN, MUNICH]
        [found] = await waiting(thinking, caller)
        assert (found.memory.text, found.reason) == (BERLIN, "contradiction")
        assert [m.id for m in found.others] == [newer.id]


class TestConfidence:
    async def test_low_confidence_waits_if_the_account_wants_it(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """capability 3.17: facts of low confidence wait to be approved or rejected."""
        caller = await choose(thinking, await writer(thinking), low_confidence="review")
        doubt = [facts("Anna may like jazz.", confidence="low")]
        server.script(*doubt, facts("Anna plays the violin."))
        [first] = (await analyze(thinking, caller, "1. Anna: perhaps jazz?")).facts
        [second] = (await analyze(thinking, caller, "1. Anna: I play the violin.")).facts
        assert (first.review, second.review) == ("pending", None)
        assert await thinking.texts(caller, "Anna") == ["Anna plays the violin."]
        listed = await thinking.services.memory.newest(caller, [TEAM], limit=9)
        assert [m.id for m in listed] == [second.id]
        [found] = await waiting(thinking, caller)
        assert (found.memory.id, found.reason, list(found.others)) == (first.id, "pending", [])
        await change(thinking, caller, first.id, review=None)
        assert sorted(await thinking.texts(caller, "Anna")) == [
            "Anna may like jazz.",
            "Anna plays the violin.",
        ]
        assert await waiting(thinking, caller) == []
        assert (await check(thinking.storage)).problems == []

    async def test_it_is_kept_at_once_otherwise(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """capability 3.17: each fact says high, medium or low."""
        caller = await writer(thinking)
        server.script(facts("Anna may like jazz.", confidence="low"))
        [fact] = (await analyze(thinking, caller, "1. Anna: perhaps jazz?")).facts
        assert (fact.review, fact.confidence) == (None, "low")
        assert await thinking.texts(caller, "jazz") == ["Anna may like jazz."]

    async def test_a_rejected_fact_does_not_come_back(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await choose(thinking, await writer(thinking), low_confidence="review")
        server.script(*[facts("Anna may like jazz.", confidence="low")] * 2)
        [fact] = (await analyze(thinking, caller, "1. Anna: perhaps jazz?")).facts
        await change(thinking, caller, fact.id, review="rejected")
        again = await analyze(thinking, caller, "1. Anna: jazz, perhaps?")
        assert (list(again.facts), list(again.reinforced)) == ([], [fact.id])
        assert await thinking.texts(caller, "jazz") == []
        assert await waiting(thinking, caller) == []
