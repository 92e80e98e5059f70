"""The interface of embedders, which turn texts into unit vectors.

Not here: the embedders, each in a module of its own with the libraries that it needs (`builtin.py`,
`openai.py`); which of them the settings name (`building.py`); the cache and the batches around one
(`cache.py`); what a vector is used for.

- Vectors are float32, (n, dim), L2-normalised and finite.
- A text's vector does not depend on the texts it shares a batch with.
- Texts, keys, addresses and upstream messages reach neither an error nor a log line.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from relayer.errors import Unavailable

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Coverage:
    """The share of a text that a model knows.

    Attributes:
        share: of its tokens, 0–1. Those of a word that is spelt letter by letter are not known.
        spelt: its words that have no token of their own: of these a vector says little.
    """

    share: float = 1.0
    spelt: tuple[str, ...] = field(default=(), repr=False)


FULL_COVERAGE: Final = Coverage()
RELATED: Final = 0.3  # the cosine that clients take for the least of what is related


class Embedder(Protocol):
    """Turns texts into vectors of one model.

    Attributes:
        version: the model and how it cuts texts; what was embedded in another is out of date.
        related: the cosine, between 0 and 1, that of this model says what `RELATED` says of others.
    """

    model_id: str
    dim: int
    version: str
    related: float

    async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Vectors:
        """Return the vectors of `texts`, (n, dim), L2-normalised; `account` separates caches.

        A text beyond the model's limit counts with its beginning: see `split`.

        Raises:
            Unavailable: `embedder.unavailable` or `embedder.busy`.
        """
        ...

    def split(self, text: str) -> list[str]:
        """Return `text` as passages within the model's token limit, exact substrings in order."""
        ...

    def count_tokens(self, text: str) -> int:
        """Return how many tokens the model makes of `text`, or a number it does not exceed."""
        ...

    def coverage(self, text: str) -> Coverage:
        """Return what the model knows of `text`: all of it, where nothing tells."""
        ...

    async def close(self) -> None:
        """Let go of connections and threads; nothing may be asked of it any more."""
        ...


class Closable(Protocol):
    """An object that holds connections or threads until it is closed."""

    async def close(self) -> None:
        """Let go of them."""
        ...


async def close_all(parts: Sequence[Closable]) -> None:
    """Close one after the other, also behind one that fails.

    Raises whatever the first of those raised that failed.
    """
    failed: Exception | None = None
    for part in parts:
        try:
            await part.close()
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed


class TextRefused(Unavailable):
    """Every endpoint refused this input: trying again will not help, leaving texts out may."""

    code = "embedder.unavailable"
