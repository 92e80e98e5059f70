"""What a caller may say about a recall, beside the query: over a real database and real models."""

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tokenizers import Tokenizer

from relayer.embedding.passages import load_tokenizer
from relayer.embedding.published import TOKENIZER_FILE
from relayer.errors import NotAllowed
from relayer.memories.opener import Caller
from relayer.query import fusion, rank
from relayer.query.query import Query
from relayer.record import Draft
from relayer.sealed.keys import Namespace
from relayer.settings import Limits
from relayer.words.tokens import words
from tests.conftest import BenchMaker
from tests.embeddings_server import EmbeddingsServer, embedder_of
from tests.recalling import found, recalled
from tests.services import OTHER, TEAM, Bench


@pytest_asyncio.fixture
async def caller(bench: Bench) -> Caller:
    return await bench.caller(await bench.account())


class TestWords:
    async def test_a_fact_is_found_by_the_entity_it_is_tagged_with(
        self, bench: Bench, caller: Caller
    ) -> None:
        """capability 3.5: a fact is looked up by the entity in its tag, which its text omits."""
        await bench.remember(
            caller, "She moved to the Hamburg office.", kind="semantic", tags=("anna kowalski",)
        )
        await bench.remember(
            caller, "He moved to the Lisbon office.", kind="semantic", tags=("ben okafor",)
        )
        [hit] = await found(
            bench, caller, "What about Anna Kowalski?", kinds=["semantic"], mode="keyword"
        )
        assert hit.memory.text == "She moved to the Hamburg office."
        assert set(hit.hit.matched) & {"anna", "kowalski"}
        assert await bench.texts(caller, "What about Carla?", mode="keyword") == []

    @pytest.mark.parametrize(
        ("tag", "query", "named"),
        [
            ("Zephyr", "How far is Zephyr?", True),
            ("zephyr", "How far is ZEPHYR?", True),
            ("deploy-pipeline", "What broke the deploy pipeline?", True),
            ("deploy pipeline", "What broke the Deploy Pipeline?", True),
            ("pipeline deploy", "What broke the deploy pipeline?", False),
            ("deploy-pipelines", "What broke the deploy pipeline?", False),
            ("the deploy pipeline", "What broke the deploy pipeline?", False),
        ],
    )
    async def test_entities_named_in_the_query(
        self, bench: Bench, caller: Caller, tag: str, query: str, named: bool
    ) -> None:
        """capability 3.13: a query names entities, of one word or two, by their tags."""
        await bench.remember(caller, "It is two weeks late.", tags=(tag,))
        assert bool(await bench.texts(caller, query, mode="keyword")) is named

    async def test_by_words_and_tags_in_one_order_and_explained(
        self, bench: Bench, caller: Caller
    ) -> None:
        """capability 3.8: words and tags find without a model, in a fixed order, and say why."""
        texts = [f"The harbour crane lifts {n} boats." for n in range(9)]
        await bench.remember(caller, *texts, tags=("crane",))
        await bench.remember(caller, "The harbour is closed.", "A crane flies.")
        query: dict[str, Any] = {"tags": ("crane",), "mode": "keyword"}
        first = await found(bench, caller, "Which crane is in the harbour?", **query)
        assert [hit.memory.text for hit in first] == texts[::-1], "of equals, the newest first"
        assert all(set(hit.hit.matched) == {"crane", "harbour"} for hit in first)
        for other in (bench, bench.another()):
            again = await found(other, caller, "Which crane is in the harbour?", **query)
            assert [(h.memory.id, h.hit) for h in again] == [(h.memory.id, h.hit) for h in first]

    async def test_an_index_finds_what_a_scan_of_all_texts_finds(
        self, bench: Bench, caller: Caller
    ) -> None:
        """capability 3.9: of hundreds of episodes, the index finds those a plain scan finds."""
        chance = random.Random(9)
        parts = ("anna ben carla dmitri", "sold moved paints lost", "boat piano tent cellar")
        drafts = [
            Draft(
                text=" ".join(chance.choice(part.split()) for part in parts) + f" {n}",
                namespace=TEAM,
                kind="episodic",
            )
            for n in range(300)
        ]
        await bench.stored(caller, drafts)
        for query in ("anna", "a lost piano", "Did Ben paint tents?", "137", "zebra", "boats 12 8"):
            asked = set(words(query))
            scanned = {d.text for d in drafts if asked & set(words(d.text))}
            hits = await bench.texts(caller, query, mode="keyword", limit=len(drafts))
            assert (len(hits), set(hits)) == (len(scanned), scanned), query

    async def test_keywords_come_from_the_query_and_the_goal(
        self, bench: Bench, caller: Caller
    ) -> None:
        """capability 3.12: the words of the goal find as well, with less weight."""
        await bench.remember(
            caller, "The invoice for Contoso is unpaid.", "Next step: call the plumber."
        )
        goal = "prepare the Contoso invoice"
        assert await bench.texts(caller, "What is the next step?", mode="keyword") == [
            "Next step: call the plumber."
        ]
        both = await found(bench, caller, "What is the next step?", mode="keyword", goal=goal)
        assert [hit.memory.text for hit in both] == [
            "Next step: call the plumber.",
            "The invoice for Contoso is unpaid.",
        ]
        assert set(both[1].hit.matched) == set(words("Contoso invoice"))
        alone = await found(bench, caller, "What is the next step?", mode="keyword")
        assert both[0].hit.relevance == pytest.approx(alone[0].hit.relevance)

    async def test_aliases_expand_the_words_of_a_query(self, bench: Bench, caller: Caller) -> None:
        """capability 3.12: aliases stand for words of the query, once each."""
        await bench.remember(
            caller, "The kubernetes cluster is full.", "Who is on duty tonight?", "k8s, kubernetes"
        )
        aliases = {"k8s": ["kubernetes", "cluster"], "night shift": ["duty"], "tea": ["tonight"]}
        assert await bench.texts(caller, "k8s", mode="keyword") == ["k8s, kubernetes"]
        hits = await found(bench, caller, "k8s", mode="keyword", aliases=aliases)
        assert {h.memory.text for h in hits} == {
            "k8s, kubernetes",
            "The kubernetes cluster is full.",
        }
        assert all(h.hit.matched == words("k8s")[:1] for h in hits)
        for query, named in (("The shift of last night?", True), ("A long shift?", False)):
            texts = await bench.texts(caller, query, mode="keyword", aliases=aliases)
            assert texts == (["Who is on duty tonight?"] if named else []), query

    async def test_aliases_are_bounded(self, bench: Bench, caller: Caller) -> None:
        letters = "bcdfghjklmnpqrtvwxz"
        others = [f"{a}o{b}" for a in letters for b in letters]
        assert (
            len({tuple(words(other)) for other in others}) == len(others) > Limits.query_words_max
        )
        await bench.remember(caller, *others[250:260])
        texts = await bench.texts(caller, "k8s", mode="keyword", aliases={"k8s": others}, limit=20)
        assert set(texts) == set(others[250 : Limits.query_words_max])


class TestKeywordFirst:
    @pytest_asyncio.fixture
    async def server(self) -> AsyncIterator[EmbeddingsServer]:
        async with EmbeddingsServer() as running:
            yield running

    @pytest_asyncio.fixture
    async def counted(self, make_bench: BenchMaker, server: EmbeddingsServer) -> Bench:
        return make_bench(embedder=embedder_of(server))

    @pytest.mark.parametrize(
        ("least", "asks"), [(0, False), (1, False), (2, False), (3, True), (9, True)]
    )
    async def test_meaning_helps_only_when_words_find_too_little(
        self, counted: Bench, server: EmbeddingsServer, least: int, asks: bool
    ) -> None:
        """capability 3.10: words first; below min_primary_results, and only then, vectors."""
        caller = await counted.caller(await counted.account())
        await counted.embed(
            caller,
            await counted.remember(caller, "Anna drinks tea.", "Ben sells tea.", "It rains."),
        )
        before = len(server.requests)
        query: dict[str, Any] = {"mode": "keyword_first", "min_primary_results": least}
        answer = await recalled(counted, caller, "tea", **query)
        assert server.requests[before:] == ([["tea"]] if asks else [])
        texts = [hit.memory.text for hit in answer.found]
        assert texts[:2] == ["Ben sells tea.", "Anna drinks tea."]
        assert texts[2:] == (["It rains."] if asks else [])
        assert not answer.degraded

    async def test_an_event_that_words_find_is_looked_for_once(
        self, counted: Bench, server: EmbeddingsServer
    ) -> None:
        """Only where no word finds it does meaning look for it, too; no search looks again."""
        caller = await counted.caller(await counted.account())
        for days, text in ((2, "tea, late"), (20, "We moved to Lyon."), (40, "tea, early")):
            at = counted.clock() - timedelta(days=days)
            await counted.embed(caller, await counted.remember(caller, text, event_time=at))
        options: dict[str, Any] = {"mode": "keyword_first", "min_primary_results": 9}
        for event, looks in (("we moved to Lyon", 0), ("the eclipse", 1)):
            question = f"tea before {event}"
            before = len(server.requests)
            answer = await recalled(counted, caller, question, **options)
            assert server.requests[before:] == [[question], [event]][: 1 + looks]
            preferred = [f.memory.text for f in answer.found if f.hit.period]
            assert preferred == ([] if looks else ["tea, early"])

    async def test_without_a_model_words_have_to_do(
        self, counted: Bench, server: EmbeddingsServer
    ) -> None:
        caller = await counted.caller(await counted.account())
        await counted.remember(caller, "Anna drinks tea.")
        server.always = "503"
        enough = await recalled(counted, caller, "tea", mode="keyword_first", min_primary_results=1)
        assert (len(enough.found), enough.degraded) == (1, False)
        answer = await recalled(counted, caller, "tea", mode="keyword_first")
        assert (len(answer.found), answer.degraded) == (1, True)

    async def test_primary_first_then_meaning_up_to_the_limit(self, hybrid: Bench) -> None:
        """capability 3.11: all that words find comes first, meaning fills up to five."""
        caller = await hybrid.caller(await hybrid.account())
        by_words = ["The drum is in the third box.", "Our drum needs a new skin."]
        by_meaning = [
            "Anna boils water for tea each morning.",
            "Ben makes coffee on the stove.",
            "We need hot water in the kitchen.",
            "The stove has four burners.",
            "Tax forms are due in May.",
        ]
        stored = await hybrid.remember(caller, *by_words, *by_meaning)
        await hybrid.embed(caller, stored)
        query = "Which hot beverages does she like, drum?"
        words_only = await hybrid.texts(caller, "drum", mode="keyword")
        primary = await hybrid.texts(caller, query, mode="keyword", limit=5)
        meaning = await hybrid.texts(caller, query, mode="vector", limit=7)
        assert set(words_only) == set(by_words)
        assert meaning[0] not in by_words, "meaning alone would put another one first"
        blend = await hybrid.texts(
            caller, query, mode="keyword_first", min_primary_results=5, limit=5
        )
        rest = [text for text in meaning if text not in primary]
        assert blend == [*primary, *rest][:5]
        assert set(primary) >= set(by_words)

    async def test_a_word_in_passing_does_not_keep_meaning_from_being_asked(
        self, hybrid: Bench
    ) -> None:
        """What is near only beside the best of the words is measured by meaning, where it can."""
        caller = await hybrid.caller(await hybrid.account())
        texts = [
            "Anna's favourite drink is Earl Grey.",
            "A woman called about the invoice.",
            "We enjoy the view from the office.",
            "It rains.",
        ]
        await hybrid.embed(caller, await hybrid.remember(caller, *texts))
        query: dict[str, Any] = {"mode": "keyword_first", "min_relevance": 0.3}
        question = "Which beverage does the woman enjoy?"
        assert await hybrid.texts(caller, question, **query) == texts[:1]
        await hybrid.remember(caller, new := "Ben would enjoy some rest.")
        assert await hybrid.texts(caller, question, **query) == [texts[0], new]
        assert len(await hybrid.texts(caller, question, **query, min_primary_results=0)) == 3


class TestMeaning:
    MEMORIES = (
        "Anna quit drinking coffee because of her heart.",
        "The launch party took place on 14 March in the old brewery.",
        "Our nightly backup dies whenever the disk of the archive host fills up.",
        "Ben's daughter is learning to play the cello.",
        "The landlord raised the rent of the studio by ten percent.",
        "Invoices above 5,000 euros need a second signature.",
        "The parcel for Lisbon was held at customs for nine days.",
        "Carla is allergic to penicillin.",
    )
    QUESTIONS = (
        ("Why does she avoid caffeine?", MEMORIES[0]),  # a paraphrase
        ("What did we celebrate in early spring?", MEMORIES[1]),  # a vague time
        ("Is there a storage problem behind the failing jobs?", MEMORIES[2]),  # another domain
        ("Which kid makes music?", MEMORIES[3]),
        ("Did housing get more expensive?", MEMORIES[4]),
        ("Which antibiotics must be avoided?", MEMORIES[7]),
    )

    async def test_what_keywords_miss(self, hybrid: Bench) -> None:
        """capability 3.24: paraphrases, vague times and other domains, which keywords miss."""
        caller = await hybrid.caller(await hybrid.account())
        await hybrid.embed(caller, await hybrid.remember(caller, *self.MEMORIES))
        for question, memory in self.QUESTIONS:
            assert memory not in await hybrid.texts(caller, question, mode="keyword"), question
            assert memory in await hybrid.texts(caller, question, limit=2), question


class TestScore:
    TEXTS = ("Anna prefers tea.", "Ben sells tea and cups.", "It rains in Bergen.")

    @pytest_asyncio.fixture
    async def asker(self, hybrid: Bench) -> Caller:
        """A caller with three memories that have their vectors and one that waits for its own."""
        caller = await hybrid.caller(await hybrid.account())
        old = hybrid.clock() - timedelta(days=30)
        ages: dict[str, Any] = {"importance": "vital", "event_time": old}
        stored = await hybrid.remember(caller, self.TEXTS[0], **ages)
        stored += await hybrid.remember(caller, *self.TEXTS[1:])
        await hybrid.embed(caller, stored)
        await hybrid.remember(caller, "Anna has no tea.", importance="trivial")
        return caller

    async def test_the_callers_own_weights(self, hybrid: Bench, asker: Caller) -> None:
        """capability 4.17: final = vectorWeight × vectorScore + textWeight × textScore, exactly."""
        orders = set()
        for meaning, by_words in ((0.7, 0.3), (0.0, 1.0), (1.0, 0.0), (100.0, 0.1), (0.3, 1.7)):
            weights = fusion.Weights(meaning, by_words)
            hits = await found(hybrid, asker, "Does Anna like tea?", leg_weights=weights)
            assert len(hits) == 4
            for hit in (h.hit for h in hits):
                assert hit.score == meaning * (hit.cosine or 0.0) + by_words * hit.relevance
            assert [h.hit.cosine is None for h in hits].count(True) == 1
            assert all(a.hit.score >= b.hit.score for a, b in pairwise(hits))
            orders.add(tuple(h.memory.text for h in hits))
        assert len(orders) > 1, "weights that change nothing"

    @pytest.mark.parametrize("mode", ["hybrid", "keyword", "vector", "keyword_first"])
    async def test_a_score_is_the_sum_of_its_parts(
        self, hybrid: Bench, asker: Caller, mode: str
    ) -> None:
        hits = [h.hit for h in await found(hybrid, asker, "Does Anna like tea?", mode=mode)]
        assert hits
        for hit in hits:
            assert hit.score == pytest.approx(hit.meaning + hit.words + hit.neighbours)
            assert hit.words == pytest.approx(hit.relevance), "short memories: in full"
            assert (hit.recency, hit.importance, hit.neighbours) == (0, 0, 0)
            if hit.cosine is not None:
                assert hit.meaning == pytest.approx(hit.cosine), "one passage"
            elif mode == "keyword":
                assert hit.meaning == 0

    async def test_a_text_of_several_passages_and_long_memories(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        long = " ".join(f"Chapter {n} tells of the storm in harbour {n}." for n in range(90))
        stored = await hybrid.remember(caller, f"{long} Anna prefers tea.", long)
        await hybrid.embed(caller, stored)
        hits = [h.hit for h in await found(hybrid, caller, "Does Anna prefer tea?")]
        shares = [h.words / h.relevance for h in hits if h.relevance]
        assert shares
        assert all(share == pytest.approx(shares[0]) and share < 1 for share in shares)
        for hit in hits:
            assert hit.cosine is not None
            assert hit.meaning < hit.cosine, "the other passages count as well"
            assert hit.score == pytest.approx(hit.meaning + hit.words + hit.neighbours)

    async def test_age_and_importance_are_told(self, hybrid: Bench, asker: Caller) -> None:
        weights = rank.Weights(
            semantic=0.5, recency=2.0, recency_half_life_days=15.0, importance=3.0
        )
        plain = {h.memory.id: h.hit for h in await found(hybrid, asker, "Does Anna like tea?")}
        hits = await found(hybrid, asker, "Does Anna like tea?", weights=weights)
        importances = {"vital": 3.0, "standard": 1.5, "trivial": 0.0}
        for memory, hit in ((h.memory, h.hit) for h in hits):
            old = memory.event_time is not None
            assert hit.recency == pytest.approx(2.0 * (0.25 if old else 1.0))
            assert hit.importance == importances[memory.importance]
            assert hit.meaning == pytest.approx(0.5 * plain[memory.id].meaning)
            assert hit.words == pytest.approx(0.5 * plain[memory.id].words)
            parts = (hit.meaning, hit.words, hit.neighbours, hit.speaker, hit.period, hit.recency)
            assert hit.score == pytest.approx(sum(parts) + hit.importance)

    async def test_a_weight_of_the_search_alone_changes_nothing(
        self, hybrid: Bench, asker: Caller
    ) -> None:
        plain = await found(hybrid, asker, "Does Anna like tea?")
        alone = rank.Weights(semantic=5.0)
        same = await found(hybrid, asker, "Does Anna like tea?", weights=alone)
        assert [(h.memory.id, h.hit) for h in same] == [(h.memory.id, h.hit) for h in plain]

    async def test_both_kinds_of_weights_together(self, hybrid: Bench, asker: Caller) -> None:
        legs, weights = fusion.Weights(0.7, 0.3), rank.Weights(semantic=2.0, importance=1.0)
        for found_one in await found(
            hybrid, asker, "Does Anna like tea?", leg_weights=legs, weights=weights
        ):
            hit = found_one.hit
            of_legs = 0.7 * (hit.cosine or 0.0) + 0.3 * hit.relevance
            assert hit.score == pytest.approx(2.0 * of_legs + hit.importance)


@pytest.fixture(scope="module")
def tokenizer(model_dir: Path) -> Tokenizer:
    return load_tokenizer(model_dir / TOKENIZER_FILE)


class TestBudget:
    TEXTS = (
        "tea tea tea tea",
        "tea is grown on hills, and " + "picked by hand, " * 30,
        "tea and milk for Anna Kowalski-Østergård",
        "tea",
    )

    async def filled(self, bench: Bench) -> Caller:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, *self.TEXTS)
        return caller

    async def test_real_tokens_of_the_embedding_model(
        self, hybrid: Bench, tokenizer: Tokenizer
    ) -> None:
        """capability 3.3: a recall has a budget of tokens, counted by the model's tokenizer."""
        caller = await self.filled(hybrid)
        answer = await recalled(hybrid, caller, "tea", max_tokens=100_000)
        counts = {t: len(tokenizer.encode(t, add_special_tokens=False).ids) for t in self.TEXTS}
        assert {f.memory.text: f.tokens for f in answer.found} == counts
        assert (answer.tokens, answer.left_out) == (sum(counts.values()), 0)
        exactly = await recalled(hybrid, caller, "tea", max_tokens=answer.tokens)
        assert (len(exactly.found), exactly.left_out) == (4, 0)
        less = await recalled(hybrid, caller, "tea", max_tokens=sum(counts.values()) - 1)
        assert (len(less.found), less.left_out) == (3, 1)

    async def test_what_does_not_fit_is_skipped_and_never_cut(self, bench: Bench) -> None:
        caller = await self.filled(bench)
        order = await bench.texts(caller, "tea")
        longest = self.TEXTS[1]
        assert order.index(longest) < 3, "something comes behind it"
        room = sum(len(text.encode()) for text in self.TEXTS if text != longest)
        answer = await recalled(bench, caller, "tea", max_tokens=room)
        assert [f.memory.text for f in answer.found] == [t for t in order if t != longest]
        assert (answer.tokens, answer.left_out) == (room, 1)
        for max_tokens in range(1, 60, 7):
            answer = await recalled(bench, caller, "tea", max_tokens=max_tokens)
            texts = [f.memory.text for f in answer.found]
            assert set(texts) <= set(self.TEXTS)
            assert texts == [text for text in order if text in texts]
            assert answer.tokens == sum(f.tokens or 0 for f in answer.found) <= max_tokens
            assert answer.left_out == 4 - len(texts)

    async def test_without_a_tokenizer_bytes_count(
        self, make_bench: BenchMaker, bench: Bench
    ) -> None:
        async with EmbeddingsServer() as server:
            for one in (bench, make_bench(embedder=embedder_of(server))):
                caller = await self.filled(one)
                answer = await recalled(one, caller, "tea", mode="keyword", max_tokens=100_000)
                bytes_of = {t: len(t.encode()) for t in self.TEXTS}
                assert {f.memory.text: f.tokens for f in answer.found} == bytes_of

    async def test_without_a_budget_nothing_is_counted(self, bench: Bench) -> None:
        answer = await recalled(bench, await self.filled(bench), "tea")
        assert [f.tokens for f in answer.found] == [None] * 4
        assert (answer.tokens, answer.left_out) == (None, 0)

    async def test_the_limit_comes_first(self, bench: Bench) -> None:
        caller = await self.filled(bench)
        answer = await recalled(bench, caller, "tea", limit=2, max_tokens=100_000)
        assert (len(answer.found), answer.left_out) == (2, 0)


class TestNarrowing:
    async def test_several_namespaces_at_once(self, bench: Bench, caller: Caller) -> None:
        third = Namespace("third")
        await bench.remember(caller, "tea in team")
        await bench.remember(caller, "tea in other", namespace=OTHER)
        await bench.remember(caller, "tea in third", namespace=third)
        both = await found(bench, caller, "tea", namespaces=[TEAM, third])
        assert {(h.memory.namespace, h.memory.text) for h in both} == {
            (TEAM, "tea in team"),
            (third, "tea in third"),
        }

    async def test_one_that_may_not_be_read_refuses_all(self, bench: Bench) -> None:
        founder = await bench.account()
        owner = await bench.caller(founder)
        await bench.remember(owner, "tea in team")
        await bench.remember(owner, "tea in other", namespace=OTHER)
        reader = await bench.caller(await bench.key(founder, TEAM, role="reader"))
        assert await bench.texts(reader, "tea") == ["tea in team"]
        for names in ([TEAM, OTHER], [OTHER, TEAM], [OTHER]):
            for mode in ("hybrid", "keyword", "vector", "keyword_first"):
                with pytest.raises(NotAllowed):
                    await recalled(bench, reader, "tea", namespaces=names, mode=mode)

    async def test_each_namespace_needs_its_key(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        both = await bench.unlocked(founder, TEAM, OTHER)
        await bench.remember(both, "tea in team")
        await bench.remember(both, "tea in other", namespace=OTHER)
        assert len(await bench.texts(both, "tea", namespaces=[TEAM, OTHER])) == 2
        one = await bench.unlocked(founder, TEAM)
        with pytest.raises(NotAllowed) as caught:
            await bench.texts(one, "tea", namespaces=[TEAM, OTHER])
        assert caught.value.code == "unlock_required"

    async def test_writers(self, bench: Bench) -> None:
        founder = await bench.account()
        agent = await bench.key(founder, TEAM)
        await bench.remember(await bench.caller(founder), "tea of the founder")
        await bench.remember(await bench.caller(agent), "tea of the agent")
        keys = {"founder": founder.identity.public_key, "agent": agent.identity.public_key}
        owner = await bench.caller(founder)
        for mode in ("hybrid", "keyword"):
            for name, key in keys.items():
                texts = await bench.texts(owner, "tea", writers=[key], mode=mode)
                assert texts == [f"tea of the {name}"]
            assert len(await bench.texts(owner, "tea", writers=[*keys.values()], mode=mode)) == 2
        assert await bench.texts(owner, "tea", writers=[bytes(32)]) == []

    async def test_as_of_an_earlier_time(self, bench: Bench, caller: Caller) -> None:
        then = bench.clock()
        [old, gone] = await bench.remember(caller, "tea in stock", "tea on order")
        bench.clock.advance(60)
        await bench.remember(caller, "tea sold out")
        await bench.services.memory.forget(caller.access, gone.id)
        later = bench.clock()
        await bench.sql(
            "UPDATE memories SET superseded_at = $1 WHERE memory_id = $2", later, old.id
        )
        assert set(await bench.texts(caller, "tea", as_of=then)) == {"tea in stock"}
        assert await bench.texts(caller, "tea", as_of=then - timedelta(seconds=1)) == []
        assert await bench.texts(caller, "tea", as_of=later) == ["tea sold out"]

    async def test_age_counts_from_the_time_that_is_asked_about(
        self, bench: Bench, caller: Caller
    ) -> None:
        then = bench.clock()
        await bench.remember(caller, "tea in stock")
        bench.clock.advance(86400 * 30)
        weights = rank.Weights(recency=1.0, recency_half_life_days=30.0)
        for as_of, expected in ((None, 0.5), (then, 1.0)):
            [hit] = await found(bench, caller, "tea", as_of=as_of, weights=weights)
            assert hit.hit.recency == pytest.approx(expected)

    async def test_filters_hold_in_every_mode(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        kept: dict[str, Any] = {
            "kind": "decision",
            "tags": ("red",),
            "source": "mail/17",
            "metadata": {"shop": "north"},
            "event_time": hybrid.clock() - timedelta(days=5),
        }
        stored = await hybrid.remember(caller, "apple wanted", **kept)
        other_values: dict[str, Any] = {
            "kind": "fact",
            "tags": ("blue",),
            "source": "mail/18",
            "metadata": {"shop": "south"},
            "event_time": hybrid.clock(),
        }
        for name, value in other_values.items():
            stored += await hybrid.remember(caller, f"apple {name}", **(kept | {name: value}))
        await hybrid.embed(caller, stored)
        query = Query(
            text="apple",
            namespaces=[TEAM],
            kinds=["decision"],
            tags=["red"],
            source="mail/17",
            metadata={"shop": "north"},
            after=hybrid.clock() - timedelta(days=6),
            before=hybrid.clock() - timedelta(days=4),
            writers=[caller.access.key],
            min_primary_results=9,
        )
        for mode in ("hybrid", "keyword", "vector", "keyword_first"):
            answer = await hybrid.services.recaller.recall(caller, replace(query, mode=mode))
            assert [f.memory.text for f in answer.found] == ["apple wanted"], mode
