"""Queries as vectors of every model that memories still have vectors of.

It does not own which models those are (`query.vectors`) or how long an older one's embedder is kept
(`older.py`).

- No query is embedded by more than `OTHERS_MAX` other models, however many there are vectors of.
- The current model's vector never waits for another model's beyond `OTHER_WAIT_S`.
- A model that is away is not asked again for `AWAY_S`: no recall pays twice for finding out. One
  that was too slow for an account's query rests for that account alone, one that refused a text
  not at all: nobody can switch a model off for others.
- A question stands before what is pasted, or behind it: a long query is embedded at both ends.
- What cannot be searched by is no error: the recall goes on without that model.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Final

from relayer.embedding.embedders import (
    RELATED,
    Coverage,
    Embedder,
    TextRefused,
    Vectors,
    close_all,
)
from relayer.embedding.older import OTHERS_MAX, Load, OlderEmbedders
from relayer.errors import Unavailable

_log = logging.getLogger(__name__)

OTHER_WAIT_S: Final = 2.0
AWAY_S: Final = 60.0
SLOW_MAX: Final = 10_000  # accounts remembered
ON_LOOP_CHARS: Final = 512  # beyond it texts are tokenised in a thread


class Embedders:
    """The current embedder, and those of other models, loaded when a query first needs them.

    `load` builds the embedder of a model id, or returns None if the settings name none for it.
    """

    def __init__(self, *, current: Embedder | None, load: Load) -> None:
        self.current = current
        self._others = OlderEmbedders(load)
        # (model, None or the account it was too slow for) → a time on the event loop's clock
        self._away_until: dict[tuple[str, bytes | None], float] = {}

    async def close(self) -> None:
        """Close them all; nothing may be asked of them any more."""
        await close_all([self._others] if self.current is None else [self._others, self.current])

    async def embed_queries(
        self, texts: Sequence[str], models: Collection[str], *, account: bytes
    ) -> dict[str, Vectors]:
        """Return model id → vectors of `texts`, of those models that answer.

        They are (n, dim), or (n + 1, dim) where the first text is longer than the model takes: then
        it has one of its beginning and one of its end, and others are embedded by their beginning.
        """
        asked = self._models_to_ask(models, account)
        if len(asked) == 1:  # as ever, and without a task of its own
            vectors = await self._embed(asked[0], texts, account)
            return {} if vectors is None else {asked[0]: vectors}
        answers = await asyncio.gather(*(self._embed(m, texts, account) for m in asked))
        return {
            m: vectors for m, vectors in zip(asked, answers, strict=True) if vectors is not None
        }

    def related(self, models: Collection[str]) -> float:
        """Return the least cosine of what is related, by the strictest of these loaded models."""
        loaded = [self.current, *self._others.list_loaded()]
        each = [e.related for e in loaded if e is not None and e.model_id in models]
        return max(each, default=RELATED)

    def coverage(self, text: str, models: Collection[str]) -> Coverage:
        """Return what each of these loaded models knows of `text`.

        Its both ends stand for a long text, which nobody else on this loop should wait for.
        """
        loaded: list[Embedder | None] = [self.current, *self._others.list_loaded()]
        if len(text) > ON_LOOP_CHARS:
            text = f"{text[: ON_LOOP_CHARS // 2]} {text[-ON_LOOP_CHARS // 2 :]}"
        each = [e.coverage(text) for e in loaded if e is not None and e.model_id in models]
        spelt = dict.fromkeys(word for known in each for word in known.spelt)
        return Coverage(min((known.share for known in each), default=1.0), tuple(spelt))

    def _models_to_ask(self, models: Collection[str], account: bytes) -> list[str]:
        current = None if self.current is None else self.current.model_id
        others = sorted(m for m in models if m != current and not self._is_away(m, account))
        return [model for model in models if model == current] + others[:OTHERS_MAX]

    async def _embed(self, model_id: str, texts: Sequence[str], account: bytes) -> Vectors | None:
        current = self.current
        if current is None:
            return None
        try:
            if model_id == current.model_id:
                return await _embed_texts(current, texts, account)
            async with asyncio.timeout(OTHER_WAIT_S), self._others.borrow(model_id) as embedder:
                if embedder is not None:
                    return await _embed_texts(embedder, texts, account)
            self._put_off(model_id, None)  # the settings name none for it
        except TextRefused:
            return None
        except TimeoutError:
            self._rest(model_id, account, "embedder.slow")
        except Unavailable as error:
            if model_id != current.model_id:
                self._rest(model_id, None, error.code)
        except Exception as error:
            if model_id == current.model_id:
                raise
            # Whatever keeps an older model from loading, recall goes on without it.
            _log.error("older model failed", extra={"cause": type(error).__name__})
            self._rest(model_id, None, "embedder.failed")
        return None

    def _is_away(self, model_id: str, account: bytes) -> bool:
        now = asyncio.get_running_loop().time()
        return any(self._away_until.get((model_id, who), now) > now for who in (None, account))

    def _rest(self, model_id: str, account: bytes | None, cause: str) -> None:
        extra = {"event": "embedder.older_away", "cause": cause}
        _log.warning("a model of older vectors is away", extra=extra)
        self._put_off(model_id, account)

    def _put_off(self, model_id: str, account: bytes | None) -> None:
        if len(self._away_until) >= SLOW_MAX:
            self._away_until.clear()
        self._away_until[model_id, account] = asyncio.get_running_loop().time() + AWAY_S


async def _embed_texts(embedder: Embedder, texts: Sequence[str], account: bytes) -> Vectors:
    """Return the vectors of what the model takes of the texts: some servers refuse what is longer.

    Raises:
        TextRefused: none of it is taken without the end of a long query, either.
    """
    if sum(map(len, texts)) > ON_LOOP_CHARS:
        passages = await asyncio.to_thread(_passages, embedder, texts)
    else:
        passages = _passages(embedder, texts)
    try:
        return await embedder.embed(passages, account=account)
    except TextRefused:
        if len(passages) == len(texts):
            raise
        return await embedder.embed([passages[0], *passages[2:]], account=account)


def _passages(embedder: Embedder, texts: Sequence[str]) -> list[str]:
    """Return the first and the last passage of the first text; the first of others."""
    first, *others = [embedder.split(text) or [text] for text in texts]
    said = [passage for passage in first if not passage.isspace()] or first
    return [said[0], *said[1:][-1:], *(passages[0] for passages in others)]
