"""The one statement that gathers a recall's evidence: nearest vectors, matched words, neighbours.

Not here: turning and hashing a query (`relayer.query.lookup`), making one score of it
(`relayer.query.fusion`).

- Every number of BM25 is float8: bare literals would make PostgreSQL compute logarithms in numeric,
  three times slower.
- Memories go by their sequence number here, and evidence leaves as arrays: a row of Python objects
  for each would cost more than the search.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relayer.database.conditions import MOMENT, unexpired, within
from relayer.database.memories import MEMORY_COLUMNS
from relayer.database.pool import Database, Row, halfvec
from relayer.database.postings import holders
from relayer.database.states import IN_STATE
from relayer.record import ACTIVE, IMPORTANCES
from relayer.sealed.keys import AccountId

BM25_K1: Final = 0.9
BM25_B: Final = 0.4
CANDIDATES_MIN: Final = 50  # of each leg
NEIGHBOUR_STEPS: Final = 2  # memories to each side that belong to a memory's surroundings
NEIGHBOUR_SEQ: Final = 4  # how far they may lie apart when several write at the same time
NEIGHBOUR_TIME: Final = timedelta(minutes=10)

# What may be found at all: living, sealed, and within the query's filters.
_FOUND_AT_ALL: Final = f"""
    m.namespace_id = ANY ($6::int[]) AND m.format = 'sealed'
    AND {unexpired("$11")}
    AND (m.review IS NULL OR m.review = 'contradiction')
    AND (m.superseded_at IS NULL OR m.superseded_at > $12)
    AND ($12::timestamptz IS NULL OR m.stored_at <= $12)
    AND ($13::text[] IS NULL OR m.kind = ANY ($13))
    AND ($14::bytea[] IS NULL OR m.writer = ANY ($14))
    AND {within("$15", "$16")}
    AND (cardinality($19::bigint[]) = 0 OR NOT EXISTS (
        SELECT 1 FROM unnest($17::int[], $18::int[], $19::bigint[]) AS f (ns, ordinal, token)
        WHERE f.ns = m.namespace_id
        GROUP BY f.ordinal HAVING NOT bool_or(f.token = ANY (m.tokens))))
"""

# Told where a word is found, in the memory's row: to look these up again would take longer.
_HOLDER: Final = f"m.seq, ({_FOUND_AT_ALL}) IS TRUE AS is_found"

_EVIDENCE: Final = f"""
WITH collection AS MATERIALIZED (
    -- Several namespaces are searched as one, so that a word weighs the same in each of them.
    SELECT coalesce(sum(memory_count), 0)::float8 AS documents,
           coalesce(sum(word_count), 0)::float8 AS words,
           greatest(sum(word_count)::float8 / greatest(sum(memory_count), 1)::float8, 1::float8)
               AS mean
    FROM namespaces WHERE account_id = $1 AND namespace_id = ANY ($6::int[])
), near AS MATERIALIZED (
    -- A text of several passages is as near as its nearest, and a little as near as all of them.
    SELECT m.seq, min(d.distance) AS nearest, avg(d.distance) AS spread, count(*) AS passages
    FROM unnest($2::int[], $3::int[], $4::text[], $5::halfvec[])
        AS s (namespace_id, epoch, model, embedding)
    CROSS JOIN LATERAL (
        SELECT v.memory_id, v.embedding <=> s.embedding AS distance
        FROM vectors v
        WHERE v.account_id = $1 AND v.namespace_id = s.namespace_id
          AND v.epoch = s.epoch AND v.model = s.model
        -- So that each scope is looked up by the index, and numbers are joined, not vectors.
        OFFSET 0) d
    JOIN memories m ON m.account_id = $1 AND m.memory_id = d.memory_id
    WHERE {_FOUND_AT_ALL}
    GROUP BY m.seq
), posting AS (
    SELECT q.ordinal, q.weight, p.seq, p.is_found, p.frequency::float8 AS tf,
           p.word_count::float8 AS length, count(*) OVER (PARTITION BY q.term)::float8 AS df
    FROM unnest($7::int[], $8::bigint[], $24::int[], $9::int[], $10::float8[])
        AS q (namespace_id, token, term, ordinal, weight)
    CROSS JOIN LATERAL {holders("q.namespace_id", "q.token", _HOLDER)} p
), weighed AS MATERIALIZED (
    SELECT f.ordinal, f.seq, f.is_found, f.weight, f.tf, f.length, c.mean,
           -- Earlier revisions have words, too, and a write under way may have left its postings
           -- before the count of memories: no word is in more memories than there are.
           ln(1::float8 + (c.documents - least(f.df, c.documents) + 0.5::float8)
                          / (least(f.df, c.documents) + 0.5::float8)) AS idf
    FROM posting f CROSS JOIN collection c
), part AS (
    -- A word of the query counts once, however many of its forms a memory has.
    SELECT seq, ordinal, bool_and(is_found) AS is_found,
           max(weight * idf * tf * {BM25_K1 + 1}::float8
               / (tf + {BM25_K1}::float8
                       * ({1 - BM25_B}::float8 + {BM25_B}::float8 * length / mean))) AS bm25
    FROM weighed GROUP BY seq, ordinal
), worded AS MATERIALIZED (
    SELECT seq, array_agg(ordinal) AS ordinals, array_agg(bm25) AS parts, sum(bm25) AS bm25
    FROM part WHERE is_found GROUP BY seq
), ideal AS (
    -- The score of a memory of ordinary length that holds every word of the query once.
    SELECT sum(idf) * {BM25_K1 + 1}::float8
           / (1::float8 + {BM25_K1}::float8 * {1 - BM25_B}::float8) AS bm25,
           -- The same, where a word that no memory has counts like one that a single one has.
           sum(least(idf, rarest)) * {BM25_K1 + 1}::float8
           / (1::float8 + {BM25_K1}::float8 * {1 - BM25_B}::float8) AS attainable
    FROM (SELECT ln(1::float8 + (greatest(c.documents, 1::float8) - 0.5::float8) / 1.5::float8)
                     AS rarest,
                 coalesce(w.idf,
                          ln(1::float8 + (c.documents + 0.5::float8) / 0.5::float8)) AS idf
          FROM generate_series(0, $20::int - 1) AS o (ordinal)
          CROSS JOIN collection c
          LEFT JOIN (SELECT ordinal, max(idf) AS idf FROM weighed GROUP BY ordinal) w
              ON w.ordinal = o.ordinal) word
), candidate AS MATERIALIZED (
    (SELECT seq FROM near ORDER BY nearest, seq DESC LIMIT $21)
    UNION (SELECT seq FROM worded WHERE bm25 > 0 ORDER BY bm25 DESC, seq DESC LIMIT $21)
), beside AS (
    SELECT a.seq, m.seq AS other,
           row_number() OVER (PARTITION BY a.seq, m.seq > a.seq ORDER BY abs(m.seq - a.seq)) AS step
    FROM candidate c
    JOIN memories a ON a.account_id = $1 AND a.seq = c.seq
    JOIN memories m ON m.account_id = $1
                   AND m.seq BETWEEN a.seq - {NEIGHBOUR_SEQ} AND a.seq + {NEIGHBOUR_SEQ}
                   AND m.seq <> a.seq AND m.namespace_id = a.namespace_id
                   AND m.epoch = a.epoch
                   AND m.writer = a.writer AND m.source IS NOT DISTINCT FROM a.source
                   AND {MOMENT}
                       BETWEEN coalesce(a.event_time, a.created_at) - $22::interval
                           AND coalesce(a.event_time, a.created_at) + $22::interval
    WHERE $23 AND {_FOUND_AT_ALL}
), pair AS MATERIALIZED (
    SELECT seq, other, step FROM beside WHERE step <= {NEIGHBOUR_STEPS}
), shown AS MATERIALIZED (
    SELECT seq FROM candidate UNION SELECT other FROM pair
), told AS (
    -- Grouped, not joined: where little is expected, each would be compared with each.
    SELECT seq, min(nearest) AS nearest, min(spread) AS spread,
           coalesce(min(passages), 0) AS passages
    FROM (SELECT seq, NULL::float8 AS nearest, NULL::float8 AS spread, NULL::bigint AS passages,
                 true AS is_shown
          FROM shown
          UNION ALL SELECT seq, nearest, spread, passages, false FROM near) x
    GROUP BY seq HAVING bool_or(is_shown)
)
SELECT * FROM (
    SELECT array_agg(m.seq) AS seqs,
           array_agg(t.nearest) AS nearest, array_agg(t.spread) AS spread,
           array_agg(t.passages) AS passages,
           array_agg(extract(epoch FROM {MOMENT})::float8) AS moments,
           array_agg(m.importance) AS importances
    FROM told t JOIN memories m ON m.account_id = $1 AND m.seq = t.seq
) AS memory, (
    SELECT array_agg(seq) AS left_seqs, array_agg(other) AS right_seqs, array_agg(step) AS steps
    FROM pair
) AS neighbour, (
    SELECT array_agg(w.seq) AS word_seqs, array_agg(p.ordinal) AS ordinals,
           array_agg(p.part) AS parts
    FROM worded w CROSS JOIN unnest(w.ordinals, w.parts) AS p (ordinal, part)
    WHERE (w.seq IN (SELECT seq FROM shown)) IS TRUE  -- so it stays a set, and no join
) AS word, (
    SELECT avg(nearest) AS mean_nearest, avg(spread) AS mean_spread FROM near
) AS meaning, (
    SELECT documents, words, (SELECT sum(bm25) FROM worded) AS all_bm25,
           (SELECT bm25 FROM ideal) AS ideal, (SELECT attainable FROM ideal) AS attainable,
           CASE WHEN num_nonnulls($12, $13, $14, $15, $16) = 0 AND cardinality($19::bigint[]) = 0
                THEN documents::bigint
                ELSE (SELECT count(*) FROM memories m WHERE m.account_id = $1 AND {_FOUND_AT_ALL})
           END AS findable
    FROM collection
) AS whole
"""

# What was found, with its blob where blobs live in the database: one trip instead of two.
_ROWS: Final = f"""
SELECT {MEMORY_COLUMNS}, m.xmin::text::bigint AS version, b.bytes AS blob
FROM memories m
JOIN namespaces ns ON ns.account_id = $1 AND ns.namespace_id = m.namespace_id
LEFT JOIN blobs b ON b.account_id = $1 AND b.blob_id = m.blob_id
WHERE m.account_id = $1 AND m.seq = ANY ($2)
"""

# Nearest to a vector that a client made: of uploads by theirs, of sealed memories by the nearest of
# their passages.
_SEARCH_MANUAL: Final = f"""
SELECT m.blob_id, min(v.embedding <=> q.embedding) AS distance,
       extract(epoch FROM {MOMENT})::float8 AS moment, m.importance
FROM unnest($3::int[], $4::text[], $5::halfvec[]) AS q (epoch, model, embedding)
JOIN vectors v ON v.account_id = $1 AND v.namespace_id = $2 AND v.epoch = q.epoch
              AND v.model = q.model
JOIN memories m ON m.account_id = $1 AND m.memory_id = v.memory_id
WHERE {unexpired("$6")}
  AND {IN_STATE[ACTIVE]}
GROUP BY m.seq, m.blob_id, moment, m.importance
ORDER BY distance, m.seq DESC LIMIT $7
"""


_BLOB_IDS: Final = "SELECT seq, blob_id FROM memories WHERE account_id = $1 AND seq = ANY ($2)"

# Which of some tokens any memory has.
_PRESENT: Final = f"""
SELECT DISTINCT q.number FROM unnest($2::int[], $3::bigint[], $4::int[])
    AS q (namespace_id, token, number)
WHERE EXISTS (SELECT 1 FROM {holders("q.namespace_id", "q.token")} h)
"""

# Pairs of a namespace and its tokens of the same terms, in the same order for each.
Tokens = Sequence[tuple[int, Sequence[int]]]


@dataclass(frozen=True)
class Scope:
    """One namespace in one epoch, with the query as that epoch's keys show it.

    Attributes:
        embeddings: model id → the query's vector of that model, turned, (dim,) float16.
        words: (token, ordinal of the word, weight) of the same terms in the same order for every
            scope; several may stand for one word.
        filters: per required tag, source or metadata pair, its token.
    """

    namespace_id: int
    epoch: int
    embeddings: Mapping[str, npt.NDArray[np.float16]] = field(default_factory=dict, repr=False)
    words: Sequence[tuple[int, int, float]] = ()
    filters: Sequence[int] = ()


@dataclass(frozen=True)
class Filters:
    """Filters of what may be found at all; `as_of` asks what could have been found at that time."""

    now: datetime
    as_of: datetime | None = None
    kinds: Sequence[str] | None = None
    writers: Sequence[bytes] | None = None
    after: datetime | None = None
    before: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Search:
    """A request for evidence.

    Attributes:
        query_words: how many words the ideal memory holds: ordinals from there on only add.
        limit: how many answers are asked for.
        neighbours: whether what stands beside candidates is wanted, too.
    """

    scopes: Sequence[Scope]
    query_words: int
    filters: Filters
    limit: int
    neighbours: bool

    @property
    def candidates(self) -> int:
        """Return the number of candidates that each leg looks at."""
        return max(self.limit, CANDIDATES_MIN)


@dataclass(frozen=True)
class Nearest:
    """Memories nearest to a vector, nearest first, as arrays over `n` of them.

    Attributes:
        blob_ids: (n,) hashes.
        distances: (n,) cosine distance of the nearest passage.
        moments: (n,) when it happened, seconds since 1970.
        importances: (n,) places in `record.IMPORTANCES`.
    """

    blob_ids: Sequence[bytes]
    distances: npt.NDArray[np.float64]
    moments: npt.NDArray[np.float64]
    importances: npt.NDArray[np.int8]


@dataclass(frozen=True)
class Estimates:
    """The distances of some evidence that are not measured yet, as arrays over its `n` memories.

    Attributes:
        are: (n,) whose distances these are.
        near, worded: (n,) what may be nearest, and what words found; others stand beside them.
        candidates: how many of those that are near will be left.
    """

    are: npt.NDArray[np.bool_]
    near: npt.NDArray[np.bool_]
    worded: npt.NDArray[np.bool_]
    candidates: int


@dataclass(frozen=True)
class Evidence:
    """The evidence for memories, as arrays over `n` memories, `p` pairs and `w` words found.

    Attributes:
        seqs: (n,) int64, ascending.
        nearest: (n,) cosine distance of the nearest passage; NaN without a vector.
        spread: (n,) mean cosine distance of all passages; NaN without a vector.
        passages: (n,) how many there are; 0 without a vector.
        moments: (n,) when it happened, seconds since 1970.
        importances: (n,) places in `record.IMPORTANCES`.
        pairs: (p, 2) positions of memories that stand beside each other.
        steps: (p,) how far beside, 1 or more.
        found: (w, 2) positions of a memory and of the query's word that it holds.
        parts: (w,) what the word adds to the memory's BM25.
        ideal: BM25 of a memory of ordinary length that holds every word of the query once.
        attainable: the same, where a word that no memory has counts like one that a single one has.
        mean_nearest, mean_spread: of all memories that may be found; NaN without vectors.
        mean_bm25: of all memories that may be found.
        findable: how many memories may be found: those that pass the caller's filters.
        mean_words: how many words the memories of the namespaces have on average.
        is_estimated: a mean is an estimate, or which memories are nearest was found by estimates;
            what is told of each memory is none.
        estimates: which distances are estimates as yet; None where none is.
    """

    seqs: npt.NDArray[np.int64]
    nearest: npt.NDArray[np.float64]
    spread: npt.NDArray[np.float64]
    passages: npt.NDArray[np.int64]
    moments: npt.NDArray[np.float64]
    importances: npt.NDArray[np.int8]
    pairs: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]
    found: npt.NDArray[np.int64]
    parts: npt.NDArray[np.float64]
    ideal: float
    attainable: float
    mean_nearest: float
    mean_spread: float
    mean_bm25: float
    findable: int
    mean_words: float
    is_estimated: bool = False
    estimates: Estimates | None = None


async def gather(database: Database, account: AccountId, search: Search) -> Evidence:
    """Return the evidence for the best candidates of each leg and what stands beside them."""
    statement, arguments = evidence_query(account, search)
    [row] = await database.fetch_planned(statement, *arguments)
    return _evidence(row)


async def find_present(database: Database, account: AccountId, tokens: Tokens) -> set[int]:
    """Return the places of those terms that any memory of one of these namespaces has."""
    rows = [(namespace, t, n) for namespace, its in tokens for n, t in enumerate(its)]
    found = await database.fetch(
        _PRESENT, account, [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]
    )
    return {row["number"] for row in found}


def evidence_query(account: AccountId, search: Search) -> tuple[str, list[Any]]:
    """Return the statement of `gather` and its arguments."""
    scopes, filters = search.scopes, search.filters
    vectors = [(s, model, vector) for s in scopes for model, vector in s.embeddings.items()]
    words = [(s, n, *word) for s in scopes for n, word in enumerate(s.words)]
    return _EVIDENCE, [
        account,
        [s.namespace_id for s, _, _ in vectors],
        [s.epoch for s, _, _ in vectors],
        [model for _, model, _ in vectors],
        [halfvec(vector) for _, _, vector in vectors],
        sorted({s.namespace_id for s in scopes}),
        [s.namespace_id for s, _, _, _, _ in words],
        [token for _, _, token, _, _ in words],
        [ordinal for _, _, _, ordinal, _ in words],
        [weight for _, _, _, _, weight in words],
        filters.now,
        filters.as_of,
        filters.kinds,
        filters.writers,
        filters.after,
        filters.before,
        [s.namespace_id for s in scopes for _ in s.filters],
        [n for s in scopes for n, _ in enumerate(s.filters)],
        [token for s in scopes for token in s.filters],
        search.query_words,
        search.candidates,
        NEIGHBOUR_TIME,
        search.neighbours,
        [n for _, n, _, _, _ in words],
    ]


async def rows_of(database: Database, *, account: AccountId, seqs: Sequence[int]) -> dict[int, Row]:
    """Return number → row of those memories that still live.

    The row has its version and what the database has of its blob.
    """
    return {r["seq"]: r for r in await database.fetch(_ROWS, account, seqs)}


async def search_manual(
    database: Database,
    *,
    account: AccountId,
    namespace_id: int,
    embeddings: Mapping[tuple[int, str], npt.NDArray[np.float16]],
    now: datetime,
    limit: int,
) -> Nearest:
    """Return the nearest memories of a namespace, of equals the newest first.

    `embeddings` has a vector for each epoch and model that is looked among.
    """
    rows = await database.fetch(
        _SEARCH_MANUAL,
        account,
        namespace_id,
        [epoch for epoch, _ in embeddings],
        [model for _, model in embeddings],
        [halfvec(vector) for vector in embeddings.values()],
        now,
        limit,
    )
    return Nearest(
        [r["blob_id"] for r in rows],
        np.array([r["distance"] for r in rows], np.float64),
        np.array([r["moment"] for r in rows], np.float64),
        np.array([IMPORTANCES.index(r["importance"]) for r in rows], np.int8),
    )


async def blob_ids(database: Database, account: AccountId, seqs: Sequence[int]) -> dict[int, bytes]:
    """Return number → hash of the blob of those of these memories that are there."""
    return {row["seq"]: row["blob_id"] for row in await database.fetch(_BLOB_IDS, account, seqs)}


def _evidence(row: Row) -> Evidence:
    seqs = np.array(row["seqs"] or (), np.int64)
    order = np.argsort(seqs)
    seqs = seqs[order]

    def order_column(name: str) -> npt.NDArray[np.float64]:
        return np.array(row[name] or (), np.float64)[order]

    def positions(*names: str) -> npt.NDArray[np.int64]:
        columns = [np.array(row[name] or (), np.int64) for name in names]
        return np.stack([np.searchsorted(seqs, c) for c in columns], axis=1)

    words = positions("word_seqs")[:, 0]
    importances = np.array([IMPORTANCES.index(i) for i in row["importances"] or ()], np.int8)
    return Evidence(
        seqs=seqs,
        nearest=order_column("nearest"),
        spread=order_column("spread"),
        passages=np.array(row["passages"] or (), np.int64)[order],
        moments=order_column("moments"),
        importances=importances[order],
        pairs=positions("left_seqs", "right_seqs"),
        steps=np.array(row["steps"] or (), np.int64),
        found=np.stack([words, np.array(row["ordinals"] or (), np.int64)], axis=1),
        parts=np.array(row["parts"] or (), np.float64),
        ideal=row["ideal"] or 0.0,
        attainable=row["attainable"] or 0.0,
        mean_nearest=_number(row["mean_nearest"]),
        mean_spread=_number(row["mean_spread"]),
        mean_bm25=(row["all_bm25"] or 0.0) / max(row["findable"], 1),
        findable=row["findable"],
        mean_words=row["words"] / max(row["documents"], 1.0),
    )


def _number(value: float | None) -> float:
    return np.nan if value is None else value
