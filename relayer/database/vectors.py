"""Statements on vectors, and on memories that wait for theirs.

Not here: searching them (`recall`).
"""

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.database.memories import NewMemory
from relayer.database.pool import Connection, Database, Row, halfvec
from relayer.sealed.keys import AccountId

MANUAL_MODEL: Final = "manual"
NO_VECTOR: Final = "none"  # no endpoint takes the text: it is found by keyword alone
LOST: Final = "lost"  # the blob is lost or altered

_UNEMBEDDED: Final = """
SELECT memory_id FROM memories
WHERE account_id = $1 AND namespace_id = ANY ($2) AND embedding_model IS NULL AND format = 'sealed'
ORDER BY seq LIMIT $3
"""
_UNEMBEDDED_ROWS: Final = """
SELECT m.memory_id, m.namespace_id, ns.name AS namespace, m.epoch, m.revision, m.type, m.blob_id
FROM memories m
JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
WHERE m.account_id = $1 AND m.memory_id = ANY ($2) AND m.embedding_model IS NULL
"""

# Lock the rows that still live and still lack a vector: an erased one must not get one.
_LOCK_UNEMBEDDED: Final = """
SELECT memory_id FROM memories
WHERE account_id = $1 AND memory_id = ANY ($2) AND embedding_model IS NULL
ORDER BY memory_id FOR UPDATE
"""
_INSERT_VECTORS: Final = """
WITH embedded AS (
    UPDATE memories SET embedding_model = $2 WHERE account_id = $1 AND memory_id = ANY ($3::uuid[])
)
INSERT INTO vectors (account_id, memory_id, part, namespace_id, epoch, model, embedding)
SELECT $1, memory_id, part, namespace_id, epoch, $2, embedding
FROM unnest($4::uuid[], $5::smallint[], $6::int[], $7::int[], $8::halfvec[])
    AS v (memory_id, part, namespace_id, epoch, embedding)
ON CONFLICT DO NOTHING
"""
_GIVE_UP: Final = """
UPDATE memories SET embedding_model = $3
WHERE account_id = $1 AND memory_id = ANY ($2) AND embedding_model IS NULL
"""
# What waits, at most so many of each account: a sealed one without keys must not hide the others.
_UNEMBEDDED_ANYWHERE: Final = """
SELECT account_id, array_agg(memory_id ORDER BY seq) AS ids
FROM (SELECT account_id, memory_id, seq,
             row_number() OVER (PARTITION BY account_id ORDER BY seq) AS n
      FROM memories
      WHERE embedding_model IS NULL AND format = 'sealed' AND created_at < $1) m
WHERE n <= $2 GROUP BY account_id
"""


async def unembedded(
    database: Database, *, account: AccountId, namespace_ids: Sequence[int], limit: int
) -> list[uuid.UUID]:
    """Memories without a vector, oldest first."""
    rows = await database.fetch(_UNEMBEDDED, account, namespace_ids, limit)
    return [r["memory_id"] for r in rows]


async def unembedded_anywhere(
    database: Database, *, before: datetime, limit: int
) -> list[tuple[AccountId, list[uuid.UUID]]]:
    """Memories of every account that wait for a vector since before that time; for the sweeper."""
    rows = await database.fetch(_UNEMBEDDED_ANYWHERE, before, limit)
    return [(AccountId(r["account_id"]), r["ids"]) for r in rows]


async def unembedded_rows(
    database: Database, *, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> list[Row]:
    """What an embedding job needs to open its memories."""
    return await database.fetch(_UNEMBEDDED_ROWS, account, memory_ids)


async def insert_vectors(
    database: Database,
    *,
    account: AccountId,
    model: str,
    vectors: Sequence[tuple[Row, int, npt.NDArray[np.float16]]],
) -> None:
    """Store turned vectors as (memory row, part, vector) for those memories that still live."""
    ids = sorted({row["memory_id"] for row, _, _ in vectors})
    async with database.transaction() as connection:
        locked = await connection.fetch(_LOCK_UNEMBEDDED, account, ids)
        live = {r["memory_id"] for r in locked}
        kept = [v for v in vectors if v[0]["memory_id"] in live]
        await connection.execute(
            _INSERT_VECTORS,
            account,
            model,
            list(live),
            [row["memory_id"] for row, _, _ in kept],
            [part for _, part, _ in kept],
            [row["namespace_id"] for row, _, _ in kept],
            [row["epoch"] for row, _, _ in kept],
            [halfvec(vector) for _, _, vector in kept],
        )


async def insert_manual_vector(
    connection: Connection,
    *,
    account: AccountId,
    memory: NewMemory,
    embedding: npt.NDArray[np.float16],
) -> None:
    """The vector that came with a manual upload, in the upload's own transaction."""
    await connection.execute(
        _INSERT_VECTORS,
        account,
        f"{MANUAL_MODEL}/{len(embedding)}",
        [memory.memory_id],
        [memory.memory_id],
        [0],
        [memory.namespace_id],
        [memory.epoch],
        [halfvec(embedding)],
    )


async def give_up(
    database: Database, *, account: AccountId, memory_ids: Sequence[uuid.UUID], model: str
) -> None:
    """Wait no longer for vectors that cannot be: `NO_VECTOR` or `LOST` takes the model's place."""
    await database.execute(_GIVE_UP, account, memory_ids, model)
