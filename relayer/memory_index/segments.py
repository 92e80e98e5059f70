"""The namespaces of one search, one behind the other: a memory's position counts through all.

Not here: the arrays of one namespace (`namespace.py`), what is looked for (`evidence.py`). Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from relayer.database.recall import Scope
from relayer.memory_index.namespace import Ints, LoadedNamespace

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True)
class Segment:
    """A namespace that is searched, where its memories begin, and the query as it knows it."""

    namespace: LoadedNamespace
    begins: int
    scopes: Sequence[Scope]


def to_segments(namespaces: Sequence[LoadedNamespace], scopes: Sequence[Scope]) -> list[Segment]:
    """Return the segments of these namespaces, in their order."""
    segments, begins = [], 0
    for namespace in namespaces:
        its = [s for s in scopes if s.namespace_id == namespace.namespace_id]
        segments.append(Segment(namespace, begins, its))
        begins += len(namespace.memories)
    return segments


def join_arrays(parts: Sequence[npt.NDArray[Scalar]]) -> npt.NDArray[Scalar]:
    """Return one array of several; the only one, as it is."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def take_first(at: Ints, values: npt.NDArray[np.floating[Any]], seqs: Ints, count: int) -> Ints:
    """Return those of these positions whose values are smallest, of equals the newest.

    `values` are theirs, `seqs` the numbers of all memories.
    """
    if len(at) > count:
        few = values <= np.partition(values, count - 1)[count - 1]
        at, values = at[few], values[few]
    return at[np.lexsort((-seqs[at], values))][:count]


def sample(at: Ints, count: int) -> Ints:
    """Return a few of many, scattered: what lies in step with others may be alike."""
    if len(at) <= count:
        return at
    return at[np.random.default_rng(len(at)).integers(len(at), size=count)]
