"""Rows that come from another relayer: judged by their blobs, placed among those here, written.

Not here: what comes before them (`arriving.py`), SQL (`database.arriving`). Source: SPEC §17.2.

- Nothing is opened. An envelope's header names account, memory, revision, epoch and key id, and
  the blob's name its bytes: a row counts only when it says the same.
- By id: what is here stays as it is, what was erased here or there does not come, and doing it all
  again changes nothing.
- A memory that was edited there since comes forward to its revision there, if what is here is one
  of the revisions that it had there; that must come along to prove it.
- No vector comes under a model that whoever brings it chose: queries are embedded by every model
  that there are vectors of, in the operator's name.
"""

import asyncio
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import numpy as np

from relayer.clock import MOMENT_MS_MAX, Clock, is_lasting
from relayer.database import accounts as account_rows
from relayer.database import arriving as rows
from relayer.database import collection
from relayer.database import episodes as episode_rows
from relayer.database import revisions as revision_rows
from relayer.database.accounts import Heads
from relayer.database.pool import Connection
from relayer.database.vectors import is_manual
from relayer.embedding.building import dim_of
from relayer.embedding.model import MODEL_ID
from relayer.errors import BadRequest, QuotaExceeded, TooLarge
from relayer.journal.outbox import Outbox
from relayer.journal.receipts import Act, Subject, chained
from relayer.journal.states import STATE, Change, States
from relayer.moved import MovedEpisode, MovedMemory
from relayer.record import State, is_former_name, revision_row_id
from relayer.sealed import envelope
from relayer.sealed.foreign import is_foreign
from relayer.sealed.keys import AccountId, Identity, Namespace
from relayer.sealed.primitives import CryptoError
from relayer.settings import Limits
from relayer.tenants.access import Access
from relayer.tenants.namespaces import NamespaceEntry

IMPORT: Final = "import"
IMPORTED: Final = "imported"
UNCHANGED: Final = "unchanged"
DIFFERS: Final = "differs"
ERASED: Final = "erased"
REFUSED: Final = "refused"
PLACES_MAX: Final = 2**52  # in the sequence: what is written here behind them stays below 2**53
_POSTING_BYTES: Final = 9
_EARLIER: Final = timedelta(milliseconds=1)
# A namespace's life span counts from when a memory was made.
_MADE_MAX: Final = datetime(9999, 1, 1, tzinfo=UTC) - timedelta(seconds=Limits.ttl_s_max)
Row = MovedMemory | MovedEpisode


class GrantedMeanwhile(Exception):
    """Which epochs are over was read before another grant came."""


class ArrivingRows:
    """Writes the memories and turns that an owner brings."""

    def __init__(
        self,
        *,
        outbox: Outbox,
        states: States,
        identity: Identity,
        embedding_model: str | None,
        storage_bytes_max: int,
        clock: Clock,
    ) -> None:
        self._outbox = outbox
        self._states = states
        self._identity = identity
        self._embedding_model = embedding_model
        self._storage_bytes_max = storage_bytes_max
        self._clock = clock

    async def take_in(
        self,
        access: Access,
        memories: Sequence[MovedMemory],
        episodes: Sequence[MovedEpisode],
        entries: Mapping[str, NamespaceEntry],
        *,
        serial: int,
        oldest: int,
    ) -> tuple[list[tuple[uuid.UUID, str]], list[bytes]]:
        """What became of each row by its id, and the receipts for what is new.

        `entries` are the namespaces here, by name; `oldest` is the oldest epoch that is not over,
        as of the grant with this `serial`.

        Raises:
            GrantedMeanwhile: another grant came in between.
            BadRequest: an id stands there twice, or a blob id is none.
            TooLarge: there are too many words or vectors together.
            QuotaExceeded: the account is full.
            NotFound: the account is gone.
        """
        moved: list[Row] = [*memories, *episodes]
        unique([row.id for row in moved])
        _check_size(memories)
        # In a thread: to look at every word takes a while, and others are waiting.
        refused = await asyncio.to_thread(_refused, access, moved, entries)
        sound = [row for row in moved if row.id not in refused]
        blobs = [(hash_of(row.blob_id), row.blob or b"") for row in sound]
        async with self._outbox.putting(access.account, blobs) as connection:
            heads = await account_rows.locked_heads(connection, access.account)
            if heads.grant_serial != serial:
                raise GrantedMeanwhile
            account = access.account
            known = [_id_of(row) for row in moved]
            present = await rows.present(connection, account, [*(r.id for r in moved), *known])
            # Nobody could read it or seal it anew, so that its epoch never came to an end here.
            over = {r.id for r in sound if r.id not in present and _is_over(r, oldest)}
            refused |= over
            sound = [row for row in sound if row.id not in over]
            erased = await rows.erased(connection, account, known)
            erased |= await _erased_turns(connection, account, sound)
            passed = _passed(sound, present)
            refused |= _orphans(sound, present)
            results = {row.id: _outcome(row, refused, present, erased, passed) for row in moved}
            fresh = [row for row in sound if results[row.id] == IMPORTED]
            if sum(len(row.blob or b"") for row in fresh) + heads.storage_bytes > (
                self._storage_bytes_max or 2**63
            ):
                raise QuotaExceeded("The account's storage is used up.")
            earlier = [one for one in passed.values() if results[one.memory_id] == IMPORTED]
            heads = await self._step_back(connection, account, heads, earlier)
            receipts = await self._write(connection, access, heads, fresh, entries)
        if receipts:
            await self._outbox.publish_soon()
        return list(results.items()), receipts

    async def _step_back(
        self,
        connection: Connection,
        account: AccountId,
        heads: Heads,
        earlier: Sequence[MovedMemory],
    ) -> Heads:
        """Make these revisions, current here, the earlier ones that they are elsewhere."""
        for row in earlier:
            assert row.revision_of is not None
            heads = replace(heads, memory_seq=heads.memory_seq + 1)
            await revision_rows.step_back(
                connection,
                account=account,
                memory_id=row.revision_of,
                archive_id=row.id,
                seq=heads.memory_seq,
                superseded_at=row.superseded_at or self._clock(),
                now=self._clock(),
                outside_store=self._outbox.outside,
            )
        return heads

    async def _write(
        self,
        connection: Connection,
        access: Access,
        heads: Heads,
        fresh: Sequence[Row],
        entries: Mapping[str, NamespaceEntry],
    ) -> list[bytes]:
        """The fresh rows with their states, in the caller's transaction; the receipts."""
        if not fresh:
            return []
        now = self._clock()
        act = Act(access.account, access.key, IMPORT, now)
        memories = [row for row in fresh if isinstance(row, MovedMemory)]
        arriving = await self._placed(connection, access, heads, memories, entries)
        names = {entries[row.namespace].namespace_id: Namespace(row.namespace) for row in fresh}
        receipts, heads = chained(
            self._identity, act, heads, [_subject(row, entries) for row in fresh], names
        )
        await rows.arrive(
            connection,
            access.account,
            memories=arriving,
            episodes=await _turns_placed(connection, act, fresh, entries),
            vouched=rows.Vouched(receipts, heads.receipt_seq, heads.receipt_head),
            now=now,
            blobs_here=not self._outbox.outside,
        )
        placed = [one.memory for one in arriving]
        changes = {row.id: _change(row) for row in placed if row.revision_of is None}
        signed, _ = await self._states.change_within(
            connection, replace(act, op=STATE), heads, changes
        )
        # What a memory said before may have been here, and held otherwise.
        await revision_rows.share(connection, account=act.account, memory_ids=list(changes))
        return [*(receipt for _, receipt in receipts), *signed]

    async def _placed(
        self,
        connection: Connection,
        access: Access,
        heads: Heads,
        memories: Sequence[MovedMemory],
        entries: Mapping[str, NamespaceEntry],
    ) -> list[rows.Arriving]:
        """Rows with their numbers here: their own place in the sequence where it is free.

        A memory whose fact another one says here by now gives way to that: one of them counts.
        """
        taken = await rows.taken_seqs(connection, access.account, [m.seq for m in memories])
        prints = [m.fingerprint for m in memories if m.fingerprint is not None]
        facts = await rows.living_facts(connection, access.account, prints)
        last = max([heads.memory_seq, *(m.seq for m in memories if m.seq <= PLACES_MAX)])
        placed = []
        for memory in memories:
            number = entries[memory.namespace].namespace_id
            seq = memory.seq
            if seq in taken or seq > PLACES_MAX:
                last = seq = last + 1
            taken.add(seq)
            fact = (number, memory.epoch, memory.fingerprint or b"")
            row = _with_usable_vectors(memory, self._embedding_model)
            if memory.fingerprint is not None and memory.superseded_at is None:
                if fact in facts:
                    row = msgspec.structs.replace(
                        row,
                        superseded_at=self._clock(),
                        superseded_by=facts[fact],
                        merged=False,
                    )
                facts.setdefault(fact, memory.id)
            state = _state_on_arrival(row)
            placed.append(rows.Arriving(row, number, seq, row.blob or b"", state))
        return placed


async def _turns_placed(
    connection: Connection,
    act: Act,
    fresh: Sequence[Row],
    entries: Mapping[str, NamespaceEntry],
) -> list[rows.ArrivingTurn]:
    """Turns with their namespaces' numbers here; of equal ones, the first is known by what it
    says."""
    turns = [
        rows.ArrivingTurn(row, entries[row.namespace].namespace_id, row.blob or b"")
        for row in fresh
        if isinstance(row, MovedEpisode)
    ]
    found = await episode_rows.claim(
        connection, account=act.account, places=[t.place for t in turns], now=act.time
    )
    said = {(r["namespace_id"], r["epoch"], r["fingerprint"]) for r in found}
    placed = []
    for arriving in turns:
        bare = msgspec.structs.replace(arriving.turn, fingerprint=None)
        placed.append(replace(arriving, turn=bare) if arriving.place in said else arriving)
        said.add(arriving.place)
    return placed


async def _erased_turns(
    connection: Connection, account: AccountId, sound: Sequence[Row]
) -> set[uuid.UUID]:
    """Those of these turns that are erased here under another name (`name_when_gone`)."""
    turns = {hash_of(row.blob_id): row.id for row in sound if is_former_name(row.id)}
    if not turns:
        return set()
    gone = await collection.tombstoned_blobs(connection, account=account, blob_ids=list(turns))
    return {turns[blob] for blob in gone}


def unique(ids: Sequence[uuid.UUID]) -> Sequence[uuid.UUID]:
    """The ids.

    Raises:
        BadRequest: one stands there twice.
    """
    if len(set(ids)) != len(ids):
        raise BadRequest("An id stands there twice.")
    return ids


def hash_of(name: str) -> bytes:
    """The 32 bytes behind a blob id.

    Raises:
        BadRequest: it is none.
    """
    try:
        return envelope.blob_hash(name)
    except CryptoError:
        raise BadRequest("A blob id is none.") from None


def _check_size(memories: Sequence[MovedMemory]) -> None:
    """Return when the words and vectors of these can be stored by one request.

    Raises:
        TooLarge: they cannot.
    """
    postings = sum(len(m.postings or b"") // _POSTING_BYTES for m in memories)
    vectors = sum(len(m.vectors) for m in memories)
    if postings > Limits.import_postings_max or vectors > Limits.import_vectors_max:
        raise TooLarge("The memories have too many words or vectors for one request.")


def _refused(
    access: Access, moved: Sequence[Row], entries: Mapping[str, NamespaceEntry]
) -> set[uuid.UUID]:
    """Those of the rows that do not say what their blobs say."""
    return {row.id for row in moved if not _holds(access, row, entries)}


def _holds(access: Access, row: Row, entries: Mapping[str, NamespaceEntry]) -> bool:
    """Whether a row says of its blob what the blob says of itself."""
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


def _is_over(row: Row, oldest: int) -> bool:
    """Whether a row is sealed under an epoch that is over; foreign ciphertext never is."""
    foreign = isinstance(row, MovedMemory) and row.format == "opaque"
    return row.epoch < oldest and not foreign


def _is_formed(row: MovedMemory) -> bool:
    """Whether the hashed and turned parts of a row have the form in which they are stored."""
    if row.revision_of is not None and row.id != revision_row_id(row.revision_of, row.revision):
        return False
    words = row.postings or b""
    tokens = {words[at : at + 8] for at in range(0, len(words), _POSTING_BYTES)}
    count, rest = divmod(len(words), _POSTING_BYTES)
    return rest == 0 and len(tokens) == count and _has_sound_vectors(row)


def _has_sound_vectors(row: MovedMemory) -> bool:
    """Whether a row's vectors, if any, are alike, finite, and as long as its model's are."""
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


def _with_usable_vectors(row: MovedMemory, current: str | None) -> MovedMemory:
    """A row with the vectors that it is searched by here: the current model's, an upload's, and
    until there are others those of the built-in model. Without any it gets new ones."""
    model, opaque = row.embedding_model or "", row.format == "opaque"
    kept = is_manual(model) if opaque else model in (current, MODEL_ID)
    # Vectors of no known length could not be told from those that another row brings.
    if not kept or dim_of(model) is None:
        return msgspec.structs.replace(row, vectors=[])
    due = not opaque and model != current
    return msgspec.structs.replace(row, embedding_version="") if due else row


def _moments(row: Row) -> Iterator[datetime]:
    """Every moment that a row names."""
    yield row.created_at
    if isinstance(row, MovedMemory):
        others = (row.event_time, row.stored_at, row.expires_at, row.given_expires_at)
        yield from filter(None, (*others, row.superseded_at, row.last_seen_at))
        yield from (link.created_at for link in row.links)


def _passed(
    sound: Sequence[Row], present: Mapping[uuid.UUID, Mapping[str, object]]
) -> dict[uuid.UUID, MovedMemory]:
    """Memory → its revision that is current here, as the earlier one that it is elsewhere.

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


def _orphans(
    sound: Sequence[Row], present: Mapping[uuid.UUID, Mapping[str, object]]
) -> set[uuid.UUID]:
    """Earlier revisions of memories that are neither here nor on their way: they have no place,
    and nobody could erase them."""
    memories = [row for row in sound if isinstance(row, MovedMemory)]
    coming = {row.id: row.revision for row in memories if row.revision_of is None}
    return {
        row.id
        for row in memories
        if row.revision_of is not None
        and row.revision_of not in present
        and row.revision >= coming.get(row.revision_of, 0)
    }


def _id_of(row: Row) -> uuid.UUID:
    """The id that people know, and of the tombstone that there is if this was erased."""
    return row.memory_id if isinstance(row, MovedMemory) else row.id


def _outcome(
    row: Row,
    refused: set[uuid.UUID],
    present: Mapping[uuid.UUID, Mapping[str, object]],
    erased: set[uuid.UUID],
    passed: Mapping[uuid.UUID, MovedMemory],
) -> str:
    memory_id = _id_of(row)
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


def _state_on_arrival(row: MovedMemory) -> State:
    """How a row begins here: an earlier revision as it is; of a memory's state only that it is out
    of recall, a moment too early, so that the signed object that follows finds all of it to say."""
    if row.revision_of is not None:
        return State(
            pinned=row.pinned,
            review=row.review,
            stale=row.stale,
            superseded_at=row.superseded_at,
            superseded_by=row.superseded_by,
        )
    if row.superseded_at is None:
        return State()
    return State(superseded_at=row.superseded_at - _EARLIER)


def _change(row: MovedMemory) -> Change:
    change = Change(pinned=row.pinned, review=row.review, stale=row.stale)
    if row.superseded_at is not None:
        at, by = row.superseded_at, row.superseded_by
        change |= Change(superseded_at=at, superseded_by=by, merged=row.merged)
    return change


def _subject(row: Row, entries: Mapping[str, NamespaceEntry]) -> Subject:
    number = entries[row.namespace].namespace_id
    blob = envelope.blob_hash(row.blob_id)
    if isinstance(row, MovedMemory):
        return Subject(row.memory_id, row.revision, blob, number, row.epoch)
    return Subject(row.id, 1, blob, number, row.epoch)
