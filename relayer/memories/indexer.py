"""Giving stored memories what they are found by: vectors after their acknowledgement, and whatever
another release or another model needs.

Not here: when (`jobs.py`, `upkeep/reindex.py`), embedding (`embedding/`), statements
(`database.vectors`).

- Whoever runs it may run it again: only what is out of date is read, and changed.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.database import vectors as vector_rows
from relayer.database.pool import Database, Row
from relayer.embedding.embedders import Embedder, TextRefused
from relayer.errors import NotAllowed, Unavailable
from relayer.memories.opener import Opener, has_key, key_of, shown_id, take_fitting
from relayer.memories.partial import Partial, Partials, Unfinished
from relayer.memories.sealed_drafts import index_entries
from relayer.query.heading import read_heading
from relayer.record import Draft
from relayer.sealed import index
from relayer.sealed.index_record import (
    NO_VECTORS,
    IndexRecord,
    Quantised,
    open_record,
    quantise,
    seal_record,
)
from relayer.sealed.keys import AccountId, NamespaceKey
from relayer.sealed.primitives import CryptoError
from relayer.sealed.vector_turn import derive_vector_turn
from relayer.tenants.custody import Keys
from relayer.words.tokens import INDEX_VERSION

log = logging.getLogger("relayer.indexing")

PAGE: Final = 64  # memories; one request to most embedding endpoints
PAGE_BYTES: Final = 1 << 16  # of sealed texts: a page takes seconds, and a slice ends behind one
STEP: Final = 64  # passages of a long memory, before it is asked if the slice is over
REFUSED_MAX: Final = 8  # passages of one memory, before the rest of it is not offered
_WITHOUT_HEADING: Final = 5  # the index version from which vectors are of texts without headings
Part = tuple[Row, int, str]  # memory row, number, passage


@dataclass(frozen=True)
class Page:
    """A page of memories that was worked on.

    Attributes:
        after: where the next one begins.
        changed: whether any of them is up to date now that was not.
    """

    after: vector_rows.Position
    changed: bool


class Indexer:
    """Counts the words of stored memories and embeds them, turned by their namespace's key."""

    def __init__(self, *, database: Database, opener: Opener, embedder: Embedder | None) -> None:
        self._database = database
        self._opener = opener
        self._embedder = embedder
        self._partials = Partials()
        self.versions = vector_rows.Versions(INDEX_VERSION, embedder.version if embedder else None)

    async def embed(
        self,
        account: AccountId,
        keys: Keys,
        ids: Sequence[uuid.UUID],
        go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        """Bring those of these memories up to date that still live.

        Raises:
            NotAllowed: a key is missing.
            Unavailable: the embedder or a store is away.
            Unfinished: within a long memory, `go_on` says that the slice is over.
        """
        found = await vector_rows.due_of(
            self._database, account=account, memory_ids=ids, versions=self.versions
        )
        waiting = sorted(found, key=lambda row: row["size_bytes"])  # none waits for a longer one
        while waiting:
            page = take_fitting(waiting, PAGE_BYTES)
            await self._index(account, keys, page, go_on)
            waiting = waiting[len(page) :]
        if not all(has_key(keys, row) for row in found):
            raise NotAllowed("A namespace's key is missing.", code="unlock_required")

    async def waits(self, account: AccountId, namespace_ids: Sequence[int] | None = None) -> bool:
        """Return true if any memory of these namespaces, or of the account, is out of date."""
        return bool(
            await vector_rows.due(
                self._database,
                account=account,
                namespace_ids=namespace_ids,
                versions=self.versions,
                limit=1,
            )
        )

    async def next_page(
        self,
        account: AccountId,
        keys: Keys,
        after: vector_rows.Position,
        namespace_ids: Sequence[int] | None,
        passing_over: Set[uuid.UUID] = frozenset(),
        go_on: Callable[[], bool] = lambda: True,
    ) -> Page | None:
        """Bring a page of memories up to date; None after the last.

        What cannot be opened now is passed over, too: its key or its blob is missing.

        Raises:
            Unavailable: the embedder or a store is away.
            Unfinished: within a long memory, `go_on` says that the slice is over.
        """
        found = await vector_rows.due(
            self._database,
            account=account,
            namespace_ids=namespace_ids,
            versions=self.versions,
            after=after,
            limit=PAGE,
        )
        if not found:
            return None
        page = take_fitting(found, PAGE_BYTES)
        wanted = [row for row in page if row["memory_id"] not in passing_over]
        changed = await self._index(account, keys, wanted, go_on)
        last = page[-1]
        return Page((last["index_version"], last["embedding_version"], last["seq"]), changed)

    async def _index(
        self,
        account: AccountId,
        keys: Keys,
        found: Sequence[Row],
        go_on: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Bring these memories up to date; whether any is now that was not."""
        drafts = await self._opener.drafts(
            account, keys, [row for row in found if has_key(keys, row)]
        )
        words = await asyncio.to_thread(self._words, keys, drafts.opened)
        given_up = dict.fromkeys(drafts.altered, vector_rows.LOST)
        vectors: list[vector_rows.Vector] = []
        unembedded = [pair for pair in drafts.opened if self._lacks_vector(*pair)]
        if self._embedder is not None and unembedded:
            if len(unembedded) == 1:
                vectors = await self._one(self._embedder, account, keys, *unembedded[0], go_on)
            else:
                parts = await asyncio.to_thread(_parts, self._embedder, unembedded)
                vectors = await _vectors(self._embedder, account, keys, parts)
            refused = {row["memory_id"] for row, _ in unembedded}
            refused -= {row["memory_id"] for row, _, _ in vectors}
            given_up |= dict.fromkeys(refused, vector_rows.NO_VECTOR)
        records = await asyncio.to_thread(self._records, account, keys, drafts.opened, vectors)
        if not (words or vectors or given_up or drafts.missing or records):
            return False
        model = "" if self._embedder is None else self._embedder.model_id
        return await vector_rows.store(
            self._database,
            account=account,
            indexed=vector_rows.Indexed(
                self.versions,
                model,
                words,
                vectors,
                given_up,
                drafts.missing,
                blobs={row["memory_id"]: row["blob_id"] for row in found},
                read={
                    row["memory_id"]: row["index_record"]
                    for row in found
                    if row["index_record"] is not None
                },
                records=records,
            ),
        )

    async def _one(
        self,
        embedder: Embedder,
        account: AccountId,
        keys: Keys,
        row: Row,
        draft: Draft,
        go_on: Callable[[], bool],
    ) -> list[vector_rows.Vector]:
        """Return the vectors of one memory, which may have thousands of passages.

        Raises:
            Unavailable: the embedder is away; what there is of them is kept for the next try.
            Unfinished: the slice is over, and what there is of them is kept for the next.
        """
        text = strip_heading(draft)
        partial = self._partials.take(account, row)
        if partial is None:
            partial = Partial.of(text, await asyncio.to_thread(embedder.split, text))
        while (left := partial.spans[partial.offered :]) and partial.refused < REFUSED_MAX:
            parts = [(row, n, text[slice(*span)]) for n, span in enumerate(left[:STEP])]
            try:
                found = await _vectors(embedder, account, keys, parts)
            except Unavailable:
                self._partials.keep(account, row, partial)
                raise
            partial.vectors += [vector for _, _, vector in found]
            partial.offered += len(parts)
            is_over = len(left) > STEP and not go_on()
            if is_over and self._partials.keep(account, row, partial):
                raise Unfinished
        return [(row, n, vector) for n, vector in enumerate(partial.vectors)]

    def _lacks_vector(self, row: Row, draft: Draft) -> bool:
        is_older = row["index_version"] < _WITHOUT_HEADING and read_heading(draft.text).end > 0
        return is_older or bool(row["embedding_version"] != self.versions.embedding)

    def _words(self, keys: Keys, drafts: Sequence[tuple[Row, Draft]]) -> list[vector_rows.Worded]:
        """Return the words of those that were counted by an earlier release."""
        return [
            vector_rows.Worded(
                row["memory_id"],
                row["namespace_id"],
                *index_entries(key_of(keys, row), draft, row["created_at"]),
            )
            for row, draft in drafts
            if row["index_version"] < self.versions.index and row["index_record"] is None
        ]

    def _records(
        self,
        account: AccountId,
        keys: Keys,
        drafts: Sequence[tuple[Row, Draft]],
        vectors: Sequence[vector_rows.Vector],
    ) -> dict[uuid.UUID, vector_rows.Recorded]:
        """Return the records of those that have one: all their words, and the vectors of today."""
        parts: dict[uuid.UUID, list[npt.NDArray[np.float16]]] = {}
        for row, _, vector in vectors:
            parts.setdefault(row["memory_id"], []).append(vector)
        records = {}
        for row, draft in drafts:
            memory, key = row["memory_id"], key_of(keys, row)
            is_due = memory in parts or row["index_version"] < self.versions.index
            if row["index_record"] is None or not is_due:
                continue
            place = (key, account, shown_id(row), row["revision"])
            if memory in parts:
                own = quantise(np.stack(parts[memory]))
            else:
                own = _vectors_in(row["index_record"], *place)
            length, source, postings = index_entries(key, draft, row["created_at"])
            records[memory] = vector_rows.Recorded(
                seal_record(*place, IndexRecord.of(length, source, postings, own)),
                index.mask_source(key, shown_id(row), source),
            )
        return records


def _vectors_in(
    record: bytes, key: NamespaceKey, account: AccountId, memory: uuid.UUID, revision: int
) -> Quantised:
    """Return the vectors of a record; none of an altered one."""
    try:
        return open_record(key, account, memory, revision, record).vectors
    except CryptoError:
        log.error("an index record is altered", extra={"event": "index.altered"})
        return NO_VECTORS


def strip_heading(draft: Draft) -> str:
    """Return what of a text is embedded: not its date and speaker, which would blur its meaning."""
    return draft.text[read_heading(draft.text).end :]


def _parts(embedder: Embedder, drafts: Sequence[tuple[Row, Draft]]) -> list[Part]:
    """Return (row, number, passage) of every text."""
    return [
        (row, n, passage)
        for row, draft in drafts
        for n, passage in enumerate(embedder.split(strip_heading(draft)))
    ]


async def _vectors(
    embedder: Embedder, account: AccountId, keys: Keys, parts: Sequence[Part]
) -> list[vector_rows.Vector]:
    """Return the turned vectors of these parts, but for those that no endpoint takes.

    Raises:
        Unavailable: the embedder is away, or takes no text at all.
    """
    taken, flat = await _embed_parts(embedder, account, parts)
    return await asyncio.to_thread(_turn, embedder, keys, taken, flat)


async def _embed_parts(
    embedder: Embedder, account: AccountId, parts: Sequence[Part]
) -> tuple[Sequence[Part], npt.NDArray[np.float32]]:
    """Return parts with their vectors, (n, dim), without memories that no endpoint takes.

    Raises:
        Unavailable: the embedder is away, or takes no text at all.
    """
    try:
        return parts, await embedder.embed([p for _, _, p in parts], account=account)
    except TextRefused:
        log.warning("a text was refused", extra={"event": "embedder.refused"})
    taken: list[Part] = []
    vectors = [np.empty((0, embedder.dim), np.float32)]
    for _, group in groupby(parts, key=lambda part: part[0]["memory_id"]):
        own = await _in_halves(embedder, account, list(group))
        taken += [(row, n, passage) for n, ((row, _, passage), _) in enumerate(own)]
        vectors += [vector for _, vector in own]
    if not taken:
        # A mistyped model is refused like a text by some servers, and would cost every vector.
        await embedder.embed([str(uuid.uuid4())], account=account)
    return taken, np.concatenate(vectors)


async def _in_halves(
    embedder: Embedder, account: AccountId, parts: Sequence[Part]
) -> list[tuple[Part, npt.NDArray[np.float32]]]:
    """Return those of one memory's parts that are taken, in order, each with its vector, (1, dim).

    Smaller calls are tried, too: some servers refuse many texts like one they cannot take.
    """
    taken: list[tuple[Part, npt.NDArray[np.float32]]] = []
    waiting, refused = [parts], 0
    while waiting and refused < REFUSED_MAX:
        some = waiting.pop()
        try:
            vectors = await embedder.embed([p for _, _, p in some], account=account)
            taken += zip(some, vectors[:, np.newaxis], strict=True)
        except TextRefused:
            half = len(some) // 2
            refused += not half
            waiting += [some[half:], some[:half]] if half else []
    return taken


def _turn(
    embedder: Embedder, keys: Keys, parts: Sequence[Part], vectors: npt.NDArray[np.float32]
) -> list[vector_rows.Vector]:
    """Return (row, part, turned vector), those of one key turned together."""
    by_key: dict[NamespaceKey, list[int]] = {}
    for n, (row, _, _) in enumerate(parts):
        by_key.setdefault(key_of(keys, row), []).append(n)
    turned = []
    for key, numbers in by_key.items():
        turn = derive_vector_turn(key, embedder.model_id, embedder.dim)
        for n, vector in zip(numbers, turn.apply(vectors[numbers]), strict=True):
            turned.append((parts[n][0], parts[n][1], vector.astype(np.float16)))
    return turned
