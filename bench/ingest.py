"""Bulk ingest, sealed and embedded, against onnxruntime alone on the same texts.

Not here: how long one memory takes (`remember.py`).

- The real client stores many texts; the clock stops when the last one has its vector.
- onnxruntime gets the same texts sorted by length, in runs of the relayer's size and as many at a
  time, in this process, while the relayer has nothing to do.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from typing import Final

from bench.figures import Bounds, Report, compared, in_turn
from bench.floor import Session
from bench.running import Account, Scale, Site
from bench.sentences import sentence
from memrelay import MemoryClient
from relayer.embedding.builtin import THREADS

TEXTS: Final = 600
NAMESPACE: Final = "many"
POLL_S: Final = 0.02
TOKENS_PER_RUN: Final = 128
INGEST: Final = Bounds(must=0.6, aim=0.85, at_least=True)


class _Ingest:
    """Stores texts that were never stored before, or only embeds them."""

    def __init__(self, site: Site, account: Account, client: MemoryClient, texts: int) -> None:
        self._site, self._account, self._client = site, account, client
        self._texts = texts
        self._numbers = count()
        self._session = Session()

    async def stored(self) -> float:
        """Texts a second until all of them have vectors."""
        texts = self._fresh()
        began = time.perf_counter()
        await self._client.remember_many(texts, namespace=NAMESPACE)
        await embedded(self._site, self._account)
        return len(texts) / (time.perf_counter() - began)

    async def alone(self) -> float:
        """Texts a second of onnxruntime."""
        texts = self._fresh()
        began = time.perf_counter()
        tokens = sorted((self._session.tokens(text) for text in texts), key=len)
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(self._session.run, _runs(tokens)))
        return len(texts) / (time.perf_counter() - began)

    def _fresh(self) -> list[str]:
        return [f"{sentence(n)} {n}" for n in islice(self._numbers, self._texts)]


async def measure(site: Site, scale: Scale) -> Report:
    """The part's report."""
    account = await site.new_account()
    async with site.relayer() as relayer, site.client(relayer, account) as client:
        ingest = _Ingest(site, account, client, 40 if scale.quick else TEXTS)
        await in_turn(1, ingest.stored, ingest.alone)
        stored, alone = await in_turn(scale.rounds, ingest.stored, ingest.alone)
    name = "bulk ingest, until all have vectors"
    return Report([compared(name, "texts/s", stored, "onnxruntime /s", alone, INGEST)])


async def embedded(site: Site, account: Account) -> None:
    """Return once every memory of the account has its vector."""
    while True:
        if not await site.unembedded(account):
            return
        await asyncio.sleep(POLL_S)


def _runs(tokens: Sequence[list[int]]) -> Iterator[list[list[int]]]:
    """Runs of texts of increasing length, padded to at most so many tokens."""
    run: list[list[int]] = []
    for text in tokens:
        if run and (len(run) + 1) * len(text) > TOKENS_PER_RUN:
            yield run
            run = []
        run.append(text)
    if run:
        yield run
