"""Every call of the unmodified `memwal` SDK against a relayer; prints what came back as JSON.

Run as a program, so that one test can run it with whichever version of the SDK is on the path:
`python memwal_flow.py URL PRIVATE_KEY ACCOUNT NAMESPACE`.
"""

import asyncio
import base64
import json
import sys
from importlib.metadata import version
from typing import Any

from memwal import MemWal, RecallParams
from memwal.types import (
    RecallManualOptions,
    RememberBulkItem,
    RememberBulkOptions,
    RememberManualOptions,
)

FAST = RememberBulkOptions(poll_interval_ms=100)


async def flow(client: MemWal) -> dict[str, Any]:
    """One pass over the SDK's calls."""
    health = await client.health()
    compatible = await client.compatibility()
    one = await client.remember_and_wait("Anna prefers green tea.", poll_interval_ms=100)
    bulk = await client.remember_bulk_and_wait(
        [RememberBulkItem("The invoice is due on Friday."), RememberBulkItem("Bob lives in Oslo.")],
        FAST,
    )
    analyzed = await client.analyze_and_wait("I decided to move to Lisbon next year.", opts=FAST)
    recalled = await client.recall(RecallParams(query="what tea does Anna like?", limit=3))
    embedded = await client.embed("green tea")
    data = base64.b64encode(b"a client's own ciphertext").decode()
    manual = await client.remember_manual(
        RememberManualOptions(encrypted_data=data, vector=embedded.vector)
    )
    by_vector = await client.recall_manual(RecallManualOptions(vector=embedded.vector, limit=1))
    restored = await client.restore(client._namespace)
    page = await client.list_namespaces(limit=1000)
    rest = await client.list_namespaces(cursor=page.next_cursor)
    return {
        "version": version("memwal"),
        "status": health.status,
        "api": compatible["apiVersion"],
        "remembered": [one.id, one.blob_id, one.owner, one.namespace],
        "bulk": [[r.status, bool(r.blob_id)] for r in bulk.results],
        "analyzed": [analyzed.succeeded, [f.text for f in analyzed.facts]],
        "recalled": [[m.text, m.distance] for m in recalled.results],
        "vector": len(embedded.vector),
        "manual": [manual.blob_id, by_vector.results[0].blob_id, by_vector.results[0].distance],
        "restored": [restored.restored, restored.skipped, restored.total],
        "namespaces": [[n.name, n.memory_count] for n in page.namespaces],
        "more": [page.has_more, rest.has_more, len(rest.namespaces)],
    }


async def main() -> None:
    """Connect as the arguments say and print the result."""
    url, key, account, namespace = sys.argv[1:]
    async with MemWal.create(key, account, server_url=url, namespace=namespace) as client:
        print(json.dumps(await flow(client)))


if __name__ == "__main__":
    asyncio.run(main())
