"""The one statement of a recall: vector hits, keyword hits, fusion, filters, limit.

Not here: turning and hashing a query (`relayer.recall`), age and importance (`relayer.rank`).

- Scores: `cosine + w · bm25 / ideal_bm25`, where the ideal is the score of a memory of ordinary
  length that holds every query word once.
- Every number of BM25 is float8: bare literals would make PostgreSQL compute logarithms in numeric,
  three times slower.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.database.pool import Database, Row, halfvec
from relayer.sealed.keys import AccountId

BM25_K1: Final = 1.2
BM25_B: Final = 0.75
KEYWORD_WEIGHT: Final = 1.0
CANDIDATES: Final = 100  # of each leg; more than the largest limit would show no other result

# What may be found at all: living, sealed, and within the query's filters.
_FOUND_AT_ALL: Final = """
    m.namespace_id = ANY ($2::int[]) AND m.format = 'sealed' AND m.superseded_at IS NULL
    AND (m.expires_at IS NULL OR m.expires_at > $9)
    AND ($10::text[] IS NULL OR m.kind = ANY ($10))
    AND ($11::timestamptz IS NULL OR coalesce(m.event_time, m.created_at) >= $11)
    AND ($12::timestamptz IS NULL OR coalesce(m.event_time, m.created_at) < $12)
    AND (cardinality($15::bigint[]) = 0 OR NOT EXISTS (
        SELECT FROM unnest($13::int[], $14::int[], $15::bigint[]) AS f (ns, ordinal, token)
        WHERE f.ns = m.namespace_id
        GROUP BY f.ordinal HAVING NOT bool_or(f.token = ANY (m.tokens))))
"""

# The legs meet by grouping, not by joining: the planner knows nothing of how many rows a leg has,
# and without statistics it would compare each row of one with each of the other.
_SEARCH: Final = f"""
WITH scope AS MATERIALIZED (
    SELECT s.namespace_id, s.epoch, s.embedding, n.memory_count::float8 AS documents,
           greatest(n.word_count::float8 / greatest(n.memory_count, 1)::float8, 1::float8) AS mean
    FROM unnest($2::int[], $3::int[], $4::halfvec[]) AS s (namespace_id, epoch, embedding)
    JOIN namespaces n ON n.account_id = $1 AND n.namespace_id = s.namespace_id
), nearest AS (
    SELECT v.memory_id, min(v.embedding <=> s.embedding) AS distance
    FROM scope s
    JOIN vectors v ON v.account_id = $1 AND v.namespace_id = s.namespace_id
                  AND v.epoch = s.epoch AND v.model = $5
    JOIN memories m ON m.account_id = $1 AND m.memory_id = v.memory_id
    WHERE s.embedding IS NOT NULL AND {_FOUND_AT_ALL}
    GROUP BY v.memory_id ORDER BY distance LIMIT $8
), query AS (
    SELECT * FROM unnest($6::int[], $7::bigint[], $16::int[]) AS q (namespace_id, token, ordinal)
), found AS (
    SELECT q.ordinal, p.namespace_id, p.memory_id, p.frequency::float8 AS tf,
           p.word_count::float8 AS length,
           count(*) OVER (PARTITION BY p.namespace_id, q.token)::float8 AS df
    FROM query q
    JOIN postings p ON p.account_id = $1 AND p.namespace_id = q.namespace_id AND p.token = q.token
), weighed AS (
    SELECT f.ordinal, f.memory_id, f.tf, f.length, s.mean,
           ln(1::float8 + (s.documents - f.df + 0.5::float8) / (f.df + 0.5::float8)) AS idf
    FROM found f
    JOIN (SELECT DISTINCT namespace_id, documents, mean FROM scope) s USING (namespace_id)
), keyword AS (
    SELECT memory_id, array_agg(DISTINCT ordinal) AS matched,
           sum(idf * tf * {BM25_K1 + 1}::float8
               / (tf + {BM25_K1}::float8
                       * ({1 - BM25_B}::float8 + {BM25_B}::float8 * length / mean))) AS bm25
    FROM weighed GROUP BY memory_id
), word AS (
    SELECT q.ordinal,
           max(ln(1::float8 + (s.documents - coalesce(d.df, 0::float8) + 0.5::float8)
               / (coalesce(d.df, 0::float8) + 0.5::float8))) AS idf
    FROM query q
    JOIN scope s USING (namespace_id)
    LEFT JOIN (SELECT DISTINCT ordinal, namespace_id, df FROM found) d USING (ordinal, namespace_id)
    GROUP BY q.ordinal
), ideal AS (
    SELECT sum(idf) * {BM25_K1 + 1}::float8
           / (1::float8 + {BM25_K1}::float8 * {1 - BM25_B}::float8) AS bm25
    FROM word
), worded AS (
    SELECT k.memory_id
    FROM keyword k
    JOIN memories m ON m.account_id = $1 AND m.memory_id = k.memory_id
    WHERE {_FOUND_AT_ALL} ORDER BY k.bm25 DESC LIMIT $8
), candidate AS (
    SELECT memory_id, min(distance) AS distance, max(bm25) AS bm25, max(matched) AS matched
    FROM (SELECT memory_id, distance, NULL::float8 AS bm25, NULL::int[] AS matched, true AS chosen
          FROM nearest
          UNION ALL SELECT memory_id, NULL, NULL, NULL, true FROM worded
          UNION ALL SELECT memory_id, NULL, bm25, matched, false FROM keyword) AS leg
    GROUP BY memory_id HAVING bool_or(chosen)
), scored AS (
    SELECT c.memory_id, c.matched,
           coalesce(c.distance, (
               SELECT min(v.embedding <=> s.embedding)
               FROM vectors v JOIN scope s ON v.namespace_id = s.namespace_id AND v.epoch = s.epoch
               WHERE v.account_id = $1 AND v.memory_id = c.memory_id AND v.model = $5
           )) AS cosine_distance,
           -- least() passes over NULL, which is what a query without words has for an ideal.
           least(coalesce(c.bm25 / nullif(i.bm25, 0::float8), 0::float8), 1::float8) AS relevance
    FROM candidate c CROSS JOIN ideal i
)
SELECT m.memory_id, ns.name AS namespace, m.epoch, m.seq, m.revision, m.type, m.format, m.kind,
       m.importance, m.confidence, m.writer, m.event_time, m.created_at, m.expires_at, m.blob_id,
       m.embedding_model, s.matched, s.cosine_distance,
       s.relevance,
       coalesce(1::float8 - s.cosine_distance, 0::float8)
           + $17::float8 * s.relevance AS score
FROM scored s
JOIN memories m ON m.account_id = $1 AND m.memory_id = s.memory_id
JOIN namespaces ns ON ns.account_id = $1 AND ns.namespace_id = m.namespace_id
ORDER BY score DESC, m.seq DESC
LIMIT $18
"""

# Nearest manual uploads: foreign ciphertext has no words, only the vector its client sent.
_SEARCH_MANUAL: Final = """
SELECT m.memory_id, m.blob_id, v.embedding <=> $4::halfvec AS distance
FROM vectors v
JOIN memories m ON m.account_id = $1 AND m.memory_id = v.memory_id
WHERE v.account_id = $1 AND v.namespace_id = $2 AND v.model = $3 AND m.format = 'opaque'
  AND (m.expires_at IS NULL OR m.expires_at > $5)
ORDER BY distance, m.seq DESC LIMIT $6
"""


@dataclass(frozen=True)
class Scope:
    """One namespace in one epoch, with the query as that epoch's keys show it.

    Attributes:
        embedding: the turned query, (dim,) float16; None without a vector leg.
        words: the query's word tokens, in query order.
        filters: per required tag, source or metadata pair, its token.
    """

    namespace_id: int
    epoch: int
    embedding: npt.NDArray[np.float16] | None
    words: Sequence[int] = ()
    filters: Sequence[int] = ()


@dataclass(frozen=True)
class Filters:
    """What may be found at all."""

    now: datetime
    kinds: Sequence[str] | None = None
    after: datetime | None = None
    before: datetime | None = None


@dataclass(frozen=True)
class Hit:
    """One candidate: its row and what each leg thought of it.

    Attributes:
        cosine_distance: None while it has no vector or the query has none.
        relevance: keyword score over the ideal one, 0–1.
        matched: positions of the query's words that it holds.
    """

    row: Row = field(repr=False)
    memory_id: uuid.UUID
    cosine_distance: float | None
    relevance: float
    score: float
    matched: Sequence[int]


async def search(
    database: Database,
    *,
    account: AccountId,
    scopes: Sequence[Scope],
    model: str,
    filters: Filters,
    limit: int,
    keyword_weight: float = KEYWORD_WEIGHT,
) -> list[Hit]:
    """The best hits of these scopes, best first."""
    rows = await database.fetch(
        _SEARCH,
        account,
        [s.namespace_id for s in scopes],
        [s.epoch for s in scopes],
        [halfvec(s.embedding) for s in scopes],
        model,
        [s.namespace_id for s in scopes for _ in s.words],
        [token for s in scopes for token in s.words],
        CANDIDATES,
        filters.now,
        filters.kinds,
        filters.after,
        filters.before,
        [s.namespace_id for s in scopes for _ in s.filters],
        [n for s in scopes for n, _ in enumerate(s.filters)],
        [token for s in scopes for token in s.filters],
        [n for s in scopes for n, _ in enumerate(s.words)],
        keyword_weight,
        limit,
    )
    return [
        Hit(r, r["memory_id"], r["cosine_distance"], r["relevance"], r["score"], r["matched"] or ())
        for r in rows
    ]


async def search_manual(
    database: Database,
    *,
    account: AccountId,
    namespace_id: int,
    model: str,
    embedding: npt.NDArray[np.float16],
    now: datetime,
    limit: int,
) -> list[Row]:
    """The nearest manual uploads of a namespace, nearest first."""
    return await database.fetch(
        _SEARCH_MANUAL, account, namespace_id, model, halfvec(embedding), now, limit
    )
