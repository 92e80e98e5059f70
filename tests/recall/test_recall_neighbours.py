"""What was said beside a memory lifts it: two steps, within an hour, of one source and writer."""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from relayer.database import recall as search
from relayer.memories.recall import RecalledMemory
from relayer.sealed import index
from tests.recalling import found
from tests.services import OTHER, TEAM, Bench


class TestNeighbours:
    async def pairs(self, bench: Bench, caller: Any, **filters: Any) -> set[tuple[int, int, int]]:
        """(sequence number, that of a neighbour after it, steps) of everything about tea."""
        key = caller.keys.of(TEAM)[0]
        entry = await bench.storage.namespaces.find(caller.access.account, TEAM)
        assert entry is not None
        scope = search.Scope(
            namespace_id=entry.namespace_id, epoch=1, words=[(index.token(key, "w", "tea"), 0, 1.0)]
        )
        wanted = search.Search(
            scopes=[scope],
            query_words=1,
            filters=search.Filters(bench.clock(), **filters),
            limit=50,
            neighbours=True,
        )
        evidence = await search.gather(bench.storage.database, caller.access.account, wanted)
        both = [
            (int(evidence.seqs[a]), int(evidence.seqs[b]), int(step))
            for (a, b), step in zip(evidence.pairs, evidence.steps, strict=True)
        ]
        assert {(b, a, step) for a, b, step in both} == set(both), "two are neighbours or are not"
        return {pair for pair in both if pair[0] < pair[1]}

    async def test_two_steps_to_each_side(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, *(f"tea {n}" for n in range(4)))
        assert await self.pairs(bench, caller) == {
            (1, 2, 1), (2, 3, 1), (3, 4, 1), (1, 3, 2), (2, 4, 2),
        }  # fmt: skip

    async def test_how_a_request_was_cut_does_not_matter(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, *(f"tea {n}" for n in range(8)))
        together = await self.pairs(bench, caller)
        other = await bench.caller(await bench.account())
        for n in range(8):
            await bench.remember(other, f"tea {n}")
        assert await self.pairs(bench, other) == together

    async def test_what_comes_between_elsewhere_does_not_matter(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        for n in range(3):
            await bench.remember(caller, f"tea {n}")
            await bench.remember(caller, f"tea {n}", namespace=OTHER)
        assert await self.pairs(bench, caller) == {(1, 3, 1), (3, 5, 1), (1, 5, 2)}

    async def test_sources_writers_and_hours_are_apart(self, bench: Bench) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        agent = await bench.caller(await bench.key(founder, TEAM))
        await bench.remember(caller, "tea one", source="chat/1")
        await bench.remember(caller, "tea two", source="chat/2")
        await bench.remember(caller, "tea three")
        await bench.remember(agent, "tea four")
        await bench.remember(caller, "tea five", source="chat/1")
        assert await self.pairs(bench, caller) == {(1, 5, 1)}
        bench.clock.advance(601)
        await bench.remember(caller, "tea six", source="chat/1")
        assert await self.pairs(bench, caller) == {(1, 5, 1)}
        bench.clock.advance(600)
        await bench.remember(caller, "tea seven", source="chat/1")
        assert await self.pairs(bench, caller) == {(1, 5, 1), (6, 7, 1)}

    async def test_an_event_stands_at_its_own_time(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        day = timedelta(days=1)
        await bench.remember(caller, "tea one", event_time=bench.clock() - day)
        await bench.remember(caller, "tea two")
        await bench.remember(caller, "tea three", event_time=bench.clock() - day)
        assert await self.pairs(bench, caller) == {(1, 3, 1)}

    async def test_what_may_not_be_found_is_no_neighbour(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "tea one")
        await bench.remember(caller, "tea two", kind="event")
        await bench.remember(caller, "tea three", expires_at=bench.clock() + timedelta(seconds=5))
        await bench.remember(caller, "tea four")
        assert await self.pairs(bench, caller, kinds=["fact"]) == {(1, 3, 1), (3, 4, 1), (1, 4, 2)}
        bench.clock.advance(6)
        assert await self.pairs(bench, caller, kinds=["fact"]) == {(1, 4, 1)}

    TOPICS = (
        "dog", "boat", "piano", "garden", "passport", "bicycle", "kitchen", "thesis", "camera",
        "wedding", "roof", "allotment", "choir", "tax return", "beehive", "marathon",
    )  # fmt: skip

    async def talk(
        self, bench: Bench, caller: Any, order: Callable[[list[str]], None]
    ) -> RecalledMemory:
        """What is found of the bare answer that followed a question, stored in some order."""
        texts = [
            text
            for n, topic in enumerate(self.TOPICS)
            for text in (
                f"Ben: How is the {topic} going?",
                f"Anna: The {topic} takes all my evenings.",
                f"Ben: Is the {topic} worth it?",
                f"Anna: Ask me again in room {n + 7000}.",
            )
        ]
        order(texts)
        stored = [item for text in texts for item in await bench.remember(caller, text)]
        await bench.embed(caller, stored)
        hits = await found(bench, caller, "What came of the beehive?", limit=84)
        [answer] = [f for f in hits if f.memory.text == "Anna: Ask me again in room 7014."]
        assert answer.hit.score == pytest.approx(
            (answer.hit.cosine or 0) + answer.hit.relevance + answer.hit.neighbours
        )
        return answer

    async def test_the_answer_after_a_question_is_found(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        answer = await self.talk(hybrid, caller, lambda texts: None)
        assert answer.hit.matched == []
        assert answer.hit.neighbours > 0.1
        assert "Anna: Ask me again in room 7014." in await hybrid.texts(
            caller, "What came of the beehive?", limit=8
        )

    async def test_a_filter_is_no_reason_to_trust_neighbours(self, hybrid: Bench) -> None:
        """What stands beside must score above the mean of what may be found, not of all."""
        caller = await hybrid.caller(await hybrid.account())
        texts = [f"room {n} has tea of {self.TOPICS[n * 7 % 16]}" for n in range(160)]
        random.Random(3).shuffle(texts)
        for n, text in enumerate(texts):
            tags = ("inbox",) if n % 40 < 10 else ()
            await hybrid.remember(caller, text, tags=tags)
        trusted = 0
        for topic in self.TOPICS:
            hits = await found(hybrid, caller, f"tea of {topic}", tags=("inbox",), mode="keyword")
            trusted += max((f.hit.neighbours for f in hits), default=0.0) > 0
        assert trusted <= 4, "by chance, in one search of seven"

    async def test_neighbours_are_of_one_namespace(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "tea one")
        await bench.remember(caller, "tea two", namespace=OTHER)
        await bench.remember(caller, "tea three")
        wanted = search.Search(
            scopes=[
                search.Scope(n, 1, words=[(index.token(caller.keys.of(name)[0], "w", "tea"), 0, 1)])
                for n, name in ((1, TEAM), (2, OTHER))
            ],
            query_words=1,
            filters=search.Filters(bench.clock()),
            limit=50,
            neighbours=True,
        )
        hits = await search.gather(bench.storage.database, caller.access.account, wanted)
        assert {tuple(hits.seqs[pair]) for pair in hits.pairs} == {(1, 3), (3, 1)}

    async def test_in_no_order_nothing_is_neighbourly(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        answer = await self.talk(hybrid, caller, random.Random(5).shuffle)
        assert answer.hit.neighbours == 0
