"""The statement by which an accepted request is stored, whole.

Not here: reading what is stored (`memories`), what receipts mean (`relayer.sealed.receipts`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

from relayer.database.index_steps import step
from relayer.database.memories import Mark, NewEpisode, NewMemory
from relayer.database.numbering import number_parameters, used_names
from relayer.database.pool import Connection
from relayer.database.postings import Words
from relayer.database.queue import SHORT_MEMORIES, Waiting
from relayer.record import IN_FORCE
from relayer.sealed.keys import AccountId

WORDS_AT_ONCE: Final = 20_000  # in one statement: what it is given is packed in one piece
_INSERT_WORDS: Final = """
INSERT INTO postings (account_id, namespace_id, token, memory_id, frequency, word_count)
SELECT $1, $2, token, $3, frequency, $4
FROM unnest($5::bigint[], $6::smallint[]) AS p (token, frequency)
"""


# What each parameter of the statements below is called, behind the account, and what it is.
_PARAMETERS: Final[Mapping[str, Callable[["Write"], object]]] = {
    "now": lambda w: w.now,
    "stored_ids": lambda w: [b for b, _ in w.here],
    "stored_bytes": lambda w: [data for _, data in w.here],
    "writers": lambda w: [m.writer for m in w.memories],
    "memory_ids": lambda w: [m.memory_id for m in w.memories],
    "namespace_ids": lambda w: [m.namespace_id for m in w.memories],
    "epochs": lambda w: [m.epoch for m in w.memories],
    "seqs": lambda w: list(range(w.memory_seq + 1, w.memory_seq + 1 + len(w.memories))),
    "formats": lambda w: [m.format for m in w.memories],
    "kinds": lambda w: [m.kind for m in w.memories],
    "importances": lambda w: [m.importance for m in w.memories],
    "confidences": lambda w: [m.confidence for m in w.memories],
    "event_times": lambda w: [m.event_time for m in w.memories],
    "expire_ats": lambda w: [m.expires_at for m in w.memories],
    "blob_ids": lambda w: [m.blob_id for m in w.memories],
    "posting_memory_ids": lambda w: [m.memory_id for m, _, _ in w.rows],
    "posting_namespace_ids": lambda w: [m.namespace_id for m, _, _ in w.rows],
    "posting_tokens": lambda w: [token for _, token, _ in w.rows],
    "sizes": lambda w: [len(m.blob) for m in w.memories],
    "word_counts": lambda w: [m.word_count for m in w.memories],
    "fingerprints": lambda w: [m.fingerprint for m in w.memories],
    "index_version": lambda w: w.index_version,
    "behind_max": lambda w: SHORT_MEMORIES + 1,
    "posting_frequencies": lambda w: [n for _, _, n in w.rows],
    "posting_word_counts": lambda w: [m.word_count for m, _, _ in w.rows],
    "marks_expire_at": lambda w: w.marks_expire_at,
    "marks": lambda w: [m.mark for m in w.marks],
    "text_marks": lambda w: [m.text_mark for m in w.marks],
    "marked_ids": lambda w: [m.memory_id for m in w.marks],
    "receipt_seqs": lambda w: [n for n, _ in w.receipts],
    "receipts": lambda w: [signed for _, signed in w.receipts],
    "receipt_seq": lambda w: w.receipt_seq,
    "receipt_head": lambda w: w.receipt_head,
    "turn_ids": lambda w: [e.episode_id for e in w.episodes],
    "turn_namespace_ids": lambda w: [e.namespace_id for e in w.episodes],
    "turn_epochs": lambda w: [e.epoch for e in w.episodes],
    "turn_blob_ids": lambda w: [e.blob_id for e in w.episodes],
    "turn_sizes": lambda w: [len(e.blob) for e in w.episodes],
    "new_bytes": lambda w: sum(len(data) for _, data in w.blobs),
    "created_ats": lambda w: [m.created_at for m in w.memories],
    "revisions": lambda w: [m.revision for m in w.memories],
    "types": lambda w: [m.type for m in w.memories],
    "turn_writers": lambda w: [e.writer for e in w.episodes],
    "sources": lambda w: [m.source for m in w.memories],
    # Not after the change that stores it, whose time is what later changes are compared with.
    "stored_ats": lambda w: [min(m.stored_at, w.now) for m in w.memories],
    "revisions_of": lambda w: [m.revision_of for m in w.memories],
    "superseded_ats": lambda w: [m.state.superseded_at for m in w.memories],
    "superseded_bys": lambda w: [m.state.superseded_by for m in w.memories],
    "pinned": lambda w: [m.state.pinned for m in w.memories],
    "reviews": lambda w: [m.state.review for m in w.memories],
    "stale": lambda w: [m.state.stale for m in w.memories],
    "turn_states": lambda w: [e.state for e in w.episodes],
    "turn_created_ats": lambda w: [e.created_at for e in w.episodes],
    "turn_fingerprints": lambda w: [e.fingerprint for e in w.episodes],
    "tokens": lambda w: w.words.tokens,
    "first_tokens": lambda w: w.words.firsts,
    "last_tokens": lambda w: w.words.lasts,
    "frequencies": lambda w: w.words.frequencies,
    "index_bytes": lambda w: [m.index_bytes for m in w.memories],
    "default_lives": lambda w: [m.has_default_life for m in w.memories],
    "records": lambda w: [m.record for m in w.memories],
}
_STEP: Final = step(
    receipt_seq=":receipt_seq",
    namespace_ids="ARRAY(SELECT DISTINCT unnest(:namespace_ids::int[]))",
    seqs=":seqs::bigint[]",
)
# What a memory may be of that comes back, and nothing that is remembered now.
_STATES: Final = (
    ("revisions_of", "uuid", "revision_of", "NULL"),
    ("superseded_ats", "timestamptz", "superseded_at", "NULL"),
    ("superseded_bys", "uuid", "superseded_by", "NULL"),
    ("pinned", "bool", "pinned", "false"),
    ("reviews", "text", "review", "NULL"),
    ("stale", "bool", "stale", "false"),
)
# Parts of the statement that most requests have nothing for.
_PARTS: Final = {
    "words": """posting AS (
    INSERT INTO postings (account_id, namespace_id, token, memory_id, frequency, word_count)
    SELECT :account, namespace_id, token, memory_id, frequency, word_count
    FROM unnest(:posting_memory_ids::uuid[], :posting_namespace_ids::int[],
                :posting_tokens::bigint[], :posting_frequencies::smallint[],
                :posting_word_counts::smallint[])
        AS p (memory_id, namespace_id, token, frequency, word_count)
    ON CONFLICT DO NOTHING  -- those of a row that was lost and is restored
), """,
    "marks": """marked AS (
    INSERT INTO idempotency (account_id, mark, text_mark, memory_id, expires_at)
    SELECT :account, mark, text_mark, memory_id, :marks_expire_at
    FROM unnest(:marks::bytea[], :text_marks::bytea[], :marked_ids::uuid[])
        AS i (mark, text_mark, memory_id)
), """,
    "episodes": """episode AS (
    INSERT INTO episodes (account_id, episode_id, namespace_id, epoch, writer, blob_id, size_bytes,
                          state, created_at, fingerprint)
    SELECT :account, episode_id, namespace_id, epoch, writer, blob_id, size_bytes, state,
           coalesce(created_at, :now), fingerprint
    FROM unnest(:turn_ids::uuid[], :turn_namespace_ids::int[], :turn_epochs::int[],
                :turn_blob_ids::bytea[], :turn_sizes::int[], :turn_writers::bytea[],
                :turn_states::text[], :turn_created_ats::timestamptz[], :turn_fingerprints::bytea[])
        AS e (episode_id, namespace_id, epoch, blob_id, size_bytes, writer, state, created_at,
              fingerprint)
), """,
}


def _compose(*, whole: bool) -> tuple[str, Sequence[Callable[["Write"], object]]]:
    """Return a statement that stores a request, and what its parameters are behind the account.

    That for memories alone has half of the parameters and parts: what most requests do not have
    would take a third of their statement's time.
    """
    columns = ", ".join(column for _, _, column, _ in _STATES)
    if whole:
        given = "".join(f", :{name}::{kind}[]" for name, kind, _, _ in _STATES)
        named, fixed = f", {columns}", ""
    else:
        given = named = ""
        fixed = "".join(f", {value}::{kind} AS {column}" for _, kind, column, value in _STATES)
    parts = _PARTS if whole else dict.fromkeys(_PARTS, "")
    # Those that are no earlier revision of another.
    are_own = "revision_of IS NULL" if whole else "true"
    revisions = (", :revisions_of::uuid[]", ", revision_of") if whole else ("", "")
    statement = f"""
WITH behind AS MATERIALIZED (  -- before the rest, where parts run one after the other
    -- What waits for its vector already. The index is one of sealed memories: without saying so,
    -- each write reads all that its account has.
    SELECT count(*) AS memories, coalesce(sum(size_bytes), 0) AS bytes FROM (
        SELECT size_bytes FROM memories
        WHERE account_id = :account AND index_version = :index_version AND embedding_version = ''
          AND format = 'sealed'
        LIMIT :behind_max) m
), stored AS (
    INSERT INTO blobs (account_id, blob_id, bytes, created_at)
    SELECT :account, blob_id, bytes, :now FROM unnest(:stored_ids::bytea[], :stored_bytes::bytea[])
        AS b (blob_id, bytes)
    ON CONFLICT DO NOTHING
), memory AS (
    INSERT INTO memories (
        account_id, memory_id, namespace_id, epoch, seq, revision, type, format, kind, importance,
        confidence, writer, event_time, created_at, expires_at, blob_id, size_bytes, word_count,
        tokens, frequencies, source, fingerprint, index_version, stored_at, {columns},
        given_expires_at, index_bytes, has_default_life, index_record)
    SELECT :account, memory_id, r.namespace_id, epoch, seq, revision, type, format, kind,
           importance, confidence, writer, event_time, created_at,
           CASE WHEN pinned THEN expires_at
                ELSE least(expires_at, created_at + n.ttl_s * interval '1 second') END,
           blob_id, size_bytes, r.word_count, (:tokens::bigint[])[first_token:last_token],
           frequencies, source, fingerprint, :index_version, stored_at, {columns}, expires_at,
           r.index_bytes, has_default_life, index_record
    FROM (SELECT u.*{fixed}
          FROM unnest(:memory_ids::uuid[], :namespace_ids::int[], :epochs::int[], :seqs::bigint[],
                      :formats::text[], :kinds::text[], :importances::text[], :confidences::text[],
                      :event_times::timestamptz[], :expire_ats::timestamptz[], :blob_ids::bytea[],
                      :sizes::int[], :word_counts::smallint[], :fingerprints::bytea[],
                      :writers::bytea[], :created_ats::timestamptz[], :revisions::int[],
                      :types::smallint[], :sources::bigint[], :stored_ats::timestamptz[],
                      :first_tokens::int[], :last_tokens::int[], :index_bytes::bigint[],
                      :default_lives::bool[], :records::bytea[], :frequencies::bytea[]{given})
              AS u (memory_id, namespace_id, epoch, seq, format, kind, importance, confidence,
                    event_time, expires_at, blob_id, size_bytes, word_count, fingerprint, writer,
                    created_at, revision, type, source, stored_at, first_token, last_token,
                    index_bytes, has_default_life, index_record, frequencies{named})) r
    JOIN namespaces n ON n.account_id = :account AND n.namespace_id = r.namespace_id
), {parts["words"]}{parts["marks"]}counted AS (
    UPDATE namespaces n
    SET memory_count = n.memory_count + c.memories, word_count = n.word_count + c.words,
        storage_bytes = n.storage_bytes + c.bytes, index_bytes = n.index_bytes + c.index_bytes,
        -- Sealed or hashed as the namespace was when the request came: it may have chosen since.
        index_moves = n.index_moves OR CASE WHEN n.sealed_index THEN c.records < c.rows
                                            ELSE c.records > 0 END,
        updated_at = :now
    FROM (SELECT namespace_id, count(*) FILTER (WHERE {are_own}) AS memories,
                 coalesce(sum(word_count) FILTER (WHERE {are_own}), 0) AS words,
                 sum(size_bytes) AS bytes, sum(index_bytes) AS index_bytes,
                 count(*) AS rows, count(index_record) AS records
          FROM unnest(:namespace_ids::int[], :sizes::int[], :word_counts::smallint[],
                      :index_bytes::bigint[], :records::bytea[]{revisions[0]})
              AS r (namespace_id, size_bytes, word_count, index_bytes, index_record{revisions[1]})
          GROUP BY namespace_id) c
    WHERE n.account_id = :account AND n.namespace_id = c.namespace_id
    RETURNING n.index_moves
), {parts["episodes"]}intent AS (
    DELETE FROM blob_outbox
    WHERE account_id = :account
      AND (blob_id = ANY (:blob_ids::bytea[]){
        " OR blob_id = ANY (:turn_blob_ids::bytea[])" if whole else ""
    })
), receipt AS (
    INSERT INTO receipts (account_id, seq, object)
    SELECT :account, seq, object FROM unnest(:receipt_seqs::bigint[], :receipts::bytea[])
        AS r (seq, object)
), {_STEP}
UPDATE accounts
SET receipt_seq = :receipt_seq, receipt_head = :receipt_head, changed_at = :now,
    index_choices = index_choices + (SELECT count(*) FROM counted WHERE index_moves)::int,
    memory_seq = memory_seq + cardinality(:memory_ids::uuid[]),
    storage_bytes = storage_bytes + :new_bytes,
    index_bytes = index_bytes + (SELECT coalesce(sum(b), 0)
                                 FROM unnest(:index_bytes::bigint[]) AS b),
    memory_count = memory_count + {
        "(SELECT count(*) FROM unnest(:revisions_of::uuid[]) AS r (revision_of)"
        " WHERE revision_of IS NULL)"
        if whole
        else "cardinality(:memory_ids::uuid[])"
    }
FROM behind
WHERE account_id = :account
RETURNING behind.memories, behind.bytes
"""
    names = [name for name in _PARAMETERS if name in used_names(statement)]
    return number_parameters(statement, ["account", *names]), [_PARAMETERS[n] for n in names]


# All that an accepted request stores, in one statement under the account's lock; and the same for
# one that stores nothing but new memories whose words are in their rows, as most do.
_WRITE, _WHOLE = _compose(whole=True)
_WRITE_MEMORIES, _MEMORIES = _compose(whole=False)


@dataclass(frozen=True)
class Write:
    """One accepted request, complete with the receipts that vouch for it.

    `wordy` are those of its memories that `insert_words` has stored the words of.
    """

    now: datetime
    memories: Sequence[NewMemory]
    episodes: Sequence[NewEpisode]
    marks: Sequence[Mark]
    marks_expire_at: datetime
    index_version: int
    memory_seq: int
    receipts: Sequence[tuple[int, bytes]]
    receipt_seq: int
    receipt_head: bytes
    blobs_here: bool
    wordy: Sequence[NewMemory] = ()

    @cached_property
    def blobs(self) -> list[tuple[bytes, bytes]]:
        """Return (id, bytes) of each envelope."""
        memories = [(m.blob_id, m.blob) for m in self.memories]
        return memories + [(e.blob_id, e.blob) for e in self.episodes]

    @cached_property
    def here(self) -> list[tuple[bytes, bytes]]:
        """Return those of `blobs` that the database keeps."""
        return self.blobs if self.blobs_here else []

    @cached_property
    def is_of_memories(self) -> bool:
        """Return true if it stores nothing but new memories, whose words are in their rows."""
        others = self.episodes, self.marks, self.rows
        are_new = all(m.revision_of is None and m.state == IN_FORCE for m in self.memories)
        return are_new and not any(others)

    @cached_property
    def words(self) -> Words:
        """Return the words of all its memories."""
        return Words.of([m.postings for m in self.memories])

    @cached_property
    def rows(self) -> list[tuple[NewMemory, int, int]]:
        """Return (memory, token, frequency) of each word that is a row, and not stored yet."""
        stored = {m.memory_id for m in self.wordy}
        rows = [(self.memories[place], token, n) for place, token, n in self.words.rows]
        return [row for row in rows if row[0].memory_id not in stored]


async def insert_words(
    connection: Connection, *, account: AccountId, memories: Sequence[NewMemory]
) -> None:
    """Store the words of new memories in the transaction that will store the rest of them: nobody
    waits for the account's lock meanwhile."""
    for m in memories:
        tokens, frequencies = list(m.postings), list(m.postings.values())
        of = m.namespace_id, m.memory_id, m.word_count
        for at in range(0, len(tokens), WORDS_AT_ONCE):
            some = slice(at, at + WORDS_AT_ONCE)
            await connection.execute(_INSERT_WORDS, account, *of, tokens[some], frequencies[some])


async def write(connection: Connection, account: AccountId, request: Write) -> Waiting:
    """Store a request under the account's lock; return what waits for its vector by then.

    Raises:
        UniqueViolation: a fact, mark or episode came in between; look them up again.
    """
    statement, parameters = (
        (_WRITE_MEMORIES, _MEMORIES) if request.is_of_memories else (_WRITE, _WHOLE)
    )
    behind = await connection.fetchrow(
        statement, account, *(value(request) for value in parameters)
    )
    assert behind is not None  # the account is locked
    sizes = [len(m.blob) for m in request.memories]
    return Waiting(behind["memories"] + len(sizes), behind["bytes"] + sum(sizes))
