"""Giving memories what they are found by after their acknowledgement: their vectors.

Not here: when (`jobs.py`), embedding itself (`embedding/`), statements (`database.vectors`).
"""

import asyncio
import logging
import uuid
from collections.abc import Sequence, Set
from contextlib import suppress
from itertools import groupby

import numpy as np
import numpy.typing as npt

from relayer.custody import Keys
from relayer.database import vectors as vector_rows
from relayer.database.pool import Database, Row
from relayer.embedding.embedders import Embedder, TextRefused
from relayer.errors import NotAllowed
from relayer.opening import Opener, has_key, key_of
from relayer.sealed.keys import AccountId, NamespaceKey
from relayer.sealed.turn import derive_turn

log = logging.getLogger("relayer.indexing")


class Indexer:
    """Embeds stored memories, turned by their namespace's key."""

    def __init__(self, *, database: Database, opener: Opener, embedder: Embedder | None) -> None:
        self._database = database
        self._opener = opener
        self._embedder = embedder

    @property
    def embeds(self) -> bool:
        """Whether memories get vectors here."""
        return self._embedder is not None

    async def embed(self, account: AccountId, keys: Keys, ids: Sequence[uuid.UUID]) -> None:
        """Give those of these memories that still live and lack a vector theirs.

        Raises:
            NotAllowed: a key is missing.
            Unavailable: the embedder or a store is away.
        """
        if self._embedder is None:
            return
        found = await vector_rows.unembedded_rows(self._database, account=account, memory_ids=ids)
        open_ones = [row for row in found if has_key(keys, row)]
        texts, altered = await self._opener.texts(account, keys, open_ones)
        parts = await asyncio.to_thread(self._split, texts)
        if parts:
            taken, vectors = await self._vectors(account, parts)
            turned = await asyncio.to_thread(self._turn_parts, keys, taken, vectors)
            await vector_rows.insert_vectors(
                self._database, account=account, model=self._embedder.model_id, vectors=turned
            )
            refused = {p[0]["memory_id"] for p in parts} - {p[0]["memory_id"] for p in taken}
            await self._give_up(account, refused, vector_rows.NO_VECTOR)
        await self._give_up(account, altered, vector_rows.LOST)
        if len(open_ones) < len(found):
            raise NotAllowed("A namespace's key is missing.", code="unlock_required")

    def _split(self, texts: Sequence[tuple[Row, str]]) -> list[tuple[Row, int, str]]:
        """(row, number, passage) of every text."""
        assert self._embedder is not None
        return [
            (row, n, passage)
            for row, text in texts
            for n, passage in enumerate(self._embedder.split(text))
        ]

    async def _give_up(self, account: AccountId, ids: Set[uuid.UUID], model: str) -> None:
        if ids:
            await vector_rows.give_up(
                self._database, account=account, memory_ids=sorted(ids), model=model
            )

    async def _vectors(
        self, account: AccountId, parts: Sequence[tuple[Row, int, str]]
    ) -> tuple[Sequence[tuple[Row, int, str]], npt.NDArray[np.float32]]:
        """Parts with their vectors, (n, dim), without memories that no endpoint takes."""
        assert self._embedder is not None
        try:
            return parts, await self._embedder.embed([p for _, _, p in parts], account=account)
        except TextRefused:
            log.warning("a text was refused", extra={"event": "embedder.refused"})
        taken: list[tuple[Row, int, str]] = []
        vectors = [np.empty((0, self._embedder.dim), np.float32)]
        for _, group in groupby(parts, key=lambda part: part[0]["memory_id"]):
            own = list(group)
            with suppress(TextRefused):
                vectors.append(await self._embedder.embed([p for _, _, p in own], account=account))
                taken += own
        return taken, np.concatenate(vectors)

    def _turn_parts(
        self,
        keys: Keys,
        parts: Sequence[tuple[Row, int, str]],
        vectors: npt.NDArray[np.float32],
    ) -> list[tuple[Row, int, npt.NDArray[np.float16]]]:
        """(row, part, turned vector), those of one key turned together."""
        assert self._embedder is not None
        by_key: dict[NamespaceKey, list[int]] = {}
        for n, (row, _, _) in enumerate(parts):
            by_key.setdefault(key_of(keys, row), []).append(n)
        turned = []
        for key, numbers in by_key.items():
            turn = derive_turn(key, self._embedder.model_id, self._embedder.dim)
            for n, vector in zip(numbers, turn.apply(vectors[numbers]), strict=True):
                turned.append((parts[n][0], parts[n][1], vector.astype(np.float16)))
        return turned
