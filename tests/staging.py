"""Journal objects that wait for an outside store."""

from relayer.blobs.store import BlobStore
from relayer.journal.outbox import Outbox
from relayer.sealed.envelope import blob_hash, blob_id
from tests.services import Bench


def outbox_on(bench: Bench, blobs: BlobStore, *, soon_s: float) -> Outbox:
    return Outbox(database=bench.storage.database, blobs=blobs, clock=bench.clock, soon_s=soon_s)


async def staged(bench: Bench) -> list[bytes]:
    """Journal objects that wait, put back as if nothing had been published yet."""
    await bench.sql(
        "INSERT INTO blobs (account_id, blob_id, bytes, created_at)"
        " SELECT account_id, $1, $2, now() FROM accounts",
        blob_hash(blob_id(b"{waits}")),
        b"{waits}",
    )
    return [r["bytes"] for r in await bench.sql("SELECT bytes FROM blobs")]
