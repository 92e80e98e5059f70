"""Recalling over a real database: what is found by which leg, for whom, and what is lost.

Not here: what stands before what (`test_recall_order.py`), what stood beside it in a conversation
(`test_recall_neighbours.py`), what a caller may choose (`test_recall_controls.py`), languages
(`test_recall_languages.py`), indexes (`test_recall_plan.py`).
"""

import asyncio
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from relayer.errors import Corrupted, NotAllowed
from relayer.query.query import Query
from relayer.query.vectors import KEPT_S
from relayer.sealed.keys import Namespace
from tests.conftest import BenchMaker
from tests.embeddings_server import EmbeddingsServer, embedder_of
from tests.recalling import found
from tests.sentences import PARAPHRASES
from tests.services import OTHER, TEAM, Bench
from tests.stored_words import WORDS, make_rows


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
            bench = make_bench(embedder=embedder_of(server))
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
            f"SELECT token FROM {WORDS} w GROUP BY token HAVING count(DISTINCT account_id) > 1"
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

    async def test_the_floor_waits_for_the_vector(self, hybrid: Bench) -> None:
        """In a small namespace one word of two is worth little, and meaning is not known yet."""
        caller = await hybrid.caller(await hybrid.account())
        stored = await hybrid.remember(caller, text := "Anna prefers green tea.")
        query = "What does Anna drink?"
        modes = ("hybrid", "keyword", "vector")
        found = [await hybrid.texts(caller, query, min_relevance=0.3, mode=m) for m in modes]
        assert found == [[text], [text], []]
        assert not await hybrid.texts(caller, query, min_relevance=0.9)
        await hybrid.embed(caller, stored)
        assert await hybrid.texts(caller, query, min_relevance=0.3) == [text]
        assert not await hybrid.texts(caller, query, min_relevance=0.9)

    @pytest.mark.parametrize(
        ("texts", "query"),
        [
            (["安娜喜欢喝茶。", "本在写一本书。"], "安娜喝什么?"),
            (["แอนนาชอบชา", "เบ็นกำลังเขียนหนังสือ"], "แอนนาดื่มอะไร"),
        ],
    )
    async def test_the_floor_is_meanings_where_it_understands(
        self, hybrid: Bench, texts: list[str], query: str
    ) -> None:
        caller = await hybrid.caller(await hybrid.account())
        await hybrid.embed(caller, await hybrid.remember(caller, *texts))
        assert await hybrid.texts(caller, query, min_relevance=0.3) == texts[:1]

    async def test_an_emoji_keeps_no_question_from_being_understood(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        texts = "I work as a nurse in the children's ward.", "The car is a white Clio."
        await hybrid.embed(caller, await hybrid.remember(caller, *texts))
        for query in ("What is my job?", "What is my job? 😀"):
            assert await hybrid.texts(caller, query, min_relevance=0.3) == [texts[0]]

    @pytest.mark.parametrize("kept_s", [0.0, KEPT_S])
    async def test_it_understands_no_more_where_it_takes_long(
        self, hybrid: Bench, monkeypatch: pytest.MonkeyPatch, kept_s: float
    ) -> None:
        """Which models are in use is forgotten before the query has its vector."""
        monkeypatch.setattr("relayer.query.vectors.KEPT_S", kept_s)
        caller = await hybrid.caller(await hybrid.account())
        await hybrid.embed(caller, await hybrid.remember(caller, text := "Анна любит чай."))
        unrelated = "Завтра будет дождь?"
        assert await hybrid.texts(caller, unrelated, min_relevance=0.3) == []
        assert await hybrid.texts(caller, unrelated, min_relevance=0.3, mode="vector") == [text]

    async def test_words_alone_are_measured_by_the_best_of_them(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        texts = "Anna prefers tea.", "Anna and Ben went to breakfast.", "It rains."
        await bench.remember(caller, *texts)
        query = "What does Anna usually drink with her tea at breakfast, or for lunch?"
        for mode in ("hybrid", "keyword", "keyword_first"):
            relevant = await bench.texts(caller, query, min_relevance=0.2, mode=mode)
            assert sorted(relevant) == sorted(texts[:2])
        question = "tea, and what Anna thinks of it"
        floors = (0.0, 0.3, 0.5, 0.9)
        found = [await bench.texts(caller, question, min_relevance=floor) for floor in floors]
        assert [len(f) for f in found] == [2, 1, 1, 0]
        assert found[0][0] == texts[0]


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
        await make_rows(bench)
        await bench.sql(f"UPDATE memories SET {change}")
        await bench.sql("UPDATE postings p SET memory_id = m.memory_id FROM memories m")
        recalled = await bench.services.recaller.recall(
            caller, Query(text="tea", namespaces=[TEAM])
        )
        assert (list(recalled.found), recalled.dropped) == ([], 1)


async def test_parallel_recalls_agree(hybrid: Bench) -> None:
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.embed(caller, await hybrid.remember(caller, "Anna prefers tea.", "It rains."))
    answers = await asyncio.gather(*(hybrid.texts(caller, "hot drinks") for _ in range(12)))
    assert answers == [["Anna prefers tea.", "It rains."]] * 12


async def test_an_unknown_row_is_nobodys_hit(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "tea one")
    await make_rows(bench)
    await bench.sql("UPDATE postings SET memory_id = $1", uuid.uuid4())
    assert await bench.texts(caller, "tea") == []
