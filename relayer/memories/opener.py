"""Rows to memories: fetching blobs, choosing the key, opening the envelope.

Not here: which rows (`memory.py`, `recall.py`), formats (`sealed.envelope`, `record`).
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from relayer.blobs.store import BlobStore, verify_hash
from relayer.concurrency import OPENED_BYTES, offload
from relayer.database import memories as rows
from relayer.database import vectors as vector_rows
from relayer.database.pool import Database, Row
from relayer.errors import Corrupted, Misdirected, NotAllowed, NotFound, Unavailable
from relayer.record import Draft, Memory, UnknownVersion, decode, state_of
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey
from relayer.sealed.primitives import CryptoError, to_base64url
from relayer.tenants.accounts import Access, check_newest
from relayer.tenants.custody import Keys

log = logging.getLogger("relayer.opening")

PAGE_BYTES_MAX: Final = 4 * 2**20  # sealed, in one page of memories

T = TypeVar("T")

_STATUS: Final = {None: "uploaded", vector_rows.LOST: "failed"}  # by embedding model; else done


@dataclass(frozen=True)
class Drafts:
    """The outcome of opening rows.

    Attributes:
        opened: (row, draft) of those that open.
        altered: those whose blob is not what the row speaks of.
        missing: those whose blob is not there, which may pass: a store can be missing as a whole.
    """

    opened: Sequence[tuple[Row, Draft]] = field(repr=False)
    altered: Set[uuid.UUID]
    missing: Set[uuid.UUID]


@dataclass(frozen=True)
class Caller:
    """The access of who is asking, and the namespace keys that came with the request."""

    access: Access
    keys: Keys = field(repr=False)


class Page(list[T]):
    """The items of one answer, and the cursor of the next page, None where there is none."""

    def __init__(self, items: Iterable[T], cursor: int | None) -> None:
        super().__init__(items)
        self.cursor = cursor


def unrestored() -> Unavailable:
    """Return the answer where a memory may not be back since the database was lost."""
    return Unavailable(
        "Something of it is not restored yet since the database was lost: recall there with its "
        "key, and ask again.",
        code="memory.unrestored",
        retry_after_s=10,
    )


async def readable(database: Database, access: Access, memory_id: uuid.UUID) -> Row:
    """Return the row of a living memory that a key may know of.

    Raises:
        NotFound: absent, somebody else's, or in a namespace the key may not read.
        Unavailable: `memory.unrestored`, it may be one that has no row yet.
    """
    found = await rows.find_memories(
        database, account=access.account, memory_ids=[memory_id], now=access.time
    )
    if not found or not access.strength(Namespace(found[0]["namespace"])):
        raise unrestored() if access.unrestored else NotFound("No such memory.")
    return found[0]


class Opener:
    """Opens the memories behind rows; `embeds` says whether they get vectors here."""

    def __init__(self, *, blobs: BlobStore, embeds: bool) -> None:
        self._blobs = blobs
        self.embeds = embeds

    async def open_rows(self, caller: Caller, found: Sequence[Row]) -> list[Memory | None]:
        """Return the memories behind rows, in their order; None where the blob is lost or altered.

        Raises:
            NotAllowed: `unlock_required`.
        """
        blobs = await self._blobs_of(caller.access.account, found)
        size = sum(row["size_bytes"] for row in found) // OPENED_BYTES
        opened = await offload(size, _all_opened, caller, found, blobs)
        if self.embeds:
            return opened
        # Without an embedder there is nothing further to wait for.
        return [m and replace(m, status="done") for m in opened]

    async def _blobs_of(
        self, account: AccountId, found: Sequence[Row]
    ) -> dict[bytes, bytes | Corrupted]:
        """Return blob id → bytes of these rows; a row may bring them along as `blob`."""
        brought = {row["blob_id"]: row["blob"] for row in found if row.get("blob") is not None}
        size = sum(map(len, brought.values())) // OPENED_BYTES
        blobs = await offload(size, _verify_all, brought)
        others = {row["blob_id"] for row in found} - brought.keys()
        if not others:
            return blobs
        names = {blob_id: to_base64url(blob_id) for blob_id in others}
        fetched = await self._blobs.get_many(account, list(names.values()))
        return blobs | {i: fetched[name] for i, name in names.items() if name in fetched}

    async def open_all(self, caller: Caller, found: Sequence[Row]) -> list[Memory]:
        """Return the memories behind rows, in their order.

        One that is lost or altered is shown as that, for it must not hide what is behind it.

        Raises:
            NotAllowed: `unlock_required`.
        """
        return [
            memory or replace(as_memory(row, None), status="failed")
            for row, memory in zip(found, await self.open_rows(caller, found), strict=True)
        ]

    async def episodes(self, caller: Caller, found: Sequence[Row]) -> list[Draft | None]:
        """Return the drafts of episodes, in their order; None where the blob is lost or altered.

        Raises:
            NotAllowed: `unlock_required`.
        """
        account = caller.access.account
        names = [to_base64url(row["blob_id"]) for row in found]
        blobs = await self._blobs.get_many(account, names)
        drafts: list[Draft | None] = []
        for row, name in zip(found, names, strict=True):
            key, blob = key_of(caller.keys, row), blobs.get(name)
            address = envelope.Address(envelope.EPISODE, account, row["episode_id"], 1)
            try:
                if not isinstance(blob, bytes):
                    raise CryptoError("lost or altered")
                drafts.append(decode(envelope.open_envelope(key, address, blob))[0])
            except CryptoError:
                drafts.append(None)
        return drafts

    async def drafts(self, account: AccountId, keys: Keys, found: Sequence[Row]) -> Drafts:
        """Open these rows' blobs; leave out those that other keys or a later release open."""
        names = [to_base64url(row["blob_id"]) for row in found]
        blobs = await self._blobs.get_many(account, names)
        drafts, altered, missing = [], set(), set()
        for row, name in zip(found, names, strict=True):
            if (blob := blobs.get(name)) is None:
                missing.add(row["memory_id"])
                continue
            try:
                if not isinstance(blob, bytes):
                    raise CryptoError("altered")
                if envelope.read_header(blob).key_id == key_of(keys, row).key_id:
                    drafts.append((row, open_record(account, keys, row, blob)[0]))
            except UnknownVersion:
                log.warning("a record is of a later release", extra={"event": "blobs.later"})
            except CryptoError:
                log.error("a blob is altered", extra={"event": "blobs.corrupted"})
                altered.add(row["memory_id"])
        return Drafts(drafts, altered, missing)


def open_record(account: AccountId, keys: Keys, row: Row, blob: bytes) -> tuple[Draft, bytes]:
    """Return the draft and writer sealed in a row's blob.

    Raises:
        NotAllowed: `unlock_required`.
        CryptoError: the blob is not what the row speaks of.
    """
    address = envelope.Address(row["type"], account, shown_id(row), row["revision"])
    return decode(envelope.open_envelope(key_of(keys, row), address, blob))


def shown_id(row: Row) -> uuid.UUID:
    """Return the id of the memory whose revision a row keeps; the row's own for the current."""
    memory_id: uuid.UUID = row["revision_of"] or row["memory_id"]
    return memory_id


def has_key(keys: Keys, row: Row) -> bool:
    """Return true if the key that a row was sealed under is at hand."""
    try:
        return bool(key_of(keys, row))
    except (NotAllowed, Misdirected):
        return False


def key_of(keys: Keys, row: Row) -> NamespaceKey:
    """Return the key that a row was sealed under.

    Raises:
        NotAllowed: `unlock_required`.
        Misdirected: it was sealed anew after these keys were fetched.
    """
    held = keys.of(Namespace(row["namespace"]))
    for key in held:
        if key.epoch == row["epoch"]:
            return key
    check_newest(row["epoch"], [held[0].epoch])
    raise NotAllowed("The key of an older epoch is missing.", code="unlock_required")


def size_of(row: Row) -> int:
    """Return the size of a row's blob, sealed, in bytes."""
    size: int = row["size_bytes"]
    return size


def take_fitting(
    found: Sequence[Row],
    bytes_max: int = PAGE_BYTES_MAX,
    *,
    size_in: Callable[[Row], int] = size_of,
) -> Sequence[Row]:
    """Return the first of these rows, one at least, that together have no more bytes than that.

    Each has `size_in` of them.
    """
    size = 0
    for n, row in enumerate(found):
        size += size_in(row)
        if n and size > bytes_max:
            return found[:n]
    return found


def next_cursor(found: Sequence[Row], page: Sequence[Row], limit: int) -> int | None:
    """Return the cursor of the page behind this one; None if there surely is none."""
    return page[-1]["seq"] if len(page) < len(found) or len(found) == limit else None


def _verify_all(blobs: Mapping[bytes, bytes]) -> dict[bytes, bytes | Corrupted]:
    return {blob_id: verify_hash(blob_id, data) for blob_id, data in blobs.items()}


def _all_opened(
    caller: Caller, found: Sequence[Row], blobs: Mapping[bytes, bytes | Corrupted]
) -> list[Memory | None]:
    return [_open_row(caller, row, blobs.get(row["blob_id"])) for row in found]


def _open_row(caller: Caller, row: Row, blob: bytes | Corrupted | None) -> Memory | None:
    if not isinstance(blob, bytes):
        return None
    if row["format"] == rows.OPAQUE:
        return as_memory(row, None)
    try:
        draft, _ = open_record(caller.access.account, caller.keys, row, blob)
    except CryptoError:
        return None
    return as_memory(row, draft)


def as_memory(row: Row, draft: Draft | None) -> Memory:
    """Return a row with its blob's draft; None for foreign ciphertext and what cannot be opened."""
    return Memory(
        id=shown_id(row),
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
        stored_at=row["stored_at"],
        said_at=None if draft is None else draft.said_at,
        state=state_of(row),
        seen_count=row["seen_count"],
        last_seen_at=row["last_seen_at"],
    )
