"""Around an embedder: a cache of vectors for each account, and small calls sent together.

It does not own a model or an endpoint; what it wraps is an `Embedder`, and so is the result.

- A cached vector is never shared between accounts: the time an answer takes would tell one account
  what another has asked.
- The cache is in memory only, bounded, and holds vectors and keyed hashes, no texts.
"""

import asyncio
import hashlib
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np

from relayer.embedding.embedders import Coverage, Embedder, TextRefused, Vectors
from relayer.errors import Unavailable
from relayer.telemetry.instruments import count_embedding_failure, count_lookups


class Around:
    """An embedder around another one, which it is like in all but how it comes to vectors."""

    def __init__(self, inner: Embedder) -> None:
        self.inner = inner
        self.model_id = inner.model_id
        self.dim = inner.dim
        self.version = inner.version
        self.related = inner.related

    def split(self, text: str) -> list[str]:
        """Return `text` as passages within the model's token limit, exact substrings in order."""
        return self.inner.split(text)

    def count_tokens(self, text: str) -> int:
        """Return how many tokens the model makes of `text`, or a number it does not exceed."""
        return self.inner.count_tokens(text)

    def coverage(self, text: str) -> Coverage:
        """Return what the model knows of `text`."""
        return self.inner.coverage(text)

    async def close(self) -> None:
        """Close what it is around."""
        await self.inner.close()


class CachedEmbedder(Around):
    """`inner` with a cache in memory of the `entries_max` vectors used last.

    `secret` keys the entries' names, so that a memory image holds no hash of a text that could be
    guessed at; make a new one for every process. `embed` is how `inner` embeds queries, if it has a
    way of its own for them.
    """

    def __init__(
        self,
        *,
        inner: Embedder,
        entries_max: int,
        secret: bytes,
        embed: Callable[..., Awaitable[Vectors]] | None = None,
    ) -> None:
        super().__init__(inner)
        self._embed = embed or inner.embed
        self._entries_max = entries_max
        self._secret = secret
        self._entries: OrderedDict[bytes, Vectors] = OrderedDict()

    async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Vectors:
        """Return the vectors of `texts`; only those not known for `account` are computed."""
        keys = [self._key(account, text) for text in texts]
        found = {key: self._entries[key] for key in keys if key in self._entries}
        count_lookups("embeddings", len(found), len(set(keys)))
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if missing:
            vectors = await self._embed(list(missing.values()), account=account)
            # Copies, because a row would keep its whole batch in memory.
            found |= {key: row.copy() for key, row in zip(missing, vectors, strict=True)}
        self._remember(found)
        return np.array([found[key] for key in keys], np.float32).reshape(len(keys), self.dim)

    def _key(self, account: bytes, text: str) -> bytes:
        """Source: CRYPTO §7; the lengths keep two different triples from reading the same."""
        name = hashlib.blake2b(key=self._secret, digest_size=32)
        for part in (account, self.model_id.encode(), text.encode()):
            name.update(len(part).to_bytes(8, "big") + part)
        return name.digest()

    def _remember(self, used: dict[bytes, Vectors]) -> None:
        for key, vector in used.items():
            self._entries[key] = vector
            self._entries.move_to_end(key)
        while len(self._entries) > self._entries_max:
            self._entries.popitem(last=False)


@dataclass(frozen=True)
class _Waiting:
    texts: Sequence[str]
    vectors: "asyncio.Future[Vectors]"


class CoalescingEmbedder(Around):
    """`inner` with small calls of the same moment sent as one.

    A call that finds nothing under way is not held back; while `flights_max` batches are under way
    the others gather. Accounts are mixed, so a cache belongs around this and never inside. `embed`
    is how `inner` embeds queries, if it has a way of its own for them.
    """

    def __init__(
        self,
        *,
        inner: Embedder,
        flights_max: int = 1,
        texts_max: int = 16,
        waiting_max: int = 1024,
        embed: Callable[..., Awaitable[Vectors]] | None = None,
    ) -> None:
        super().__init__(inner)
        self._embed = embed or inner.embed
        self._flights_max = flights_max
        self._texts_max = texts_max
        self._waiting_max = waiting_max
        self._waiting: deque[_Waiting] = deque()
        self._flights: set[asyncio.Task[None]] = set()  # the loop keeps no strong reference

    async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Vectors:
        """Return the vectors of `texts`; calls of more than half a batch go on their own.

        Raises:
            Unavailable: `embedder.busy`, too many calls are waiting; or what `inner` raises.
        """
        if not 0 < len(texts) <= self._texts_max // 2:
            return await self._embed(texts, account=account)
        if len(self._waiting) >= self._waiting_max:
            count_embedding_failure("busy")
            raise Unavailable("The embedding model is busy.", code="embedder.busy", retry_after_s=1)
        waiting = _Waiting(texts, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if len(self._flights) < self._flights_max:
            self._flights.add(asyncio.create_task(self._fly()))
        return await waiting.vectors

    async def _fly(self) -> None:
        try:
            await asyncio.sleep(0)  # lets the other calls of this tick come aboard
            while calls := self._take_batch():
                await self._embed_together(calls)
        finally:
            # Not in a callback: a call that came before it would wait for a flight that is over.
            self._flights -= {flight for flight in (asyncio.current_task(),) if flight}

    def _take_batch(self) -> list[_Waiting]:
        calls: list[_Waiting] = []
        texts = 0
        while self._waiting and texts + len(self._waiting[0].texts) <= self._texts_max:
            call = self._waiting.popleft()
            if not call.vectors.done():  # its caller was cancelled
                calls.append(call)
                texts += len(call.texts)
        return calls

    async def _embed_together(self, calls: list[_Waiting]) -> None:
        try:
            vectors = await self._embed([text for call in calls for text in call.texts])
        except TextRefused as error:
            if len(calls) == 1:
                _fail(calls, error)
                return
            for call in calls:  # nobody pays for a text that somebody else sent
                await self._embed_together([call])
        except BaseException as error:  # whatever it is, nobody may wait for ever
            _fail(calls, error)
            if not isinstance(error, Exception):
                raise
        else:
            _deliver(calls, vectors)


def _deliver(calls: Sequence[_Waiting], vectors: Vectors) -> None:
    first = 0
    for call in calls:
        if not call.vectors.done():
            call.vectors.set_result(vectors[first : first + len(call.texts)])
        first += len(call.texts)


def _fail(calls: Sequence[_Waiting], error: BaseException) -> None:
    for call in calls:
        if not call.vectors.done():
            call.vectors.set_exception(error)
            call.vectors.exception()  # marks it as seen, should the caller be cancelled meanwhile
