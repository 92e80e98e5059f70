"""The vectors in the answer of an OpenAI-compatible embedding endpoint.

Not here: asking (`remote.py`). Pure.

- Only an answer with one vector for each text is believed, and only if it says which is whose.
- Servers differ in how they say it. Without an `index`, or with the same one everywhere, the order
  of the texts is the only one that can be meant. Numbers that follow each other give the order,
  from whatever they begin at. Anything else may give a text another one's vector.
"""

import base64
import binascii
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from relayer.embedding.embedders import Vectors
from relayer.embedding.endpoints import Failure

MISCOUNTED: Final = "wrong number of vectors"
DIMENSION: Final = "dimension "  # begins the words for vectors of another one
_NORM_MIN: Final = 1e-6

_Row = list[float | list[float]] | str  # in base64, although plain numbers were asked for


class _Item(msgspec.Struct):
    embedding: _Row
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Item] | _Item | None = None
    embeddings: list[_Row] | None = None


def vectors_in(body: bytes, *, texts: int, dim: int) -> Vectors | Failure:
    """Return the vectors in an answer if it is one for `texts` texts, (texts, dim), L2-normalised.

    Their lengths before may be any; of what has none, no direction is left.
    """
    try:
        items = _items(msgspec.json.decode(body, type=_Answer | list[_Item]))
        rows = [_numbers(item.embedding) for item in items]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, binascii.Error, ValueError):
        return Failure("not an answer")
    if len(items) != texts:
        return Failure(MISCOUNTED)
    order = _order([item.index for item in items])
    if order is None:
        return Failure("wrong order of vectors")
    other = next((len(row) for row in rows if len(row) != dim), None)
    if other is not None:
        return Failure(f"{DIMENSION}{other}, not {dim}")
    raw = np.array([rows[n] for n in order], np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(raw, axis=1, keepdims=True)
    if not np.isfinite(norms).all() or norms.min() < _NORM_MIN:
        return Failure("vector without direction")
    vectors: Vectors = (raw / norms).astype(np.float32)
    return vectors


def _items(answer: _Answer | list[_Item]) -> list[_Item]:
    data = answer if isinstance(answer, list) else answer.data
    if data is not None:
        return [data] if isinstance(data, _Item) else data
    if isinstance(answer, _Answer) and answer.embeddings is not None:
        return [_Item(embedding) for embedding in answer.embeddings]
    raise ValueError("no vectors")


def _order(indexes: list[int | None]) -> list[int] | None:
    """Return which item is the first text's, the second's and so on; None if that is not said."""
    numbers = [number for number in indexes if number is not None]
    if len(set(indexes)) == 1:
        return list(range(len(indexes)))
    if len(numbers) != len(indexes):
        return None
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    follow = [numbers[at] - number for number, at in enumerate(order)]
    return order if len(set(follow)) == 1 else None


def _numbers(row: _Row) -> list[float] | NDArray[np.float32]:
    """Return a row's numbers, also of one that is nested in another list.

    Raises:
        ValueError: it holds something else; `binascii.Error` is one.
    """
    if isinstance(row, str):
        return np.frombuffer(base64.b64decode(row, validate=True), "<f4")
    if len(row) == 1 and isinstance(row[0], list):
        row = list(row[0])
    numbers = [number for number in row if not isinstance(number, list)]
    if len(numbers) != len(row):
        raise ValueError("a matrix")
    return numbers
