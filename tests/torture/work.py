"""Writers and readers, through the real client, while everything around them breaks.

Not here: what they were told (`ledger.py`), whether it is true in the end (`checker.py`).

- A write without an answer is sent again with its idempotency key, perhaps to the other relayer,
  until there is one; a few are abandoned, as a crashed agent would.
- Every read is checked against the ledger when its answer comes.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from memrelay import MemoryClient
from memrelay.errors import (
    Conflict,
    Invalid,
    MemrelayError,
    NotFound,
    RateLimited,
    ServerError,
    TransportError,
    Unavailable,
)
from tests.processes import holder
from tests.torture.ground import REQUEST_S, Ground
from tests.torture.ledger import SLACK_S, Entry, Fate, Ledger, Record, Watched

ABANDONED_SHARE = 0.03
BULK_ITEMS = 4
PAUSE_S = (0.05, 0.4)
RETRY_S = (0.1, 0.8)
READS_OF_A_WRITE = 2
SETTLE_S = 180.0
T = TypeVar("T")
_STORED = "The parcel named {} arrived at the harbour."
_CORRECTED = "The parcel named {} arrived at the station, check {}."
_SAID = "User: I prefer the tea called {}."


@dataclass
class Worker:
    """One agent with a namespace of its own: it writes, corrects, erases, and looks things up."""

    ground: Ground
    record: Record
    account: dict[str, Any]
    ledger: Ledger
    rng: random.Random
    stopping: asyncio.Event
    clients: list[MemoryClient] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        for relayer in self.ground.relayers:
            client = client_of(self.account, relayer.url, self.record)
            self.clients.append(await self._stack.enter_async_context(client))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def work(self) -> None:
        """Go on until told to stop; what was begun is then brought to its end."""
        while not self.stopping.is_set():
            write = self.rng.choices(
                [self._remember, self._remember_many, self._analyze, self._edit, self._forget],
                weights=[6, 2, 2, 3, 2],
            )[0]
            await write()
            for _ in range(READS_OF_A_WRITE):
                await self._read()
            await asyncio.sleep(self.rng.uniform(*PAUSE_S))

    async def _answered(self, call: Callable[[MemoryClient], Awaitable[T]]) -> T | None:
        """The answer to a write, however often it has to be sent; None if it is abandoned."""
        while True:
            try:
                return await call(self.rng.choice(self.clients))
            except (TransportError, Unavailable, RateLimited):
                pass
            except Conflict:
                raise
            except (ServerError, Invalid) as error:
                if not self.record.is_excused(error.code):
                    self.record.violated(f"write: {type(error).__name__} {error.code}")
                    return None
            if not self.stopping.is_set() and self.rng.random() < ABANDONED_SHARE:
                return None
            await asyncio.sleep(self.rng.uniform(*RETRY_S))

    async def _remember(self) -> None:
        entry = self.ledger.begin(_STORED)
        done = await self._answered(
            lambda client: client.remember(
                *entry.texts, namespace=entry.namespace, idempotency_key=entry.word
            )
        )
        self._stored(entry, "" if done is None else done.id)

    async def _remember_many(self) -> None:
        entries = [self.ledger.begin(_STORED) for _ in range(BULK_ITEMS)]
        items = [
            {"text": next(iter(e.texts)), "namespace": e.namespace, "idempotency_key": e.word}
            for e in entries
        ]
        done = await self._answered(lambda client: client.remember_many(items))
        for n, entry in enumerate(entries):
            self._stored(entry, "" if done is None else done[n].id)

    def _stored(self, entry: Entry, memory_id: str) -> None:
        entry.id = memory_id
        entry.became(Fate.STORED if memory_id else Fate.ABANDONED)
        self.record.acknowledged["memories"] += bool(memory_id)

    async def _analyze(self) -> None:
        entry = self.ledger.begin(_SAID, exact=False)
        done = await self._answered(
            lambda client: client.analyze(
                *entry.texts, namespace=entry.namespace, idempotency_key=entry.word
            )
        )
        if done is None:
            entry.became(Fate.ABANDONED)
        else:
            entry.id = done.facts[0].id if done.facts else ""
            entry.became(Fate.STORED if done.facts else Fate.WAITING)
            self.record.acknowledged["turns"] += 1

    async def _edit(self) -> None:
        known = [e for e in self.ledger.of(Fate.STORED) if e.exact and len(e.texts) == 1]
        if not known:
            return
        entry = self.rng.choice(known)
        text = _CORRECTED.format(entry.word, self.rng.randrange(10**6))
        entry.texts.add(text)
        entry.changes += 1
        try:
            done = await self._answered(
                lambda client: client.edit(
                    entry.id, text=text, namespace=entry.namespace, idempotency_key=text
                )
            )
        except Conflict as error:
            if error.code != "memory.revisions":
                raise
            entry.texts.discard(text)
            return
        if done is not None:
            entry.texts = {text}
            entry.changes += 1
            self.record.acknowledged["corrections"] += 1

    async def _forget(self) -> None:
        known = self.ledger.of(Fate.STORED)
        if not known:
            return
        entry = self.rng.choice(known)
        entry.became(Fate.ERASING)
        if await self._answered(lambda client: client.forget(entry.id)) is not None:
            entry.became(Fate.ERASED)
            self.record.acknowledged["erasures"] += 1

    async def _read(self) -> None:
        known = self.ledger.of(Fate.STORED, Fate.ERASED)
        if not known:
            return
        entry = self.rng.choice(known)
        client, changes = self.rng.choice(self.clients), entry.changes
        look = self.rng.choice([self._recall, self._get])
        try:
            texts = await look(client, entry)
        except (TransportError, Unavailable):
            self.record.reads["unavailable"] += 1
            return
        except (ServerError, Invalid) as error:
            if not self.record.is_excused(error.code):
                self.record.violated(f"read: {type(error).__name__} {error.code}")
            return
        if entry.changes == changes and entry.id not in self.ground.altered:
            self._compare(entry, texts)

    async def _recall(self, client: MemoryClient, entry: Entry) -> list[str]:
        found = await client.recall(entry.word, namespace=entry.namespace, mode="keyword", limit=5)
        return [r.text or "" for r in found.results if entry.word in (r.text or "")]

    async def _get(self, client: MemoryClient, entry: Entry) -> list[str]:
        try:
            return [(await client.get(entry.id, namespace=entry.namespace)).text or ""]
        except NotFound:
            return []

    def _compare(self, entry: Entry, texts: Sequence[str]) -> None:
        """What was found of a memory that nobody changed meanwhile."""
        self.record.reads["checked"] += 1
        if entry.fate is Fate.ERASED:
            if texts:
                self.record.violated("read: an erased memory was shown")
        elif len(texts) != 1:
            self.record.violated(f"read: a stored memory was found {len(texts)} times")
        elif entry.exact and texts[0] not in entry.texts:
            self.record.violated("read: a memory says something else")

    async def settle(self) -> None:
        """Look once more, which lends background work the keys, and wait until all of it is done.

        Raises:
            MemrelayError: it is not done in time.
        """
        for client in self.clients:
            await client.recall("parcel", namespace=self.ledger.namespace)
        ids = [entry.id for entry in self.ledger.of(Fate.STORED)]
        states = await self.clients[0].wait(ids, timeout_s=SETTLE_S)
        wrong = {state.status for state in states} - {"done"}
        if wrong:
            self.record.violated(f"in the end, memories are {sorted(wrong)}")


def client_of(account: dict[str, Any], url: str, record: Record) -> MemoryClient:
    """A client that gives up early, so that every answer is seen."""
    return MemoryClient(
        url=url,
        **holder(account),
        transport=Watched(record),
        timeout_s=REQUEST_S + 2 * SLACK_S,
        deadline_s=3.0 * REQUEST_S,
        attempts_max=2,
    )


async def probe(client: MemoryClient, number: str) -> bool:
    """Whether a relayer stores and finds a memory again."""
    text = json.dumps({"probe": number})
    try:
        await client.remember(text, namespace="probe", idempotency_key=text)
        await client.recall(text, namespace="probe", mode="keyword", limit=1)
    except MemrelayError:
        return False
    return True
