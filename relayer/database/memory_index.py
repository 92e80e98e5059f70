"""Statements that read a namespace's index as arrays, whole or what changed of it.

Not here: decoding what they send (`index_pages`), holding it in memory (`relayer.memory_index`).

- What changed is told by the steps between two states of the account's index (`index_steps`).
- Where one of these is missing, all rows tell it: a row of `memories` has another `xmin` after
  every change, and whatever a memory is found by changes together with its row.
- All of a reading comes from one snapshot. After a database was set back under a running relayer,
  an `xmin` may come again: restart it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from relayer.database.index_pages import (
    BETWEEN,
    FLAGS,
    IMPORTANCE,
    KIND,
    KINDS,
    RECORD_MAX,
    WORDS,
    Counts,
    Differing,
    Extent,
    Newest,
    Page,
    Versions,
    decode_numbers,
    decode_page,
    decode_vectors,
)
from relayer.database.index_steps import IndexMark
from relayer.database.pool import Connection, Row
from relayer.record import IMPORTANCES
from relayer.sealed.keys import AccountId

VECTORS_EACH: Final = 2  # on average that are read without asking how many there are before


def _code(column: str, names: Sequence[str]) -> str:
    """Return the place of a column's value among names, in SQL."""
    cases = " ".join(f"WHEN '{name}' THEN {place}" for place, name in enumerate(names))
    return f"CASE {column} {cases} ELSE {len(names)} END"


_COUNT: Final = """
SELECT memory_count FROM namespaces WHERE account_id = $1 AND namespace_id = $2
"""
# Big-endian, as their types are sent: arrays of so many numbers take half as long again.
_VERSIONS: Final = """
SELECT a.receipt_head, a.receipt_seq + a.index_changes AS number, n.memory_count, n.word_count,
       m.seqs, m.versions
FROM accounts a
JOIN namespaces n ON n.account_id = $1 AND n.namespace_id = $2
CROSS JOIN (
    SELECT string_agg(int8send(seq), ''::bytea) AS seqs,
           string_agg(xidsend(xmin), ''::bytea) AS versions
    FROM memories WHERE account_id = $1 AND namespace_id = $2
) m
WHERE a.account_id = $1
"""
# The steps since a state, each with the memories that it changed of one namespace.
_STEPS: Final = """
SELECT a.receipt_head, a.receipt_seq + a.index_changes AS number, n.memory_count, n.word_count,
       s.number AS later, s.earlier, s.earlier_head,
       CASE WHEN $2 = ANY (s.namespace_ids) THEN s.seqs ELSE '{}' END AS seqs
FROM accounts a
JOIN namespaces n ON n.account_id = $1 AND n.namespace_id = $2
LEFT JOIN LATERAL (
    SELECT * FROM index_steps i WHERE i.account_id = $1 AND i.number > $3 ORDER BY i.number LIMIT $4
) s ON true
WHERE a.account_id = $1 ORDER BY s.number
"""
# What is told before any of it is read: long texts have thousands of vectors. Whoever has a record
# has no vector of its own.
_EXTENT: Final = """
SELECT string_agg(int8send(m.seq), ''::bytea) AS seqs,
       string_agg(int8send(v.vectors), ''::bytea) AS vectors,
       string_agg(int8send(v.numbers), ''::bytea) AS numbers,
       string_agg(int8send(cardinality(m.tokens)), ''::bytea) AS postings,
       string_agg(int8send(coalesce(octet_length(m.index_record), 0)), ''::bytea) AS records
FROM memories m
CROSS JOIN LATERAL (
    SELECT count(*) AS vectors, coalesce(sum(vector_dims(embedding)), 0) AS numbers
    FROM vectors
    WHERE account_id = $1 AND memory_id = m.memory_id AND m.index_record IS NULL
) v
WHERE m.account_id = $1 AND m.namespace_id = $2 AND m.seq = ANY ($3)
"""
# A string for each column: a row for each memory takes twice as long to read. What is the same of
# almost all comes for the others alone, and small numbers share one.
_HAS_WORDS: Final = "frequencies IS NOT NULL"
_ROWS: Final = f"""
       string_agg(int8send(seq), ''::bytea) AS seqs,
       string_agg(xidsend(xmin), ''::bytea) AS versions,
       string_agg(int4send(epoch), ''::bytea) AS epochs,
       string_agg(int4send({" + ".join(f"({f})::int * {1 << n}" for n, f in enumerate(FLAGS))}
                           + {_code("importance", IMPORTANCES)} * {IMPORTANCE}
                           + {_code("kind", KINDS)} * {KIND}
                           + coalesce(octet_length(frequencies), 0) * {WORDS}),
                  ''::bytea) AS flags,
       string_agg(int4send(revision), ''::bytea) FILTER (WHERE {FLAGS[3]}) AS revisions,
       string_agg(int8send(source), ''::bytea) FILTER (WHERE {FLAGS[4]}) AS sources,
       string_agg(timestamptz_send(expires_at), ''::bytea) FILTER (WHERE {FLAGS[5]}) AS expires,
       string_agg(timestamptz_send(superseded_at), ''::bytea)
           FILTER (WHERE {FLAGS[6]}) AS superseded,
       string_agg(timestamptz_send(coalesce(event_time, created_at)), ''::bytea) AS moments,
       string_agg(timestamptz_send(stored_at), ''::bytea) AS stored,
       string_agg(writer, ''::bytea) AS writers,
       string_agg(blob_id, ''::bytea) AS blobs,
       string_agg(uuid_send(coalesce(revision_of, memory_id)), ''::bytea) AS memory_ids,
       string_agg(coalesce(embedding_model, ''), E'{BETWEEN}') AS models,
       string_agg(array_send(tokens), ''::bytea) FILTER (WHERE {_HAS_WORDS}) AS tokens,
       string_agg(frequencies, ''::bytea) AS frequencies,
       string_agg(int2send(word_count), ''::bytea) FILTER (WHERE {_HAS_WORDS}) AS lengths,
       string_agg(int4send(coalesce(octet_length(index_record), 0)), ''::bytea) AS record_sizes
"""
_MEMORIES: Final = f"""
SELECT string_agg(index_record, ''::bytea) AS records, {_ROWS}
FROM memories WHERE account_id = $1 AND namespace_id = $2 AND seq = ANY ($3)
"""
# The state and the newest memories in one, large records left out.
_NEWEST: Final = f"""
SELECT a.receipt_head, a.receipt_seq + a.index_changes AS number, n.memory_count, n.word_count,
       (SELECT max(seq) FROM memories
        WHERE account_id = $1 AND namespace_id = $2 AND seq < coalesce(r.first, $3)) AS rest, r.*
FROM accounts a
JOIN namespaces n ON n.account_id = $1 AND n.namespace_id = $2
CROSS JOIN (
    SELECT min(seq) AS first,
           string_agg(index_record, ''::bytea)
               FILTER (WHERE octet_length(index_record) <= {RECORD_MAX}) AS records, {_ROWS}
    FROM (SELECT *, xmin FROM memories WHERE account_id = $1 AND namespace_id = $2 AND seq < $3
          ORDER BY seq DESC LIMIT $4) m
) r
WHERE a.account_id = $1
"""


def _vectors(which: str, most: str) -> str:
    """Return SQL for the vectors of memories, as one string of big-endian halves after four bytes
    each: so their type is sent.

    They are looked up by memory: joined, all of an account's might be looked through for a page.
    """
    return f"""
SELECT epoch, model, string_agg(int8send(seq), ''::bytea) AS seqs,
       string_agg(halfvec_send(embedding), ''::bytea) AS packed
FROM (SELECT m.seq, v.epoch, v.model, v.embedding
      FROM memories m
      CROSS JOIN LATERAL (
          SELECT epoch, model, embedding FROM vectors
          WHERE account_id = $1 AND memory_id = m.memory_id OFFSET 0
      ) v
      WHERE m.account_id = $1 AND m.namespace_id = $2 AND {which} LIMIT {most}) found
GROUP BY epoch, model
"""


_VECTORS: Final = _vectors("m.seq = ANY ($3)", "ALL")
_VECTORS_BETWEEN: Final = _vectors("m.seq BETWEEN $3 AND $4 AND m.index_record IS NULL", "$5")
_POSTINGS: Final = """
SELECT string_agg(int8send(p.token), ''::bytea) AS tokens,
       string_agg(int8send(m.seq), ''::bytea) AS seqs,
       string_agg(int2send(p.frequency), ''::bytea) AS frequencies,
       string_agg(int2send(p.word_count), ''::bytea) AS lengths
FROM memories m
CROSS JOIN LATERAL unnest(m.tokens) AS t (token)
JOIN postings p ON p.account_id = $1 AND p.namespace_id = $2 AND p.token = t.token
               AND p.memory_id = m.memory_id
WHERE m.account_id = $1 AND m.namespace_id = $2 AND m.seq = ANY ($3) AND m.frequencies IS NULL
"""
STEPS_MAX: Final = 500  # so many look at fewer rows than all of a namespace that is worth holding


async def count(connection: Connection, account: AccountId, namespace_id: int) -> int | None:
    """Count the memories that a namespace has now; None for no namespace."""
    found: int | None = await connection.fetchval(_COUNT, account, namespace_id)
    return found


async def versions(
    connection: Connection, account: AccountId, namespace_id: int
) -> Versions | None:
    """Return the rows that a namespace has now; None when it is not there."""
    row = await connection.fetchrow(_VERSIONS, account, namespace_id)
    if row is None:
        return None
    seqs = decode_numbers(row["seqs"], ">i8")
    versions = decode_numbers(row["versions"], ">u4")
    order = np.argsort(seqs)
    return Versions(*_state(row), seqs[order], versions[order])


async def read_changes(
    connection: Connection, account: AccountId, namespace_id: int, since: IndexMark
) -> Differing | None:
    """Return what differs from an earlier state; None when not every step is known."""
    rows = await connection.fetch(_STEPS, account, namespace_id, since.number, STEPS_MAX)
    if not rows:
        return None
    mark, counts = _state(rows[0])
    steps = [row for row in rows if row["later"] is not None]
    begun = [*(row["earlier"] for row in steps), mark.number]
    ended = [since.number, *(row["later"] for row in steps)]
    head = steps[0]["earlier_head"] if steps else mark.head
    if begun != ended or head != since.head:
        return None
    seqs = sorted({seq for row in steps for seq in row["seqs"]})
    return Differing(mark, counts, np.array(seqs, np.int64))


async def extent(
    connection: Connection, account: AccountId, namespace_id: int, seqs: Sequence[int]
) -> Extent:
    """Return the amounts of these memories' index data; reads none of it."""
    row = await connection.fetchrow(_EXTENT, account, namespace_id, seqs)
    assert row is not None
    names = ("seqs", "vectors", "numbers", "postings", "records")
    found = [decode_numbers(row[name], ">i8") for name in names]
    order = np.argsort(found[0])
    return Extent(*(column[order] for column in found))


async def newest(
    connection: Connection, account: AccountId, namespace_id: int, before: int, count: int
) -> Newest | None:
    """Return so many of the newest memories before a number; None for no namespace.

    What may be large is left to be read apart, so that all of it takes a few megabytes.
    """
    row = await connection.fetchrow(_NEWEST, account, namespace_id, before, count)
    if row is None:
        return None
    page, has_rows = decode_page(row)
    memories = page.memories
    is_apart = has_rows | (memories.record_sizes > RECORD_MAX)
    searched = memories.seq[memories.record_sizes == 0]
    if len(searched):
        most, bounds = VECTORS_EACH * count, (int(searched[0]), int(searched[-1]))
        vectors = await connection.fetch(_VECTORS_BETWEEN, account, namespace_id, *bounds, most)
        page = replace(page, vectors=decode_vectors(vectors))
        if sum(len(its) for its, _ in page.vectors.values()) >= most:
            is_apart |= memories.record_sizes == 0
    return Newest(*_state(row), page.only(~is_apart), memories.seq[is_apart], row["rest"])


async def page(
    connection: Connection, account: AccountId, namespace_id: int, seqs: Sequence[int]
) -> Page:
    """Read the index data of these memories."""
    row = await connection.fetchrow(_MEMORIES, account, namespace_id, seqs)
    assert row is not None
    page, has_rows = decode_page(row)
    rest = page.memories.seq[page.memories.record_sizes == 0].tolist()
    if rest:
        vectors = await connection.fetch(_VECTORS, account, namespace_id, rest)
        page = replace(page, vectors=decode_vectors(vectors))
    if not has_rows.any():
        return page
    rest = page.memories.seq[has_rows].tolist()
    postings = await connection.fetchrow(_POSTINGS, account, namespace_id, rest)
    assert postings is not None
    return replace(
        page,
        tokens=np.concatenate([page.tokens, decode_numbers(postings["tokens"], ">i8")]),
        seqs=np.concatenate([page.seqs, decode_numbers(postings["seqs"], ">i8")]),
        frequencies=np.concatenate(
            [page.frequencies, decode_numbers(postings["frequencies"], ">i2").astype(np.int16)]
        ),
        lengths=np.concatenate(
            [page.lengths, decode_numbers(postings["lengths"], ">i2").astype(np.int16)]
        ),
    )


def _state(row: Row) -> tuple[IndexMark, Counts]:
    mark = IndexMark(row["receipt_head"], row["number"])
    return mark, Counts(row["memory_count"], row["word_count"])
