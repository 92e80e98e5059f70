"""Statements that tell how far some memories are from a query, exactly.

Not here: which ones are worth it, opening sealed records (`relayer.memory_index.distances`).
"""

from collections.abc import Sequence
from typing import Final

from relayer.database.pool import Database, Row, halfvec
from relayer.database.recall import Scope
from relayer.sealed.keys import AccountId

_DISTANCES: Final = """
SELECT m.seq, min(v.embedding <=> q.embedding) AS nearest,
       avg(v.embedding <=> q.embedding) AS spread
FROM memories m
JOIN vectors v ON v.account_id = $1 AND v.memory_id = m.memory_id
JOIN unnest($3::int[], $4::int[], $5::text[], $6::halfvec[])
    AS q (namespace_id, epoch, model, embedding)
    ON q.namespace_id = v.namespace_id AND q.epoch = v.epoch AND q.model = v.model
WHERE m.account_id = $1 AND m.seq = ANY ($2)
GROUP BY m.seq
"""
# Who has a record has no vectors of its own.
_RECORDS: Final = """
SELECT seq, namespace_id, epoch, revision, embedding_model, index_record,
       coalesce(revision_of, memory_id) AS memory_id
FROM memories WHERE account_id = $1 AND seq = ANY ($2)
"""


async def measure(
    database: Database, account: AccountId, scopes: Sequence[Scope], seqs: Sequence[int]
) -> list[Row]:
    """Return of each of these memories that has vectors its distances as `Evidence` tells them."""
    its = [(s, model, vector) for s in scopes for model, vector in s.embeddings.items()]
    return await database.fetch(
        _DISTANCES,
        account,
        seqs,
        [scope.namespace_id for scope, _, _ in its],
        [scope.epoch for scope, _, _ in its],
        [model for _, model, _ in its],
        [halfvec(vector) for _, _, vector in its],
    )


async def records(database: Database, account: AccountId, seqs: Sequence[int]) -> list[Row]:
    """Return the sealed records of these memories, null where one has none."""
    return await database.fetch(_RECORDS, account, seqs)
