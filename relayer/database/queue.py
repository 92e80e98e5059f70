"""The job queue's tables and the one way to put a job in: inside the caller's transaction.

Not here: what a job does (`relayer.jobs`). The statements are pgqueuer's, but for one that looks.

- A payload names an account and ids, nothing else.
"""

import json
import uuid
from collections.abc import Sequence
from typing import Final

from pgqueuer import AsyncpgDriver, Queries

from relayer.database.pool import Connection
from relayer.sealed.keys import AccountId, parse_account

EMBED = "embed"
EXTRACT = "extract"
REINDEX = "reindex"
RESEAL = "reseal"
CONSOLIDATE = "consolidate"
RESTORE = "restore"
DELETE_BLOBS = "delete_blobs"

_WAITING: Final = """
SELECT dedupe_key, attempts FROM pgqueuer
WHERE dedupe_key = ANY ($1) AND status IN ('queued', 'picked')
"""


async def install(connection: Connection) -> None:
    """Create or upgrade pgqueuer's tables."""
    queries = Queries(AsyncpgDriver(connection))
    if await queries.schema_is_installed():
        await queries.upgrade()
    else:
        await queries.install()


async def enqueue(
    connection: Connection,
    entrypoint: str,
    account: AccountId,
    ids: Sequence[uuid.UUID] = (),
    *,
    priority: int = 0,
) -> None:
    """One job about these ids, or the account, committed or rolled back with everything else.

    While such a job waits or runs already, nothing happens.
    """
    queries = Queries(AsyncpgDriver(connection))
    await queries.enqueue(
        entrypoint,
        encode_payload(account, ids),
        priority=priority,
        dedupe_key=_dedupe_key(entrypoint, account, ids),
        on_conflict="skip",
    )


async def waiting(
    connection: Connection, entrypoint: str, accounts: Sequence[AccountId]
) -> dict[str, int]:
    """Such jobs of these accounts that wait or run → how often each was put back."""
    rows = await connection.fetch(_WAITING, [_dedupe_key(entrypoint, a, ()) for a in accounts])
    return {r["dedupe_key"]: r["attempts"] for r in rows}


def _dedupe_key(entrypoint: str, account: AccountId, ids: Sequence[uuid.UUID]) -> str:
    return f"{entrypoint}:{ids[0] if ids else account.hex()}"


def encode_payload(account: AccountId, ids: Sequence[uuid.UUID]) -> bytes:
    """The payload of a job."""
    return json.dumps({"account": "0x" + account.hex(), "ids": [str(i) for i in ids]}).encode()


def decode_payload(payload: bytes | None) -> tuple[AccountId, list[uuid.UUID]]:
    """The account and ids of a job."""
    members = json.loads(payload or b"")
    return parse_account(members["account"]), [uuid.UUID(i) for i in members["ids"]]
