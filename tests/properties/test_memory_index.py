"""A namespace's arrays after any changes are those of a namespace that is read anew.

Not here: which changes there are (`recall/test_memory_index.py`), what tells of them
(`test_index_steps.py`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.database.index_pages import Counts, Differing, Page, Versions
from relayer.database.index_steps import IndexMark
from relayer.memory_index import namespace
from relayer.memory_index.codes import Asked
from relayer.memory_index.namespace import LoadedNamespace, empty, update
from relayer.memory_index.postings import Postings
from relayer.memory_index.vector_rows import LANES
from tests.memory_rows import memory_rows
from tests.properties.drawn import few
from tests.twins import content_of

DIM = 4
MODELS = ((1, "one"), (1, "two"))
SEQS = st.integers(1, 40)
TOKENS = st.dictionaries(st.integers(-5, 5), st.integers(1, 3), max_size=5)
VECTORS = st.dictionaries(st.sampled_from(MODELS), st.integers(1, 3), max_size=2)
CHANGES = st.lists(
    st.lists(st.tuples(SEQS, st.none() | st.tuples(TOKENS, VECTORS)), min_size=1, max_size=6),
    max_size=12,
)


@dataclass
class Rows:
    """What a database would have of a namespace: number → (version, tokens, vectors)."""

    living: dict[int, tuple[int, dict[int, int], dict[tuple[int, str], np.ndarray]]] = field(
        default_factory=dict
    )
    changes: int = 0

    def change(
        self, seq: int, to: tuple[dict[int, int], dict[tuple[int, str], int]] | None
    ) -> None:
        """Give a memory these words and so many vectors of each model, or erase it."""
        self.living.pop(seq, None)
        self.changes += 1
        if to is not None:
            words, counts = to
            drawn = np.random.default_rng(self.changes)
            vectors = {scope: drawn.normal(size=(n, DIM)) for scope, n in counts.items()}
            self.living[seq] = (self.changes, words, vectors)

    def otherwise(self) -> "Rows":
        """The same with vectors that point elsewhere."""
        turned = {
            seq: (version, words, {scope: -v for scope, v in vectors.items()})
            for seq, (version, words, vectors) in self.living.items()
        }
        return Rows(turned, self.changes)

    @property
    def counts(self) -> Counts:
        return Counts(len(self.living), 7 * self.changes)

    def versions(self) -> Versions:
        seqs = sorted(self.living)
        versions = [self.living[seq][0] for seq in seqs]
        mark = IndexMark(b"", self.changes)
        return Versions(mark, self.counts, np.array(seqs, np.int64), np.array(versions, np.int64))

    def page(self, seqs: Iterable[int]) -> Page:
        """As the database pages them: those that live, in order."""
        here = [seq for seq in sorted(seqs) if seq in self.living]
        postings = [(t, seq, n) for seq in here for t, n in self.living[seq][1].items()]
        tokens, of, times = zip(*postings, strict=True) if postings else ((), (), ())
        vectors = {}
        for scope in MODELS:
            its = [(seq, v) for seq in here for v in self.living[seq][2].get(scope, ())]
            if its:
                numbers = np.array([seq for seq, _ in its], np.int64)
                vectors[scope] = (numbers, np.array([v for _, v in its], np.float32))
        versions = np.array([self.living[seq][0] for seq in here], np.int64)
        blobs = np.array([v.to_bytes(32, "big") for v in versions.tolist()], "V32")
        return Page(
            memories=memory_rows(here, versions.tolist(), moment=versions * 1.0, blob_id=blobs),
            vectors=vectors,
            tokens=np.array(tokens, np.int64),
            seqs=np.array(of, np.int64),
            frequencies=np.array(times, np.int16),
            lengths=np.full(len(of), 9, np.int16),
        )

    def followed(self, before: LoadedNamespace, now: Differing, cut: int) -> LoadedNamespace:
        """A namespace brought to these rows, by pages of `cut` memories."""
        numbers = now.seqs.tolist()
        cuts = range(0, len(numbers), cut)
        return update(before, now, [self.page(numbers[at : at + cut]) for at in cuts])

    def read_anew(self) -> LoadedNamespace:
        """The namespace as somebody reads it who held nothing."""
        before = empty(1)
        return self.followed(before, before.compare(self.versions()), cut=100)


def _touched(changed: Sequence[tuple[int, Any]], rows: Rows) -> Differing:
    """What steps would tell: each number that was touched, also such as came and went."""
    seqs = np.array(sorted({seq for seq, _ in changed}), np.int64)
    return Differing(IndexMark(b"", rows.changes), rows.counts, seqs)


def _ascends(postings: Postings) -> bool:
    """Words ascend, and so do the memories of each; none has it more often than is told."""
    pairs = list(zip(postings.tokens.tolist(), postings.at.tolist(), strict=True))
    most = postings.most.repeat(np.diff(postings.ends, prepend=0))
    return pairs == sorted(set(pairs)) and bool((postings.frequencies <= most).all())


@few
@given(CHANGES, st.integers(1, 9), st.booleans())
@pytest.mark.parametrize("bounds", [(0, 0), (5, 12), (4_096, 0), (4_096, 65_536)])
def test_is_what_is_read_anew(
    bounds: tuple[int, int], changes: list[list[tuple[int, Any]]], cut: int, by_steps: bool
) -> None:
    rows, held = Rows(), empty(1)
    earlier: list[tuple[LoadedNamespace, list[Any]]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(namespace, "RECENT_MAX", bounds[0])
        patch.setattr(namespace, "ORDERED_MAX", bounds[1])
        for changed in changes:
            for seq, to in changed:
                rows.change(seq, to)
            now = _touched(changed, rows) if by_steps else held.compare(rows.versions())
            before, held = held, rows.followed(held, now, cut)
            content = content_of(held)
            assert content == content_of(rows.read_anew())
            assert all(_ascends(part) for part in held.postings)
            # Of one namespace two can be made, and neither writes where the other reads.
            rows.otherwise().followed(before, now, cut)
            earlier.append((held, content))
            assert all(content_of(one) == its for one, its in earlier)


@few
@given(st.lists(st.integers(1, LANES + 9), min_size=1, max_size=6))
def test_equal_vectors_are_equally_near(counts: list[int]) -> None:
    """Wherever they lie, and whatever was put behind them since."""
    rows, held, seq = Rows(), empty(1), 0
    query = np.random.default_rng(0).normal(size=DIM).astype(np.float32)
    for count in counts:
        for _ in range(count):
            seq += 1
            rows.living[seq] = (seq, {}, {MODELS[0]: np.ones((1, DIM))})
        before, held = held, rows.followed(held, held.compare(rows.versions()), cut=50)
        for one in (before, held):
            for passages in one.passages.values():
                assert len(set(passages.cosines(Asked(query)).tolist())) == 1
                assert len(passages.cosines(Asked(query))) == len(one.memories)


def test_what_comes_is_put_behind_what_is_there() -> None:
    """Until the room is taken, no vector is copied."""
    rows, held = Rows(), empty(1)
    kept = []
    for seq in range(1, LANES + 2):
        rows.change(seq, ({}, {MODELS[0]: 1}))
        held = rows.followed(held, held.compare(rows.versions()), cut=1)
        kept.append(held.passages[MODELS[0]].rows)
    assert all(columns is kept[0] for columns in kept[:LANES])
    assert kept[LANES] is not kept[0]
    assert held.passages[MODELS[0]].size_bytes == held.passages[MODELS[0]].at.nbytes + (
        kept[LANES].nbytes
    )
