"""Recalling, over a real database and the built-in embedder."""

import asyncio
import json
import math
import random
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from relayer.database import recall as search
from relayer.embedding.embedders import Embedder
from relayer.errors import Corrupted, NotAllowed
from relayer.query import rank
from relayer.query.fusion import Weights as LegWeights
from relayer.recall import Found, Query
from relayer.sealed import index
from relayer.sealed.keys import Namespace
from relayer.words import words
from tests.conftest import BenchMaker
from tests.embeddings_server import EmbeddingsServer
from tests.sentences import PARAPHRASES
from tests.services import OTHER, TEAM, Bench
from tests.test_memory import openai_embedder


async def found(bench: Bench, caller: Any, text: str, **members: Any) -> list[Found]:
    query = Query(**{"text": text, "namespaces": [TEAM], **members})
    return list((await bench.services.recaller.recall(caller, query)).found)


class TestHybrid:
    async def test_finds_paraphrases_and_identifiers(self, hybrid: Bench) -> None:
        """capability 0.10: a paraphrase is found by its vector.
        capability 1.11: the prompt itself is the query, by meaning, over the whole store.
        capability 3.24: what keywords miss is found by meaning, exact names by keyword.
        """
        caller = await hybrid.caller(await hybrid.account())
        stored = await hybrid.remember(caller, *(sentence for _, sentence in PARAPHRASES))
        stored += await hybrid.remember(
            caller, "Ticket OPS-4127 is about the pump.", "OPS-4128 too."
        )
        await hybrid.embed(caller, stored)
        for question, sentence in PARAPHRASES:
            assert (await hybrid.texts(caller, question, limit=3)).count(sentence) == 1, question
        assert await hybrid.texts(caller, "ops-4127", limit=1) == [
            "Ticket OPS-4127 is about the pump."
        ]

    async def test_a_memory_without_vector_stands_beside_one_with(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        await hybrid.embed(caller, await hybrid.remember(caller, "Anna prefers tea."))
        await hybrid.remember(caller, "Ben prefers milk.")
        by_text = {f.memory.text: f for f in await found(hybrid, caller, "who prefers something")}
        assert by_text["Anna prefers tea."].hit.cosine is not None
        assert by_text["Ben prefers milk."].hit.cosine is None
        assert by_text["Ben prefers milk."].hit.relevance > 0

    async def test_vector_only_and_keyword_only(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        await hybrid.embed(caller, await hybrid.remember(caller, "Anna prefers tea.", "It rains."))
        vector = await found(hybrid, caller, "Which hot drink?", mode="vector")
        assert [f.memory.text for f in vector] == ["Anna prefers tea.", "It rains."]
        assert all(f.hit.relevance == 0 and f.hit.matched == [] for f in vector)
        assert [f.hit.distance for f in vector] == [
            1 - f.hit.cosine for f in vector if f.hit.cosine
        ]
        assert await hybrid.texts(caller, "Which hot drink?", mode="keyword") == []
        [keyword] = await found(hybrid, caller, "tea", mode="keyword")
        assert (keyword.hit.cosine, keyword.hit.matched) == (None, ["tea"])


class TestDegraded:
    async def test_vector_missing_means_keyword_only(self, make_bench: BenchMaker) -> None:
        """capability 4.18: without vectors, words alone find it."""
        async with EmbeddingsServer() as server:
            bench = make_bench(embedder=openai_embedder(server))
            caller = await bench.caller(await bench.account())
            await bench.embed(caller, await bench.remember(caller, "Anna prefers tea."))
            server.always = "503"
            query = Query(text="Does Anna like tea?", namespaces=[TEAM])
            recalled = await bench.services.recaller.recall(caller, query)
            assert recalled.degraded
            assert [f.memory.text for f in recalled.found] == ["Anna prefers tea."]
            keyword = replace(query, mode="keyword")
            assert not (await bench.services.recaller.recall(caller, keyword)).degraded

    async def test_words_missing_means_vector_only(self, hybrid: Bench) -> None:
        """capability 4.18: without a word in the query, vectors alone find it."""
        caller = await hybrid.caller(await hybrid.account())
        await hybrid.embed(caller, await hybrid.remember(caller, "Anna is happy."))
        [hit] = await found(hybrid, caller, "🙂 !?")
        assert (hit.hit.relevance, hit.hit.cosine is not None) == (0, True)

    async def test_without_an_embedder(self, bench: Bench) -> None:
        """capability 3.20: no embedding service is needed."""
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "Anna prefers tea.")
        recalled = await bench.services.recaller.recall(
            caller, Query(text="tea", namespaces=[TEAM])
        )
        assert (len(recalled.found), recalled.degraded) == (1, True)
        recalled = await bench.services.recaller.recall(
            caller, Query(text="tea", namespaces=[TEAM], mode="vector")
        )
        assert (recalled.found, recalled.degraded) == ([], True)

    async def test_a_query_without_words_finds_nothing(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "Anna prefers tea.")
        for text in ("", "   ", "?!", "🙂", "\u0000", "%_\\"):
            assert await bench.texts(caller, text) == []


class TestScope:
    async def test_namespaces_are_apart(self, hybrid: Bench) -> None:
        """capability 0.33: a namespace's memories are not found from another.
        capability 0.34: one key's namespaces are isolated by the server's filter.
        """
        caller = await hybrid.caller(await hybrid.account())
        stored = await hybrid.remember(caller, "Anna prefers tea.")
        stored += await hybrid.remember(caller, "Ben prefers tea.", namespace=OTHER)
        await hybrid.embed(caller, stored)
        assert await hybrid.texts(caller, "tea") == ["Anna prefers tea."]
        assert await hybrid.texts(caller, "tea", namespaces=[OTHER]) == ["Ben prefers tea."]
        assert await hybrid.texts(caller, "tea", namespaces=[Namespace("none")]) == []
        both = await hybrid.texts(caller, "Anna tea", namespaces=[OTHER, TEAM])
        assert both == ["Anna prefers tea.", "Ben prefers tea."]

    async def test_naming_a_namespace_twice_changes_nothing(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "Anna prefers tea.", "The tea is cold.")
        once = await found(bench, caller, "tea")
        twice = await found(bench, caller, "tea", namespaces=[TEAM, TEAM])
        assert [(f.memory.id, f.hit.score) for f in once] == [
            (f.memory.id, f.hit.score) for f in twice
        ]

    async def test_accounts_are_apart_with_equal_texts_and_names(self, hybrid: Bench) -> None:
        one = await hybrid.caller(await hybrid.account())
        two = await hybrid.caller(await hybrid.account())
        for caller, text in ((one, "Anna prefers tea."), (two, "Anna prefers tea.")):
            await hybrid.embed(caller, await hybrid.remember(caller, text))
        await hybrid.remember(two, "Tea is stored in the cellar.")
        assert await hybrid.texts(one, "tea") == ["Anna prefers tea."]
        turned = await hybrid.sql("SELECT embedding::text FROM vectors")
        assert len({r[0] for r in turned}) == 2
        tokens = await hybrid.sql(
            "SELECT token FROM postings GROUP BY token HAVING count(DISTINCT account_id) > 1"
        )
        assert tokens == []

    async def test_other_roles_and_keys(self, bench: Bench) -> None:
        """capability 0.35: another agent's key neither may read a memory nor can."""
        founder = await bench.account()
        await bench.remember(await bench.caller(founder), "Anna prefers tea.")
        reader = await bench.caller(await bench.key(founder, TEAM, role="reader"))
        assert await bench.texts(reader, "tea") == ["Anna prefers tea."]
        with pytest.raises(NotAllowed):
            await bench.texts(reader, "tea", namespaces=[TEAM, OTHER])

    async def test_another_key_of_the_namespace_finds_nothing(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        await bench.remember(await bench.unlocked(founder, TEAM), "Anna prefers tea.")
        caller = await bench.unlocked(founder, OTHER)
        with pytest.raises(NotAllowed) as caught:
            await bench.texts(caller, "tea")
        assert caught.value.code == "unlock_required"


class TestFilters:
    @pytest.fixture
    async def filled(self, hybrid: Bench) -> tuple[Bench, Any]:
        caller = await hybrid.caller(await hybrid.account())
        day = timedelta(days=1)
        now = hybrid.clock()
        for text, members in (
            ("apple plain", {}),
            ("apple tagged", {"tags": ("red", "round"), "kind": "preference"}),
            ("apple sourced", {"source": "mail/17", "tags": ("red",)}),
            ("apple labelled", {"metadata": {"shop": "north", "row": "4"}}),
            ("apple old", {"event_time": now - 400 * day}),
            ("apple ahead", {"event_time": now + 10 * day}),
            ("apple brief", {"expires_at": now + day}),
        ):
            await hybrid.embed(caller, await hybrid.remember(caller, text, **members))
        return hybrid, caller

    async def names(self, filled: tuple[Bench, Any], **members: Any) -> set[str]:
        bench, caller = filled
        texts = await bench.texts(caller, "apple", **members)
        return {str(text).removeprefix("apple ") for text in texts}

    async def test_kinds(self, filled: tuple[Bench, Any]) -> None:
        """capability 3.1: memories have kinds, and a recall may ask for some only."""
        assert await self.names(filled, kinds=["preference"]) == {"tagged"}
        assert len(await self.names(filled, kinds=["preference", "fact"])) == 7
        assert await self.names(filled, kinds=["decision"]) == set()

    async def test_tags_must_all_match(self, filled: tuple[Bench, Any]) -> None:
        """capability 3.8: tags narrow a search, and all of them must match."""
        assert await self.names(filled, tags=("red",)) == {"tagged", "sourced"}
        assert await self.names(filled, tags=("red", "round")) == {"tagged"}
        for tags in (("Red",), ("apple",), ("red' OR 1=1 --",)):
            assert await self.names(filled, tags=tags) == set()

    async def test_source_and_metadata(self, filled: tuple[Bench, Any]) -> None:
        assert await self.names(filled, source="mail/17") == {"sourced"}
        assert await self.names(filled, source="mail/1") == set()
        assert await self.names(filled, metadata={"shop": "north"}) == {"labelled"}
        assert await self.names(filled, metadata={"shop": "north", "row": "4"}) == {"labelled"}
        assert await self.names(filled, metadata={"shop": "north", "row": "5"}) == set()
        assert await self.names(filled, metadata={"shop": "north"}, tags=("red",)) == set()

    async def test_times(self, filled: tuple[Bench, Any]) -> None:
        bench, _ = filled
        now = bench.clock()
        assert await self.names(filled, before=now) == {"old"}
        assert await self.names(filled, after=now + timedelta(seconds=1)) == {"ahead"}
        assert "ahead" not in await self.names(filled, after=now, before=now + timedelta(days=10))

    async def test_expiry(self, filled: tuple[Bench, Any]) -> None:
        bench, _ = filled
        assert "brief" in await self.names(filled)
        bench.clock.advance(86400)
        assert "brief" not in await self.names(filled)

    async def test_both_legs_are_filtered(self, filled: tuple[Bench, Any]) -> None:
        assert await self.names(filled, tags=("red",), mode="vector") == {"tagged", "sourced"}
        assert await self.names(filled, tags=("red",), mode="keyword") == {"tagged", "sourced"}

    async def test_limit_means_limit(self, filled: tuple[Bench, Any]) -> None:
        """capability 0.11: as many are found as were asked for, with no floor but the caller's."""
        for limit in (1, 3, 7, 100):
            assert len(await self.names(filled, limit=limit)) == min(limit, 7)

    async def test_relevance_floor(self, filled: tuple[Bench, Any]) -> None:
        """capability 0.12: what is below the threshold is left out."""
        bench, caller = filled
        every = await found(bench, caller, "apple tagged")
        floor = 1 - every[0].hit.distance
        close = await found(bench, caller, "apple tagged", min_relevance=floor)
        assert [f.memory.id for f in close] == [every[0].memory.id]
        assert await found(bench, caller, "apple tagged", min_relevance=1.01) == []


class TestOrder:
    async def test_distance_and_score_as_the_specification_says(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        await hybrid.embed(
            caller,
            await hybrid.remember(
                caller, "Anna prefers tea.", "Ben sells tea and cups.", "It rains."
            ),
        )
        hits = await found(hybrid, caller, "Anna tea")
        assert len(hits) == 3
        for hit in hits:
            assert hit.hit.cosine is not None
            assert hit.hit.distance == pytest.approx(min(1 - hit.hit.cosine, 1 - hit.hit.relevance))
            assert hit.hit.score == pytest.approx(hit.hit.cosine + hit.hit.relevance)
            assert 0 <= hit.hit.relevance <= 1
        assert [h.hit.score for h in hits] == sorted((h.hit.score for h in hits), reverse=True)

    async def test_keyword_score_is_bm25_over_its_ideal(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        texts = ["tea tea cup", "tea pot lid box", "milk jug", "sugar bowl and spoon"]
        await bench.remember(caller, *texts)
        lengths = [index.rounded_length(len(words(t))) for t in texts]
        mean, n = sum(lengths) / 4, 4

        def idf(df: int) -> float:
            return math.log(1 + (n - df + 0.5) / (df + 0.5))

        def term(tf: int, length: int, df: int) -> float:
            return idf(df) * tf * 1.9 / (tf + 0.9 * (0.6 + 0.4 * length / mean))

        ideal = (idf(2) + idf(1) + idf(0)) * 1.9 / (1 + 0.9 * 0.6)
        by_text = {
            f.memory.text: f for f in await found(bench, caller, "tea milk zebra", mode="keyword")
        }
        expected = {
            texts[0]: term(2, lengths[0], 2) / ideal,
            texts[1]: term(1, lengths[1], 2) / ideal,
            texts[2]: term(1, lengths[2], 1) / ideal,
        }
        assert {t: pytest.approx(f.hit.relevance) for t, f in by_text.items()} == expected
        assert all(f.hit.distance == 1 - f.hit.relevance for f in by_text.values())

    async def test_a_word_weighs_the_same_in_every_namespace(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, *(f"tea and milk and number {n}" for n in range(30)))
        await bench.remember(caller, "the tea of Ben", namespace=OTHER)
        hits = await found(bench, caller, "Ben tea", mode="keyword", namespaces=[TEAM, OTHER])
        assert hits[0].memory.text == "the tea of Ben"
        assert hits[0].hit.relevance > 0.85, "rare over there and common here would say less"

    async def test_a_common_tag_does_not_make_up_for_a_word(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        for n in range(16):
            await bench.remember(caller, f"went home at {n}", tags=("anna",))
            await bench.remember(caller, f"had tea at {n + 100}", tags=("anna",))
        await bench.remember(caller, "Anna had coffee")
        hits = await found(bench, caller, "Anna tea", mode="keyword", limit=40)
        texts = [str(f.memory.text) for f in hits]
        first = max(n for n, text in enumerate(texts) if "had tea" in text)
        assert first < min(n for n, text in enumerate(texts) if "went home" in text)

    async def test_what_stands_for_two_words_counts_for_each_once(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "kubernetes is down", "the cat sleeps")
        aliases = {"k8s": ["kubernetes"], "cluster": ["kubernetes"]}
        one, both = [
            (await found(bench, caller, query, mode="keyword", aliases=aliases))[0].hit
            for query in ("k8s", "k8s cluster")
        ]
        assert both.matched == ["k8s", "cluster"]
        assert both.relevance == pytest.approx(one.relevance)

    async def test_matched_words_are_told(self, bench: Bench) -> None:
        """capability 3.8: a recall tells which words matched."""
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "The Zürich office is closing.", "Anna has an office.")
        hits = await found(bench, caller, "Is Anna's office in Zürich closed? anna")
        assert [h.hit.matched for h in hits] == [["offic", "zurich", "close"], ["anna", "offic"]]

    async def test_ties_are_in_a_fixed_order(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, *(f"tea {n}" for n in range(20)))
        first = await bench.texts(caller, "tea", limit=20)
        assert first == [f"tea {n}" for n in reversed(range(20))]
        assert all([await bench.texts(caller, "tea", limit=20) == first for _ in range(3)])

    async def test_recency_weighs(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        old = bench.clock() - timedelta(days=300)
        await bench.remember(caller, "Anna drinks tea tea", event_time=old)
        await bench.remember(caller, "Anna drinks tea with Ben and all of the others")
        meaning = await bench.texts(caller, "tea")
        recent = await bench.texts(caller, "tea", weights=rank.Weights(recency=5))
        assert recent == meaning[::-1]

    async def test_importance_weighs(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "tea trivial", importance="trivial")
        await bench.remember(caller, "tea vital among many other words here", importance="vital")
        weighed = await found(bench, caller, "tea", limit=1, weights=rank.Weights(importance=9))
        assert weighed[0].memory.importance == "vital"
        assert await bench.texts(caller, "tea", limit=1) == ["tea trivial"]


class TestNeighbours:
    async def pairs(self, bench: Bench, caller: Any, **filters: Any) -> set[tuple[int, int, int]]:
        """(sequence number, that of a neighbour after it, steps) of everything about tea."""
        key = caller.keys.of(TEAM)[0]
        entry = await bench.storage.namespaces.find(caller.access.account, TEAM)
        assert entry is not None
        scope = search.Scope(
            namespace_id=entry.namespace_id, epoch=1, words=[(index.token(key, "w", "tea"), 0, 1.0)]
        )
        evidence = await search.gather(
            bench.storage.database,
            account=caller.access.account,
            scopes=[scope],
            query_words=1,
            filters=search.Filters(bench.clock(), **filters),
            candidates=50,
            neighbours=True,
        )
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

    async def talk(self, bench: Bench, caller: Any, order: Callable[[list[str]], None]) -> Found:
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
        hits = await search.gather(
            bench.storage.database,
            account=caller.access.account,
            scopes=[
                search.Scope(n, 1, words=[(index.token(caller.keys.of(name)[0], "w", "tea"), 0, 1)])
                for n, name in ((1, TEAM), (2, OTHER))
            ],
            query_words=1,
            filters=search.Filters(bench.clock()),
            candidates=50,
            neighbours=True,
        )
        assert {tuple(hits.seqs[pair]) for pair in hits.pairs} == {(1, 3), (3, 1)}

    async def test_in_no_order_nothing_is_neighbourly(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        answer = await self.talk(hybrid, caller, random.Random(5).shuffle)
        assert answer.hit.neighbours == 0


class TestTimes:
    async def test_a_named_time_is_preferred_not_required(self, bench: Bench) -> None:
        """capability 3.24: vague words of time are resolved, and prefer what happened then."""
        caller = await bench.caller(await bench.account())
        now = bench.clock()
        for days in (2, 20, 40, 400):
            await bench.remember(
                caller, f"tea with Anna, {days}", event_time=now - timedelta(days=days)
            )
        for query, first in (
            ("tea with Anna last month", "tea with Anna, 20"),
            ("tea with Anna in March", "tea with Anna, 40"),
            ("tea with Anna a year ago", None),
            ("tea with Anna in 2030", "tea with Anna, 400"),
        ):
            hits = await found(bench, caller, query)
            assert len(hits) == 4, "what happened at another time is still found"
            if first is not None:
                assert hits[0].memory.text == first, query
                assert [f.hit.period for f in hits] == [0.2, 0, 0, 0], query

    async def test_the_callers_own_formula_has_no_preference(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "tea with Anna")
        for weights, period in ((None, 0.2), (LegWeights(meaning=0.7, words=0.3), 0.0)):
            [hit] = await found(bench, caller, "tea with Anna today", leg_weights=weights)
            assert hit.hit.period == period


class TestCopies:
    async def test_near_copies_do_not_fill_the_answer(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        copies = [
            f"The backup of the tea shop took twelve minutes and nothing was lost{more}"
            for more in (".", " again.", " today.", ", again.", " at all.")
        ]
        other = "Anna once spilled tea on a backup and it took days before anyone could read it"
        await bench.remember(caller, *copies, other)
        texts = await bench.texts(caller, "backup tea shop took", limit=2)
        assert len(texts) == 2
        assert other in texts
        every = await bench.texts(caller, "backup tea shop took", limit=10)
        assert sorted(map(str, every)) == sorted([*copies, other])
        assert every[1] == other, "copies stand behind what says something else"


class TestQueries:
    EXAMPLES = (
        ("我们明天坐火车去海边。", "火车"),
        ("猫は窓のそばで寝ています。", "猫"),
        ("나는 매일 아침 공원에서 달린다.", "공원에서"),
        ("Пользователь живёт у моря.", "пользователя"),
        ("Die Straßenbahn fährt nach Köln.", "STRASSENBAHN"),
        ("Der Schlüssel liegt unter der Fußmatte.", "Wo ist der Schlüssel?"),
        ("The café serves naïve art.", "cafe\u0301"),
        ("Call +49-30-1234567 after six.", "+49-30-1234567"),
        ("Mail anna.k@example.org about it.", "anna.k@example.org"),
        ("It broke in v2.14.1 of the parser.", "2.14.1"),
        ("Robert'); DROP TABLE memories;--", "'); DROP TABLE memories;--"),
    )

    async def test_are_found_by_keyword(self, bench: Bench) -> None:
        """capability 4.23: words of other scripts are found, and identifiers."""
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "Anna prefers tea.", *(text for text, _ in self.EXAMPLES))
        for text, query in self.EXAMPLES:
            assert (await bench.texts(caller, query, mode="keyword"))[:1] == [text], query

    async def test_a_very_long_query_is_bounded(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "word3 is here")
        hits = await found(bench, caller, " ".join(f"word{n}" for n in range(3000)))
        assert [h.hit.matched for h in hits] == [["word3"]]

    async def test_unknown_words_only(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "Anna prefers tea.")
        assert await bench.texts(caller, "zebra crossing") == []


class TestGoal:
    async def test_its_meaning_counts_half(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        texts = "The kettle is in the cupboard.", "The drill is in the cellar."
        await hybrid.embed(caller, await hybrid.remember(caller, *texts))
        neither = "Where is it?"
        for goal, wanted in (
            ("boil water in the kettle", texts[0]),
            ("make a hole with the drill", texts[1]),
        ):
            assert await hybrid.texts(caller, neither, mode="vector", goal=goal, limit=1) == [
                wanted
            ]
        both = await hybrid.texts(
            caller, "Where is the kettle for tea?", mode="vector", goal="hanging a picture", limit=1
        )
        assert both == [texts[0]], "the query itself weighs more"


class TestUnknown:
    async def test_meaning_alone_goes_by_meaning_whatever_the_model_knows(
        self, hybrid: Bench
    ) -> None:
        caller = await hybrid.caller(await hybrid.account())
        stored = await hybrid.remember(caller, "磁盘满了", "My cat sleeps.", "The disk is full.")
        await hybrid.embed(caller, stored)
        hits = await found(hybrid, caller, "磁盘服务器满了吗", mode="vector")
        cosines = [f.hit.cosine for f in hits]
        assert cosines == sorted(cosines, reverse=True)
        assert all(f.hit.distance == 1 - (f.hit.cosine or 0) for f in hits)

    async def test_unknown_meaning_lifts_nothing(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        stored = await hybrid.remember(caller, "磁盘满了", "猫在睡觉", "明天下雨")
        await hybrid.embed(caller, stored)
        assert await hybrid.texts(caller, "磁盘满", min_relevance=0.3) == ["磁盘满了"]


class TestDropped:
    async def test_what_is_lost_hides_nothing_behind_it(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(
            caller, *(f"tea of {name}" for name in ("Anna", "Ben", "Cleo", "Dora"))
        )
        best = await found(bench, caller, "tea", limit=2)
        await bench.sql(
            "DELETE FROM blobs b USING memories m WHERE m.blob_id = b.blob_id AND m.seq = ANY ($1)",
            [f.hit.seq for f in best],
        )
        recalled = await bench.services.recaller.recall(
            caller, Query(text="tea", namespaces=[TEAM], limit=2)
        )
        assert (len(recalled.found), recalled.dropped) == (2, 2)

    async def spoil(self, bench: Bench, seq: int, statement: str) -> None:
        await bench.sql(statement.format(name=f"(SELECT blob_id FROM memories WHERE seq = {seq})"))

    async def test_altered_and_missing_blobs_are_counted(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        stored = await bench.remember(caller, "tea one", "tea two", "tea three")
        await self.spoil(bench, 1, "DELETE FROM blobs WHERE blob_id = {name}")
        await self.spoil(
            bench, 2, "UPDATE blobs SET bytes = set_byte(bytes, 300, get_byte(bytes, 300) # 1)"
            " WHERE blob_id = {name}",
        )  # fmt: skip
        recalled = await bench.services.recaller.recall(
            caller, Query(text="tea", namespaces=[TEAM])
        )
        assert [f.memory.text for f in recalled.found] == ["tea three"]
        assert recalled.dropped == 2
        for item in stored[:2]:
            with pytest.raises(Corrupted):
                await bench.services.memory.get(caller, item.id)
        listed = await bench.services.memory.newest(caller, [TEAM], limit=5)
        assert [(m.text, m.status) for m in listed] == [
            ("tea three", "done"), (None, "failed"), (None, "failed"),
        ], "what is lost is listed as that, and hides nothing behind it"  # fmt: skip

    async def test_swapped_rows_are_not_believed(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "tea one", "tea two")
        await bench.sql(
            "UPDATE memories m SET blob_id = o.blob_id FROM memories o WHERE o.seq <> m.seq"
        )
        recalled = await bench.services.recaller.recall(
            caller, Query(text="tea", namespaces=[TEAM])
        )
        assert (list(recalled.found), recalled.dropped) == ([], 2)

    @pytest.mark.parametrize(
        "change", ["revision = 2", "type = 2", "memory_id = gen_random_uuid()"]
    )
    async def test_rows_that_were_edited_are_not_believed(self, bench: Bench, change: str) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "tea one")
        await bench.sql(f"UPDATE memories SET {change}")
        await bench.sql("UPDATE postings p SET memory_id = m.memory_id FROM memories m")
        recalled = await bench.services.recaller.recall(
            caller, Query(text="tea", namespaces=[TEAM])
        )
        assert (list(recalled.found), recalled.dropped) == ([], 1)


class TestPlan:
    """The hot statement stays on its indexes when the tables are large."""

    ROWS = 3_000

    async def fill(self, bench: Bench, embedder: Embedder) -> tuple[bytes, list[int]]:
        """Many accounts of several namespaces, as SQL can make them: bytes do not matter to a plan.

        The one that is asked has 20 memories in the first, and many more in its others.
        """
        caller = await bench.caller(await bench.account())
        await bench.embed(
            caller, await bench.remember(caller, *(f"tea number {n}" for n in range(20)))
        )
        account = caller.access.account
        await bench.sql(
            """
            INSERT INTO accounts
                (account_id, label, created_at, grant_serial, receipt_seq, receipt_head)
            SELECT sha256(n::text::bytea), '', now(), 0, 0, '' FROM generate_series(1, 20) n
            """
        )
        await bench.sql(
            """
            INSERT INTO namespaces (account_id, namespace_id, name, updated_at)
            SELECT account_id, n, n::text, now() FROM accounts, generate_series(1, 4) n
            WHERE account_id <> $1 OR n > 1
            """,
            account,
        )
        await bench.sql(
            """
            INSERT INTO memories (account_id, memory_id, namespace_id, epoch, seq, revision, type,
                format, kind, importance, confidence, writer, created_at, blob_id, size_bytes,
                word_count, tokens, index_version, stored_at)
            SELECT a.account_id, gen_random_uuid(), ns.namespace_id, 1, 1000 + n, 1, 1, 'sealed',
                'fact', 'standard', 'high', '', now(), sha256(n::text::bytea), 400, 3,
                ARRAY[1, 2, 3, 1000 + n], 1, now()
            FROM accounts a, generate_series(1, $2::int) n, namespaces ns
            WHERE ns.account_id = a.account_id
              AND ns.namespace_id = CASE WHEN a.account_id = $1 THEN 2 + n % 3 ELSE 1 + n % 4 END
            """,
            account, self.ROWS // 20,
        )  # fmt: skip
        await bench.sql(
            """
            INSERT INTO postings (account_id, namespace_id, token, memory_id, frequency, word_count)
            SELECT account_id, namespace_id, t, memory_id, 1, 3 FROM memories, unnest(tokens) t
            WHERE account_id <> $1 OR namespace_id > 1
            """,
            account,
        )
        await bench.sql(
            """
            INSERT INTO vectors (account_id, memory_id, part, namespace_id, epoch, model, embedding)
            SELECT m.account_id, m.memory_id, 0, m.namespace_id, 1, $2, v.embedding
            FROM memories m, (SELECT embedding FROM vectors LIMIT 1) v
            WHERE m.account_id <> $1 OR m.namespace_id > 1
            """,
            account, embedder.model_id,
        )  # fmt: skip
        await bench.sql("ANALYZE")
        return account, [
            r[0]
            for r in await bench.sql(
                """
                SELECT DISTINCT token FROM postings
                WHERE account_id = $1 AND namespace_id = 1 LIMIT 2
                """,
                account,
            )
        ]

    async def explained(self, bench: Bench, embedder: Embedder, options: str) -> list[Any]:
        """The nodes of the plan of a hybrid recall with neighbours, as the service asks for it."""
        account, tokens = await self.fill(bench, embedder)
        scope = search.Scope(
            namespace_id=1,
            epoch=1,
            embeddings={embedder.model_id: np.ones(embedder.dim, np.float16)},
            words=[(token, n, 1.0) for n, token in enumerate(tokens)],
        )
        statement, arguments = search.evidence_query(
            account=account,
            scopes=[scope],
            query_words=len(tokens),
            filters=search.Filters(bench.clock()),
            candidates=10,
            neighbours=True,
        )
        [row] = await bench.sql(f"EXPLAIN ({options} FORMAT JSON) {statement}", *arguments)
        return list(_nodes(json.loads(row[0])[0]["Plan"]))

    async def test_hot_recall_uses_its_indexes(self, hybrid: Bench, embedder: Embedder) -> None:
        nodes = await self.explained(hybrid, embedder, "")
        scanned = {n["Relation Name"] for n in nodes if n["Node Type"] == "Seq Scan"}
        assert not scanned & {"memories", "postings", "vectors"}
        used = {n["Index Name"] for n in nodes if "Index Name" in n}
        assert {"postings_pkey", "vectors_scope"} <= used
        assert all("account_id" in n["Index Cond"] for n in nodes if "Index Name" in n)
        [vectors] = [n for n in nodes if n.get("Index Name") == "vectors_scope"]
        assert all(
            f"{part} = s.{part}" in vectors["Index Cond"]
            for part in ("namespace_id", "model", "epoch")
        )

    async def test_cost_follows_the_namespace_not_the_table(
        self, hybrid: Bench, embedder: Embedder
    ) -> None:
        nodes = await self.explained(hybrid, embedder, "ANALYZE, TIMING OFF,")
        read = [n["Actual Rows"] * n["Actual Loops"] for n in nodes if "Relation Name" in n]
        # Twenty memories, one or two words of each, and of each what lies eight rows around it.
        assert max(read) <= 20 * 8


def _nodes(plan: dict[str, Any]) -> Any:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


async def test_parallel_recalls_agree(hybrid: Bench) -> None:
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.embed(caller, await hybrid.remember(caller, "Anna prefers tea.", "It rains."))
    answers = await asyncio.gather(*(hybrid.texts(caller, "hot drinks") for _ in range(12)))
    assert all(answer == answers[0] for answer in answers)


async def test_an_unknown_row_is_nobodys_hit(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "tea one")
    await bench.sql("UPDATE postings SET memory_id = $1", uuid.uuid4())
    assert await bench.texts(caller, "tea") == []
