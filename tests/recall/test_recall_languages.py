"""Recall on our own sets: by words alone, and what the client's floor lets through."""

import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from memrelay.operations.reads import MIN_RELEVANCE
from relayer.memories.opener import Caller
from relayer.query.query import Query
from relayer.record import Draft
from relayer.sealed.keys import Namespace
from tests.services import Bench
from tests.sets import lines

LIMIT = 5
FLOOR_LIMIT = 10


@dataclass(frozen=True)
class Stored:
    """A set in a namespace of its own name; a memory is told by its id in the set."""

    bench: Bench
    caller: Caller
    namespace: Namespace
    ids: dict[uuid.UUID, str]

    async def found(self, asked: Query) -> set[str]:
        recalled = await self.bench.services.recaller.recall(self.caller, asked)
        return {self.ids[f.memory.id] for f in recalled.found}


async def store(bench: Bench, name: str, *, embedded: bool = False) -> Stored:
    caller = await bench.caller(await bench.account())
    namespace = Namespace(name)
    memories = lines(name, "memories")
    drafts = [Draft(text=m["text"], namespace=Namespace(m["namespace"])) for m in memories]
    stored = await bench.stored(caller, drafts)
    if embedded:
        await bench.embed(caller, stored.items)
    ids = {item.id: m["id"] for item, m in zip(stored.items, memories, strict=True)}
    assert len(ids) == len(memories)
    return Stored(bench, caller, namespace, ids)


async def recall_at_5(bench: Bench, name: str) -> dict[str, float]:
    """Per category, the share of the evidence among the first five of a keyword recall."""
    stored = await store(bench, name)
    shares: dict[str, list[float]] = {}
    for query in lines(name, "queries"):
        asked = Query(
            text=query["text"], namespaces=[stored.namespace], limit=LIMIT, mode="keyword"
        )
        found = await stored.found(asked)
        wanted = set(query["evidence"])
        shares.setdefault(query["category"], []).append(len(wanted & found) / len(wanted))
    return {category: sum(values) / len(values) for category, values in shares.items()}


@pytest.mark.parametrize("name", ["chinese", "japanese"])
async def test_scripts_without_blanks_are_found_by_shared_words(bench: Bench, name: str) -> None:
    """capability 4.23: Chinese and Japanese memories are found by the words of the question.
    capability 3.9: an inverted index of words finds a memory among many.
    """
    shares = await recall_at_5(bench, name)
    assert shares["shared"] >= 0.95, shares


async def test_identifiers_are_found_whole_in_parts_and_in_other_spellings(bench: Bench) -> None:
    """capability 3.9: an inverted index of words finds one identifier among its likes."""
    shares = await recall_at_5(bench, "identifiers")
    assert len(shares) == 10
    assert all(share >= 0.95 for share in shares.values()), shares


async def above_floor(bench: Bench, name: str) -> tuple[float, float]:
    """The share of questions that find a right memory, and of unrelated ones that find any."""
    stored = await store(bench, name, embedded=True)

    async def found(query: dict[str, Any]) -> set[str]:
        asked = Query(
            text=query["text"],
            namespaces=[Namespace(query["namespace"])],
            limit=FLOOR_LIMIT,
            min_relevance=MIN_RELEVANCE,
        )
        return await stored.found(asked)

    right = [bool(await found(q) & set(q["evidence"])) for q in lines(name, "queries")]
    unrelated = [bool(await found(q)) for q in lines(name, "unrelated_queries")]
    return sum(right) / len(right), sum(unrelated) / len(unrelated)


@pytest.mark.parametrize(
    ("name", "right", "unrelated"),
    [
        ("chinese", 0.7, 0.1),
        ("japanese", 0.75, 0.1),
        ("korean", 0.95, 0.1),
        ("hindi", 0.95, 0.15),
        ("languages", 0.45, 0.1),
    ],
)
async def test_an_unrelated_question_finds_little_in_any_language(
    hybrid: Bench, name: str, right: float, unrelated: float
) -> None:
    """Neither particles nor a model that knows only the letters make a memory near."""
    found = await above_floor(hybrid, name)
    assert found[0] >= right, found
    assert found[1] <= unrelated, found


async def test_a_rare_name_in_a_long_question_is_near(hybrid: Bench) -> None:
    """The model understands the rest of the question, and the name is all that it has to find."""
    caller = await hybrid.caller(await hybrid.account())
    namespace = Namespace("names")
    texts = ["Gundrey plays the tuba.", "The boiler is old.", "Sofia goes to ballet."]
    stored = await hybrid.stored(caller, [Draft(text=t, namespace=namespace) for t in texts])
    await hybrid.embed(caller, stored.items)

    async def found(text: str) -> list[str | None]:
        asked = Query(text=text, namespaces=[namespace], min_relevance=MIN_RELEVANCE)
        return [f.memory.text for f in (await hybrid.services.recaller.recall(caller, asked)).found]

    festival = (
        "The village festival committee still needs a few volunteers for the opening parade and "
        "asked around among the parents, should I suggest {}?"
    )
    assert await found(festival.format("Gundrey")) == texts[:1]
    assert await found(festival.format("Brindlemoor")) == []
    longer = " ".join(["The parade of the village needs volunteers."] * 12)
    assert await found(f"{longer} {festival.format('Gundrey')}") == texts[:1]


@pytest.mark.parametrize(
    ("texts", "question"),
    [
        (["علي يحب القهوة.", "الاجتماع يوم الجمعة."], "ماذا يشرب علي؟"),
        (["الإمام من برلين.", "الاجتماع يوم الجمعة."], "متى وصل الإمام؟"),
        (["दिया को चाय पसंद है।", "बैठक शुक्रवार को है।"], "दिया क्या पीती है?"),
        (["एकता को चाय पसंद है।", "बैठक शुक्रवार को है।"], "एकता क्या पीती है?"),
        (["はなは柴犬です。", "会議は金曜日になりました。"], "はなの好きな食べ物は何?"),
    ],
)
@pytest.mark.parametrize("embedded", [False, True])
async def test_a_name_is_no_particle(
    hybrid: Bench, texts: list[str], question: str, embedded: bool
) -> None:
    """A question that shares nothing but a name with a memory finds it."""
    caller = await hybrid.caller(await hybrid.account())
    namespace = Namespace("names")
    stored = await hybrid.stored(caller, [Draft(text=t, namespace=namespace) for t in texts])
    if embedded:
        await hybrid.embed(caller, stored.items)
    asked = Query(text=question, namespaces=[namespace], min_relevance=MIN_RELEVANCE)
    recalled = await hybrid.services.recaller.recall(caller, asked)
    assert [f.memory.text for f in recalled.found] == texts[:1]
