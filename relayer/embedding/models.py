"""Queries as vectors of every model that memories still have vectors of.

It does not own which models those are (`query_vectors.py`) or how an embedder is built (`app.py`).

- The current model's vector never waits for another model's beyond `OTHER_WAIT_S`.
- A model that is away is not asked again for `AWAY_S`: no recall pays twice for finding out.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from relayer.embedding.embedders import Embedder, Vectors
from relayer.errors import Unavailable

_log = logging.getLogger(__name__)

OTHER_WAIT_S: Final = 2.0
AWAY_S: Final = 60.0

Load = Callable[[str], Embedder | None]


class Embedders:
    """The current embedder, and those of other models, loaded when a query first needs them.

    `load` builds the embedder of a model id, or returns None if the settings name none for it.
    """

    def __init__(self, *, current: Embedder | None, load: Load) -> None:
        self.current = current
        self._load = load
        self._others: dict[str, asyncio.Future[Embedder | None]] = {}
        self._away_until: dict[str, float] = {}  # on the event loop's clock

    async def embed_queries(
        self, texts: Sequence[str], models: Collection[str], *, account: bytes
    ) -> dict[str, Vectors]:
        """Return model id → vectors of `texts`, (n, dim), of those models that answer."""
        asked = sorted(models)
        answers = await asyncio.gather(*(self._embed(m, texts, account) for m in asked))
        return {
            m: vectors for m, vectors in zip(asked, answers, strict=True) if vectors is not None
        }

    async def _embed(self, model_id: str, texts: Sequence[str], account: bytes) -> Vectors | None:
        try:
            if self.current is not None and model_id == self.current.model_id:
                return await self.current.embed(texts, account=account)
            async with asyncio.timeout(OTHER_WAIT_S):
                return await self._embed_other(model_id, texts, account)
        except TimeoutError:
            self._rest(model_id)
        except Unavailable:
            if self.current is None or model_id != self.current.model_id:
                self._rest(model_id)
        return None

    async def _embed_other(
        self, model_id: str, texts: Sequence[str], account: bytes
    ) -> Vectors | None:
        now = asyncio.get_running_loop().time()
        if self.current is None or self._away_until.get(model_id, now) > now:
            return None
        if model_id not in self._others:
            # In a thread of its own, which goes on when this recall cannot wait.
            self._others[model_id] = asyncio.ensure_future(asyncio.to_thread(self._load, model_id))
        try:
            embedder = await asyncio.shield(self._others[model_id])
        except Unavailable:
            del self._others[model_id]  # its files may come back
            raise
        return None if embedder is None else await embedder.embed(texts, account=account)

    def _rest(self, model_id: str) -> None:
        _log.warning("a model of older vectors is away", extra={"event": "embedder.older_away"})
        self._away_until[model_id] = asyncio.get_running_loop().time() + AWAY_S
