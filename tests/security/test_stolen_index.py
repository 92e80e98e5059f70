"""A stolen index is attacked: a searchable one tells most words, a sealed one tells none.

The attack is a program (`tests/stolen_index.py`). It knows 50 texts of a namespace, and planted
three.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pytest

from relayer.embedding.embedders import Embedder
from relayer.sealed.index_record import STEP_BYTES
from tests.sealed_index import UNSEALED, Choice
from tests.services import TEAM, Bench
from tests.stolen_index import (
    NEIGHBOURS,
    VOCABULARY,
    Stolen,
    guess_neighbours,
    guess_words,
    measure_neighbours,
    measure_words,
    nearest,
)

KNOWN: Final = 50
TOPICS: Final = (
    "tea cup kettle", "train station ticket", "server database backup", "garden rose tulip",
    "violin concert stage", "lawyer contract court", "dog puppy leash", "ship harbour anchor",
)  # fmt: skip


def _say(drawn: random.Random) -> list[str]:
    """Texts of common and rare words, each about something."""
    often = [1 / rank for rank in range(1, len(VOCABULARY) + 1)]  # as in any language
    texts = []
    for n in range(90):
        own = drawn.choices(VOCABULARY, often, k=drawn.randint(6, 14))
        topic = TOPICS[drawn.randrange(len(TOPICS))]
        texts.append(f"{n} {topic} {' '.join(sorted(set(own)))}")
    return texts


def _plant(drawn: random.Random) -> list[str]:
    """Three long texts, in which every word has a place of its own."""
    words = [*VOCABULARY, *(word for topic in TOPICS for word in topic.split())]
    return [" ".join(drawn.sample(words, len(words) // 2)) for _ in range(3)]


@pytest.fixture
async def told(hybrid: Bench) -> tuple[Choice, list[str]]:
    """A namespace, and what is in it: the texts that a thief knows come first."""
    drawn = random.Random(7)
    said, planted = _say(drawn), _plant(drawn)
    texts = [*planted, *said]
    choice = Choice(hybrid, await hybrid.account("sealed"))
    caller = await choice.caller()
    await hybrid.embed(caller, await hybrid.remember(caller, *texts))
    return choice, texts


def _known(texts: Sequence[str]) -> Mapping[int, str]:
    return dict(enumerate(texts[: KNOWN + 3]))


async def _true_neighbours(embedder: Embedder, texts: Sequence[str]) -> list[set[int]]:
    vectors = await embedder.embed(list(texts))
    return nearest(np.asarray(vectors @ vectors.T))


async def test_a_searchable_index_tells_words_and_meaning_and_a_sealed_one_neither(
    told: tuple[Choice, list[str]], embedder: Embedder
) -> None:
    choice, texts = told
    known, true = _known(texts), await _true_neighbours(embedder, texts)
    before = await Stolen.of(choice.bench)
    guessed = guess_words(before, known)
    assert measure_words(before, guessed, texts, set(known)) >= 0.4
    assert measure_neighbours(guess_neighbours(before), true) >= 0.8
    await choice.choose(sealed=True, namespaces=(TEAM,))
    after = await Stolen.of(choice.bench)
    assert await choice.bench.value(UNSEALED) == 0
    assert measure_words(after, guess_words(after, known), texts, set(known)) <= 0.01
    # What was learnt before is of no use: nothing stored names these hashes any more.
    assert measure_words(after, guessed, texts, set(known)) == 0
    chance = NEIGHBOURS / (len(texts) - 1)
    assert measure_neighbours(guess_neighbours(after), true) <= 2 * chance


async def test_a_record_tells_a_class_of_lengths(told: tuple[Choice, list[str]]) -> None:
    """Nine of ten short texts are of two classes; no length tells the number of words."""
    choice, texts = told
    await choice.choose(sealed=True, namespaces=(TEAM,))
    stolen = await Stolen.of(choice.bench)
    sizes = stolen.record_bytes[3:]
    assert len({size % STEP_BYTES for size in sizes}) == 1
    assert len(set(sizes)) <= 2
    assert len({len(set(text.split())) for text in texts[3:]}) >= 5


async def test_the_same_text_looks_different_each_time(hybrid: Bench) -> None:
    """Equal records, sources and texts of two memories have nothing in common."""
    choice = Choice(hybrid, await hybrid.account("sealed"))
    await hybrid.remember(await choice.caller(), "The first.", source="chat")
    await choice.choose(sealed=True, namespaces=(TEAM,))
    caller = await choice.caller()
    for kind in ("fact", "event"):
        await hybrid.remember(caller, "Said twice.", kind=kind, source="chat")
    rows = await hybrid.sql("SELECT source, fingerprint, index_record FROM memories ORDER BY seq")
    for column in ("source", "fingerprint", "index_record"):
        assert len({row[column] for row in rows}) == 3
    *_, one, other = (row["index_record"] for row in rows)
    assert sum(a == b for a, b in zip(one[1:], other[1:], strict=True)) < len(one) / 10
