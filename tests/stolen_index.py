"""The attack on a stolen index: what a copy of the database tells of texts that it does not hold.

It plays a thief with a copy of the database, the texts of some memories, and some that it planted.
Not here: what the figures must be (`security/test_stolen_index.py`). SECURITY.md says what is
attacked.

- Words: a memory's hashes are matched with its known text; those that only one word explains are
  that word wherever they stand. What is left is guessed by how often words stand in known texts.
- Meaning: two memories are neighbours if their stored vectors are.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relayer.words.tokens import words

NEIGHBOURS: Final = 5
# A stem each, and no number.
VOCABULARY: Final = [
    a + b + c for a in ("bol", "dar", "fim", "gus") for b in "aeiou" for c in "kmprt"
]
_ROWS: Final = "SELECT memory_id, seq, tokens, index_record, size_bytes FROM memories ORDER BY seq"
_VECTORS: Final = "SELECT memory_id, embedding FROM vectors WHERE part = 0"


@dataclass(frozen=True)
class Stolen:
    """What the copy has of each memory, in the order in which they were stored."""

    tokens: Sequence[Set[int]]
    vectors: np.ndarray[tuple[int, int], np.dtype[np.float32]] | None
    record_bytes: Sequence[int]

    @classmethod
    async def of(cls, bench: Any) -> "Stolen":
        """Copy the tables."""
        rows = await bench.sql(_ROWS)
        stored = {r["memory_id"]: r["embedding"].to_numpy() for r in await bench.sql(_VECTORS)}
        vectors = None
        if stored:
            vectors = np.stack([stored[r["memory_id"]] for r in rows]).astype(np.float32)
        records = [len(r["index_record"] or b"") for r in rows]
        return cls([frozenset(r["tokens"]) for r in rows], vectors, records)


def guess_words(stolen: Stolen, known: Mapping[int, str]) -> dict[int, str]:
    """Return token → word, as the known texts of memories tell them.

    A word's hash is in exactly the memories that have the word: the known ones among them tell it
    from others.
    """
    where: dict[str, set[int]] = defaultdict(set)
    for place, text in known.items():
        for word in words(text):
            where[word].add(place)
    held: dict[int, set[int]] = defaultdict(set)
    for place in known:
        for token in stolen.tokens[place]:
            held[token].add(place)
    by_places: dict[frozenset[int], list[int]] = defaultdict(list)
    for token, places in held.items():
        by_places[frozenset(places)].append(token)
    # Of several with the same places, the commoner hash is the commoner word.
    everywhere = Counter(token for tokens in stolen.tokens for token in tokens)
    said = Counter(word for text in known.values() for word in words(text))
    guessed: dict[int, str] = {}
    of_words: dict[frozenset[int], list[str]] = defaultdict(list)
    for word, places in where.items():
        of_words[frozenset(places)].append(word)
    for held_by, found in of_words.items():
        tokens = sorted(by_places.get(held_by, ()), key=lambda token: -everywhere[token])
        guessed |= dict(zip(tokens, sorted(found, key=lambda word: -said[word]), strict=False))
    return guessed


def measure_words(
    stolen: Stolen, guessed: Mapping[int, str], texts: Sequence[str], known: Set[int]
) -> float:
    """Return the share of word occurrences of all other memories that the guesses name rightly."""
    right = total = 0
    for place, text in enumerate(texts):
        if place in known:
            continue
        own = set(words(text))
        total += len(own)
        right += len(own & {guessed[t] for t in stolen.tokens[place] if t in guessed})
    return right / total


def guess_neighbours(stolen: Stolen) -> list[set[int]]:
    """Return the nearest of each memory: by vectors, or by all that is left, sizes and order."""
    if stolen.vectors is not None:
        near = stolen.vectors @ stolen.vectors.T
    else:
        sizes, order = np.array(stolen.record_bytes, float), np.arange(len(stolen.tokens))
        near = -np.abs(sizes[:, None] - sizes) - np.abs(order[:, None] - order) / len(order)
    return nearest(near)


def nearest(near: np.ndarray[tuple[int, int], np.dtype[Any]]) -> list[set[int]]:
    """Return the nearest others of each, by a matrix of nearness."""
    near = near.copy()
    np.fill_diagonal(near, -np.inf)
    return [set(row[:NEIGHBOURS].tolist()) for row in np.argsort(-near, axis=1, kind="stable")]


def measure_neighbours(guessed: Sequence[Set[int]], true: Sequence[Set[int]]) -> float:
    """Return the share of true neighbours among the guessed ones."""
    return sum(len(a & b) for a, b in zip(guessed, true, strict=True)) / (NEIGHBOURS * len(true))
