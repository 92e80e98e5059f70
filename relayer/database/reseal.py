"""Statements that put memories and turns under the keys of a newer epoch, and tell how far that is.

Not here: opening and sealing them (`relayer.memories.reseal`).

- What was read is moved only if it is still what was read: same blob, words and vectors, and under
  the same key, which of foreign ciphertext no blob tells.
- A memory whose words are of another version than today's waits for those, one that is altered is
  passed over: it cannot be sealed anew. Of foreign ciphertext only the vector is moved.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relayer.database import index_size
from relayer.database.index_steps import note_change
from relayer.database.pool import Connection, Database, Row, halfvec
from relayer.database.postings import Words
from relayer.database.vectors import DELETE_POSTINGS
from relayer.sealed.index_record import MARK_BYTES, mark_of
from relayer.sealed.keys import AccountId, Namespace

# What these namespaces hold under an epoch that is not to stay is sealed anew.
_CHOOSE: Final = """
UPDATE namespaces SET reseal_below = greatest(reseal_below, $3)
WHERE account_id = $1 AND ($2::text IS NULL OR name = $2)
RETURNING name
"""
_FOLLOWS: Final = "m.embedding_model IS DISTINCT FROM 'lost'"
_MEMORIES_DUE: Final = f"""
SELECT m.memory_id, coalesce(m.revision_of, m.memory_id) AS id, m.namespace_id,
       n.name AS namespace, m.epoch, m.seq, m.revision, m.type, m.format, m.blob_id, m.size_bytes,
       m.created_at, m.index_version, m.embedding_version, m.embedding_model, m.index_record,
       m.fingerprint IS NOT NULL AS is_fact, m.superseded_at IS NULL AS is_living
FROM memories m
JOIN namespaces n ON n.account_id = m.account_id AND n.namespace_id = m.namespace_id
WHERE m.account_id = $1 AND m.seq > $2 AND m.epoch < $3
  AND m.epoch < n.reseal_below AND ($4::text[] IS NULL OR n.name = ANY ($4))
  AND (m.index_version = $5 OR m.format = 'opaque') AND {_FOLLOWS}
ORDER BY m.seq LIMIT $6
"""
_TURNS_DUE: Final = """
SELECT e.episode_id AS memory_id, e.episode_id AS id, e.namespace_id, n.name AS namespace, e.epoch,
       1 AS revision, 2 AS type, 'sealed' AS format, e.blob_id, true AS is_fact, true AS is_living
FROM episodes e
JOIN namespaces n ON n.account_id = e.account_id AND n.namespace_id = e.namespace_id
WHERE e.account_id = $1 AND e.episode_id > $2 AND e.epoch < $3 AND e.epoch < n.reseal_below
  AND ($4::text[] IS NULL OR n.name = ANY ($4)) AND e.state IN ('pending', 'kept')
ORDER BY e.episode_id LIMIT $5
"""
_VECTORS: Final = """
SELECT memory_id, model, part, embedding FROM vectors WHERE account_id = $1 AND memory_id = ANY ($2)
"""

# Those that are still what was read, locked until the transaction ends.
_LOCK_MEMORIES: Final = f"""
SELECT m.memory_id FROM memories m
JOIN unnest($2::uuid[], $3::bytea[], $4::text[], $5::int[], $6::smallint[], $7::bytea[])
    AS r (memory_id, blob_id, embedding_version, epoch, index_version, mark) USING (memory_id)
WHERE m.account_id = $1 AND m.blob_id = r.blob_id AND m.embedding_version = r.embedding_version
  AND m.epoch = r.epoch AND m.index_version = r.index_version
  AND coalesce(substr(m.index_record, 1, {MARK_BYTES}), ''::bytea) = r.mark
ORDER BY m.memory_id FOR UPDATE OF m
"""
_LOCK_TURNS: Final = """
SELECT e.episode_id AS memory_id FROM episodes e
JOIN unnest($2::uuid[], $3::bytea[]) AS r (episode_id, blob_id) USING (episode_id)
WHERE e.account_id = $1 AND e.blob_id = r.blob_id AND e.state IN ('pending', 'kept')
ORDER BY e.episode_id FOR UPDATE OF e
"""

# A fact that was said again under the new epoch is known by that; this one is kept beside it.
_MOVE_MEMORIES: Final = """
WITH moved AS (
    SELECT * FROM unnest($2::uuid[], $3::int[], $4::bytea[], $5::bytea[], $6::bigint[],
                         $17::bytea[], $19::int[], $20::int[], $21::bytea[])
        AS r (memory_id, epoch, blob_id, fingerprint, source, record, first_token, last_token,
              frequencies)
), posting AS (
    INSERT INTO postings (account_id, namespace_id, token, memory_id, frequency, word_count)
    SELECT $1, namespace_id, token, memory_id, frequency, word_count
    FROM unnest($7::uuid[], $8::int[], $9::bigint[], $10::smallint[], $11::smallint[])
        AS w (memory_id, namespace_id, token, frequency, word_count)
), vector AS (
    UPDATE vectors v SET epoch = r.epoch, embedding = r.embedding
    FROM unnest($12::uuid[], $13::text[], $14::smallint[], $15::int[], $16::halfvec[])
        AS r (memory_id, model, part, epoch, embedding)
    WHERE v.account_id = $1 AND v.memory_id = r.memory_id AND v.model = r.model
      AND v.part = r.part
)
UPDATE memories m
SET epoch = r.epoch, blob_id = r.blob_id, source = r.source, index_record = r.record,
    tokens = ($18::bigint[])[r.first_token:r.last_token], frequencies = r.frequencies,
    fingerprint = CASE
        WHEN m.superseded_at IS NULL
             AND EXISTS (SELECT 1 FROM memories o
                         WHERE o.account_id = $1 AND o.namespace_id = m.namespace_id
                           AND o.epoch = r.epoch AND o.fingerprint = r.fingerprint
                           AND o.superseded_at IS NULL)
        THEN NULL ELSE r.fingerprint END
FROM moved r
WHERE m.account_id = $1 AND m.memory_id = r.memory_id
"""
_MOVE_TURNS: Final = """
UPDATE episodes e
SET epoch = r.epoch, blob_id = r.blob_id,
    fingerprint = CASE
        WHEN EXISTS (SELECT 1 FROM episodes o
                     WHERE o.account_id = $1 AND o.namespace_id = e.namespace_id
                       AND o.epoch = r.epoch AND o.fingerprint = r.fingerprint
                       AND o.episode_id <> e.episode_id)
        THEN NULL ELSE r.fingerprint END
FROM unnest($2::uuid[], $3::int[], $4::bytea[], $5::bytea[])
    AS r (episode_id, epoch, blob_id, fingerprint)
WHERE e.account_id = $1 AND e.episode_id = r.episode_id
"""

# The new bytes are there, the old ones go after their grace, and the receipts say so.
_EXCHANGE: Final = """
WITH stored AS (
    INSERT INTO blobs (account_id, blob_id, bytes, created_at)
    SELECT $1, blob_id, bytes, $5 FROM unnest($2::bytea[], $3::bytea[]) AS b (blob_id, bytes)
    WHERE $10
    ON CONFLICT DO NOTHING
), intent AS (
    DELETE FROM blob_outbox WHERE account_id = $1 AND blob_id = ANY ($2::bytea[])
), gone AS (
    INSERT INTO blob_outbox (account_id, blob_id, due_at, memory_id)
    SELECT $1, blob_id, $6, memory_id
    FROM unnest($4::bytea[], $11::uuid[]) AS b (blob_id, memory_id)
    ON CONFLICT DO NOTHING
), receipt AS (
    INSERT INTO receipts (account_id, seq, object)
    SELECT $1, seq, object FROM unnest($7::bigint[], $8::bytea[]) AS r (seq, object)
)
UPDATE accounts SET receipt_seq = greatest(receipt_seq, (SELECT max(s) FROM unnest($7) AS s)),
                    receipt_head = $9, changed_at = $5
WHERE account_id = $1
"""
_MARK_LOST: Final = """
WITH lost AS (
    UPDATE memories m SET embedding_model = 'lost'
    FROM unnest($2::uuid[], $3::bytea[]) AS r (memory_id, blob_id)
    WHERE m.account_id = $1 AND m.memory_id = r.memory_id AND m.blob_id = r.blob_id
    RETURNING m.memory_id
)
DELETE FROM vectors v USING lost l WHERE v.account_id = $1 AND v.memory_id = l.memory_id
"""
_FAIL_TURNS: Final = """
UPDATE episodes e SET state = 'failed', fingerprint = NULL
FROM unnest($2::uuid[], $3::bytea[]) AS r (episode_id, blob_id)
WHERE e.account_id = $1 AND e.episode_id = r.episode_id AND e.blob_id = r.blob_id
  AND e.state IN ('pending', 'kept')
"""

# A namespace may have been chosen below more than the newest epoch, to which nothing follows.
_DUE_BELOW: Final = "least(n.reseal_below, a.epoch)"
# The first of what is due, whatever keeps it from being sealed anew.
_FIRST_DUE: Final = f"""
(SELECT coalesce(m.revision_of, m.memory_id) AS id, n.name AS namespace, m.epoch, m.revision,
        m.type, m.format, m.blob_id
 FROM memories m
 JOIN namespaces n ON n.account_id = m.account_id AND n.namespace_id = m.namespace_id
 JOIN accounts a ON a.account_id = m.account_id
 WHERE m.account_id = $1 AND m.epoch < {_DUE_BELOW}
   AND ($2::text[] IS NULL OR n.name = ANY ($2)) AND {_FOLLOWS}
 ORDER BY m.epoch LIMIT $3)
UNION ALL
(SELECT e.episode_id, n.name, e.epoch, 1, 2, 'sealed', e.blob_id
 FROM episodes e
 JOIN namespaces n ON n.account_id = e.account_id AND n.namespace_id = e.namespace_id
 JOIN accounts a ON a.account_id = e.account_id
 WHERE e.account_id = $1 AND e.epoch < {_DUE_BELOW}
   AND ($2::text[] IS NULL OR n.name = ANY ($2)) AND e.state IN ('pending', 'kept')
 ORDER BY e.episode_id LIMIT $3)
LIMIT $3
"""

# Per namespace: what it holds, and how much of that is under which side of the line.
_STANDING: Final = f"""
SELECT n.name, {_DUE_BELOW} AS reseal_below, k.epoch, k.things
FROM namespaces n JOIN accounts a ON a.account_id = n.account_id
JOIN (SELECT m.account_id, m.namespace_id, m.epoch, count(*) AS things FROM memories m
      WHERE m.account_id = $1 AND {_FOLLOWS} GROUP BY m.account_id, m.namespace_id, m.epoch
      UNION ALL
      SELECT e.account_id, e.namespace_id, e.epoch, count(*) FROM episodes e
      WHERE e.account_id = $1 AND e.state IN ('pending', 'kept')
      GROUP BY e.account_id, e.namespace_id, e.epoch) k
  ON k.account_id = n.account_id AND k.namespace_id = n.namespace_id
WHERE n.account_id = $1 AND ($2::text[] IS NULL OR n.name = ANY ($2))
ORDER BY n.name, k.epoch
"""
# That the account has nothing left of an older epoch tells in most cases: to find that a namespace
# has none, all of it would be read, each minute. A planner takes `<` for a third of all, and reads
# these; a cluster takes no LIMIT and no `min` there.
_ACCOUNTS_DUE: Final = f"""
SELECT a.whole_id FROM namespaces n JOIN accounts a ON a.account_id = n.account_id
WHERE n.reseal_below > 0 AND ($1::bigint IS NULL OR n.account_id = $1)
  AND (CASE WHEN EXISTS (SELECT 1 FROM memories m
                         WHERE m.account_id = n.account_id
                           AND m.epoch BETWEEN 0 AND {_DUE_BELOW} - 1 AND {_FOLLOWS})
            THEN EXISTS (SELECT 1 FROM memories m
                         WHERE m.account_id = n.account_id AND m.namespace_id = n.namespace_id
                           AND m.epoch < {_DUE_BELOW} AND {_FOLLOWS}) ELSE false END
       OR EXISTS (SELECT 1 FROM episodes e
                  WHERE e.account_id = n.account_id AND e.namespace_id = n.namespace_id
                    AND e.epoch < {_DUE_BELOW} AND e.state IN ('pending', 'kept')))
GROUP BY n.account_id, a.whole_id
"""
_BELOW: Final = f"""
SELECT EXISTS (SELECT 1 FROM memories m
               WHERE m.account_id = $1 AND m.epoch < $2 AND {_FOLLOWS})
    OR EXISTS (SELECT 1 FROM episodes e
               WHERE e.account_id = $1 AND e.epoch < $2 AND e.state IN ('pending', 'kept'))
"""


@dataclass(frozen=True)
class Resealed:
    """One memory (or turn, with neither words nor vectors) under another key.

    Attributes:
        row: as it was read.
        blob: None where the bytes stay as they are.
        vectors: (model, part) → turned by the new key.
        record: what it is found by, where that is sealed, in place of postings and vectors.
    """

    row: Row
    epoch: int
    blob_id: bytes
    blob: bytes | None = field(repr=False)
    word_count: int = 0
    source: int | None = None
    postings: Mapping[int, int] = field(default_factory=dict, repr=False)
    fingerprint: bytes | None = None
    vectors: Mapping[tuple[str, int], npt.NDArray[np.float16]] = field(
        default_factory=dict, repr=False
    )
    record: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Exchange:
    """The traces of an exchange of blobs: its receipts, and when the old bytes go."""

    now: datetime
    old_due_at: datetime
    receipts: Sequence[tuple[int, bytes]]
    receipt_head: bytes
    blobs_here: bool


async def choose(
    connection: Connection, *, account: AccountId, below: Mapping[Namespace | None, int]
) -> set[Namespace]:
    """Have sealed anew what a namespace (None: each) holds of an epoch below the one beside it.

    Returns the namespaces that there are.
    """
    chosen: set[Namespace] = set()
    for name, epoch in below.items():
        rows = await connection.fetch(_CHOOSE, account, name, epoch)
        chosen.update(Namespace(r["name"]) for r in rows)
    return chosen


async def anything_below(connection: Connection, *, account: AccountId, epoch: int) -> bool:
    """Return true if anything that opens at all is sealed under an older epoch than this."""
    return bool(await connection.fetchval(_BELOW, account, epoch))


async def memories_due(
    database: Database,
    *,
    account: AccountId,
    after: int,
    newest: int,
    names: Sequence[Namespace] | None,
    index_version: int,
    limit: int,
) -> list[Row]:
    """Return a page of rows to be sealed anew, earlier revisions too, by their numbers."""
    return await database.fetch(_MEMORIES_DUE, account, after, newest, names, index_version, limit)


async def turns_due(
    database: Database,
    *,
    account: AccountId,
    after: uuid.UUID,
    newest: int,
    names: Sequence[Namespace] | None,
    limit: int,
) -> list[Row]:
    """Return a page of waiting and kept turns to be sealed anew, shaped like memories."""
    return await database.fetch(_TURNS_DUE, account, after, newest, names, limit)


async def first_due(
    database: Database, *, account: AccountId, names: Sequence[Namespace] | None, limit: int
) -> list[Row]:
    """Return (id, namespace, epoch, revision, type, format, blob_id) of the first that are due."""
    return await database.fetch(_FIRST_DUE, account, names, limit)


async def vectors_of(
    database: Database, *, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> list[Row]:
    """Return (memory_id, model, part, embedding) of these memories."""
    return await database.fetch(_VECTORS, account, memory_ids)


async def lock_unchanged(
    connection: Connection, *, account: AccountId, rows: Sequence[Row], turns: bool
) -> set[uuid.UUID]:
    """Lock those of these rows that are still as read; they stay so until the transaction ends."""
    same: list[Any] = [[r["memory_id"] for r in rows], [r["blob_id"] for r in rows]]
    if turns:
        locked = await connection.fetch(_LOCK_TURNS, account, *same)
    else:
        for column in ("embedding_version", "epoch", "index_version"):
            same.append([r[column] for r in rows])
        same.append([mark_of(r["index_record"]) or b"" for r in rows])
        locked = await connection.fetch(_LOCK_MEMORIES, account, *same)
    return {r["memory_id"] for r in locked}


async def move_memories(
    connection: Connection, *, account: AccountId, resealed: Sequence[Resealed]
) -> None:
    """Put locked rows under their new keys: tokens, postings, vectors, fingerprint."""
    packed = Words.of([r.postings for r in resealed])
    words = [(resealed[place], token, n) for place, token, n in packed.rows]
    vectors = [(r, *at, vector) for r in resealed for at, vector in r.vectors.items()]
    ids = [r.row["memory_id"] for r in resealed]
    await connection.execute(DELETE_POSTINGS, account, ids)
    await connection.execute(
        _MOVE_MEMORIES,
        account,
        ids,
        [r.epoch for r in resealed],
        [r.blob_id for r in resealed],
        [r.fingerprint for r in resealed],
        [r.source for r in resealed],
        [r.row["memory_id"] for r, _, _ in words],
        [r.row["namespace_id"] for r, _, _ in words],
        [token for _, token, _ in words],
        [n for _, _, n in words],
        [r.word_count for r, _, _ in words],
        [r.row["memory_id"] for r, _, _, _ in vectors],
        [model for _, model, _, _ in vectors],
        [part for _, _, part, _ in vectors],
        [r.epoch for r, _, _, _ in vectors],
        [halfvec(vector) for _, _, _, vector in vectors],
        [r.record for r in resealed],
        packed.tokens,
        packed.firsts,
        packed.lasts,
        packed.frequencies,
    )
    await index_size.count(connection, account, ids)


async def move_turns(
    connection: Connection, *, account: AccountId, resealed: Sequence[Resealed]
) -> None:
    """Put locked turns under their new keys: blob, fingerprint."""
    await connection.execute(
        _MOVE_TURNS,
        account,
        [r.row["memory_id"] for r in resealed],
        [r.epoch for r in resealed],
        [r.blob_id for r in resealed],
        [r.fingerprint for r in resealed],
    )


async def exchange(
    connection: Connection, *, account: AccountId, resealed: Sequence[Resealed], done: Exchange
) -> None:
    """Store the new bytes, let the old ones go after a while, and chain the receipts."""
    exchanged = [r for r in resealed if r.blob is not None]
    await connection.execute(
        _EXCHANGE,
        account,
        [r.blob_id for r in exchanged],
        [r.blob for r in exchanged],
        [r.row["blob_id"] for r in exchanged],
        done.now,
        done.old_due_at,
        [seq for seq, _ in done.receipts],
        [signed for _, signed in done.receipts],
        done.receipt_head,
        done.blobs_here,
        [r.row["memory_id"] for r in exchanged],
    )


async def mark_altered(
    database: Database, *, account: AccountId, rows: Sequence[Row], turns: bool
) -> None:
    """Note that these rows' blobs are altered, so that nobody waits for them."""
    ids = [r["memory_id"] for r in rows]
    statement = _FAIL_TURNS if turns else _MARK_LOST
    async with database.transaction() as connection:
        await note_change(connection, account)
        await connection.execute(statement, account, ids, [r["blob_id"] for r in rows])
        if not turns:
            await index_size.count(connection, account, ids)


async def find_occupied(
    database: Database, *, account: AccountId, names: Sequence[Namespace] | None
) -> list[Row]:
    """Return (name, reseal_below, epoch, things) of namespaces that hold anything."""
    return await database.fetch(_STANDING, account, names)


async def accounts_due(database: Database, account: AccountId | None = None) -> list[AccountId]:
    """Return those of all accounts, or of this one, that have anything to be sealed anew."""
    return [AccountId(r["whole_id"]) for r in await database.fetch(_ACCOUNTS_DUE, account)]
