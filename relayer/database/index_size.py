"""The room that rows of memories take beside their texts, and the counts of it.

Not here: sealed bytes, which every statement counts by what it stores.

- The bytes are a model of PostgreSQL's pages and indexes, measured on version 18. They do not
  depend on what else a page holds, so that erasing gives back what storing took.
- A memory's row says how much is counted for it. The counts of its namespace and its account are
  sums of these: whoever changes words or vectors calls `count` in the same transaction.
"""

import uuid
from collections.abc import Sequence
from typing import Final

from relayer.database.pool import Connection
from relayer.database.postings import IN_ROW_MAX
from relayer.sealed.keys import AccountId

MEMORY_BYTES: Final = 1_550  # its row and its entries in 13 indexes, its blob's row, its receipt
WORD_BYTES: Final = 167  # a row of 76, an entry of 83 in a page filled to two thirds, a token
ROW_WORD_BYTES: Final = 32  # a token and its frequency in a memory's row, its share of an index
_PAGE_BYTES: Final = 8_192  # of which 8,168 are for rows; none is cut, since vectors are PLAIN
_ROOM_BYTES: Final = 8_168
_VECTOR_FRAME_BYTES: Final = 124  # of a row, beside two bytes for each dimension
_VECTOR_ENTRY_BYTES: Final = 90  # in its two indexes

# What is counted for a memory `m` of account $1, in SQL. Every function in it is immutable, as
# Citus wants it of statements that write.
_VECTOR: Final = f"""
{_PAGE_BYTES} / greatest({_ROOM_BYTES} / (2 * vector_dims(v.embedding) + {_VECTOR_FRAME_BYTES}), 1)
+ {_VECTOR_ENTRY_BYTES}
"""
INDEX_BYTES: Final = f"""
({MEMORY_BYTES} + CASE WHEN m.frequencies IS NULL THEN {WORD_BYTES}::bigint
                       ELSE {ROW_WORD_BYTES} END * cardinality(m.tokens)
 + coalesce(octet_length(m.index_record), 0)
 + coalesce((SELECT sum({_VECTOR}) FROM vectors v
             WHERE v.account_id = $1 AND v.memory_id = m.memory_id), 0))::bigint
"""
_COUNT: Final = f"""
WITH sized AS MATERIALIZED (
    SELECT m.memory_id, m.namespace_id, {INDEX_BYTES} AS bytes, m.index_bytes AS counted
    FROM memories m WHERE m.account_id = $1 AND m.memory_id = ANY ($2)
), memory AS (
    UPDATE memories m SET index_bytes = s.bytes
    FROM sized s
    WHERE m.account_id = $1 AND m.memory_id = s.memory_id AND s.bytes <> s.counted
), namespace AS (
    UPDATE namespaces n SET index_bytes = n.index_bytes + c.more
    FROM (SELECT namespace_id, sum(bytes - counted) AS more FROM sized GROUP BY namespace_id) c
    WHERE n.account_id = $1 AND n.namespace_id = c.namespace_id AND c.more <> 0
)
UPDATE accounts
SET index_bytes = index_bytes + (SELECT coalesce(sum(bytes - counted), 0) FROM sized)
WHERE account_id = $1 AND closed_at IS NULL
"""


def index_bytes(words: int) -> int:
    """Return what is counted for a memory with so many different words and no vector yet."""
    return MEMORY_BYTES + (ROW_WORD_BYTES if words <= IN_ROW_MAX else WORD_BYTES) * words


def vector_bytes(dim: int) -> int:
    """Return what is counted for a vector of so many dimensions."""
    rows = max(_ROOM_BYTES // (2 * dim + _VECTOR_FRAME_BYTES), 1)
    return _PAGE_BYTES // rows + _VECTOR_ENTRY_BYTES


async def count(
    connection: Connection, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> None:
    """Count these memories anew, whose words or vectors this transaction has changed.

    Under the account's lock, like any change of its counts.
    """
    await connection.execute(_COUNT, account, memory_ids)
