"""Statements that give a memory a new revision and keep the earlier ones as rows of their own.

Not here: what an edit is (`relayer.memories.revisions`). An earlier revision's row keeps its words
and vectors, so that a recall of its time finds it.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

from relayer.database import index_size
from relayer.database.index_steps import note_change, note_step
from relayer.database.memories import MEMORY_COLUMNS, Mark, NewMemory
from relayer.database.numbering import number_parameters
from relayer.database.pool import Connection, Database, Row
from relayer.database.postings import Words
from relayer.sealed.keys import AccountId

_LOCK: Final = """
SELECT m.blob_id, m.revision, m.superseded_at, m.given_expires_at, m.has_default_life
FROM memories m
WHERE m.account_id = $1 AND m.memory_id = $2 AND m.revision_of IS NULL
FOR UPDATE
"""

# The current revision once more, as a row of its own: over since now, and as long-lived as what
# follows it.
_ARCHIVE: Final = """
INSERT INTO memories (
    account_id, memory_id, namespace_id, epoch, seq, revision, type, format, kind, importance,
    confidence, writer, event_time, created_at, expires_at, given_expires_at, superseded_at,
    blob_id, size_bytes, word_count, tokens, frequencies, source, fingerprint, index_version,
    embedding_model, embedding_version, revision_of, stored_at, pinned, review, stale, seen_count,
    last_seen_at, has_default_life, index_record)
SELECT $1, $3, namespace_id, epoch, $4, revision, type, format, kind, importance, confidence,
       writer, event_time, created_at, expires_at, given_expires_at, $5, blob_id, size_bytes,
       word_count, tokens, frequencies, source, fingerprint, index_version, embedding_model,
       embedding_version, memory_id, stored_at, pinned, review, stale, seen_count, last_seen_at,
       has_default_life, index_record
FROM memories m WHERE m.account_id = $1 AND m.memory_id = $2
"""
_MOVE_POSTINGS: Final = """
UPDATE postings p SET memory_id = $3
FROM memories m
WHERE m.account_id = $1 AND m.memory_id = $2 AND p.account_id = $1
  AND m.frequencies IS NULL
  AND p.namespace_id = m.namespace_id AND p.token = ANY (m.tokens) AND p.memory_id = $2
"""
_COPY_VECTORS: Final = """
INSERT INTO vectors (account_id, memory_id, part, namespace_id, epoch, model, embedding)
SELECT $1, $3, part, namespace_id, epoch, model, embedding
FROM vectors WHERE account_id = $1 AND memory_id = $2
"""
# The place of a memory whose current revision was copied to an earlier one's, empty for another.
_VACATE: Final = """
WITH gone AS (
    DELETE FROM memories WHERE account_id = $1 AND memory_id = $2
    RETURNING namespace_id, word_count, index_bytes, state_blob
), counted AS (
    UPDATE namespaces n
    SET memory_count = n.memory_count - 1, word_count = n.word_count - g.word_count,
        index_bytes = n.index_bytes - g.index_bytes
    FROM gone g WHERE n.account_id = $1 AND n.namespace_id = g.namespace_id
), staged AS (
    DELETE FROM blobs b USING gone g WHERE b.account_id = $1 AND b.blob_id = g.state_blob
), outbox AS (
    INSERT INTO blob_outbox (account_id, blob_id, due_at)
    SELECT $1, state_blob, $4 FROM gone WHERE state_blob IS NOT NULL AND $5
    ON CONFLICT DO NOTHING
)
UPDATE accounts
SET memory_count = memory_count - 1, memory_seq = $3,
    index_bytes = index_bytes - (SELECT coalesce(sum(index_bytes), 0) FROM gone)
WHERE account_id = $1
"""
_DELETE_VECTORS: Final = "DELETE FROM vectors WHERE account_id = $1 AND memory_id = $2"

# What each parameter of the statement below is called, behind the account, and what it is.
_PARAMETERS: Final[Mapping[str, Callable[["Revision"], object]]] = {
    "memory_id": lambda r: r.memory.memory_id,
    "stored_at": lambda r: r.memory.stored_at,
    "stored_ids": lambda r: [r.memory.blob_id] if r.blob_here else [],
    "stored_bytes": lambda r: [r.memory.blob] if r.blob_here else [],
    "namespace_id": lambda r: r.memory.namespace_id,
    "word_count": lambda r: r.memory.word_count,
    "tokens": lambda r: r.words.tokens,
    "frequencies": lambda r: r.words.frequencies[0],
    "posting_tokens": lambda r: [token for _, token, _ in r.words.rows],
    "posting_frequencies": lambda r: [n for _, _, n in r.words.rows],
    "revision": lambda r: r.memory.revision,
    "epoch": lambda r: r.memory.epoch,
    "kind": lambda r: r.memory.kind,
    "importance": lambda r: r.memory.importance,
    "confidence": lambda r: r.memory.confidence,
    "writer": lambda r: r.memory.writer,
    "event_time": lambda r: r.memory.event_time,
    "blob_id": lambda r: r.memory.blob_id,
    "size": lambda r: len(r.memory.blob),
    "source": lambda r: r.memory.source,
    "record": lambda r: r.memory.record,
    "fingerprint": lambda r: r.memory.fingerprint,
    "index_version": lambda r: r.index_version,
    "keeps_vectors": lambda r: r.keeps_vectors,
    "marks_expire_at": lambda r: r.marks_expire_at,
    "marks": lambda r: [mark.mark for mark in r.marks],
    "text_marks": lambda r: [mark.text_mark for mark in r.marks],
    "receipt_seq": lambda r: r.receipt[0],
    "receipt": lambda r: r.receipt[1],
    "receipt_head": lambda r: r.receipt_head,
    "changed_at": lambda r: r.changed_at,
}
# The new revision in the memory's row, with its blob, words, mark and receipt, and the counts.
_REVISE: Final = number_parameters(
    """
WITH stored AS (
    INSERT INTO blobs (account_id, blob_id, bytes, created_at)
    SELECT :account, blob_id, bytes, :stored_at
    FROM unnest(:stored_ids::bytea[], :stored_bytes::bytea[]) AS b (blob_id, bytes)
    ON CONFLICT DO NOTHING
), posting AS (
    INSERT INTO postings (account_id, namespace_id, token, memory_id, frequency, word_count)
    SELECT :account, :namespace_id, token, :memory_id, frequency, :word_count
    FROM unnest(:posting_tokens::bigint[], :posting_frequencies::smallint[])
        AS p (token, frequency)
), counted AS (
    UPDATE namespaces n
    SET word_count = n.word_count + :word_count - m.word_count,
        storage_bytes = n.storage_bytes + :size, updated_at = :changed_at,
        index_moves = n.index_moves OR n.sealed_index = (:record::bytea IS NULL)
    FROM memories m
    WHERE n.account_id = :account AND n.namespace_id = :namespace_id
      AND m.account_id = :account AND m.memory_id = :memory_id
), memory AS (
    UPDATE memories m
    SET revision = :revision, epoch = :epoch, stored_at = :stored_at, kind = :kind,
        importance = :importance, confidence = :confidence, writer = :writer,
        event_time = :event_time, blob_id = :blob_id, size_bytes = :size,
        word_count = :word_count, tokens = :tokens::bigint[], frequencies = :frequencies,
        source = :source, index_record = :record,
        fingerprint = :fingerprint, index_version = :index_version, stale = false,
        embedding_model = CASE WHEN :keeps_vectors THEN m.embedding_model END,
        embedding_version = CASE WHEN :keeps_vectors THEN m.embedding_version ELSE '' END
    WHERE m.account_id = :account AND m.memory_id = :memory_id
), marked AS (
    INSERT INTO idempotency (account_id, mark, text_mark, memory_id, expires_at)
    SELECT :account, mark, text_mark, :memory_id, :marks_expire_at
    FROM unnest(:marks::bytea[], :text_marks::bytea[]) AS i (mark, text_mark)
), intent AS (
    DELETE FROM blob_outbox WHERE account_id = :account AND blob_id = :blob_id
), receipt AS (
    INSERT INTO receipts (account_id, seq, object) VALUES (:account, :receipt_seq, :receipt)
)
UPDATE accounts
SET receipt_seq = :receipt_seq, receipt_head = :receipt_head, changed_at = :changed_at,
    memory_seq = memory_seq + 1,
    storage_bytes = storage_bytes + :size
WHERE account_id = :account
""",
    ["account", *_PARAMETERS],
)
# A memory has one life, whatever its earlier revisions were given, and were when they were current:
# what is pinned lives as long as it was given, whatever its namespace says.
_SET_LIFE: Final = """
WITH life AS (
    SELECT m.memory_id,
           CASE WHEN whole.pinned THEN $3
                ELSE least($3, m.created_at + n.ttl_s * interval '1 second') END AS expires_at
    FROM memories m
    JOIN memories whole ON whole.account_id = $1 AND whole.memory_id = $2
    JOIN namespaces n ON n.account_id = $1 AND n.namespace_id = m.namespace_id
    WHERE m.account_id = $1 AND (m.memory_id = $2 OR m.revision_of = $2)
)
UPDATE memories m
SET given_expires_at = $3, has_default_life = $4, expires_at = life.expires_at
FROM life WHERE m.account_id = $1 AND m.memory_id = life.memory_id
RETURNING m.namespace_id, m.seq
"""
# What holds of a memory as a whole, for those of its earlier revisions that came back beside it.
_SHARE: Final = """
UPDATE memories r
SET expires_at = m.expires_at, given_expires_at = m.given_expires_at,
    has_default_life = m.has_default_life, review = m.review
FROM memories m
WHERE r.account_id = $1 AND r.revision_of = ANY ($2)
  AND m.account_id = $1 AND m.memory_id = r.revision_of
"""
_MARK: Final = """
INSERT INTO idempotency (account_id, mark, text_mark, memory_id, expires_at)
SELECT $1, mark, text_mark, memory_id, $5
FROM unnest($2::bytea[], $3::bytea[], $4::uuid[]) AS i (mark, text_mark, memory_id)
ON CONFLICT DO NOTHING
"""

# Every revision of a memory that the caller may see as long as the memory lives, newest first.
_HISTORY: Final = f"""
SELECT {MEMORY_COLUMNS}
FROM memories m
JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
WHERE m.account_id = $1 AND m.revision < $4
  AND (m.memory_id = $2 AND m.revision_of IS NULL OR m.revision_of = $2)
  AND EXISTS (SELECT 1 FROM memories c WHERE c.account_id = $1 AND c.memory_id = $2
                                       AND c.revision_of IS NULL
                                       AND (c.expires_at IS NULL OR c.expires_at > $3))
ORDER BY m.revision DESC LIMIT $5
"""


@dataclass(frozen=True)
class Revision:
    """A new revision and what is stored with it.

    Attributes:
        archive_id: the row id of the revision before.
        keeps_vectors: it says the same under the same key, so that it is found by what there is.
        changed_at: when the namespace came to have it.
    """

    memory: NewMemory
    archive_id: uuid.UUID
    keeps_vectors: bool
    index_version: int
    memory_seq: int
    marks: Sequence[Mark]
    marks_expire_at: datetime
    changed_at: datetime
    receipt: tuple[int, bytes]
    receipt_head: bytes
    blob_here: bool

    @cached_property
    def words(self) -> Words:
        """Return the words of the new revision."""
        return Words.of([self.memory.postings])


async def lock_current(
    connection: Connection, *, account: AccountId, memory_id: uuid.UUID
) -> Row | None:
    """Lock a living memory; return its values, or None when it is gone.

    They are (blob_id, revision, superseded_at, given_expires_at, has_default_life).
    """
    return await connection.fetchrow(_LOCK, account, memory_id)


async def revise(connection: Connection, account: AccountId, new: Revision) -> None:
    """Store a new revision of a locked memory, under the account's lock.

    Raises:
        UniqueViolation: another memory says exactly this, or the mark came in between.
    """
    m = new.memory
    seq = new.memory_seq + 1
    await connection.execute(_ARCHIVE, account, m.memory_id, new.archive_id, seq, m.stored_at)
    await connection.execute(_MOVE_POSTINGS, account, m.memory_id, new.archive_id)
    await connection.execute(_COPY_VECTORS, account, m.memory_id, new.archive_id)
    if not new.keeps_vectors:
        await connection.execute(_DELETE_VECTORS, account, m.memory_id)
    await connection.execute(_REVISE, account, *(value(new) for value in _PARAMETERS.values()))
    await index_size.count(connection, account, [m.memory_id, new.archive_id])
    await set_life(
        connection,
        account=account,
        memory_id=m.memory_id,
        expires_at=m.expires_at,
        is_default=m.has_default_life,
    )


async def set_life(
    connection: Connection,
    *,
    account: AccountId,
    memory_id: uuid.UUID,
    expires_at: datetime | None,
    is_default: bool,
) -> None:
    """Give a memory and its earlier revisions that expiry; `is_default`: it comes of the kind."""
    await note_change(connection, account)
    lived = await connection.fetch(_SET_LIFE, account, memory_id, expires_at, is_default)
    await note_step(connection, account, [(r["namespace_id"], r["seq"]) for r in lived])


async def share(
    connection: Connection, *, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> None:
    """Give earlier revisions of these memories the expiry and the review of their memory."""
    await note_change(connection, account)
    await connection.execute(_SHARE, account, memory_ids)


async def step_back(
    connection: Connection,
    *,
    account: AccountId,
    memory_id: uuid.UUID,
    archive_id: uuid.UUID,
    seq: int,
    superseded_at: datetime,
    now: datetime,
    outside_store: bool,
) -> None:
    """Make the current revision an earlier one, under the account's lock; the memory has none
    then, and `seq` is the account's newest."""
    await note_change(connection, account)
    await connection.execute(_ARCHIVE, account, memory_id, archive_id, seq, superseded_at)
    await connection.execute(_MOVE_POSTINGS, account, memory_id, archive_id)
    await connection.execute(_COPY_VECTORS, account, memory_id, archive_id)
    await connection.execute(_VACATE, account, memory_id, seq, now, outside_store)
    await index_size.count(connection, account, [archive_id])


async def remember_marks(
    connection: Connection, *, account: AccountId, marks: Sequence[Mark], expire_at: datetime
) -> None:
    """Note that idempotency keys led to a memory without changing it."""
    await connection.execute(
        _MARK,
        account,
        [mark.mark for mark in marks],
        [mark.text_mark for mark in marks],
        [mark.memory_id for mark in marks],
        expire_at,
    )


async def history(
    database: Database,
    *,
    account: AccountId,
    memory_id: uuid.UUID,
    before: int,
    limit: int,
    now: datetime,
) -> list[Row]:
    """Return a living memory's revisions below a number, newest first, shaped like memories."""
    return await database.fetch(_HISTORY, account, memory_id, now, before, limit)
