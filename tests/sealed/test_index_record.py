"""Vectors as whole numbers, and what a record says of postings.

Not here: the bytes of a record (`test_vectors.py`), namespaces that have them (`recall/`).
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from relayer.sealed.index_record import LEVEL_MAX, IndexRecord, quantise
from tests.properties.drawn import few


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
