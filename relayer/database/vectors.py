"""Statements on what memories are found by: vectors, words in another version, and what waits.

Not here: searching them (`recall`), the words of a new memory (`memories`).

- A memory's index is up to date when its words have today's `index_version` and its vectors today's
  `embedding_version`, which names a model and how it cuts texts; or when a later release, which
  looks after those memories itself, wrote its words.
- New vectors come in and old ones go in one transaction: a search sees the one or the other.
"""

import uuid
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.database import index_size
from relayer.database import webhooks as webhook_rows
from relayer.database.index_steps import note_change, note_step
from relayer.database.memories import NewMemory
from relayer.database.pool import Connection, Database, Row, halfvec
from relayer.database.postings import Words
from relayer.sealed.index_record import MARK_BYTES, mark_of
from relayer.sealed.keys import AccountId
from relayer.settings import UPLOAD_MODELS

TURNED, SENT = UPLOAD_MODELS  # turned by the relayer, or as their client sent them
NO_VECTOR: Final = "none"  # no endpoint takes the text: it is found by keyword alone
LOST: Final = "lost"  # the blob is altered
# In place of a version, where the blob is not there, which may pass. It comes before each version
# in any collation: what is marked while pages are read is not read again.
MISSING: Final = " "
Vector = tuple[Row, int, npt.NDArray[np.float16]]  # memory row, part, turned vector
Position = tuple[int, str, int]  # index version, embedding version, sequence number
START: Final[Position] = (0, "", 0)
FORGOTTEN_AT_ONCE: Final = 5_000

_COLUMNS: Final = """
    m.memory_id, m.revision_of, m.namespace_id, m.epoch, m.seq, m.revision, m.type, m.blob_id,
    m.size_bytes, m.index_version, m.embedding_version, m.embedding_model, m.index_record,
    m.created_at
"""
_IS_DUE: Final = """
    m.format = 'sealed' AND (m.index_version < $2
                             OR m.index_version = $2 AND coalesce(m.embedding_version <> $3, false))
"""
_NAMED: Final = f"""
SELECT {_COLUMNS}, ns.name AS namespace
FROM memories m
JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
WHERE m.account_id = $1 AND m.memory_id = ANY ($4) AND {_IS_DUE}
"""
_PAGE: Final = """
    m.account_id = $1 AND m.format = 'sealed' AND ($7::int[] IS NULL OR m.namespace_id = ANY ($7))
    AND (m.index_version, m.embedding_version, m.seq) > ($4::smallint, $5::text, $6::bigint)
"""
_ORDER: Final = "ORDER BY m.index_version, m.embedding_version, m.seq LIMIT $8"

# `_IS_DUE` as ranges of one index, in its order: older words, then vectors of a version below and
# above.
_DUE: Final = f"""
SELECT m.*, ns.name AS namespace
FROM ((SELECT {_COLUMNS} FROM memories m WHERE {_PAGE} AND m.index_version < $2 {_ORDER})
      UNION ALL
      (SELECT {_COLUMNS} FROM memories m
       WHERE {_PAGE} AND m.index_version = $2 AND m.embedding_version < $3 {_ORDER})
      UNION ALL
      (SELECT {_COLUMNS} FROM memories m
       WHERE {_PAGE} AND m.index_version = $2 AND m.embedding_version > $3 {_ORDER})) m
JOIN namespaces ns ON ns.account_id = $1 AND ns.namespace_id = m.namespace_id
{_ORDER}
"""
_ITS_OLDER: Final = """
    FROM memories m
    WHERE m.account_id = a.account_id AND m.format = 'sealed' AND m.created_at < $3
"""
_ACCOUNTS_DUE: Final = f"""
SELECT a.account_id, a.whole_id FROM accounts a
WHERE EXISTS (SELECT 1 {_ITS_OLDER} AND m.index_version < $1)
UNION SELECT a.account_id, a.whole_id FROM accounts a
WHERE EXISTS (SELECT 1 {_ITS_OLDER} AND m.index_version = $1 AND m.embedding_version < $2)
UNION SELECT a.account_id, a.whole_id FROM accounts a
WHERE EXISTS (SELECT 1 {_ITS_OLDER} AND m.index_version = $1 AND m.embedding_version > $2)
"""
_PROGRESS: Final = f"""
SELECT count(*) AS memories,
       count(*) FILTER (WHERE due AND embedding_version <> '{MISSING}') AS waiting,
       count(*) FILTER (WHERE due AND embedding_version = '{MISSING}') AS missing,
       count(*) FILTER (WHERE NOT due AND embedding_model = '{NO_VECTOR}') AS refused,
       count(*) FILTER (WHERE NOT due AND embedding_model = '{LOST}') AS lost
FROM (SELECT embedding_model, embedding_version, {_IS_DUE} AS due
      FROM memories m WHERE account_id = $1) m
"""
_LAST_SEQ: Final = "SELECT coalesce(max(seq), 0) AS seq FROM memories WHERE account_id = $1"
_FORGET_VERSIONS: Final = """
UPDATE memories SET embedding_version = ''
WHERE account_id = $1 AND format = 'sealed' AND seq > $2 AND seq <= $3 AND embedding_version <> ''
"""

# Lock the rows that still live, are still due and say what was looked at: an erased one must not
# get a vector, an edited one not that of its text of before, and one with a record no row.
_LOCK: Final = f"""
SELECT m.memory_id, m.namespace_id, m.seq, m.index_version, m.embedding_version
FROM memories m
WHERE m.account_id = $1 AND {_IS_DUE}
  AND (m.memory_id, m.blob_id, coalesce(substr(m.index_record, 1, {MARK_BYTES}), ''::bytea))
      IN (SELECT * FROM unnest($4::uuid[], $5::bytea[], $6::bytea[]))
ORDER BY m.memory_id FOR UPDATE
"""
DELETE_VECTORS: Final = "DELETE FROM vectors WHERE account_id = $1 AND memory_id = ANY ($2)"
_INSERT_VECTORS: Final = """
WITH embedded AS (
    UPDATE memories SET embedding_model = $2, embedding_version = $9
    WHERE account_id = $1 AND memory_id = ANY ($3::uuid[])
)
INSERT INTO vectors (account_id, memory_id, part, namespace_id, epoch, model, embedding)
SELECT $1, memory_id, part, namespace_id, epoch, $2, embedding
FROM unnest($4::uuid[], $5::smallint[], $6::int[], $7::int[], $8::halfvec[])
    AS v (memory_id, part, namespace_id, epoch, embedding)
ON CONFLICT DO NOTHING
"""
_GIVE_UP: Final = """
UPDATE memories m
SET embedding_model = g.mark, embedding_version = coalesce($4, m.embedding_version),
    index_version = greatest(m.index_version, $5)
FROM unnest($2::uuid[], $3::text[]) AS g (memory_id, mark)
WHERE m.account_id = $1 AND m.memory_id = g.memory_id
"""
_MARK_MISSING: Final = f"""
UPDATE memories m SET embedding_version = '{MISSING}'
WHERE m.account_id = $1 AND m.memory_id = ANY ($4) AND {_IS_DUE}
  AND m.embedding_version <> '{MISSING}'
"""
DELETE_POSTINGS: Final = """
DELETE FROM postings p
USING (SELECT namespace_id, memory_id, unnest(tokens) AS token FROM memories
       WHERE account_id = $1 AND memory_id = ANY ($2) AND frequencies IS NULL) old
WHERE p.account_id = $1 AND p.namespace_id = old.namespace_id AND p.token = old.token
  AND p.memory_id = old.memory_id
"""
_INSERT_POSTINGS: Final = """
WITH counted AS (
    UPDATE namespaces n SET word_count = n.word_count + c.more
    FROM (SELECT m.namespace_id, sum(r.word_count - m.word_count) AS more
          FROM memories m
          JOIN unnest($3::uuid[], $4::smallint[]) AS r (memory_id, word_count) USING (memory_id)
          WHERE m.account_id = $1 AND m.revision_of IS NULL GROUP BY m.namespace_id) c
    WHERE n.account_id = $1 AND n.namespace_id = c.namespace_id
), memory AS (
    UPDATE memories m
    SET word_count = r.word_count, source = r.source, index_version = $2,
        tokens = ($11::bigint[])[r.first_token:r.last_token], frequencies = r.frequencies
    FROM unnest($3::uuid[], $4::smallint[], $10::bigint[], $12::int[], $13::int[], $14::bytea[])
        AS r (memory_id, word_count, source, first_token, last_token, frequencies)
    WHERE m.account_id = $1 AND m.memory_id = r.memory_id
)
INSERT INTO postings (account_id, namespace_id, token, memory_id, frequency, word_count)
SELECT $1, namespace_id, token, memory_id, frequency, word_count
FROM unnest($5::uuid[], $6::int[], $7::bigint[], $8::smallint[], $9::smallint[])
    AS w (memory_id, namespace_id, token, frequency, word_count)
ON CONFLICT (account_id, namespace_id, token, memory_id)
DO UPDATE SET frequency = excluded.frequency, word_count = excluded.word_count
"""

_SET_RECORDS: Final = """
UPDATE memories m
SET index_record = r.record, source = r.source, index_version = greatest(m.index_version, $4)
FROM unnest($2::uuid[], $3::bytea[], $5::bigint[]) AS r (memory_id, record, source)
WHERE m.account_id = $1 AND m.memory_id = r.memory_id
"""

# Each model of each namespace by a probe of either index, however many vectors there are.
_MODELS: Final = f"""
WITH RECURSIVE used AS (
    SELECT n.namespace_id, (SELECT min(v.model) FROM vectors v
                            WHERE v.account_id = $1 AND v.namespace_id = n.namespace_id) AS model
    FROM unnest($2::int[]) AS n (namespace_id)
    UNION ALL
    SELECT u.namespace_id, (SELECT min(v.model) FROM vectors v
                            WHERE v.account_id = $1 AND v.namespace_id = u.namespace_id
                              AND v.model > u.model)
    FROM used u WHERE u.model IS NOT NULL
), recorded AS (
    SELECT n.namespace_id,
           (SELECT min(m.embedding_model) FROM memories m
            WHERE m.account_id = $1 AND m.namespace_id = n.namespace_id
              AND m.index_record IS NOT NULL) AS model
    FROM unnest($2::int[]) AS n (namespace_id)
    UNION ALL
    SELECT r.namespace_id,
           (SELECT min(m.embedding_model) FROM memories m
            WHERE m.account_id = $1 AND m.namespace_id = r.namespace_id
              AND m.index_record IS NOT NULL AND m.embedding_model > r.model)
    FROM recorded r WHERE r.model IS NOT NULL
)
SELECT namespace_id, model FROM used WHERE model IS NOT NULL
UNION
SELECT namespace_id, model FROM recorded
WHERE model IS NOT NULL AND model NOT IN ('{NO_VECTOR}', '{LOST}')
"""


@dataclass(frozen=True)
class Versions:
    """The versions of an up-to-date index; `embedding` is None where nothing is embedded."""

    index: int
    embedding: str | None


@dataclass(frozen=True)
class Worded:
    """The words of one memory, counted anew."""

    memory_id: uuid.UUID
    namespace_id: int
    word_count: int
    source: int | None
    postings: Mapping[int, int] = field(repr=False)


@dataclass(frozen=True)
class Recorded:
    """The record of one memory, made anew, and the masked token of its source."""

    sealed: bytes = field(repr=False)
    source: int | None


@dataclass(frozen=True)
class Indexed:
    """The index data that some memories are found by from now on.

    Attributes:
        blobs: memory → the blob that all of this was computed from.
        given_up: memories that get no vector → `NO_VECTOR` or `LOST`.
        missing: memories that are tried again once their blobs are back.
        read: memory → its record as it was read, if it has one.
        records: those of them that are sealed anew, with all words, and the vectors among those.
    """

    versions: Versions
    model: str
    words: Sequence[Worded]
    vectors: Sequence[Vector]
    given_up: Mapping[uuid.UUID, str]
    missing: Set[uuid.UUID]
    blobs: Mapping[uuid.UUID, bytes]
    read: Mapping[uuid.UUID, bytes] = field(default_factory=dict, repr=False)
    records: Mapping[uuid.UUID, Recorded] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """Numbers of an account's memories: all, those that wait, and those that get no vector."""

    memories: int
    waiting: int
    refused: int
    lost: int
    missing: int = 0

    @property
    def up_to_date(self) -> int:
        """Count the memories that are as they should be."""
        return self.memories - self.waiting - self.refused - self.lost - self.missing


async def due_of(
    database: Database, *, account: AccountId, memory_ids: Sequence[uuid.UUID], versions: Versions
) -> list[Row]:
    """Return those of these memories whose index is out of date."""
    return await database.fetch(_NAMED, account, versions.index, versions.embedding, memory_ids)


async def due(
    database: Database,
    *,
    account: AccountId,
    namespace_ids: Sequence[int] | None,
    versions: Versions,
    after: Position = START,
    limit: int,
) -> list[Row]:
    """Return a page of memories whose index is out of date, in the order of `Position`."""
    return await database.fetch(
        _DUE, account, versions.index, versions.embedding, *after, namespace_ids, limit
    )


async def accounts_due(
    database: Database, *, versions: Versions, before: datetime
) -> list[AccountId]:
    """Return accounts with a memory older than that whose index is out of date; for the sweeper."""
    rows = await database.fetch_planned(_ACCOUNTS_DUE, versions.index, versions.embedding, before)
    return [AccountId(r["whole_id"]) for r in rows]


async def progress(database: Database, *, account: AccountId, versions: Versions) -> Progress:
    """Return the progress of an account's memories; reads all of them."""
    row = await database.fetchrow(_PROGRESS, account, versions.index, versions.embedding)
    assert row is not None
    return Progress(**row)


async def forget_versions(database: Database, *, account: AccountId) -> None:
    """Make an account's vectors out of date; they are searched until there are others."""
    row = await database.fetchrow(_LAST_SEQ, account)
    last = row["seq"] if row else 0  # later ones are made anew already
    for first in range(0, last, FORGOTTEN_AT_ONCE):
        through = min(first + FORGOTTEN_AT_ONCE, last)
        await database.execute(_FORGET_VERSIONS, account, first, through)


async def store(database: Database, *, account: AccountId, indexed: Indexed) -> bool:
    """Replace what memories are found by, where they still live and are still out of date.

    Returns whether anything is up to date now that was not.
    """
    ids = {w.memory_id for w in indexed.words} | set(indexed.given_up)
    ids |= {row["memory_id"] for row, _, _ in indexed.vectors} | indexed.missing
    ids |= indexed.records.keys()
    not_told: Sequence[Row] = ()
    async with database.transaction() as connection:
        # First, because words also change counts that writes and erasures change under this lock.
        await note_change(connection, account)
        at = indexed.versions
        named = sorted(ids)
        blobs = [indexed.blobs[i] for i in named]
        marks = [mark_of(indexed.read.get(i)) or b"" for i in named]
        locked = await connection.fetch(_LOCK, account, at.index, at.embedding, named, blobs, marks)
        unworded = {r["memory_id"] for r in locked if r["index_version"] < at.index}
        unembedded = {r["memory_id"] for r in locked if r["embedding_version"] != at.embedding}
        words = [w for w in indexed.words if w.memory_id in unworded]
        if words:
            await _replace_words(connection, account, at.index, words)
        vectors = [v for v in indexed.vectors if v[0]["memory_id"] in unembedded]
        # What a model refused, another worker may have embedded meanwhile; what is altered is lost
        # whichever of both is out of date.
        lost = {i for i, mark in indexed.given_up.items() if mark == LOST}
        ended = unembedded | (unworded & lost)
        given_up = {i: mark for i, mark in indexed.given_up.items() if i in ended}
        embedded = sorted({row["memory_id"] for row, _, _ in vectors})
        if embedded or given_up:
            await connection.execute(DELETE_VECTORS, account, [*embedded, *given_up])
            in_rows = [v for v in vectors if v[0]["memory_id"] not in indexed.read]
            await _insert(connection, account, indexed, embedded, in_rows)
            not_told = await webhook_rows.note_indexed(connection, account, embedded)
            reasons = list(given_up.values())
            await connection.execute(
                _GIVE_UP, account, list(given_up), reasons, at.embedding, at.index
            )
        sealed = {r["memory_id"] for r in locked} & indexed.records.keys()
        if records := {i: indexed.records[i] for i in sorted(sealed)}:
            sources = [r.source for r in records.values()]
            sealed_ones = [r.sealed for r in records.values()]
            await connection.execute(
                _SET_RECORDS, account, list(records), sealed_ones, at.index, sources
            )
        if missing := [r["memory_id"] for r in locked if r["memory_id"] in indexed.missing]:
            await connection.execute(_MARK_MISSING, account, at.index, at.embedding, missing)
        await index_size.count(connection, account, [r["memory_id"] for r in locked])
        await note_step(connection, account, [(r["namespace_id"], r["seq"]) for r in locked])
    webhook_rows.say_dropped(not_told)
    return any(r["memory_id"] not in indexed.missing for r in locked)


async def _replace_words(
    connection: Connection, account: AccountId, version: int, words: Sequence[Worded]
) -> None:
    ids = [w.memory_id for w in words]
    await connection.execute(DELETE_POSTINGS, account, ids)
    packed = Words.of([w.postings for w in words])
    postings = [(words[place], token, n) for place, token, n in packed.rows]
    await connection.execute(
        _INSERT_POSTINGS,
        account,
        version,
        ids,
        [w.word_count for w in words],
        [w.memory_id for w, _, _ in postings],
        [w.namespace_id for w, _, _ in postings],
        [token for _, token, _ in postings],
        [n for _, _, n in postings],
        [w.word_count for w, _, _ in postings],
        [w.source for w in words],
        packed.tokens,
        packed.firsts,
        packed.lasts,
        packed.frequencies,
    )


async def _insert(
    connection: Connection,
    account: AccountId,
    indexed: Indexed,
    ids: Sequence[uuid.UUID],
    vectors: Sequence[Vector],
) -> None:
    await connection.execute(
        _INSERT_VECTORS,
        account,
        indexed.model,
        ids,
        [row["memory_id"] for row, _, _ in vectors],
        [part for _, part, _ in vectors],
        [row["namespace_id"] for row, _, _ in vectors],
        [row["epoch"] for row, _, _ in vectors],
        [halfvec(vector) for _, _, vector in vectors],
        indexed.versions.embedding,
    )


@dataclass(frozen=True)
class UploadVector:
    """The vector of a manual upload, (dim,) float16 of length 1, and what it is of.

    The upload's record has the vector where `embedding` is None.
    """

    model: str
    embedding: npt.NDArray[np.float16] | None = field(repr=False)


def upload_model(form: str, dim: int) -> str:
    """Return the model's name for uploaded vectors of that form, `TURNED` or `SENT`."""
    return f"{form}/{dim}"


def is_manual(model: str) -> bool:
    """Return true if vectors of that model came with manual uploads."""
    return model.startswith((f"{TURNED}/", f"{SENT}/"))


async def insert_manual_vector(
    connection: Connection,
    *,
    account: AccountId,
    memory: NewMemory,
    vector: UploadVector,
) -> None:
    """Insert the vector of a manual upload, in the upload's own transaction."""
    inserted = [] if vector.embedding is None else [halfvec(vector.embedding)]
    count = len(inserted)
    await connection.execute(
        _INSERT_VECTORS,
        account,
        vector.model,
        [memory.memory_id],
        [memory.memory_id] * count,
        [0] * count,
        [memory.namespace_id] * count,
        [memory.epoch] * count,
        inserted,
        vector.model,
    )
    await index_size.count(connection, account, [memory.memory_id])


async def models(
    database: Database, *, account: AccountId, namespace_ids: Sequence[int]
) -> dict[int, frozenset[str]]:
    """Return namespace → the models that its memories' vectors are of, manual uploads left out."""
    found: dict[int, set[str]] = {n: set() for n in namespace_ids}
    for row in await database.fetch(_MODELS, account, namespace_ids):
        if not is_manual(row["model"]):
            found[row["namespace_id"]].add(row["model"])
    return {n: frozenset(used) for n, used in found.items()}
