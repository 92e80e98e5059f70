"""The order of steps of remember, recall, list, get, forget and restore; nothing else.

Not here: what the steps do (`redact`, `words`, `sealed`, `database`, `blobs`, `rank`), extraction
(`analysis.py`), request checks (`checks.py`).

- Whoever calls has passed the guard; every method still asks `Access` about each namespace.
- A memory is acknowledged only after everything it needs is committed.
"""

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer import rank
from relayer.accounts import Access
from relayer.blobs import BlobStore
from relayer.clock import Clock
from relayer.custody import Keys
from relayer.database import memories as rows
from relayer.database import outbox as outbox_rows
from relayer.database import recall as search
from relayer.database import vectors as vector_rows
from relayer.database.pool import Database, Row
from relayer.embedding.embedders import Embedder, TextRefused
from relayer.errors import Corrupted, NotAllowed, NotFound, Unavailable
from relayer.namespaces import Namespaces
from relayer.record import Draft, Memory, decode
from relayer.sealed import envelope, index
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey
from relayer.sealed.primitives import CryptoError, to_base64url
from relayer.sealed.turn import derive_turn
from relayer.settings import Limits
from relayer.words import words
from relayer.writer import Remembered, Writer

log = logging.getLogger("relayer.memory")

LAST_SEQ: Final = 2**63 - 1
_STATUS: Final = {None: "uploaded", vector_rows.LOST: "failed"}  # by embedding model; else done


@dataclass(frozen=True)
class Caller:
    """Who is asking, and the namespace keys that came with the request."""

    access: Access
    keys: Keys = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Query:
    """What to recall."""

    text: str = field(repr=False)
    namespaces: Sequence[Namespace]
    limit: int = 10
    mode: str = "hybrid"
    kinds: Sequence[str] | None = None
    tags: Sequence[str] = field(default=(), repr=False)
    source: str | None = field(default=None, repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)
    after: datetime | None = None
    before: datetime | None = None
    min_relevance: float = 0.0
    weights: rank.Weights = rank.Weights()


@dataclass(frozen=True)
class Found:
    """One recalled memory and why.

    Attributes:
        cosine: cosine similarity, None without a vector.
        relevance: keyword score over the ideal one, 0–1.
        matched: query words that it holds.
    """

    memory: Memory
    distance: float
    score: float
    cosine: float | None
    relevance: float
    matched: Sequence[str] = field(repr=False)


@dataclass(frozen=True)
class Recalled:
    """The answer to a query; `dropped` memories were found and could not be opened."""

    found: Sequence[Found]
    dropped: int
    degraded: bool


class MemoryService:
    """Remembers, recalls, lists, gets, forgets and embeds memories of one account at a time."""

    def __init__(
        self,
        *,
        database: Database,
        blobs: BlobStore,
        namespaces: Namespaces,
        writer: Writer,
        embedder: Embedder | None,
        clock: Clock,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._namespaces = namespaces
        self._writer = writer
        self._embedder = embedder
        self._clock = clock

    @property
    def embeds(self) -> bool:
        """Whether memories get vectors here."""
        return self._embedder is not None

    def now(self) -> datetime:
        """The service's clock."""
        return self._clock()

    async def remember(self, caller: Caller, drafts: Sequence[Draft], *, route: str) -> Remembered:
        """Store what is new of these drafts; durable and found by keyword when this returns.

        Raises:
            NotAllowed: not a writer of a namespace, or its key is missing.
            Conflict: an idempotency key came back with another text.
            QuotaExceeded: the account is full.
        """
        for draft in drafts:
            caller.access.require(draft.namespace, "writer")
        return await self._writer.write(
            caller.access, caller.keys, drafts, op="remember", route=route
        )

    async def recall(self, caller: Caller, query: Query) -> Recalled:
        """The memories that answer a query, best first.

        Raises:
            NotAllowed: not a reader of a namespace, or its key is missing.
        """
        for namespace in query.namespaces:
            caller.access.require(namespace, "reader")
        embedding = await self._embed_query(caller.access.account, query)
        terms = [] if query.mode == "vector" else _distinct(words(query.text))
        scopes = await self._scopes(caller, query, embedding, terms)
        now = self._clock()
        hits = await search.search(
            self._database,
            account=caller.access.account,
            scopes=scopes,
            model="" if self._embedder is None else self._embedder.model_id,
            filters=search.Filters(now, query.kinds, query.after, query.before),
            limit=query.limit if _settled_by_search(query) else search.CANDIDATES,
        )
        ordered = [
            pair
            for pair in rank.ranked(hits, query.weights, now)
            if 1.0 - rank.distance(pair[0]) >= query.min_relevance
        ][: query.limit]
        opened = await self.open_rows(caller, [hit.row for hit, _ in ordered])
        found = [
            _found(hit, score, memory, terms)
            for (hit, score), memory in zip(ordered, opened, strict=True)
            if memory is not None
        ]
        degraded = embedding is None and query.mode != "keyword"
        return Recalled(found, dropped=len(ordered) - len(found), degraded=degraded)

    async def _embed_query(
        self, account: AccountId, query: Query
    ) -> npt.NDArray[np.float32] | None:
        """The query's vector, (1, dim); None when keywords have to do."""
        if query.mode == "keyword" or self._embedder is None:
            return None
        try:
            return await self._embedder.embed([query.text], account=account)
        except Unavailable:
            return None  # an embedder that is away degrades recall, it does not break it

    async def _scopes(
        self,
        caller: Caller,
        query: Query,
        embedding: npt.NDArray[np.float32] | None,
        terms: Sequence[str],
    ) -> list[search.Scope]:
        """The query as each namespace and epoch knows it; namespaces without memories have none."""
        scopes = []
        for namespace in dict.fromkeys(query.namespaces):  # named twice, words would count twice
            keys = caller.keys.of(namespace)
            entry = await self._namespaces.find(caller.access.account, namespace)
            for key in keys if entry is not None else ():
                assert entry is not None
                if entry.key_ids.get(key.epoch) == key.key_id:
                    scopes.append(
                        search.Scope(
                            namespace_id=entry.namespace_id,
                            epoch=key.epoch,
                            embedding=self._turned(key, embedding),
                            words=[index.token(key, "w", term) for term in terms],
                            filters=_filter_tokens(key, query),
                        )
                    )
        return scopes

    def _turned(
        self, key: NamespaceKey, embedding: npt.NDArray[np.float32] | None
    ) -> npt.NDArray[np.float16] | None:
        if embedding is None or self._embedder is None:
            return None
        turn = derive_turn(key, self._embedder.model_id, self._embedder.dim)
        turned: npt.NDArray[np.float16] = turn.apply(embedding)[0].astype(np.float16)
        return turned

    async def newest(
        self,
        caller: Caller,
        namespaces: Sequence[Namespace],
        *,
        before_seq: int = LAST_SEQ,
        kind: str | None = None,
        limit: int,
    ) -> list[Memory]:
        """A page of memories, newest first.

        Raises:
            NotAllowed: not a reader of a namespace, or its key is missing.
        """
        for namespace in namespaces:
            caller.access.require(namespace, "reader")
        entries = [await self._namespaces.find(caller.access.account, n) for n in namespaces]
        found = await rows.newest(
            self._database,
            account=caller.access.account,
            namespace_ids=[e.namespace_id for e in entries if e is not None],
            before_seq=before_seq,
            kind=kind,
            limit=limit,
            now=self._clock(),
        )
        opened = await self.open_rows(caller, found)
        # One that is lost or altered is listed as that: it must not hide what is behind it.
        return [
            memory or replace(_memory(row, None), status="failed")
            for row, memory in zip(found, opened, strict=True)
        ]

    async def get(self, caller: Caller, memory_id: uuid.UUID) -> Memory:
        """One memory.

        Raises:
            NotFound: absent, somebody else's, or in a namespace the key may not read.
            Corrupted: its blob is lost or altered.
        """
        row = await self._readable(caller.access, memory_id)
        [memory] = await self.open_rows(caller, [row])
        if memory is None:
            raise Corrupted("A stored memory does not match its name or its row.")
        return memory

    async def _readable(self, access: Access, memory_id: uuid.UUID) -> Row:
        found = await rows.find_memories(
            self._database, account=access.account, memory_ids=[memory_id], now=self._clock()
        )
        if not found or not access.strength(Namespace(found[0]["namespace"])):
            raise NotFound("No such memory.")
        return found[0]

    async def forget(self, access: Access, memory_id: uuid.UUID) -> tuple[bytes, bool]:
        """Erase one memory or waiting turn, expired or not.

        Returns the receipt, and whether an outside store has still to confirm.

        Raises:
            NotFound: absent, somebody else's, or in a namespace the key may not read.
            NotAllowed: the key only reads.
        """
        row = (await self.states(access, [memory_id])).get(memory_id)
        if row is None:
            raise NotFound("No such memory.")
        access.require(Namespace(row["namespace"]), "writer")
        receipts = await self._writer.erase(access, [memory_id])
        if not receipts:
            raise NotFound("No such memory.")
        pending = await outbox_rows.deletions_pending(
            self._database, account=access.account, blob_ids=[row["blob_id"]]
        )
        return receipts[0], pending > 0

    async def forget_namespace(self, access: Access, namespace: Namespace) -> int:
        """Erase every memory and waiting turn of a namespace, in bounded transactions; how many.

        Raises:
            NotAllowed: not a writer of the namespace.
        """
        access.require(namespace, "writer")
        entry = await self._namespaces.find(access.account, namespace)
        erased = 0
        while entry is not None:
            ids = await rows.namespace_memories(
                self._database,
                account=access.account,
                namespace_id=entry.namespace_id,
                limit=500,
            )
            if not ids:
                break
            await self._writer.erase(access, ids)
            erased += len(ids)
        return erased

    async def states(self, access: Access, ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, Row]:
        """Id → (namespace, blob_id, state) of memories and episodes the key may read."""
        found = await rows.states(
            self._database, account=access.account, ids=ids, embeds=self._embedder is not None
        )
        return {i: r for i, r in found.items() if access.strength(Namespace(r["namespace"]))}

    async def open_rows(self, caller: Caller, found: Sequence[Row]) -> list[Memory | None]:
        """The memories behind rows, in their order; None where the blob is lost or altered.

        Raises:
            NotAllowed: `unlock_required`.
        """
        names = [to_base64url(row["blob_id"]) for row in found]
        blobs = await self._blobs.get_many(caller.access.account, names)
        opened = [
            _opened(caller, row, blobs.get(name)) for row, name in zip(found, names, strict=True)
        ]
        if self.embeds:
            return opened
        # Without an embedder there is nothing further to wait for.
        return [m and replace(m, status="done") for m in opened]

    async def embed(self, account: AccountId, keys: Keys, ids: Sequence[uuid.UUID]) -> None:
        """Give those of these memories that still live and lack a vector theirs.

        Raises:
            NotAllowed: a key is missing.
            Unavailable: the embedder or a store is away.
        """
        if self._embedder is None:
            return
        found = await vector_rows.unembedded_rows(self._database, account=account, memory_ids=ids)
        open_ones = [row for row in found if _has_key(keys, row)]
        texts, altered = await self._texts(account, keys, open_ones)
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
            by_key.setdefault(_key_of(keys, row), []).append(n)
        turned = []
        for key, numbers in by_key.items():
            turn = derive_turn(key, self._embedder.model_id, self._embedder.dim)
            for n, vector in zip(numbers, turn.apply(vectors[numbers]), strict=True):
                turned.append((parts[n][0], parts[n][1], vector.astype(np.float16)))
        return turned

    async def _texts(
        self, account: AccountId, keys: Keys, found: Sequence[Row]
    ) -> tuple[list[tuple[Row, str]], set[uuid.UUID]]:
        """(row, text) of those that open, and the ids of those that were altered.

        A missing blob is neither: its store may be missing for a while as a whole.
        """
        names = [to_base64url(row["blob_id"]) for row in found]
        blobs = await self._blobs.get_many(account, names)
        texts, altered = [], set()
        for row, name in zip(found, names, strict=True):
            if (blob := blobs.get(name)) is None:
                continue
            try:
                if not isinstance(blob, bytes):
                    raise CryptoError("altered")
                texts.append((row, open_record(account, keys, row, blob)[0].text))
            except CryptoError:
                log.error("a blob is altered", extra={"event": "blobs.corrupted"})
                altered.add(row["memory_id"])
        return texts, altered


def open_record(account: AccountId, keys: Keys, row: Row, blob: bytes) -> tuple[Draft, bytes]:
    """The draft and writer sealed in a row's blob.

    Raises:
        NotAllowed: `unlock_required`.
        CryptoError: the blob is not what the row speaks of.
    """
    address = envelope.Address(row["type"], account, row["memory_id"], row["revision"])
    return decode(envelope.open_envelope(_key_of(keys, row), address, blob))


def _has_key(keys: Keys, row: Row) -> bool:
    try:
        return bool(_key_of(keys, row))
    except NotAllowed:
        return False


def _key_of(keys: Keys, row: Row) -> NamespaceKey:
    for key in keys.of(Namespace(row["namespace"])):
        if key.epoch == row["epoch"]:
            return key
    raise NotAllowed("The key of an older epoch is missing.", code="unlock_required")


def _opened(caller: Caller, row: Row, blob: bytes | Corrupted | None) -> Memory | None:
    if not isinstance(blob, bytes):
        return None
    if row["format"] == rows.OPAQUE:
        return _memory(row, None)
    try:
        draft, _ = open_record(caller.access.account, caller.keys, row, blob)
    except CryptoError:
        return None
    return _memory(row, draft)


def _memory(row: Row, draft: Draft | None) -> Memory:
    return Memory(
        id=row["memory_id"],
        blob_id=to_base64url(row["blob_id"]),
        namespace=row["namespace"],
        text=None if draft is None else draft.text,
        kind=row["kind"],
        tags=() if draft is None else draft.tags,
        source=None if draft is None else draft.source,
        event_time=row["event_time"],
        metadata={} if draft is None else draft.metadata,
        importance=row["importance"],
        confidence=row["confidence"],
        writer=row["writer"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revision=row["revision"],
        seq=row["seq"],
        status=_STATUS.get(row["embedding_model"], "done"),
    )


def _found(hit: search.Hit, score: float, memory: Memory, terms: Sequence[str]) -> Found:
    return Found(
        memory=memory,
        distance=rank.distance(hit),
        score=score,
        cosine=None if hit.cosine_distance is None else 1.0 - hit.cosine_distance,
        relevance=hit.relevance,
        matched=[terms[n] for n in sorted(hit.matched)],
    )


def _settled_by_search(query: Query) -> bool:
    """Whether the search's own first hits are the answer: nothing is weighed or dropped later."""
    return query.weights.semantic_only and query.min_relevance == 0


def _distinct(terms: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(terms))[: Limits.query_words_max]


def _filter_tokens(key: NamespaceKey, query: Query) -> list[int]:
    """One token per required tag, source and metadata pair."""
    tokens = [index.token(key, "t", tag) for tag in query.tags]
    if query.source is not None:
        tokens.append(index.token(key, "s", query.source))
    return tokens + [index.metadata_token(key, k, v) for k, v in query.metadata.items()]
