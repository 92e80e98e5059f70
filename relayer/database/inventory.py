"""Statements that say what an account has stored, by name: for proofs, not for reading.

Not here: the bytes themselves (`relayer.blobs`), who may see which (`relayer.tenants.proof`).
"""

import uuid
from collections.abc import Sequence
from typing import Final

from relayer.database.pool import Database, Row
from relayer.sealed.keys import AccountId, Namespace

# Of more, a page of each would be more than what lies between their memories.
NAMESPACES_FEW: Final = 16

_REVISION_COLUMNS: Final = """
    coalesce(m.revision_of, m.memory_id) AS id, m.seq, m.revision, m.type, m.format,
    ns.name AS namespace, m.epoch, m.blob_id, m.size_bytes, m.revision_of, m.pinned, m.review,
    m.stale, m.superseded_at, m.superseded_by
"""
# Every stored revision of every memory, in order of acceptance.
_REVISIONS: Final = f"""
SELECT {_REVISION_COLUMNS}
FROM memories m
JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
WHERE m.account_id = $1 AND m.seq > $2 AND ($4::text[] IS NULL OR ns.name = ANY ($4))
ORDER BY m.seq LIMIT $3
"""
# Those of a few namespaces: a page of each, in order, of which the first are the page.
_REVISIONS_IN: Final = f"""
SELECT {_REVISION_COLUMNS}
FROM namespaces ns
CROSS JOIN LATERAL (
    SELECT r.memory_id, r.seq, r.revision, r.type, r.format, r.epoch, r.blob_id, r.size_bytes,
           r.revision_of, r.pinned, r.review, r.stale, r.superseded_at, r.superseded_by
    FROM memories r
    WHERE r.account_id = $1 AND r.namespace_id = ns.namespace_id AND r.seq > $2
    ORDER BY r.seq LIMIT $3
) m
WHERE ns.account_id = $1 AND ns.name = ANY ($4)
ORDER BY m.seq LIMIT $3
"""
# Episodes that wait for their extraction, or are kept.
_TURNS: Final = """
SELECT e.episode_id AS id, ns.name AS namespace, e.epoch, e.blob_id, e.size_bytes
FROM episodes e
JOIN namespaces ns ON ns.account_id = e.account_id AND ns.namespace_id = e.namespace_id
WHERE e.account_id = $1 AND e.episode_id > $2 AND ($3::text[] IS NULL OR ns.name = ANY ($3))
  AND e.state <> 'done'
ORDER BY e.episode_id LIMIT $4
"""
# Which blobs some row of these namespaces refers to.
_BLOBS_OF: Final = """
SELECT m.blob_id FROM memories m
JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
WHERE m.account_id = $1 AND m.blob_id = ANY ($2) AND ns.name = ANY ($3)
UNION
SELECT e.blob_id FROM episodes e
JOIN namespaces ns ON ns.account_id = e.account_id AND ns.namespace_id = e.namespace_id
WHERE e.account_id = $1 AND e.blob_id = ANY ($2) AND ns.name = ANY ($3)
"""


async def revisions_after(
    database: Database,
    account: AccountId,
    seq: int,
    namespaces: Sequence[Namespace] | None,
    limit: int,
) -> list[Row]:
    """Return a page of revisions above a sequence number, of these namespaces or (None) of all."""
    few = namespaces is not None and len(namespaces) <= NAMESPACES_FEW
    statement = _REVISIONS_IN if few else _REVISIONS
    return await database.fetch(statement, account, seq, limit, namespaces)


async def episodes_after(
    database: Database,
    account: AccountId,
    episode_id: uuid.UUID,
    namespaces: Sequence[Namespace] | None,
    limit: int,
) -> list[Row]:
    """Return a page of episodes by id, of these namespaces or (None) of all."""
    return await database.fetch(_TURNS, account, episode_id, namespaces, limit)


async def blobs_of(
    database: Database,
    account: AccountId,
    blob_ids: Sequence[bytes],
    namespaces: Sequence[Namespace],
) -> set[bytes]:
    """Return those of these blobs that belong to these namespaces."""
    rows = await database.fetch(_BLOBS_OF, account, blob_ids, namespaces)
    return {r["blob_id"] for r in rows}
