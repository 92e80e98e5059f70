"""Our own routes by which anybody checks this relayer: statement, receipts, inventory, blobs.

Not here: what these read (`tenants/proof.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, TypedDict

from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import FromQuery, JSONBody, QueryParameter
from msgspec import Meta

from relayer.clock import rfc3339_ms, to_ms
from relayer.database import accounts as account_rows
from relayer.database.pool import Database, Row
from relayer.errors import BadRequest, Corrupted, NotFound
from relayer.http import bodies
from relayer.http.checks import PUBLIC, WEIGHT
from relayer.memories.memory import LAST_SEQ
from relayer.routes import shapes
from relayer.routes.arguments import PageLimit
from relayer.sealed import envelope
from relayer.sealed.envelope import blob_hash
from relayer.sealed.primitives import CryptoError, to_base64
from relayer.settings import Limits
from relayer.tenants.accounts import Access
from relayer.tenants.proof import Blobs, Inventory, Proof, require_whole
from relayer.tenants.unlock_directory import UnlockDirectory

INVENTORY_NAMES: Final = 64
ItemType = Literal["memory", "episode", "summary"]
_TYPES: Final[Mapping[int, ItemType]] = {
    envelope.MEMORY: "memory",
    envelope.EPISODE: "episode",
    envelope.SUMMARY: "summary",
}


class BlobsBody(bodies.Strict):
    """POST /v1/blobs."""

    blob_ids: Annotated[list[str], Meta(min_length=1, max_length=Limits.blobs_asked_max)]


class StatementAnswer(TypedDict):
    """The relayer's signed statement, and the objects that lead to its key, oldest first."""

    statement: shapes.Base64
    succession: list[shapes.Base64]


class ReceiptsAnswer(TypedDict):
    """A page of the chain of receipts; `seq` and `head` are of the account's newest."""

    receipts: list[shapes.Base64]
    seq: int
    head: shapes.Hex


class CheckpointAnswer(TypedDict):
    """The end of the chain of receipts, signed."""

    checkpoint: shapes.Base64


class StoredName(TypedDict):
    """The name and size of one stored blob."""

    id: shapes.Id
    namespace: str
    epoch: int
    blob_id: str
    size: int


class InventoryItem(StoredName):
    """One revision of a memory, or an episode, which has no `seq`."""

    type: ItemType
    revision: int
    format: str
    seq: int | None
    earlier: bool
    pinned: bool
    review: str | None
    stale: bool
    superseded_at: shapes.Time | None
    superseded_by: shapes.Id | None


class InventoryAnswer(TypedDict):
    """A page of what is stored, by name."""

    items: list[InventoryItem]
    next_cursor: str | None


class BlobAnswer(TypedDict):
    """Stored bytes, or why there are none."""

    blob_id: str
    data: shapes.Base64 | None
    problem: Literal["missing", "altered"] | None


class BlobsAnswer(TypedDict):
    """Stored bytes as they are; the ids of those that did not fit are `left`."""

    blobs: list[BlobAnswer]
    left: list[str]


@get("/relayer", opt={PUBLIC: True})
async def get_statement(
    announcements: NamedDependency[UnlockDirectory], proof: NamedDependency[Proof]
) -> StatementAnswer:
    """Return the relayer's signed statement, and how it came to have the key that signs it."""
    return {
        "statement": to_base64(await announcements.statement()),
        "succession": [to_base64(signed) for signed in proof.succession],
    }


@get("/receipts")
async def list_receipts(
    access: NamedDependency[Access],
    database: NamedDependency[Database],
    after: Annotated[int, QueryParameter(ge=0, le=LAST_SEQ)] = 0,
    limit: PageLimit = 100,
) -> ReceiptsAnswer:
    """Return the account's chain of receipts, for those who may see the whole account."""
    require_whole(access)
    row = await account_rows.find_account(database, access.account)
    if row is None:
        raise NotFound("No such account.")
    signed = await account_rows.receipts_after(database, access.account, after, limit)
    return {
        "receipts": shapes.receipts(signed),
        "seq": row["receipt_seq"],
        "head": row["receipt_head"].hex(),
    }


@get("/checkpoint")
async def get_checkpoint(
    access: NamedDependency[Access], proof: NamedDependency[Proof]
) -> CheckpointAnswer:
    """Return the end of the account's chain of receipts as it stands now, signed."""
    return {"checkpoint": to_base64(await proof.checkpoint(access))}


@get("/inventory", opt={WEIGHT: 2})
async def list_inventory(
    access: NamedDependency[Access],
    proof: NamedDependency[Proof],
    namespaces: Annotated[list[str] | None, QueryParameter(max_items=INVENTORY_NAMES)] = None,
    cursor: FromQuery[str] = "",
    limit: PageLimit = 200,
) -> InventoryAnswer:
    """Return a page of what is stored, by name: every revision of every memory, then the turns."""
    named = None if namespaces is None else [bodies.namespace_of(n) for n in namespaces]
    return _inventory(await proof.inventory(access, named, cursor, limit))


def _inventory(page: Inventory) -> InventoryAnswer:
    """Return a page of what is stored, by name."""
    items = [_revision(row) for row in page.revisions] + [_episode(row) for row in page.episodes]
    return {"items": items, "next_cursor": page.cursor}


def _revision(row: Row) -> InventoryItem:
    return {
        **_to_stored_name(row),
        "type": _TYPES[row["type"]],
        "revision": row["revision"],
        "format": row["format"],
        "seq": row["seq"],
        "earlier": row["revision_of"] is not None,
        "pinned": row["pinned"],
        "review": row["review"],
        "stale": row["stale"],
        "superseded_at": rfc3339_ms(to_ms(row["superseded_at"])),  # as `state` objects round it
        "superseded_by": None if row["superseded_by"] is None else str(row["superseded_by"]),
    }


def _episode(row: Row) -> InventoryItem:
    return {
        **_to_stored_name(row),
        "type": "episode",
        "revision": 1,
        "format": "sealed",
        "seq": None,
        "earlier": False,
        "pinned": False,
        "review": None,
        "stale": False,
        "superseded_at": None,
        "superseded_by": None,
    }


def _to_stored_name(row: Row) -> StoredName:
    return {
        "id": str(row["id"]),
        "namespace": row["namespace"],
        "epoch": row["epoch"],
        "blob_id": shapes.blob_name(row["blob_id"]),
        "size": row["size_bytes"],
    }


@post("/blobs", status_code=200, opt={WEIGHT: 5})
async def read_blobs(
    data: JSONBody[BlobsBody],
    access: NamedDependency[Access],
    proof: NamedDependency[Proof],
) -> BlobsAnswer:
    """Return stored bytes as they are, sealed."""
    return _blobs(await proof.blobs(access, blob_names(data.blob_ids)))


def blob_names(names: Sequence[str]) -> list[str]:
    """Return distinct blob ids, in order.

    Raises:
        BadRequest: one is no blob id.
    """
    try:
        for name in names:
            blob_hash(name)
    except CryptoError:
        raise BadRequest("blob_ids has something in it that is no blob id.") from None
    return list(dict.fromkeys(names))


def _blobs(read: Blobs) -> BlobsAnswer:
    """Return stored bytes as they are, and what is wrong with those that are not."""
    return {"blobs": [_blob(name, data) for name, data in read.found.items()], "left": read.left}


def _blob(name: str, data: bytes | Corrupted | None) -> BlobAnswer:
    if isinstance(data, bytes):
        return {"blob_id": name, "data": to_base64(data), "problem": None}
    return {"blob_id": name, "data": None, "problem": "missing" if data is None else "altered"}


HANDLERS: Final = (get_statement, list_receipts, get_checkpoint, list_inventory, read_blobs)
