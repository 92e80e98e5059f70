"""The order of steps of a write: redact, recognise, seal, store.

Not here: who may write (`memory.py`), what a fact is (`analysis.py`), which drafts are new
(`recognition.py`), erasing (`eraser.py`), SQL (`database.memories`).

- Everything an acknowledgement promises is in one transaction, under the account's row lock, with
  the signed receipt that vouches for it.
- Nothing slow happens under the lock: sealing and hashing come before it, embedding after it.
"""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from relayer.accounts import Access
from relayer.clock import Clock, to_ms
from relayer.custody import Keys
from relayer.database import accounts as account_rows
from relayer.database import episodes as episode_rows
from relayer.database import erasure as erasure_rows
from relayer.database import memories as rows
from relayer.database import queue
from relayer.database import vectors as vector_rows
from relayer.database.pool import Connection, Database, UniqueViolation
from relayer.eraser import FORGET, Eraser
from relayer.errors import NotFound, QuotaExceeded, Unavailable
from relayer.namespaces import NamespaceEntry, Namespaces
from relayer.outbox import Outbox
from relayer.receipts import Act, Subject, chained
from relayer.recognition import (
    Known,
    Prepared,
    Stored,
    first_of_each,
    idempotency_marks,
    marked_memory,
    new_marks,
    outcomes,
    outlives,
)
from relayer.record import Draft, encode, new_id
from relayer.redact import redact
from relayer.sealed import envelope, index
from relayer.sealed.keys import AccountId, Identity, Namespace, NamespaceKey, PublicKey
from relayer.settings import Limits
from relayer.words import INDEX_VERSION, words

RACES_MAX: Final = 5
APART_CHARACTERS_MIN: Final = 16_384  # about ten milliseconds of computing
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Remembered:
    """What became of a request, in its order, and the receipts for what was new."""

    items: Sequence[Stored]
    receipts: Sequence[bytes]


class Writer:
    """Writes memories of one account at a time."""

    def __init__(
        self,
        *,
        database: Database,
        outbox: Outbox,
        namespaces: Namespaces,
        eraser: Eraser,
        identity: Identity,
        storage_bytes_max: int,
        embeds: bool,
        clock: Clock,
    ) -> None:
        self._database = database
        self._outbox = outbox
        self._namespaces = namespaces
        self._eraser = eraser
        self._identity = identity
        self._storage_bytes_max = storage_bytes_max
        self._embeds = embeds
        self._clock = clock

    async def write(
        self,
        access: Access,
        keys: Keys,
        drafts: Sequence[Draft],
        *,
        op: str,
        route: str,
        marked_text: str | None = None,
        episode: uuid.UUID | None = None,
    ) -> Remembered:
        """Store what is new of these drafts; when this returns it is durable and found by keyword.

        `marked_text` is what the idempotency keys stand for when it is not each draft's own text;
        `episode` is finished in the same transaction.

        Raises:
            Conflict: an idempotency key came back with another text.
            QuotaExceeded: the account is full.
        """
        prepared = [
            await self._prepare(access, keys, draft, route, n, marked_text)
            for n, draft in enumerate(drafts)
        ]
        for _ in range(RACES_MAX):
            known = await self._recognise(access.account, prepared)
            fresh = first_of_each(prepared, known)
            memories = {n: await self._seal(access, prepared[n]) for n in fresh}
            try:
                receipts = await self._store(
                    access, prepared, memories, known, op=op, episode=episode
                )
            except UniqueViolation:
                continue  # the same fact or key came in between: look again
            return Remembered(outcomes(prepared, memories, known), receipts)
        raise Unavailable("Too many writers say the same thing at once.", code="write.contended")

    async def _prepare(
        self,
        access: Access,
        keys: Keys,
        draft: Draft,
        route: str,
        item: int,
        marked_text: str | None,
    ) -> Prepared:
        text, redacted = await apart(len(draft.text), redact, draft.text)
        draft = replace(draft, text=text)
        epochs = keys.of(draft.namespace)
        marks = idempotency_marks(
            access, epochs, draft.idempotency_key, marked_text or text, route=route, item=item
        )
        when = to_ms(draft.event_time)
        return Prepared(
            draft=draft,
            key=epochs[0],
            entry=await self._namespaces.ensure(access.account, epochs[0]),
            fingerprints=[
                index.fingerprint(key, kind=draft.kind, event_time_ms=when, text=text)
                for key in epochs
            ],
            marks=marks,
            redacted=redacted,
        )

    async def _recognise(self, account: AccountId, prepared: Sequence[Prepared]) -> Known:
        """Which drafts came before: by idempotency key first, then by what they say.

        Raises:
            Conflict: an idempotency key came back with another text.
        """
        facts = await rows.known_facts(
            self._database,
            account=account,
            namespace_ids=sorted({p.entry.namespace_id for p in prepared}),
            fingerprints=[f for p in prepared for f in p.fingerprints],
        )
        outlived = {
            fingerprint: facts[fingerprint]["memory_id"]
            for p in prepared
            for fingerprint in p.fingerprints
            if fingerprint in facts and outlives(p.draft, facts[fingerprint]["expires_at"])
        }
        facts = {f: r for f, r in facts.items() if f not in outlived}
        marks = [mark for p in prepared for mark, _ in p.marks]
        marked = (
            await rows.find_marks(self._database, account=account, marks=marks) if marks else {}
        )
        found: dict[int, tuple[uuid.UUID, bool]] = {}
        by_mark = set()
        for n, p in enumerate(prepared):
            if (row := marked_memory(p.marks, marked)) is not None:
                found[n] = (row["memory_id"], row["embedded"])
                by_mark.add(n)
            for fingerprint in p.fingerprints:
                if n not in found and fingerprint in facts:
                    found[n] = (facts[fingerprint]["memory_id"], facts[fingerprint]["embedded"])
        return Known(found, frozenset(by_mark), sorted(set(outlived.values())))

    async def _seal(self, access: Access, p: Prepared) -> rows.NewMemory:
        return await apart(len(p.draft.text), self._sealed, access, p)

    def _sealed(self, access: Access, p: Prepared) -> rows.NewMemory:
        now = self._clock()
        memory_id = new_id()
        address = envelope.Address(envelope.MEMORY, access.account, memory_id, 1)
        blob = envelope.seal(p.key, address, encode(p.draft, access.key), created_ms=to_ms(now))
        return new_memory(
            p.draft, p.key, p.entry, address=address, blob=blob, writer=access.key, created_at=now
        )

    async def _store(
        self,
        access: Access,
        prepared: Sequence[Prepared],
        memories: dict[int, rows.NewMemory],
        known: Known,
        *,
        op: str,
        episode: uuid.UUID | None,
    ) -> list[bytes]:
        """Everything in one transaction; the receipts."""
        marks = new_marks(prepared, memories, known)
        if not memories and not marks and episode is None:
            return []
        return await self.store(
            access,
            list(memories.values()),
            op=op,
            marks=marks,
            episode=episode,
            names={p.entry.namespace_id: p.draft.namespace for p in prepared},
            replaced=known.outlived if memories else (),
        )

    async def store(
        self,
        access: Access,
        memories: Sequence[rows.NewMemory],
        *,
        op: str,
        names: dict[int, Namespace],
        marks: Sequence[rows.Mark] = (),
        episodes: Sequence[rows.NewEpisode] = (),
        episode: uuid.UUID | None = None,
        manual_vector: npt.NDArray[np.float16] | None = None,
        replaced: Sequence[uuid.UUID] = (),
    ) -> list[bytes]:
        """Commit sealed memories and episodes with their receipts and jobs; the receipts.

        `replaced` memories are erased in the same transaction.

        Raises:
            UniqueViolation: a fact or mark came in between.
            QuotaExceeded: the account is full.
            NotFound: the account, or the episode that these come from, is gone; or what is
                restored was erased.
        """
        now = self._clock()
        blobs = [(m.blob_id, m.blob) for m in memories] + [(e.blob_id, e.blob) for e in episodes]
        # What is restored is in the store, and must not be noted as an orphan to be.
        put = [] if op == "restore" else blobs
        async with (
            self._outbox.putting(access.account, put, foreign=manual_vector is not None),
            self._database.transaction() as connection,
        ):
            heads = await self._heads(connection, access.account)
            act = Act(access.account, access.key, FORGET, now)
            erased, heads = await self._eraser.erase_within(connection, act, heads, replaced)
            self._check_room(heads, sum(len(b) for _, b in blobs))
            if op == "restore":
                await self._check_living(connection, access.account, memories)
            if episode is not None and not await episode_rows.lock_episodes(
                connection, account=access.account, episode_ids=[episode]
            ):
                raise NotFound("That turn was erased or extracted meanwhile.")
            if episodes:
                ids = [e.episode_id for e in episodes]
                await episode_rows.delete_finished(
                    connection, account=access.account, episode_ids=ids
                )
            subjects = [*map(_memory_subject, memories), *map(_episode_subject, episodes)]
            receipts, after = chained(self._identity, replace(act, op=op), heads, subjects, names)
            await rows.write(
                connection,
                access.account,
                rows.Write(
                    now=now,
                    memories=memories,
                    episodes=episodes,
                    marks=marks,
                    marks_expire_at=now + timedelta(seconds=Limits.idempotency_life_s),
                    index_version=INDEX_VERSION,
                    memory_seq=heads.memory_seq,
                    receipts=receipts,
                    receipt_seq=after.receipt_seq,
                    receipt_head=after.receipt_head,
                    blobs_here=not self._outbox.outside,
                ),
            )
            await self._follow_up(
                connection, access.account, memories, episodes, episode, manual_vector, now
            )
        if erased:
            await self._outbox.publish_soon()
        return [*erased, *(signed for _, signed in receipts)]

    async def _check_living(
        self, connection: Connection, account: AccountId, memories: Sequence[rows.NewMemory]
    ) -> None:
        """Under the account's lock, so that nothing erased meanwhile comes back."""
        ids = [m.memory_id for m in memories]
        if await erasure_rows.tombstoned(connection, account=account, memory_ids=ids):
            raise NotFound("That memory was erased.")

    async def _heads(self, connection: Connection, account: AccountId) -> account_rows.Heads:
        """The locked heads of an account that still exists."""
        heads = await account_rows.lock_account(connection, account)
        if heads is None:
            raise NotFound("No such account.")
        return heads

    def _check_room(self, heads: account_rows.Heads, new_bytes: int) -> None:
        if self._storage_bytes_max and heads.storage_bytes + new_bytes > self._storage_bytes_max:
            raise QuotaExceeded("The account's storage is used up.")

    async def _follow_up(
        self,
        connection: Connection,
        account: AccountId,
        memories: Sequence[rows.NewMemory],
        episodes: Sequence[rows.NewEpisode],
        episode: uuid.UUID | None,
        manual_vector: npt.NDArray[np.float16] | None,
        now: datetime,
    ) -> None:
        """What has to happen after this write, promised in the same transaction."""
        if manual_vector is not None:
            await vector_rows.insert_manual_vector(
                connection, account=account, memory=memories[0], embedding=manual_vector
            )
        elif memories and self._embeds:
            ids = [m.memory_id for m in memories]
            await queue.enqueue(connection, queue.EMBED, account, ids)
        if episodes:
            ids = [e.episode_id for e in episodes]
            await queue.enqueue(connection, queue.EXTRACT, account, ids)
        if episode is not None:
            await episode_rows.finish_episode(
                connection,
                account=account,
                episode_id=episode,
                now=now,
                outside_store=self._outbox.outside,
            )


async def apart(size: int, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The result of some computing, in a thread when so much text would keep others waiting."""
    if size < APART_CHARACTERS_MIN:
        return work(*arguments, **named)
    return await asyncio.to_thread(work, *arguments, **named)


def new_memory(
    draft: Draft,
    key: NamespaceKey,
    entry: NamespaceEntry,
    *,
    address: envelope.Address,
    blob: bytes,
    writer: PublicKey,
    created_at: datetime,
) -> rows.NewMemory:
    """The rows of a sealed draft."""
    word_count, source, postings = counted(key, draft)
    return rows.NewMemory(
        memory_id=address.memory,
        namespace_id=entry.namespace_id,
        epoch=key.epoch,
        revision=address.revision,
        type=address.type,
        format=rows.SEALED,
        writer=writer,
        created_at=created_at,
        kind=draft.kind,
        importance=draft.importance,
        confidence=draft.confidence,
        event_time=draft.event_time,
        expires_at=draft.expires_at,
        blob_id=envelope.blob_hash(envelope.blob_id(blob)),
        blob=blob,
        word_count=word_count,
        postings=postings,
        source=source,
        fingerprint=index.fingerprint(
            key,
            kind=draft.kind,
            event_time_ms=to_ms(draft.event_time),
            text=draft.text,
        ),
    )


def counted(key: NamespaceKey, draft: Draft) -> tuple[int, int | None, dict[int, int]]:
    """A draft's rounded number of words, its source's token, and token → clipped frequency."""
    terms = words(draft.text)
    postings = index.postings(
        key, words=terms, tags=draft.tags, source=draft.source, metadata=draft.metadata
    )
    source = None if draft.source is None else index.token(key, "s", draft.source)
    return min(index.rounded_length(len(terms)), 2**15 - 1), source, postings


def _memory_subject(memory: rows.NewMemory) -> Subject:
    return Subject(
        memory.memory_id, memory.revision, memory.blob_id, memory.namespace_id, memory.epoch
    )


def _episode_subject(episode: rows.NewEpisode) -> Subject:
    return Subject(episode.episode_id, 1, episode.blob_id, episode.namespace_id, episode.epoch)
