"""Sealing memories anew under the keys of a newer epoch, page by page.

Not here: which namespaces, and how far that is (`tenants/rotation.py`), when (`jobs.py`),
statements (`database.reseal`).

- A memory keeps its id, revision, times and words; its bytes, tokens, fingerprint and turned
  vectors become those of the new keys. Nothing is embedded, no model is asked.
- Whoever runs it may run it again, and may be stopped anywhere: what is done is no longer due.
- What cannot be sealed anew now stays due and is passed over: its bytes are missing, or its record
  is of a later release.
- What was edited, erased or embedded between reading and moving is left for the next pass.
- Foreign ciphertext stays as it is: only its vector is turned, and that where clients do not do it.
- The old bytes go a little later, so that whoever has just read their names still finds them.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.blobs.store import BlobStore
from relayer.database import queue
from relayer.database import reseal as rows
from relayer.database.memories import OPAQUE
from relayer.database.pool import Database, Row
from relayer.database.vectors import LOST, NO_VECTOR, SENT, is_manual
from relayer.errors import Corrupted
from relayer.journal.changes import AccountChange, ReceiptItem
from relayer.memories.indexer import PAGE, PAGE_BYTES
from relayer.memories.opener import has_key, key_of, take_fitting
from relayer.memories.sealed_drafts import fingerprint_of, index_entries
from relayer.record import UnknownVersion, decode
from relayer.sealed import envelope, index
from relayer.sealed.index_record import (
    NO_VECTORS,
    IndexRecord,
    open_record,
    quantise,
    seal_record,
)
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey
from relayer.sealed.primitives import CryptoError, to_base64url
from relayer.sealed.vector_turn import derive_vector_turn
from relayer.tenants.custody import Keys, LentKeys, RootKeys
from relayer.tenants.ledger import Ledger
from relayer.tenants.namespaces import Namespaces
from relayer.words.tokens import INDEX_VERSION

OP: Final = "reseal"
OLD_BYTES_LIVE: Final = timedelta(minutes=1)  # longer than any request reads
Vectors = dict[tuple[str, int], npt.NDArray[np.float16]]  # (model, part) → turned

log = logging.getLogger("relayer.reseal")


@dataclass(frozen=True)
class _Opened:
    """The record that a blob held, and when it was sealed first."""

    record: bytes
    created_ms: int


class Resealer:
    """Puts what is due of one account at a time under its newest keys."""

    def __init__(
        self,
        *,
        database: Database,
        blobs: BlobStore,
        ledger: Ledger,
        namespaces: Namespaces,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._ledger = ledger
        self._namespaces = namespaces

    async def work(self, account: AccountId, keys: Keys, go_on: Callable[[], bool]) -> bool:
        """Go once through what is due and these keys open; whether it came to the end.

        It ends before that only when something moved: it begins at the start each time, and would
        look for ever at what stays due there.

        Raises:
            NotFound: the account is gone.
            Unavailable: a store is away.
        """
        names, newest = _reach(keys)
        seq, turn, moved = 0, uuid.UUID(int=0), False
        while page := await rows.memories_due(
            self._database,
            account=account,
            after=seq,
            newest=newest,
            names=names,
            index_version=INDEX_VERSION,
            limit=PAGE,
        ):
            page = list(take_fitting(page, PAGE_BYTES))
            moved |= await self._reseal(account, keys, page, turns=False)
            seq = page[-1]["seq"]
            if moved and not go_on():
                return False
        while page := await rows.turns_due(
            self._database, account=account, after=turn, newest=newest, names=names, limit=PAGE
        ):
            moved |= await self._reseal(account, keys, page, turns=True)
            turn = page[-1]["memory_id"]
            if moved and not go_on():
                return False
        return True

    async def _reseal(
        self, account: AccountId, keys: Keys, page: Sequence[Row], *, turns: bool
    ) -> bool:
        """Seal anew what of a page can be; whether any of it moved."""
        page = [row for row in page if has_key(keys, row)]
        ours = [row for row in page if row["format"] != OPAQUE]
        opened = await self._open(account, keys, ours, turns=turns)
        found = [row for row in page if row["format"] == OPAQUE or row["memory_id"] in opened]
        if not found:
            return False
        for name in {row["namespace"] for row in found}:
            relayer = self._ledger.unasked(account)
            await self._namespaces.ensure(relayer, keys.of(Namespace(name))[0], keys.lender)
        vectors: dict[uuid.UUID, Vectors] = {}
        if not turns:
            vectors = await self._turn(account, keys, found)
        resealed = await asyncio.to_thread(_reseal_rows, account, keys, found, opened, vectors)
        return await self._store(account, resealed, turns=turns)

    async def _open(
        self, account: AccountId, keys: Keys, page: Sequence[Row], *, turns: bool
    ) -> dict[uuid.UUID, _Opened]:
        """Open these rows' blobs; note an altered one as that, and do not try it again."""
        names = {row["memory_id"]: to_base64url(row["blob_id"]) for row in page}
        blobs = await self._blobs.get_many(account, list(names.values()))
        opened: dict[uuid.UUID, _Opened] = {}
        altered = []
        for row in page:
            if (blob := blobs.get(names[row["memory_id"]])) is None:
                continue
            try:
                opened[row["memory_id"]] = _opened(account, key_of(keys, row), row, blob)
            except UnknownVersion:
                log.warning("a record is of a later release", extra={"event": "reseal.later"})
            except CryptoError:
                log.error("a blob is altered", extra={"event": "reseal.altered"})
                altered.append(row)
        if altered:
            await rows.mark_altered(self._database, account=account, rows=altered, turns=turns)
        return opened

    async def _turn(
        self, account: AccountId, keys: Keys, page: Sequence[Row]
    ) -> dict[uuid.UUID, Vectors]:
        """Return memory → its vectors, turned by the new keys instead of the old ones."""
        found = await rows.vectors_of(
            self._database, account=account, memory_ids=[row["memory_id"] for row in page]
        )
        return await asyncio.to_thread(_turn_all, keys, page, found)

    async def _store(
        self, account: AccountId, resealed: Sequence[rows.Resealed], *, turns: bool
    ) -> bool:
        """Move in one transaction what is still what was read, with its receipts; whether any."""
        blobs = [(r.blob_id, r.blob) for r in resealed if r.blob is not None]
        relayer = self._ledger.unasked(account)
        async with self._ledger.change(relayer, op=OP, blobs=blobs) as change:
            same = await rows.lock_unchanged(
                change.connection, account=account, rows=[r.row for r in resealed], turns=turns
            )
            moved = [r for r in resealed if r.row["memory_id"] in same]
            if moved:
                move = rows.move_turns if turns else rows.move_memories
                await move(change.connection, account=account, resealed=moved)
                # Only now: the store may have been slow, and the old bytes are read from here on.
                change.take_time()
                await _exchange(change, moved)
        log.info("sealed anew", extra={"event": "reseal.page", "count": len(moved)})
        return bool(moved)


async def _exchange(change: AccountChange, moved: Sequence[rows.Resealed]) -> None:
    items = [
        ReceiptItem(r.row["id"], r.row["revision"], r.blob_id, r.row["namespace_id"], r.epoch)
        for r in moved
    ]
    names = {r.row["namespace_id"]: Namespace(r.row["namespace"]) for r in moved}
    receipts = change.sign(items, names)
    await rows.exchange(
        change.connection,
        account=change.account,
        resealed=moved,
        done=rows.Exchange(
            now=change.time,
            old_due_at=change.time + OLD_BYTES_LIVE,
            receipts=receipts,
            receipt_head=change.receipt_head,
            blobs_here=not change.outside_store,
        ),
    )
    # One that was being embedded meanwhile lost its vector to the move.
    if any(not r.vectors and r.record is None for r in moved):
        await queue.enqueue(change.connection, queue.REINDEX, change.account)


def _reach(keys: Keys) -> tuple[Sequence[Namespace] | None, int]:
    """Return the namespaces that keys open (None: all), and their newest epoch."""
    if isinstance(keys, RootKeys):
        return None, keys.roots[0].epoch
    assert isinstance(keys, LentKeys)
    return sorted(keys.keys), max(own[0].epoch for own in keys.keys.values())


def _opened(account: AccountId, key: NamespaceKey, row: Row, blob: bytes | Corrupted) -> _Opened:
    """Return the record in a row's blob.

    Raises:
        CryptoError: it is not what the row speaks of.
    """
    if not isinstance(blob, bytes):
        raise CryptoError("altered")
    address = envelope.Address(row["type"], account, row["id"], row["revision"])
    record = envelope.open_envelope(key, address, blob)
    decode(record)
    return _Opened(record, envelope.read_header(blob).created_ms)


def _reseal_rows(
    account: AccountId,
    keys: Keys,
    page: Sequence[Row],
    opened: Mapping[uuid.UUID, _Opened],
    vectors: Mapping[uuid.UUID, Vectors],
) -> list[rows.Resealed]:
    """Return these rows under the newest key of their namespace.

    Of equal ones that are known by what they say, the first stays so.
    """
    resealed: list[rows.Resealed] = []
    facts: set[tuple[int, bytes]] = set()
    for row in page:
        key = keys.of(Namespace(row["namespace"]))[0]
        its_vectors = vectors.get(row["memory_id"], {})
        if row["format"] == OPAQUE:
            record = _record_anew(account, keys, row)
            resealed.append(
                rows.Resealed(
                    row, key.epoch, row["blob_id"], None, vectors=its_vectors, record=record
                )
            )
            continue
        was = opened[row["memory_id"]]
        address = envelope.Address(row["type"], account, row["id"], row["revision"])
        # The record as it is, so that members of a later release stay in it.
        blob = envelope.seal(key, address, was.record, created_ms=was.created_ms)
        blob_id = envelope.blob_hash(envelope.blob_id(blob))
        draft, _ = decode(was.record)
        fingerprint = fingerprint_of(key, draft)
        fact = (row["namespace_id"], fingerprint)
        kept = fingerprint if row["is_fact"] else None
        if kept is not None and row["is_living"]:
            kept = None if fact in facts else kept
            facts.add(fact)
        if row["type"] == envelope.EPISODE:
            resealed.append(rows.Resealed(row, key.epoch, blob_id, blob, fingerprint=kept))
            continue
        word_count, source, postings = index_entries(key, draft, row["created_at"])
        record = _record_anew(account, keys, row, word_count, source, postings)
        if record is not None:
            source = index.mask_source(key, row["id"], source)
            word_count, postings = 0, {}
        resealed.append(
            rows.Resealed(
                row=row,
                epoch=key.epoch,
                blob_id=blob_id,
                blob=blob,
                word_count=word_count,
                source=source,
                postings=postings,
                fingerprint=kept,
                vectors=its_vectors,
                record=record,
            )
        )
    return resealed


def _record_anew(
    account: AccountId,
    keys: Keys,
    row: Row,
    word_count: int = 0,
    source: int | None = None,
    postings: Mapping[int, int] = MappingProxyType({}),
) -> bytes | None:
    """Return a row's record under the newest key, with these words and the vectors that it has.

    None without a record. An altered one has no vectors: those are gone, as its words are not.
    """
    if row["index_record"] is None:
        return None
    old, new = key_of(keys, row), keys.of(Namespace(row["namespace"]))[0]
    place = (account, row["id"], row["revision"])
    try:
        vectors = open_record(old, *place, row["index_record"]).vectors
    except CryptoError:
        log.error("an index record is altered", extra={"event": "reseal.altered"})
        vectors = NO_VECTORS
    if len(vectors) and row["embedding_model"] not in (None, NO_VECTOR, LOST):
        whole = vectors.astype(np.float32)
        vectors = quantise(_turn_from(old, new, row["embedding_model"], whole))
    return seal_record(new, *place, IndexRecord.of(word_count, source, postings, vectors))


def _turn_all(keys: Keys, page: Sequence[Row], found: Sequence[Row]) -> dict[uuid.UUID, Vectors]:
    """Return memory → its vectors under the new keys; those of one old key and model together."""
    row_of = {row["memory_id"]: row for row in page}
    groups: dict[tuple[NamespaceKey, str], list[Row]] = {}
    for vector in found:
        old = key_of(keys, row_of[vector["memory_id"]])
        groups.setdefault((old, vector["model"]), []).append(vector)
    turned: dict[uuid.UUID, Vectors] = {}
    for (old, model), vectors in groups.items():
        new = keys.of(old.namespace)[0]
        stored = np.stack([v["embedding"].to_numpy() for v in vectors]).astype(np.float32)
        again = _turn_from(old, new, model, stored)
        for vector, embedding in zip(vectors, again.astype(np.float16), strict=True):
            place = (vector["model"], vector["part"])
            turned.setdefault(vector["memory_id"], {})[place] = embedding
    return turned


def _turn_from(
    old: NamespaceKey, new: NamespaceKey, model: str, vectors: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return (n, dim) vectors as the new key turns them."""
    if is_manual(model):
        model = model.partition("/")[0]
    if model == SENT:
        return vectors
    dim = vectors.shape[1]
    return derive_vector_turn(new, model, dim).apply(
        derive_vector_turn(old, model, dim).undo(vectors)
    )
