"""The embedder behind OpenAI-compatible endpoints.

Not here: which endpoint is asked when (`endpoints.py`), what one is sent and answers (`remote.py`).

- An answer that is anything else than the vectors asked for counts as that endpoint's failure.
- A model on a slow machine may not finish a full request in its time, ever: after one that it did
  not, the next have half as many texts, until it ends them quickly again.
"""

import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from relayer.concurrency import pause_slot
from relayer.embedding import vocabulary
from relayer.embedding.embedders import RELATED, Coverage, TextRefused, Vectors, close_all
from relayer.embedding.endpoints import (
    QUERY_WAIT_S_MAX,
    STORING_WAIT_S_MAX,
    TIMEOUT,
    Endpoint,
    Failure,
    Fallback,
)
from relayer.embedding.passages import Splitter, load_tokenizer, version_of
from relayer.embedding.published import TOKENIZER_FILE
from relayer.embedding.remote import RemoteModel
from relayer.errors import Unavailable
from relayer.telemetry.instruments import count_embedding_failure, time_embedding

_log = logging.getLogger(__name__)

_OVERLAP_TOKENS: Final = 32
_TEXTS_PER_REQUEST_MAX: Final = 64
_QUICK_SHARE: Final = 8  # of the deadline: a request done in that part of it could be larger
# At one token a byte still below the 300,000 tokens that the largest provider takes at once.
_REQUEST_BYTES_MAX: Final = 256 * 1024
_TOKENS_MAX: Final = 512  # what models take at least
_SPECIAL_TOKENS_MAX: Final = 8  # assumed when there is no tokenizer to ask


class OpenAIEmbedder:
    """One model behind OpenAI-compatible endpoints, which are asked in their given order.

    Without a tokenizer, `split` counts UTF-8 bytes: always within the limit, but shorter passages
    than the model could take.
    """

    def __init__(
        self,
        *,
        endpoints: Sequence[Endpoint],
        model: str,
        dim: int,
        timeout_s: float = 20.0,
        splitter: Splitter | None = None,
        related: float = RELATED,
    ) -> None:
        self.model_id = f"{model}/{dim}"
        self.dim = dim
        self.related = related
        self._timeout_s = timeout_s
        self._remotes = [
            RemoteModel(endpoint, model=model, dim=dim, timeout_s=timeout_s)
            for endpoint in endpoints
        ]
        self._fallback = Fallback(clients=self._remotes)
        self._splitter = splitter or splitter_of(_TOKENS_MAX)
        self.version = version_of(self.model_id, self._splitter)
        self._texts_max = _TEXTS_PER_REQUEST_MAX

    async def close(self) -> None:
        """Close the connections."""
        await close_all(self._remotes)

    async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Vectors:
        """Return the vectors of `texts`, (n, dim), L2-normalised; `account` is not sent.

        Each request, of at most 64 texts, has the whole `timeout_s` for all its attempts.

        Raises:
            Unavailable: `embedder.unavailable`, no endpoint gave vectors that can be believed.
        """
        return await self._embed(texts, STORING_WAIT_S_MAX)

    async def embed_query(self, texts: Sequence[str], *, account: bytes = b"") -> Vectors:
        """Return the same as `embed`, but hardly wait for an endpoint that rests."""
        return await self._embed(texts, QUERY_WAIT_S_MAX)

    async def _embed(self, texts: Sequence[str], wait_s_max: float) -> Vectors:
        parts: list[Vectors] = []
        done = 0
        while part := _first_part(texts[done : done + self._texts_max]):
            parts.append(await self._request(part, wait_s_max))
            done += len(part)
        return np.concatenate(parts) if parts else np.empty((0, self.dim), np.float32)

    def split(self, text: str) -> list[str]:
        """Return `text` as passages within the model's token limit, exact substrings in order."""
        return self._splitter.split(text)

    def count_tokens(self, text: str) -> int:
        """Return how many tokens `text` has; without a tokenizer its UTF-8 bytes, never less."""
        return self._splitter.count(text)

    def coverage(self, text: str) -> Coverage:
        """Return what the model knows of `text`: all of it, without a tokenizer."""
        return vocabulary.measure_coverage(self._splitter.tokenizer, text)

    async def _request(self, texts: list[str], wait_s_max: float) -> Vectors:
        outcome = await self._ask(texts, wait_s_max)
        if not isinstance(outcome, Failure):
            return outcome
        count_embedding_failure("refused" if outcome.refused else outcome.cause)
        # Raised outside every handler, so that no upstream error is chained to it.
        _log.warning("embedder: %s", outcome.cause)
        error = (TextRefused if outcome.refused else Unavailable)(
            "The embedding model is not available.",
            code="embedder.unavailable",
            retry_after_s=max(math.ceil(outcome.rest_s or 0), 1),
        )
        error.cause = outcome.cause
        raise error

    async def _ask(self, texts: list[str], wait_s_max: float) -> Vectors | Failure:
        async with pause_slot():
            began = time.monotonic()
            with time_embedding(len(texts)):
                outcome = await self._fallback.ask(
                    lambda remote: remote.embed(texts),
                    timeout_s=self._timeout_s,
                    wait_s_max=wait_s_max,
                )
            self._resize(len(texts), outcome, time.monotonic() - began)
        return outcome

    def _resize(self, count: int, outcome: Vectors | Failure, took_s: float) -> None:
        """Let further requests have fewer or more texts, as this one, of `count`, went."""
        if isinstance(outcome, Failure):
            if outcome.cause == TIMEOUT and count > 1:
                self._texts_max = min(self._texts_max, count // 2)
        elif count >= self._texts_max and took_s < self._timeout_s / _QUICK_SHARE:
            self._texts_max = min(2 * self._texts_max, _TEXTS_PER_REQUEST_MAX)


def splitter_of(tokens_max: int, folder: Path | None = None) -> Splitter:
    """Return a splitter for a model that takes so many tokens, by the tokenizer in a folder."""
    if folder is None:
        tokenizer, special = None, _SPECIAL_TOKENS_MAX
    else:
        tokenizer = load_tokenizer(folder / TOKENIZER_FILE)
        special = len(tokenizer.encode("").ids)
    content_max = tokens_max - special
    overlap = min(_OVERLAP_TOKENS, content_max // 8)
    return Splitter(tokenizer=tokenizer, tokens_max=content_max, overlap_tokens=overlap)


def _first_part(texts: Sequence[str]) -> list[str]:
    """Return the first of these, one at least, that together are not too large for one request."""
    size = 0
    for n, text in enumerate(texts):
        size += len(text.encode("utf-8", "replace"))
        if n and size > _REQUEST_BYTES_MAX:
            return list(texts[:n])
    return list(texts)
