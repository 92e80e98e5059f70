"""Statements on the index that a namespace has, and on memories that are found by the other kind.

Not here: sealed records (`relayer.sealed.index_record`), who moves memories
(`relayer.memories.index_choice`).

- A memory is found by rows of words and vectors, or by its record: never by both.
- Where an account's choices are counted, each process notices that its own picture is old.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.database import index_size
from relayer.database.index_steps import note_change, note_step
from relayer.database.pool import Connection, Database, Row, halfvec
from relayer.database.postings import Words
from relayer.database.vectors import DELETE_POSTINGS, DELETE_VECTORS
from relayer.sealed.keys import AccountId

_CHOOSE: Final = """
UPDATE namespaces SET sealed_index = $3, index_moves = true
WHERE account_id = $1 AND namespace_id = $2 AND erased_at IS NULL AND sealed_index <> $3
RETURNING namespace_id
"""
_COUNT_CHOICE: Final = """
UPDATE accounts SET index_choices = index_choices + 1 WHERE account_id = $1
"""
_IS_UNLIKE: Final = "(m.index_record IS NULL) = ns.sealed_index"
# A page of memories that are found by the other kind of index than their namespace has.
_UNLIKE: Final = f"""
SELECT m.memory_id, coalesce(m.revision_of, m.memory_id) AS id, m.namespace_id,
       ns.name AS namespace, m.epoch, m.seq, m.revision, m.size_bytes, m.source, m.word_count,
       m.embedding_model, m.index_record, m.xmin::text::bigint AS version, ns.sealed_index
FROM memories m
JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
WHERE m.account_id = $1 AND m.seq > $2 AND ns.index_moves AND {_IS_UNLIKE}
  AND ($3::int[] IS NULL OR m.namespace_id = ANY ($3))
ORDER BY m.seq LIMIT $4
"""
_LOCK: Final = f"""
SELECT m.memory_id FROM memories m
JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
WHERE m.account_id = $1 AND {_IS_UNLIKE}
  AND (m.memory_id, m.xmin::text::bigint) IN (SELECT * FROM unnest($2::uuid[], $3::bigint[]))
ORDER BY m.memory_id FOR UPDATE OF m
"""
_SET_RECORDS: Final = """
WITH moved AS (
    SELECT * FROM unnest($2::uuid[], $3::bytea[], $4::bigint[]) AS r (memory_id, record, source)
), counted AS (
    UPDATE namespaces n SET word_count = n.word_count - c.words
    FROM (SELECT m.namespace_id, sum(m.word_count) AS words FROM memories m
          WHERE m.account_id = $1 AND m.memory_id = ANY ($2) AND m.revision_of IS NULL
          GROUP BY m.namespace_id) c
    WHERE n.account_id = $1 AND n.namespace_id = c.namespace_id
)
UPDATE memories m SET index_record = r.record, source = r.source, tokens = '{}', frequencies = NULL,
                      word_count = 0
FROM moved r WHERE m.account_id = $1 AND m.memory_id = r.memory_id
"""
_SET_ROWS: Final = """
WITH moved AS (
    SELECT * FROM unnest($2::uuid[], $3::smallint[], $4::bigint[], $17::int[], $18::int[],
                         $19::bytea[])
        AS r (memory_id, word_count, source, first_token, last_token, frequencies)
), counted AS (
    UPDATE namespaces n SET word_count = n.word_count + c.words
    FROM (SELECT m.namespace_id, sum(r.word_count) AS words
          FROM memories m JOIN moved r ON r.memory_id = m.memory_id
          WHERE m.account_id = $1 AND m.revision_of IS NULL GROUP BY m.namespace_id) c
    WHERE n.account_id = $1 AND n.namespace_id = c.namespace_id
), memory AS (
    UPDATE memories m
    SET index_record = NULL, source = r.source, word_count = r.word_count,
        tokens = ($16::bigint[])[r.first_token:r.last_token], frequencies = r.frequencies
    FROM moved r WHERE m.account_id = $1 AND m.memory_id = r.memory_id
), vector AS (
    INSERT INTO vectors (account_id, memory_id, part, namespace_id, epoch, model, embedding)
    SELECT $1, memory_id, part, namespace_id, epoch, model, embedding
    FROM unnest($10::uuid[], $11::smallint[], $12::int[], $13::int[], $14::text[],
                $15::halfvec[])
        AS v (memory_id, part, namespace_id, epoch, model, embedding)
    ON CONFLICT DO NOTHING
)
INSERT INTO postings (account_id, namespace_id, token, memory_id, frequency, word_count)
SELECT $1, namespace_id, token, memory_id, frequency, word_count
FROM unnest($5::uuid[], $6::int[], $7::bigint[], $8::smallint[], $9::smallint[])
    AS w (memory_id, namespace_id, token, frequency, word_count)
ON CONFLICT DO NOTHING
"""
# Namespaces of which nothing is left to be moved.
_FINISH: Final = f"""
UPDATE namespaces ns SET index_moves = false
WHERE ns.account_id = $1 AND ns.index_moves
  AND NOT EXISTS (SELECT 1 FROM memories m
                  WHERE m.account_id = $1 AND m.namespace_id = ns.namespace_id AND {_IS_UNLIKE})
RETURNING ns.namespace_id
"""
_MOVES: Final = """
SELECT EXISTS (SELECT 1 FROM namespaces WHERE account_id = $1 AND index_moves) AS moves
"""
_ACCOUNTS: Final = """
SELECT a.whole_id FROM accounts a
WHERE EXISTS (SELECT 1 FROM namespaces n WHERE n.account_id = a.account_id AND n.index_moves)
"""


@dataclass(frozen=True)
class ToRecord:
    """A memory that is found by a record from now on, with its masked source."""

    row: Row
    record: bytes = field(repr=False)
    source: int | None


@dataclass(frozen=True)
class ToRows:
    """A memory that is found by rows from now on.

    Attributes:
        postings: token → frequency.
        vectors: (v, dim) float16 of the row's model.
    """

    row: Row
    word_count: int
    source: int | None
    postings: Mapping[int, int] = field(repr=False)
    vectors: npt.NDArray[np.float16] = field(repr=False)


async def choose(
    connection: Connection, *, account: AccountId, namespace_id: int, sealed: bool
) -> bool:
    """Give a namespace this kind of index, under the account's lock; False if it had it."""
    if not await connection.fetch(_CHOOSE, account, namespace_id, sealed):
        return False
    await connection.execute(_COUNT_CHOICE, account)
    return True


async def unlike(
    database: Database,
    *,
    account: AccountId,
    after: int,
    namespace_ids: Sequence[int] | None,
    limit: int,
) -> list[Row]:
    """Return a page of memories that are to be found by the other kind of index, by number."""
    return await database.fetch(_UNLIKE, account, after, namespace_ids, limit)


async def move(
    database: Database, *, account: AccountId, memories: Sequence[ToRecord | ToRows]
) -> int:
    """Let memories be found by the other kind, as far as they are what was read; how many."""
    rows = [memory.row for memory in memories]
    async with database.transaction() as connection:
        await note_change(connection, account)
        read = ([row["memory_id"] for row in rows], [row["version"] for row in rows])
        locked = {r["memory_id"] for r in await connection.fetch(_LOCK, account, *read)}
        moved = [memory for memory in memories if memory.row["memory_id"] in locked]
        to_records = [memory for memory in moved if isinstance(memory, ToRecord)]
        if to_records:
            await _set_records(connection, account, to_records)
        if to_rows := [memory for memory in moved if isinstance(memory, ToRows)]:
            await _set_rows(connection, account, to_rows)
        await index_size.count(connection, account, sorted(locked))
        changed = [(memory.row["namespace_id"], memory.row["seq"]) for memory in moved]
        await note_step(connection, account, changed)
    return len(moved)


async def _set_records(
    connection: Connection, account: AccountId, memories: Sequence[ToRecord]
) -> None:
    ids = [memory.row["memory_id"] for memory in memories]
    await connection.execute(DELETE_POSTINGS, account, ids)
    await connection.execute(DELETE_VECTORS, account, ids)
    records, sources = [m.record for m in memories], [m.source for m in memories]
    await connection.execute(_SET_RECORDS, account, ids, records, sources)


async def _set_rows(connection: Connection, account: AccountId, memories: Sequence[ToRows]) -> None:
    packed = Words.of([m.postings for m in memories])
    words = [(memories[place], token, n) for place, token, n in packed.rows]
    vectors = [(m.row, part, v) for m in memories for part, v in enumerate(m.vectors)]
    await connection.execute(
        _SET_ROWS,
        account,
        [m.row["memory_id"] for m in memories],
        [m.word_count for m in memories],
        [m.source for m in memories],
        [m.row["memory_id"] for m, _, _ in words],
        [m.row["namespace_id"] for m, _, _ in words],
        [token for _, token, _ in words],
        [n for _, _, n in words],
        [m.word_count for m, _, _ in words],
        [row["memory_id"] for row, _, _ in vectors],
        [part for _, part, _ in vectors],
        [row["namespace_id"] for row, _, _ in vectors],
        [row["epoch"] for row, _, _ in vectors],
        [row["embedding_model"] for row, _, _ in vectors],
        [halfvec(vector) for _, _, vector in vectors],
        packed.tokens,
        packed.firsts,
        packed.lasts,
        packed.frequencies,
    )


async def finish(database: Database, *, account: AccountId) -> bool:
    """Note of which namespaces nothing is left to be moved; whether there is any."""
    async with database.transaction() as connection:
        await note_change(connection, account)
        finished = await connection.fetch(_FINISH, account)
        if finished:
            await connection.execute(_COUNT_CHOICE, account)
    return bool(finished)


async def moves(database: Database, account: AccountId) -> bool:
    """Return true if any memory of an account may have to be moved."""
    row = await database.fetchrow(_MOVES, account)
    return row is not None and bool(row["moves"])


async def accounts_due(database: Database) -> list[AccountId]:
    """Return accounts with memories that may have to be moved."""
    return [AccountId(row["whole_id"]) for row in await database.fetch(_ACCOUNTS)]
