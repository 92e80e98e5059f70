"""An account's rows and blobs as they are stored, page by page, for an archive. Source: SPEC §17.

Not here: writing them elsewhere (`importer.py`), the archive itself (the client's), SQL
(`database.exports`).

- Nothing is opened: an export needs no namespace's key.
- Pages follow sequence numbers, which never change, so that one can go on days later. What changed
  behind it is named by the receipts since, and read again by id.
"""

import uuid
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final, Literal

from relayer import cursors
from relayer.blobs.store import BlobStore
from relayer.database import accounts as account_rows
from relayer.database import exports as rows
from relayer.database.pool import Database, Row
from relayer.database.states import MERGED
from relayer.errors import NotFound
from relayer.portable import (
    KEYS_MAX,
    LINKS_MAX,
    EpochKey,
    Moved,
    MovedAccount,
    MovedEpisode,
    MovedGrant,
    MovedLink,
    MovedMemory,
    MovedNamespace,
    MovedReceipt,
    MovedTombstone,
)
from relayer.preferences import parse_settings
from relayer.sealed.keys import AccountId, Identity
from relayer.sealed.primitives import to_base64url
from relayer.tenants.accounts import Access

Part = Literal["account", "grants", "namespaces", "memories", "episodes", "receipts", "tombstones"]
ROWS: Final = 100
OBJECTS: Final = 200
Page = tuple[Sequence[Moved], str | None]


class Exporter:
    """Reads what an account has here, whole."""

    def __init__(
        self,
        *,
        database: Database,
        blobs: BlobStore,
        identity: Identity,
        succession: Sequence[bytes],
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._identity = identity
        self._succession = succession

    async def page(self, access: Access, part: Part, cursor: str) -> Page:
        """Return a page of one part, and the cursor of the next; None behind the last.

        Raises:
            NotAllowed: the key does not own the account.
            BadRequest: another part's cursor.
        """
        access.require_owner()
        account = access.account
        match part:
            case "account":
                return [await self._account(account)], None
            case "grants":
                return await self._grants(account, cursors.number(cursor))
            case "namespaces":
                return await self._namespaces(account, cursors.number(cursor))
            case "memories":
                return await self._memories(account, cursors.number(cursor))
            case "episodes":
                return await self._episodes(account, cursors.identifier(cursor))
            case "receipts":
                return await self._receipts(account, cursors.number(cursor))
            case "tombstones":
                return await self._tombstones(account, cursors.identifier(cursor))

    async def memories(self, access: Access, ids: Sequence[uuid.UUID], cursor: str) -> Page:
        """Return a page of these memories as they are, earlier revisions too, and the next cursor.

        Raises:
            NotAllowed: the key does not own the account.
            BadRequest: a cursor of something else.
        """
        access.require_owner()
        found = await rows.memories_named(
            self._database, access.account, ids, cursors.number(cursor), ROWS
        )
        return await self._page_of(access.account, found)

    async def episodes(self, access: Access, ids: Sequence[uuid.UUID]) -> Page:
        """Return those of these episodes that wait or are kept; there is no next page.

        Raises:
            NotAllowed: the key does not own the account.
        """
        access.require_owner()
        found = await rows.episodes_named(self._database, access.account, ids)
        blobs = await self._read_blobs(access.account, found)
        if len(blobs) < len(found):
            found = await rows.episodes_named(self._database, access.account, ids)
        return [_episode_record(row, blobs) for row in found], None

    async def _account(self, account: AccountId) -> MovedAccount:
        row = await rows.account(self._database, account)
        if row is None:
            raise NotFound("No such account.")
        return MovedAccount(
            label=row["label"],
            settings=parse_settings(row["settings"]),
            created_at=row["created_at"],
            relayer=self._identity.public_key.hex(),
            succession=list(self._succession),
            grant_serial=row["grant_serial"],
            receipt_seq=row["receipt_seq"],
            memory_seq=row["memory_seq"],
        )

    async def _grants(self, account: AccountId, serial: int) -> Page:
        found = await account_rows.grants_after(self._database, account, serial)
        page = [
            MovedGrant(
                serial=r["serial"], label=r["label"], object=r["object"], succession=r["succession"]
            )
            for r in found[:OBJECTS]
        ]
        return page, str(page[-1].serial) if len(found) > OBJECTS else None

    async def _namespaces(self, account: AccountId, number: int) -> Page:
        found = await rows.namespaces_after(self._database, account, number, OBJECTS)
        groups = [list(group) for _, group in groupby(found, key=lambda r: r["namespace_id"])]
        page = [
            MovedNamespace(
                name=epochs[0]["name"],
                ttl_s=epochs[0]["ttl_s"],
                sealed_index=epochs[0]["sealed_index"],
                keys=[
                    EpochKey(epoch=r["epoch"], key_id=r["key_id"].hex())
                    for r in epochs[-KEYS_MAX:]  # older ones are over
                ],
            )
            for epochs in groups
            if epochs[0]["epoch"] is not None  # known by the name of what was erased there only
        ]
        return page, str(found[-1]["namespace_id"]) if len(groups) == OBJECTS else None

    async def _memories(self, account: AccountId, seq: int) -> Page:
        found = await rows.memories_after(self._database, account, seq, ROWS)
        return await self._page_of(account, found)

    async def _page_of(self, account: AccountId, found: rows.Pages) -> Page:
        page = await self._whole(account, found)
        # A page may end early for its size, so that only an empty one is the last.
        return page, str(found.rows[-1]["seq"]) if found.rows else None

    async def _whole(self, account: AccountId, pages: rows.Pages) -> list[MovedMemory]:
        blobs = await self._read_blobs(account, pages.rows)
        return [
            MovedMemory(
                **{n: row[n] for n in _AS_STORED},
                writer=row["writer"].hex(),
                postings=pages.postings.get(row["id"], b""),
                vectors=pages.vectors.get(row["id"], []),
                links=_links(pages.links.get(row["id"], [])),
                blob_id=to_base64url(row["blob_id"]),
                blob=blobs.get(to_base64url(row["blob_id"])),
            )
            for row in pages.rows
        ]

    async def _episodes(self, account: AccountId, after: uuid.UUID) -> Page:
        found = await rows.episodes_after(self._database, account, after, ROWS // 10)
        last = str(found[-1]["id"]) if found else None
        blobs = await self._read_blobs(account, found)
        if len(blobs) < len(found):
            # An episode whose facts were taken in between let its blob go, and is not lost.
            now = await rows.episodes_after(self._database, account, after, ROWS // 10)
            left = {row["id"] for row in now}
            found = [row for row in found if row["id"] in left]
        return [_episode_record(row, blobs) for row in found], last

    async def _read_blobs(self, account: AccountId, found: Sequence[Row]) -> Mapping[str, bytes]:
        """Return the blobs of rows; leave out those missing or altered, whose rows say so."""
        names = [to_base64url(row["blob_id"]) for row in found]
        read = await self._blobs.get_many(account, names)
        return {name: data for name, data in read.items() if isinstance(data, bytes)}

    async def _receipts(self, account: AccountId, seq: int) -> Page:
        found = await rows.receipts_after(self._database, account, seq, OBJECTS)
        page = [MovedReceipt(seq=row["seq"], object=row["object"]) for row in found]
        return page, str(page[-1].seq) if len(page) == OBJECTS else None

    async def _tombstones(self, account: AccountId, after: uuid.UUID) -> Page:
        found = await rows.tombstones_after(self._database, account, after, OBJECTS)
        page = [
            MovedTombstone(
                id=row["id"],
                namespace=row["namespace"],
                blob_ids=[to_base64url(name) for name in row["blob_ids"]],
                erased_at=row["erased_at"],
                expired=row["expired"],
                taken=row["taken"],
            )
            for row in found
        ]
        return page, str(page[-1].id) if len(page) == OBJECTS else None


_AS_STORED: Final = frozenset(MovedMemory.__struct_fields__) - {
    "writer", "postings", "vectors", "links", "blob_id", "blob",
}  # fmt: skip


def _links(found: Sequence[Row]) -> list[MovedLink]:
    """Return a memory's relations to others: of too many, those that nothing else tells.

    What was merged into it says so itself.
    """
    kept = sorted(found, key=lambda link: bool(link["relation"] == MERGED))[:LINKS_MAX]
    return [MovedLink(**{n: link[n] for n in MovedLink.__struct_fields__}) for link in kept]


def _episode_record(row: Row, blobs: Mapping[str, bytes]) -> MovedEpisode:
    return MovedEpisode(
        id=row["id"],
        namespace=row["namespace"],
        epoch=row["epoch"],
        writer=row["writer"].hex(),
        state=row["state"],
        created_at=row["created_at"],
        fingerprint=row["fingerprint"],
        blob_id=to_base64url(row["blob_id"]),
        blob=blobs.get(to_base64url(row["blob_id"])),
    )
