"""What stands before what in a recall: scores, times, copies, a goal, unknown words."""

import math
from datetime import timedelta

import pytest

from relayer.query import rank
from relayer.query.fusion import Weights as LegWeights
from relayer.sealed import index
from relayer.words.tokens import words
from tests.optional import unwrap
from tests.recalling import found
from tests.services import OTHER, TEAM, Bench


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
        lengths = [index.round_length(len(words(t))) for t in texts]
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
        best = max(f.hit.relevance for f in by_text.values())
        for f in by_text.values():
            assert f.hit.distance == pytest.approx(1 - f.hit.relevance * max(0.5 / best, 1))

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

    async def test_the_first_and_the_latest_of_several_come_first_and_all_are_found(
        self, bench: Bench
    ) -> None:
        """capability 3.24: words of order prefer what happened first, or last."""
        caller = await bench.caller(await bench.account())
        for days in (20, 2, 400, 40):
            at = bench.clock() - timedelta(days=days)
            await bench.remember(caller, f"tea with Anna, {days}", event_time=at)
        for query, days in (("first tea with Anna", 400), ("the latest tea with Anna", 2)):
            hits = await found(bench, caller, query)
            assert len(hits) == 4
            assert (hits[0].memory.text, hits[0].hit.period) == (f"tea with Anna, {days}", 0.2)

    async def test_what_happened_before_or_after_an_event_is_preferred(self, hybrid: Bench) -> None:
        """capability 3.24: an event that a memory dates divides time."""
        caller = await hybrid.caller(await hybrid.account())
        texts = ("tea with Anna, late", "We moved to Lyon.", "tea with Anna, early")
        for days, text in zip((2, 20, 40), texts, strict=True):
            at = hybrid.clock() - timedelta(days=days)
            await hybrid.remember(caller, text, event_time=at)
        for query, text in (
            ("tea with Anna before we moved to Lyon", texts[2]),
            ("tea with Anna after we moved to Lyon", texts[0]),
        ):
            hits = await found(hybrid, caller, query)
            assert [f.memory.text for f in hits if f.hit.period] == [text]
            assert {f.memory.text for f in hits} >= {texts[0], texts[2]}
        hits = await found(hybrid, caller, "tea with Anna before the eclipse")
        assert not any(f.hit.period for f in hits), "no memory is surely of it"

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


PASTED = "2031-05-04 INFO worker started; queue depth nominal; heartbeat acknowledged. " * 12


class TestLong:
    @pytest.mark.parametrize("goal", [None, "buy presents"])
    @pytest.mark.parametrize("query", ["{question} {pasted}", "{pasted} {question}"])
    async def test_a_question_counts_before_and_behind_what_is_pasted(
        self, hybrid: Bench, query: str, goal: str | None
    ) -> None:
        """capability 1.11: the prompt itself is the query."""
        caller = await hybrid.caller(await hybrid.account())
        texts = "Anna's favourite drink is Earl Grey.", "The machine hall's door is red."
        await hybrid.embed(caller, await hybrid.remember(caller, *texts))
        questions = "Which beverage does the woman enjoy?", "What colour is that entrance?"
        for question, wanted in zip(questions, texts, strict=True):
            text = query.format(question=question, pasted=PASTED)
            first, second = await found(hybrid, caller, text, mode="vector", goal=goal)
            assert first.memory.text == wanted
            assert first.hit.score > second.hit.score

    async def test_its_end_takes_nothing_from_what_its_beginning_is_near_to(
        self, hybrid: Bench
    ) -> None:
        """A gateway's floor lets in what it lets in without what is pasted."""
        caller = await hybrid.caller(await hybrid.account())
        text = "Anna's favourite drink is Earl Grey."
        await hybrid.embed(caller, await hybrid.remember(caller, text))
        beginning = "Which beverage does the woman enjoy? " * 15
        end = "Heartbeat acknowledged. " * 60
        [alone] = await found(hybrid, caller, beginning, mode="vector")
        for prompt in (beginning + end, end + beginning):
            [both] = await found(hybrid, caller, prompt, mode="vector")
            assert both.hit.distance == pytest.approx(alone.hit.distance, abs=0.05)

    async def test_what_the_model_knows_is_told_of_each_end(self, hybrid: Bench) -> None:
        """Of a text in Chinese it knows next to nothing, of the question behind it everything."""
        caller = await hybrid.caller(await hybrid.account())
        text = "Anna's favourite drink is Earl Grey."
        await hybrid.embed(caller, await hybrid.remember(caller, text))
        question = "Which beverage does the woman enjoy? I would like to know it before breakfast. "
        pasted = "服务器已启动,队列深度正常,心跳已确认。" * 30
        assert await hybrid.texts(caller, pasted + question * 6, min_relevance=0.3) == [text]

    async def test_equal_scores_are_in_the_same_order_as_of_a_short_query(
        self, hybrid: Bench
    ) -> None:
        caller = await hybrid.caller(await hybrid.account())
        texts = "Anna's favourite drink is Earl Grey.", "The hall's door is red.", "It rains."
        await hybrid.embed(caller, await hybrid.remember(caller, *texts))
        question, alike = "Which beverage does Anna enjoy?", LegWeights(meaning=0.0, words=1.0)
        short, long = [
            [f.memory.text for f in await found(hybrid, caller, query, leg_weights=alike)]
            for query in ("Which beverage is enjoyed?", f"Which beverage is enjoyed? {PASTED}")
        ]
        assert short[0] == long[0] == texts[0], question


class TestUnknown:
    async def test_meaning_alone_goes_by_meaning_whatever_the_model_knows(
        self, hybrid: Bench
    ) -> None:
        caller = await hybrid.caller(await hybrid.account())
        stored = await hybrid.remember(caller, "磁盘满了", "My cat sleeps.", "The disk is full.")
        await hybrid.embed(caller, stored)
        hits = await found(hybrid, caller, "磁盘服务器满了吗", mode="vector")
        assert len(hits) == 3
        cosines = [unwrap(f.hit.cosine) for f in hits]
        assert cosines == sorted(cosines, reverse=True)
        assert all(f.hit.distance == 1 - (f.hit.cosine or 0) for f in hits)

    async def test_unknown_meaning_lifts_nothing(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        stored = await hybrid.remember(caller, "磁盘满了", "猫在睡觉", "明天下雨")
        await hybrid.embed(caller, stored)
        assert await hybrid.texts(caller, "磁盘满", min_relevance=0.3) == ["磁盘满了"]
