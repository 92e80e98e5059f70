"""Recall by words alone, on our own sets of Chinese, Japanese and identifiers."""

import json
from pathlib import Path
from typing import Any

import pytest

from relayer.memories.recall import Query
from relayer.record import Draft
from relayer.sealed.keys import Namespace
from tests.services import Bench

DATA = Path(__file__).parents[2] / "bench/data"
LIMIT = 5


def lines(name: str, file: str) -> list[dict[str, Any]]:
    text = (DATA / name / f"{file}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


async def recall_at_5(bench: Bench, name: str) -> dict[str, float]:
    """Per category, the share of the evidence among the first five of a keyword recall."""
    caller = await bench.caller(await bench.account())
    namespace = Namespace(name)
    memories = lines(name, "memories")
    stored = await bench.stored(
        caller, [Draft(text=m["text"], namespace=namespace) for m in memories]
    )
    ids = {item.id: m["id"] for item, m in zip(stored.items, memories, strict=True)}
    assert len(ids) == len(memories)
    shares: dict[str, list[float]] = {}
    for query in lines(name, "queries"):
        asked = Query(text=query["text"], namespaces=[namespace], limit=LIMIT, mode="keyword")
        recalled = await bench.services.recaller.recall(caller, asked)
        found = {ids[f.memory.id] for f in recalled.found}
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
