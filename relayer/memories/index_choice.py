"""Choosing a namespace's index, and moving its memories to the one that was chosen.

Not here: the formats (`sealed.index_record`), statements (`database.index_choice`), when
(`backlog.py`, `sweeper.py`).

- What is stored from a choice on is found by the chosen index at once; the rest is moved behind
  it, page by page, by whoever holds the namespace's key. Recalls find both meanwhile.
- Whoever moves may be stopped anywhere and begin again: what is moved is no longer due.
- No text is opened and nothing embedded: words and vectors change their place. A vector that was
  in a record keeps the precision that it had there.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

import numpy as np

from relayer.database import index_choice as rows
from relayer.database import memory_index as index_rows
from relayer.database import queue
from relayer.database.index_pages import Ints, Page
from relayer.database.pool import Database, Row
from relayer.errors import NotFound
from relayer.memories.opener import has_key, key_of, take_fitting
from relayer.sealed import index
from relayer.sealed.index_record import (
    NO_VECTORS,
    IndexRecord,
    Quantised,
    open_record,
    quantise,
    seal_record,
)
from relayer.sealed.keys import AccountId, Namespace
from relayer.sealed.primitives import CryptoError
from relayer.tenants.accounts import Access
from relayer.tenants.custody import Keys, LentKeys
from relayer.tenants.ledger import Ledger
from relayer.tenants.namespaces import Namespaces

log = logging.getLogger("relayer.index")

PAGE: Final = 200  # memories that are moved together
PAGE_BYTES: Final = 1 << 18  # of their sealed texts: a long one has as many words


class IndexChooser:
    """Gives namespaces the index that their account's owner wants."""

    def __init__(self, *, ledger: Ledger, namespaces: Namespaces) -> None:
        self._ledger = ledger
        self._namespaces = namespaces

    async def choose(self, access: Access, namespace: Namespace, *, sealed: bool) -> None:
        """Let a namespace have a sealed index, or a searchable one; what is there is moved later.

        Raises:
            NotAllowed: the key does not own the account.
            NotFound: the namespace is not there.
        """
        access.require_owner()
        entry = await self._namespaces.find(access.account, namespace)
        if entry is None:
            raise NotFound("No such namespace.")
        async with self._ledger.change(access, as_owner=True) as change:
            number = entry.namespace_id
            account, connection = change.account, change.connection
            if await rows.choose(connection, account=account, namespace_id=number, sealed=sealed):
                await queue.enqueue(connection, queue.REINDEX, account)


class IndexMover:
    """Moves memories to the index that their namespace has."""

    def __init__(self, *, database: Database, namespaces: Namespaces) -> None:
        self._database = database
        self._namespaces = namespaces

    async def waits(self, account: AccountId) -> bool:
        """Return true if any memory of the account may have to be moved."""
        return await rows.moves(self._database, account)

    async def work(self, account: AccountId, keys: Keys, go_on: Callable[[], bool]) -> bool:
        """Move what these keys open, while `go_on` says so; True if nothing of it is left.

        Raises:
            Unavailable: the database is away.
        """
        if not await self.waits(account):
            return True
        numbers = await self._numbers(account, keys)
        after = 0
        while found := await rows.unlike(
            self._database, account=account, after=after, namespace_ids=numbers, limit=PAGE
        ):
            page = take_fitting(found, PAGE_BYTES)
            after = page[-1]["seq"]
            await self._move(account, keys, [row for row in page if has_key(keys, row)])
            if not go_on():
                return False
        await rows.finish(self._database, account=account)
        return True

    async def _numbers(self, account: AccountId, keys: Keys) -> list[int] | None:
        if not isinstance(keys, LentKeys):
            return None
        return await self._namespaces.numbers(account, keys.keys)

    async def _move(self, account: AccountId, keys: Keys, page: Sequence[Row]) -> None:
        to_records = [row for row in page if row["index_record"] is None]
        moved: list[rows.ToRecord | rows.ToRows] = []
        for number, group in groupby(sorted(to_records, key=_place), _place):
            own = list(group)
            async with self._database.snapshot() as connection:
                seqs = [row["seq"] for row in own]
                read = await index_rows.page(connection, account, number, seqs)
            moved += await asyncio.to_thread(_to_records, account, keys, own, read)
        opened = [row for row in page if row["index_record"] is not None]
        moved += await asyncio.to_thread(_to_rows, account, keys, opened)
        if moved:
            await rows.move(self._database, account=account, memories=moved)


def _place(row: Row) -> int:
    number: int = row["namespace_id"]
    return number


def _to_records(
    account: AccountId, keys: Keys, page: Sequence[Row], read: Page
) -> list[rows.ToRecord]:
    """Return the records that say what rows have said of these memories."""
    there = read.memories
    versions = dict(zip(there.seq.tolist(), there.version.tolist(), strict=True))
    words = _by_number(read.seqs)
    vectors: dict[tuple[int, str, int], Quantised] = {}
    for (epoch, model), (numbers, stored) in read.vectors.items():
        quantised = quantise(stored)
        for seq, at in _by_number(numbers).items():
            vectors[epoch, model, seq] = quantised[at]
    found = []
    for row in page:
        # Read a moment later: what changed in between is left for the next time.
        if versions.get(row["seq"]) != row["version"]:
            continue
        key, at = key_of(keys, row), words.get(row["seq"], np.zeros(0, np.int64))
        postings = zip(read.tokens[at].tolist(), read.frequencies[at].tolist(), strict=True)
        own = vectors.get((row["epoch"], row["embedding_model"] or "", row["seq"]), NO_VECTORS)
        record = IndexRecord.of(row["word_count"], row["source"], dict(postings), own)
        sealed = seal_record(key, account, row["id"], row["revision"], record)
        source = index.mask_source(key, row["id"], row["source"])
        found.append(rows.ToRecord(row, sealed, source))
    return found


def _by_number(numbers: Ints) -> dict[int, Ints]:
    """Return number → the places where it stands."""
    order = np.argsort(numbers, kind="stable")
    each, begins = np.unique(numbers[order], return_index=True)
    return dict(zip(each.tolist(), np.split(order, begins[1:]), strict=True))


def _to_rows(account: AccountId, keys: Keys, page: Sequence[Row]) -> list[rows.ToRows]:
    """Return what the records of these memories say, for rows that say it.

    An altered one is passed over: `relayer reindex` makes another.
    """
    found = []
    for row in page:
        try:
            record = open_record(
                key_of(keys, row), account, row["id"], row["revision"], row["index_record"]
            )
        except CryptoError:
            log.error("an index record is altered", extra={"event": "index.altered"})
            continue
        vectors = record.vectors.astype(np.float32)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        units = (vectors / np.where(norms > 0, norms, 1)).astype(np.float16)
        postings = record.postings
        found.append(rows.ToRows(row, record.length, record.source, postings, units))
    return found
