"""Vectors as whole numbers, and what a record says of postings.

Not here: the bytes of a record (`test_vectors.py`), namespaces that have them (`recall/`).
"""

import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.sealed import index_record
from relayer.sealed.envelope import pad
from relayer.sealed.index_record import (
    LEVEL_MAX,
    STEP_BYTES,
    IndexRecord,
    OpenedRecords,
    open_record,
    open_records,
    quantise,
    seal_record,
)
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey
from relayer.sealed.primitives import CryptoError
from tests.properties.drawn import few

ACCOUNT = AccountId(bytes(range(32)))
KEY = NamespaceKey(Namespace("notes"), 1, bytes(32))
TOKENS = st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.integers(1, 15), max_size=60)
SHAPES = st.just((0, 0)) | st.tuples(st.integers(1, 4), st.sampled_from([1, 7, 384]))
RECORDS = st.builds(
    lambda length, source, tokens, shape, seed: IndexRecord.of(
        length, source, tokens, np.random.default_rng(seed).integers(-127, 128, shape, np.int8)
    ),
    st.integers(0, 2**16 - 1),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    TOKENS,
    SHAPES,
    st.integers(0, 99),
)


def sealed_of(records: Sequence[IndexRecord]) -> list[bytes]:
    """Each sealed as the record of a memory, whose number it is."""
    return [seal_record(KEY, ACCOUNT, uuid.UUID(int=n), n, r) for n, r in enumerate(records)]


def opened(sealed: Sequence[bytes]) -> OpenedRecords:
    sizes = np.array([*map(len, sealed)], np.int64)
    ids = [uuid.UUID(int=n).bytes for n in range(len(sealed))]
    memories = np.frombuffer(b"".join(ids), "V16")
    begins, revisions = sizes.cumsum() - sizes, np.arange(len(sealed))
    return open_records(KEY, ACCOUNT, b"".join(sealed), begins, sizes, memories, revisions)


def told_one_by_one(sealed: Sequence[bytes]) -> list[Any]:
    """The answers of `open_record`, one for each that it opens."""
    found = []
    for n, one in enumerate(sealed):
        try:
            r = open_record(KEY, ACCOUNT, uuid.UUID(int=n), n, one)
        except CryptoError:
            continue
        found.append((n, r.length, r.source, r.postings, r.vectors.shape, r.vectors.tobytes()))
    return found


def told_together(its: OpenedRecords) -> list[Any]:
    found, at = [], 0
    for place, n in enumerate(its.which.tolist()):
        part = slice(at, at := at + int(its.token_counts[place]))
        postings = zip(its.tokens[part].tolist(), its.frequencies[part].tolist(), strict=True)
        source = int(its.source[place]) if its.is_sourced[place] else None
        vectors = its.vectors_of(np.array([place]))
        assert its.is_sourced[place] or not its.source[place]
        told = (n, int(its.length[place]), source, dict(postings))
        found.append((*told, vectors.shape, vectors.tobytes()))
    assert at == len(its.tokens) == len(its.frequencies)
    return found


@few
@given(size=st.integers(2, 300), count=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_a_quantised_vector_keeps_its_direction(size: int, count: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(count, size)).astype(np.float32)
    whole = quantise(vectors)
    assert whole.dtype == np.int8
    assert (np.abs(whole.astype(int)).max(axis=1) == LEVEL_MAX).all()
    back = whole.astype(np.float32)
    cosines = (back * vectors).sum(axis=1) / (
        np.linalg.norm(back, axis=1) * np.linalg.norm(vectors, axis=1)
    )
    assert (cosines > 0.999).all()
    assert (quantise(7 * vectors) == whole).mean() > 0.99  # its length says nothing


def test_a_vector_of_zeros_stays_one() -> None:
    assert quantise(np.zeros((1, 4), np.float16)).tolist() == [[0, 0, 0, 0]]
    assert quantise(np.zeros((0, 4), np.float16)).shape == (0, 4)


def test_postings_come_in_the_order_of_their_tokens() -> None:
    record = IndexRecord.of(3, None, {7: 2, -5: 1, 2**62: 15}, quantise(np.ones((1, 2))))
    assert list(record.postings.items()) == [(-5, 1), (7, 2), (2**62, 15)]


@few
@given(st.lists(RECORDS, max_size=12))
def test_records_say_together_what_each_says(records: list[IndexRecord]) -> None:
    sealed = sealed_of(records)
    assert told_together(opened(sealed)) == told_one_by_one(sealed)
    assert len(told_one_by_one(sealed)) == len(records)


@few
@given(st.lists(RECORDS, min_size=1, max_size=12), st.data())
def test_of_altered_ones_only_the_others_open(records: list[IndexRecord], data: Any) -> None:
    sealed = sealed_of(records)
    for _ in range(data.draw(st.integers(1, 4))):
        n = data.draw(st.integers(0, len(sealed) - 1))
        part, cut = sealed[n], data.draw(st.integers(0, len(sealed[n])))
        bit = bytes([part[cut] ^ 1]) if cut < len(part) else b""
        sealed[n] = data.draw(st.sampled_from([part[:cut], part[:cut] + bit + part[cut + 1 :]]))
    assert told_together(opened(sealed)) == told_one_by_one(sealed)


@few
@given(st.lists(RECORDS, min_size=1, max_size=4), st.data())
def test_what_whoever_has_the_key_forged_is_left_out(records: list[IndexRecord], data: Any) -> None:
    whole = sealed_of(records)
    drawn = data.draw(st.lists(st.binary(max_size=300), min_size=1, max_size=4))
    heads = [index_record._pack(r)[: data.draw(st.integers(0, 40))] for r in records]
    with pytest.MonkeyPatch.context() as patch:
        for forged in (*drawn, *heads):
            shown = data.draw(st.sampled_from([forged, pad(forged, STEP_BYTES)]))
            dirty = data.draw(st.sampled_from([shown, shown[:-1] + b"\1"]))
            patch.setattr(index_record, "pad", lambda *_, said=dirty: said)
            n = len(whole)
            whole.append(seal_record(KEY, ACCOUNT, uuid.UUID(int=n), n, records[0]))
    assert told_together(opened(whole)) == told_one_by_one(whole)


@pytest.mark.parametrize("size", [0, 1, 2, 41, 42, 169])
def test_of_any_length_nothing_else_is_read(size: int) -> None:
    [sealed] = sealed_of([IndexRecord.of(3, None, {7: 2})])
    assert told_together(opened([bytes(size), b"\1" * size, sealed[:size]])) == []
    assert told_together(opened([])) == []
