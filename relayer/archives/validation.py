"""Rows that come from another relayer: which of them come in, and what becomes of each; pure.

Not here: writing them (`row_importer.py`). Source: SPEC §17.2.

- Nothing is opened. An envelope's header names account, memory, revision, epoch and key id, and
  the blob's name its bytes: a row counts only when it says the same.
- By id: what is here stays as it is, what was erased here or there does not come, and doing it all
  again changes nothing.
- A memory that was edited there since comes forward to its revision there, if what is here is one
  of the revisions that it had there; that must come along to prove it.
- No vector comes under a model that whoever brings it chose: queries are embedded by every model
  that there are vectors of, in the operator's name.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import numpy as np

from relayer.clock import MOMENT_MS_MAX, is_lasting
from relayer.database.vectors import is_manual
from relayer.embedding.building import dim_of
from relayer.embedding.published import ENGLISH
from relayer.errors import BadRequest, TooLarge
from relayer.portable import MovedEpisode, MovedMemory
from relayer.record import revision_row_id
from relayer.sealed import envelope
from relayer.sealed.foreign import is_foreign
from relayer.sealed.primitives import CryptoError
from relayer.settings import Limits
from relayer.tenants.accounts import Access
from relayer.tenants.namespaces import NamespaceEntry

IMPORTED: Final = "imported"
UNCHANGED: Final = "unchanged"
DIFFERS: Final = "differs"
ERASED: Final = "erased"
REFUSED: Final = "refused"
_POSTING_BYTES: Final = 9
# A namespace's life span counts from when a memory was made.
_MADE_MAX: Final = datetime(9999, 1, 1, tzinfo=UTC) - timedelta(seconds=Limits.ttl_s_max)
Row = MovedMemory | MovedEpisode


def unique(ids: Sequence[uuid.UUID]) -> Sequence[uuid.UUID]:
    """Return the ids.

    Raises:
        BadRequest: one stands there twice.
    """
    if len(set(ids)) != len(ids):
        raise BadRequest("An id stands there twice.")
    return ids


def hash_of(name: str) -> bytes:
    """Return the 32 bytes behind a blob id.

    Raises:
        BadRequest: it is none.
    """
    try:
        return envelope.blob_hash(name)
    except CryptoError:
        raise BadRequest("A blob id is none.") from None


def check_size(memories: Sequence[MovedMemory]) -> None:
    """Return when the words and vectors of these can be stored by one request.

    Raises:
        TooLarge: they cannot.
    """
    postings = sum(len(m.postings or b"") // _POSTING_BYTES for m in memories)
    vectors = sum(len(m.vectors) for m in memories)
    if postings > Limits.import_postings_max or vectors > Limits.import_vectors_max:
        raise TooLarge("The memories have too many words or vectors for one request.")


def find_refused(
    access: Access, moved: Sequence[Row], entries: Mapping[str, NamespaceEntry]
) -> set[uuid.UUID]:
    """Return those of the rows that do not say what their blobs say."""
    return {row.id for row in moved if not _holds(access, row, entries)}


def _holds(access: Access, row: Row, entries: Mapping[str, NamespaceEntry]) -> bool:
    """Return true if a row says of its blob what the blob says of itself."""
    entry = entries.get(row.namespace)
    if entry is None or row.blob is None or envelope.blob_id(row.blob) != row.blob_id:
        return False
    if not (all(map(is_lasting, _moments(row))) and row.created_at < _MADE_MAX):
        return False
    if isinstance(row, MovedMemory):
        if not _is_formed(row):
            return False
        if row.format == "opaque":
            first = row.revision == 1 and row.revision_of is None
            return first and row.epoch in entry.key_ids and is_foreign(access.account, row.blob)
        address = envelope.Address(row.type, access.account, row.memory_id, row.revision)
    else:
        address = envelope.Address(envelope.EPISODE, access.account, row.id, 1)
    try:
        header = envelope.read_header(row.blob)
    except CryptoError:
        return False
    if header.created_ms > MOMENT_MS_MAX:
        return False
    known = entry.key_ids.get(row.epoch)
    return (header.address, header.epoch, header.key_id) == (address, row.epoch, known)


def is_over(row: Row, oldest: int) -> bool:
    """Return true if a row is sealed under an epoch that is over; foreign ciphertext never is."""
    foreign = isinstance(row, MovedMemory) and row.format == "opaque"
    return row.epoch < oldest and not foreign


def _is_formed(row: MovedMemory) -> bool:
    """Return true if the hashed and turned parts of a row have their stored form."""
    if row.revision_of is not None and row.id != revision_row_id(row.revision_of, row.revision):
        return False
    words = row.postings or b""
    tokens = {words[at : at + 8] for at in range(0, len(words), _POSTING_BYTES)}
    count, rest = divmod(len(words), _POSTING_BYTES)
    if row.index_record is not None and (words or row.vectors):
        return False
    return rest == 0 and len(tokens) == count and _has_sound_vectors(row)


def _has_sound_vectors(row: MovedMemory) -> bool:
    """Return true if a row's vectors, if any, are alike, finite, and as long as its model's are."""
    if not row.vectors:
        return True
    sizes = {len(part) for part in row.vectors}
    size = sizes.pop()
    if row.embedding_model is None or sizes:
        return False
    if size not in range(2, 2 * Limits.embedding_dim_max + 1, 2):
        return False
    if dim_of(row.embedding_model) not in (None, size // 2):
        return False
    return bool(np.isfinite(np.frombuffer(b"".join(row.vectors), ">f2")).all())


def with_usable_vectors(row: MovedMemory, current: str | None) -> MovedMemory:
    """Return a row with the vectors that it is searched by here: the model's or an upload's.

    Until there are others, those of the English built-in model. Without any it gets new ones.
    """
    model, opaque = row.embedding_model or "", row.format == "opaque"
    kept = is_manual(model) if opaque else model in (current, ENGLISH.model_id)
    # Vectors of no known length could not be told from those that another row brings.
    if row.index_record is not None and (not kept or dim_of(model) is None):
        return msgspec.structs.replace(row, embedding_model=None, embedding_version="")
    if not kept or dim_of(model) is None:
        return msgspec.structs.replace(row, vectors=[])
    due = not opaque and model != current
    return msgspec.structs.replace(row, embedding_version="") if due else row


def _moments(row: Row) -> Iterator[datetime]:
    """Yield every moment that a row names."""
    yield row.created_at
    if isinstance(row, MovedMemory):
        others = (row.event_time, row.stored_at, row.expires_at, row.given_expires_at)
        yield from filter(None, (*others, row.superseded_at, row.last_seen_at))
        yield from (link.created_at for link in row.links)


def passed(
    sound: Sequence[Row], present: Mapping[uuid.UUID, Mapping[str, object]]
) -> dict[uuid.UUID, MovedMemory]:
    """Return memory → its revision that is current here, as the earlier one that it is elsewhere.

    Of memories that come in a later revision. The one here must be among those that come along:
    else it was made here, and nothing made here is passed over.
    """
    newer = {r.id: r for r in sound if isinstance(r, MovedMemory) and r.revision_of is None}
    return {
        row.revision_of: row
        for row in sound
        if isinstance(row, MovedMemory)
        and row.revision_of in newer
        and row.revision_of in present
        and row.revision < newer[row.revision_of].revision
        and row.revision == present[row.revision_of]["revision"]
        and envelope.blob_hash(row.blob_id) == present[row.revision_of]["blob_id"]
    }


def orphans(
    sound: Sequence[Row], present: Mapping[uuid.UUID, Mapping[str, object]]
) -> set[uuid.UUID]:
    """Return earlier revisions of memories that are neither here nor on their way.

    They have no place, and nobody could erase them.
    """
    memories = [row for row in sound if isinstance(row, MovedMemory)]
    coming = {row.id: row.revision for row in memories if row.revision_of is None}
    return {
        row.id
        for row in memories
        if row.revision_of is not None
        and row.revision_of not in present
        and row.revision >= coming.get(row.revision_of, 0)
    }


def id_of(row: Row) -> uuid.UUID:
    """Return the id that people know, and of the tombstone that there is if this was erased."""
    return row.memory_id if isinstance(row, MovedMemory) else row.id


def outcome(
    row: Row,
    refused: set[uuid.UUID],
    present: Mapping[uuid.UUID, Mapping[str, object]],
    erased: set[uuid.UUID],
    passed: Mapping[uuid.UUID, MovedMemory],
) -> str:
    """Return the outcome for a row: one of the words above."""
    memory_id = id_of(row)
    if memory_id in erased:
        return ERASED
    if row.id in refused:
        return REFUSED
    if memory_id in passed and row.id not in present:
        return UNCHANGED if row == passed[memory_id] else IMPORTED
    if memory_id in passed and row.id == memory_id:
        return IMPORTED
    if row.id in present:
        same = present[row.id]["blob_id"] == envelope.blob_hash(row.blob_id)
        return UNCHANGED if same else DIFFERS
    if isinstance(row, MovedMemory) and memory_id in present:
        # An earlier revision: of one that is not that far here, it has no place.
        return IMPORTED if row.revision < _revision(present[memory_id]) else DIFFERS
    return IMPORTED


def _revision(there: Mapping[str, object]) -> int:
    revision = there["revision"]
    assert isinstance(revision, int)
    return revision
