"""Vectors in a few bits a number: they tell which of many may be near, and not which is nearest.

Not here: the same with a byte a number (`vector_rows.py`), and exact distances of those that may be
near (`distances.py`). Pure.

- A turned vector's numbers are spread like chance, so each is told by one of a few equal steps. Its
  bits lie in planes: the first has the signs, and with each further one a number becomes exacter.
- A product with a query is made of sums that a table has for every eight bits. An estimate is made
  of the first planes alone, by how many of their bits differ from those of the query.
- What a product lacks of a vector's own length is made good by a factor (as in RaBitQ).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Planes = npt.NDArray[np.uint64]

BITS: Final = 3  # of a number
QUERY_BITS: Final = 3  # of a query's number, where signs are compared
AT_ONCE: Final = 1_024  # vectors at once, so that what is made of them stays in a cache
WORD_BITS: Final = 64
_STEPS: Final = {1: 1.596, 2: 0.9957, 3: 0.586, 4: 0.3352}  # of normal numbers, by bits


def count_words(dim: int) -> int:
    """Return how many words of a plane a vector of so many numbers takes."""
    return -(-dim // WORD_BITS)


def encode(vectors: npt.NDArray[np.number]) -> tuple[Planes, Floats]:
    """Return (BITS, v, words) planes of these vectors, and the (v,) factors of their products."""
    whole = vectors.astype(np.float32)
    lengths = np.sqrt(np.einsum("vd,vd->v", whole, whole))
    whole /= np.where(lengths > 0, lengths, 1)[:, None]
    levels = _levels(whole, BITS)
    products = np.einsum("vd,vd->v", _numbers(levels, BITS), whole)
    factors = np.where(lengths > 0, 1 / np.where(lengths > 0, products, 1), 0)
    return _pack(levels, BITS), factors.astype(np.float32)


def decode(planes: Planes, dim: int) -> Floats:
    """Return (v, dim) vectors of length 1 that lie near those of the planes."""
    levels = np.zeros((planes.shape[1], dim), np.uint8)
    for plane in planes:
        levels <<= 1
        levels |= np.unpackbits(plane.view(np.uint8), axis=1, count=dim)
    numbers = _numbers(levels, len(planes))
    numbers /= np.sqrt(np.einsum("vd,vd->v", numbers, numbers))[:, None]
    return numbers


@dataclass(frozen=True)
class Asked:
    """A query, as planes are compared with it."""

    unit: Floats

    @cached_property
    def _sums(self) -> Floats:
        """Return the sum of the query's numbers, less those without a bit, of every eight bits."""
        padded = np.zeros(count_words(len(self.unit)) * WORD_BITS, np.float32)
        padded[: len(self.unit)] = self.unit
        bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
        signs = bits.astype(np.float32) * 2 - 1
        return np.ascontiguousarray(padded.reshape(-1, 8) @ signs.T).ravel()

    @cached_property
    def _planes(self) -> Planes:
        return _pack(_levels(self.unit[None], QUERY_BITS), QUERY_BITS)[:, 0]

    def products(self, planes: Planes, factors: Floats) -> Floats:
        """Return (v,) products with the vectors of these planes; of equal ones the same."""
        found = np.empty(len(factors), np.float32)
        begins = np.arange(0, len(self._sums), 256, dtype=np.int32)
        for at in range(0, len(factors), AT_ONCE):
            total: Floats | None = None
            for plane in planes:
                part = self._sums.take(plane[at : at + AT_ONCE].view(np.uint8) + begins)
                its = part.sum(axis=1)
                total = its if total is None else 2 * total + its
            assert total is not None
            found[at : at + AT_ONCE] = total
        found *= factors
        return found

    def estimate(self, planes: Sequence[Planes]) -> npt.NDArray[np.unsignedinteger]:
        """Return (v,) estimates by the first (v, words) planes: the less, the nearer."""
        most = (2 ** len(planes) - 1) * (2**QUERY_BITS - 1) * len(self.unit)
        found = np.zeros(len(planes[0]), np.min_scalar_type(most))
        for weight, plane in enumerate(reversed(planes)):
            by_word = np.ascontiguousarray(plane.T)
            its = np.zeros_like(found)
            for query in self._planes:
                its <<= 1
                for words, word in zip(by_word, query, strict=True):
                    its += np.bitwise_count(words ^ word)
            found += its << weight
        return found


def _levels(whole: Floats, bits: int) -> npt.NDArray[np.uint8]:
    """Return the step of each number of these vectors, all of one scale."""
    scales = np.sqrt(np.einsum("vd,vd->v", whole, whole) / max(whole.shape[1], 1))
    steps = np.where(scales > 0, scales, 1) * _STEPS[bits]
    levels = whole / steps[:, None].astype(np.float32)
    levels += 2 ** (bits - 1)
    np.clip(levels, 0, 2**bits - 1, out=levels)
    return levels.astype(np.uint8)


def _numbers(levels: npt.NDArray[np.uint8], bits: int) -> Floats:
    """Return the numbers, odd ones around zero, that these steps stand for."""
    numbers = levels.astype(np.float32)
    numbers *= 2
    numbers -= 2**bits - 1
    return numbers


def _pack(levels: npt.NDArray[np.uint8], bits: int) -> Planes:
    count, dim = levels.shape
    packed = np.zeros((bits, count, count_words(dim) * WORD_BITS // 8), np.uint8)
    for place in range(bits):
        part = np.packbits(levels & (1 << bits - 1 - place) > 0, axis=1)
        packed[place, :, : part.shape[1]] = part
    return packed.view(np.uint64)
