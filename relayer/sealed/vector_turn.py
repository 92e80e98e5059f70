"""The secret orthogonal transform of a namespace's vectors. Source: SPEC §9.

Not here: where vectors come from (`relayer.embedding`) and how they are searched
(`relayer.database`, `relayer.memory_index`).

- Distances within a namespace, model and epoch are exact; across any of them they mean nothing.
- An obstacle to inversion, not encryption: SPEC §10.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
from nacl import bindings

from relayer.sealed.keys import NamespaceKey
from relayer.sealed.primitives import CryptoError, kdf, u32

ROUNDS: Final = 4
DIMENSION_MAX: Final = 4000
TURNS_KEPT: Final = 512  # 18 KB each at 384 dimensions
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class VectorTurn:
    """Four rounds of permutation, signs and Walsh–Hadamard blocks in `dim` dimensions.

    Attributes:
        orders: (4, dim) source position of every entry.
        signs: (4, dim) ±1.
    """

    dim: int
    orders: npt.NDArray[np.intp]
    signs: Vectors

    def apply(self, vectors: Vectors) -> Vectors:
        """Return turned unit vectors, (n, dim) float32, from vectors of any length but zero.

        Raises:
            CryptoError: another dimension, not finite, or a zero vector.
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.dim:
            raise CryptoError("bad vectors")
        # In double precision: the square of a large float32 is no float32.
        squares = np.square(vectors, dtype=np.float64)
        norms = np.sqrt(squares.sum(axis=1, keepdims=True))
        if not np.isfinite(norms).all() or not norms.all():
            raise CryptoError("a vector without a direction")
        x: Vectors = (vectors / norms).astype(np.float32)
        blocks = self._blocks()
        for order, signs in zip(self.orders, self.signs, strict=True):
            x = x.take(order, axis=1)
            x *= signs
            for start, size in blocks:
                _walsh_hadamard(x[:, start : start + size])
        return x

    def undo(self, turned: Vectors) -> Vectors:
        """Return the unit vectors that `apply` turned, to float32 accuracy."""
        x = turned.astype(np.float32)
        blocks = self._blocks()[::-1]
        for order, signs in zip(self.orders[::-1], self.signs[::-1], strict=True):
            for start, size in blocks:
                _walsh_hadamard(x[:, start : start + size])
            straight = np.empty_like(x)
            straight[:, order] = x * signs
            x = straight
        return x

    def _blocks(self) -> list[tuple[int, int]]:
        size = 1 << (self.dim.bit_length() - 1)
        return [(start, size) for start in sorted({0, self.dim - size})]


def derive_vector_turn(key: NamespaceKey, model_id: str, dim: int) -> VectorTurn:
    """Return the turn of one namespace, epoch and model.

    Raises:
        CryptoError: a dimension outside 1–4,000.
    """
    if not 1 <= dim <= DIMENSION_MAX:
        raise CryptoError("bad dimension")
    return _turn_of(kdf(key.vector, "turn", model_id.encode(), u32(dim)), dim)


@lru_cache(maxsize=TURNS_KEPT)
def _turn_of(seed: bytes, dim: int) -> VectorTurn:
    """Return the turn of a seed; keep it, since a namespace's vectors come many at a time.

    Keys are not kept.
    """
    stream = bindings.randombytes_buf_deterministic(ROUNDS * 8 * dim, seed)
    words = np.frombuffer(stream, dtype=">u8").reshape(ROUNDS, dim).astype(np.uint64)
    orders = np.argsort(words >> np.uint64(1), axis=1, kind="stable")
    # The sign belongs to the new position n, so its word is w[n], not w[order[n]].
    signs = np.where(words & np.uint64(1), np.float32(-1), np.float32(1)).astype(np.float32)
    for shared in (orders, signs):
        shared.setflags(write=False)
    return VectorTurn(dim=dim, orders=orders, signs=signs)


def _walsh_hadamard(x: Vectors) -> None:
    """In place, in natural order over the last axis, scaled to be orthonormal; (n, power of two).

    As the Kronecker product of two smaller ones: a handful of array operations, not one for each
    butterfly, which took longer than the search.
    """
    left, right = _factors(x.shape[1])
    grids = x.reshape(len(x), len(left), len(right))  # a view: only the last axis is divided
    np.matmul(left @ grids, right, out=grids)


@lru_cache
def _factors(size: int) -> tuple[Vectors, Vectors]:
    """Return the matrices whose Kronecker product is the orthonormal one of that size.

    The size is a power of two.
    """
    rows = 1 << ((size.bit_length() - 1) // 2)
    factors = _hadamard(rows) / np.sqrt(np.float32(size)), _hadamard(size // rows)
    for shared in factors:
        shared.setflags(write=False)
    return factors


def _hadamard(size: int) -> Vectors:
    """Return the matrix of Sylvester's construction, (size, size), of a power of two."""
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < size:
        matrix = np.kron(np.array([[1, 1], [1, -1]], np.float32), matrix)
    return matrix
