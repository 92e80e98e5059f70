"""Recall with the multilingual model: what the client's floor lets through, and the way to it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from memrelay.operations.reads import MIN_RELEVANCE
from relayer.embedding.builtin import BuiltinEmbedder
from relayer.embedding.embedders import Embedder
from relayer.embedding.published import ENGLISH, MULTILINGUAL
from relayer.query.query import Query
from relayer.record import Draft
from relayer.sealed.keys import Namespace
from tests.conftest import BenchMaker
from tests.model_fixture import model_folder
from tests.services import Bench
from tests.sets import lines


@pytest_asyncio.fixture(scope="session")
async def multilingual() -> AsyncIterator[Embedder]:
    built = BuiltinEmbedder(folder=model_folder(MULTILINGUAL), published=MULTILINGUAL)
    yield built
    await built.close()


@pytest.mark.parametrize(
    ("name", "right", "unrelated"),
    [
        ("languages", 0.7, 0.1),
        ("chinese", 0.9, 0.15),
        ("japanese", 0.9, 0.2),
        ("korean", 0.95, 0.2),
    ],
)
async def test_right_memories_are_near_and_an_unrelated_question_finds_little(
    make_bench: BenchMaker, multilingual: Embedder, name: str, right: float, unrelated: float
) -> None:
    """Of six languages in Latin and Cyrillic letters, in their own words, and of three others."""
    bench = make_bench(embedder=multilingual)
    caller = await bench.caller(await bench.account())
    memories = lines(name, "memories")
    stored = await bench.stored(
        caller, [Draft(text=m["text"], namespace=Namespace(m["namespace"])) for m in memories]
    )
    await bench.embed(caller, stored.items)
    ids = {item.id: m["id"] for item, m in zip(stored.items, memories, strict=True)}

    async def found(query: dict[str, Any]) -> set[str]:
        namespaces = [Namespace(query["namespace"])]
        asked = Query(text=query["text"], namespaces=namespaces, min_relevance=MIN_RELEVANCE)
        return {
            ids[f.memory.id] for f in (await bench.services.recaller.recall(caller, asked)).found
        }

    near = [bool(await found(q) & set(q["evidence"])) for q in lines(name, "queries")]
    far = [bool(await found(q)) for q in lines(name, "unrelated_queries")]
    assert sum(near) / len(near) >= right, sum(near) / len(near)
    assert sum(far) / len(far) <= unrelated, sum(far) / len(far)


async def test_a_relayer_that_changes_to_it_finds_what_it_has_meanwhile_and_then_better(
    hybrid: Bench, multilingual: Embedder, embedder: Embedder
) -> None:
    """capability 4.20: what the English model embedded is embedded by the multilingual one."""
    caller = await hybrid.caller(await hybrid.account())
    texts = ["The boiler is old.", "Mein Sohn Paul will Pilot werden.", "Unser Kater heißt Fritz."]
    stored = await hybrid.stored(
        caller, [Draft(text=text, namespace=Namespace("team")) for text in texts]
    )
    await hybrid.embed(caller, stored.items)
    hybrid.clock.advance(121)
    changed = hybrid.another(embedder=multilingual)
    models = "SELECT DISTINCT model FROM vectors"
    assert [row[0] for row in await changed.sql(models)] == [ENGLISH.model_id]
    assert (await changed.texts(caller, "How old is the boiler?"))[0] == texts[0]
    await changed.services.sweeper.sweep()
    async with changed.working():
        await changed.until(
            "SELECT count(*) FROM vectors WHERE model = $1", 3, MULTILINGUAL.model_id
        )
    assert [row[0] for row in await changed.sql(models)] == [MULTILINGUAL.model_id]
    question = "Welchen Beruf wünscht sich unser Kind?"
    assert (await changed.texts(caller, question, mode="vector"))[0] == texts[1]
    recalled = await changed.services.recaller.recall(
        caller, Query(text=question, namespaces=[Namespace("team")])
    )
    assert not recalled.degraded
