"""Bulk ingest, sealed and embedded, against onnxruntime alone on texts of the same kind.

Not here: how long one memory takes (`remember.py`).

- The real client stores many texts; the clock stops when the last one has its vector.
- onnxruntime gets as many, the next by number, sorted by length, in runs of the relayer's size,
  in this process, while the relayer has nothing to do: one run after the other on two threads, as
  the library does it by itself, and two runs of one thread at a time, as the relayer does it.
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
        self._together, self._apart = Session(THREADS), Session(1)

    async def stored(self) -> float:
        """Texts a second until all of them have vectors."""
        texts = self._fresh()
        began = time.perf_counter()
        await self._client.remember_many(texts, namespace=NAMESPACE)
        await embedded(self._site, self._account)
        return len(texts) / (time.perf_counter() - began)

    async def alone(self) -> float:
        """Texts a second of onnxruntime, a run at a time."""
        return self._embedded(self._together, at_once=1)

    async def two_at_once(self) -> float:
        """The same, two runs at a time."""
        return self._embedded(self._apart, at_once=THREADS)

    def _embedded(self, session: Session, *, at_once: int) -> float:
        texts = self._fresh()
        began = time.perf_counter()
        tokens = sorted((session.tokens(text) for text in texts), key=len)
        with ThreadPoolExecutor(at_once) as threads:
            list(threads.map(session.run, _runs(tokens)))
        return len(texts) / (time.perf_counter() - began)

    def _fresh(self) -> list[str]:
        return [f"{sentence(n)} {n}" for n in islice(self._numbers, self._texts)]


async def measure(site: Site, scale: Scale) -> Report:
    """The part's report."""
    account = await site.new_account()
    async with site.relayer() as relayer, site.client(relayer, account) as client:
        ingest = _Ingest(site, account, client, 40 if scale.quick else TEXTS)
        measures = (ingest.stored, ingest.alone, ingest.two_at_once)
        await in_turn(1, *measures)
        stored, alone, two = await in_turn(scale.rounds, *measures)
    name = "bulk ingest, until all have vectors"
    return Report(
        [
            compared(name, "texts/s", stored, "onnxruntime, a run at a time /s", alone, INGEST),
            compared("…", "texts/s", stored, "onnxruntime, two runs at a time /s", two, INGEST),
        ]
    )


async def embedded(site: Site, account: Account) -> None:
    """Return once every memory of the account has its vector."""
    while True:
        if await site.is_embedded(account):
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
