"""Namespaces filled directly: real envelopes, real words, vectors near those of real sentences.

Not here: the sentences (`sentences.py`), the site (`run_file.py`).

- Rows are written by the relayer's own statement, a thousand at a time; only receipts and jobs are
  left out. Vectors come by COPY, turned by the namespace's key as the relayer turns them.
- The first vectors are those of their sentences. Each further one is such a vector with noise, so
  that a million take minutes and still lie in heaps, as those of real texts do.
"""

import asyncio
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.running import Account, Site
from bench.sentences import sentence
from relayer.clock import to_ms, utc_now
from relayer.database import memories as rows
from relayer.database import queue
from relayer.database.accounts import lock_account
from relayer.database.pool import Connection, halfvec
from relayer.database.vectors import SENT, upload_model
from relayer.database.write_statement import Write, write
from relayer.memories.manual import new_upload
from relayer.memories.sealed_drafts import new_memory
from relayer.record import Draft, encode, new_id
from relayer.sealed import envelope
from relayer.sealed.index_record import open_record, quantise, seal_record
from relayer.sealed.keys import AccountId, NamespaceKey
from relayer.sealed.vector_turn import derive_vector_turn
from relayer.tenants.accounts import unasked
from relayer.tenants.namespaces import NamespaceEntry
from relayer.words.tokens import INDEX_VERSION

BATCH: Final = 1_000
EMBEDDED: Final = 2_000  # sentences whose vectors are their own
NOISE: Final = 0.6  # of a vector of length 1: the cosine to it becomes .86
APART: Final = timedelta(minutes=4)  # so that memories have neighbours, and not only those
FIRST_AT: Final = datetime(2025, 1, 1, tzinfo=UTC)
UPLOAD_BYTES: Final = 512

Vectors = npt.NDArray[np.float16]

_MARK_EMBEDDED: Final = """
UPDATE memories SET embedding_model = $2, embedding_version = $3
WHERE account_id = $1 AND seq > $4
"""
_SEAL_INDEX: Final = """
UPDATE namespaces SET sealed_index = true WHERE account_id = $1 AND namespace_id = $2
"""
VECTOR_COLUMNS: Final = (
    "account_id", "memory_id", "part", "namespace_id", "epoch", "model", "embedding",
)  # fmt: skip


@dataclass(frozen=True)
class Filled:
    """A namespace that was filled: its memories in order, and their vectors as they are stored."""

    account: Account
    namespace: str
    namespace_id: int
    ids: Sequence[uuid.UUID] = field(repr=False)
    vectors: Vectors = field(repr=False)  # (n, dim), turned

    @property
    def key(self) -> NamespaceKey:
        """The namespace's key."""
        return self.account.key(self.namespace)


class Filler:
    """Fills namespaces of a site; sentences and vectors are the same in every run."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._own = np.empty((0, site.embedder.dim), np.float32)

    async def fill(
        self, account: Account, namespace: str, count: int, *, sealed: bool = False
    ) -> Filled:
        """A new namespace with so many memories, ready to be recalled; `sealed`: its index is."""
        embedder, key = self._site.embedder, account.key(namespace)
        filler = unasked(account.id, account.founder.public_key, utc_now())
        entry = await self._site.storage.namespaces.ensure(filler, key, by=None)
        if sealed:
            async with self._site.connection() as connection:
                await connection.execute(_SEAL_INDEX, account.id, entry.namespace_id)
            entry = replace(entry, sealed_index=True)
        await self._embed_own(min(count, EMBEDDED))
        ids: list[uuid.UUID] = []
        stored: list[Vectors] = []
        async with self._site.connection() as connection:
            for first in range(0, count, BATCH):
                numbers = range(first, min(first + BATCH, count))
                made = await asyncio.to_thread(_memories, account, key, entry, numbers)
                turned = await asyncio.to_thread(self._turned, key, numbers)
                if sealed:
                    made = await asyncio.to_thread(_with_vectors, account, key, made, turned)
                model, version = embedder.model_id, embedder.version
                await _store(connection, account.id, made, turned, model, version)
                ids += [memory.memory_id for memory in made]
                stored.append(turned)
        return Filled(account, namespace, entry.namespace_id, ids, np.concatenate(stored))

    async def fill_manual(self, account: Account, namespace: str, count: int) -> None:
        """A new namespace with so many manual uploads, each under a vector of its own."""
        key = account.key(namespace)
        filler = unasked(account.id, account.founder.public_key, utc_now())
        entry = await self._site.storage.namespaces.ensure(filler, key, by=None)
        await self._embed_own(min(count, EMBEDDED))
        vectors = np.stack([self._vector(n) for n in range(count)]).astype(np.float16)
        made = [_upload(account, key, entry, number) for number in range(count)]
        model = upload_model(SENT, vectors.shape[1])
        async with self._site.connection() as connection:
            await _store(connection, account.id, made, vectors, model, model)

    async def fill_waiting(
        self, account: Account, namespace: str, *, texts: int, text_bytes: int
    ) -> None:
        """A new namespace with so many long texts that wait for their vectors, and the job for
        them."""
        key = account.key(namespace)
        filler = unasked(account.id, account.founder.public_key, utc_now())
        entry = await self._site.storage.namespaces.ensure(filler, key, by=None)
        async with self._site.connection() as connection:
            for number in range(texts):
                text = await asyncio.to_thread(_long_text, number, text_bytes)
                made = await asyncio.to_thread(_memory, account, key, entry, number, text)
                async with connection.transaction():
                    await _write(connection, account.id, [made])
            await queue.enqueue(connection, queue.REINDEX, account.id)

    async def settle(self) -> None:
        """Tell the planner what there is now, as autovacuum does in time."""
        async with self._site.connection() as connection:
            await connection.execute(
                "VACUUM (ANALYZE) memories, vectors, postings, blobs, namespaces, accounts"
            )

    async def _embed_own(self, count: int) -> None:
        missing = [sentence(n) for n in range(len(self._own), count)]
        if missing:
            fresh = await self._site.embedder.embed(missing)
            self._own = np.concatenate([self._own, fresh])

    def _turned(self, key: NamespaceKey, numbers: range) -> Vectors:
        turn = derive_vector_turn(key, self._site.embedder.model_id, self._site.embedder.dim)
        return turn.apply(np.stack([self._vector(n) for n in numbers])).astype(np.float16)

    def _vector(self, number: int) -> npt.NDArray[np.float32]:
        near: npt.NDArray[np.float32] = self._own[number % EMBEDDED]
        if number < EMBEDDED:
            return near
        noise = np.random.default_rng(number).standard_normal(len(near), np.float32)
        return near + noise * np.float32(NOISE / np.linalg.norm(noise))


async def _store(
    connection: Connection,
    account: AccountId,
    made: Sequence[rows.NewMemory],
    vectors: Vectors,
    model: str,
    version: str,
) -> None:
    async with connection.transaction():
        before = await _write(connection, account, made)
        await connection.execute(_MARK_EMBEDDED, account, model, version, before)
        records = [
            (account, m.memory_id, 0, m.namespace_id, m.epoch, model, halfvec(vector))
            for m, vector in zip(made, vectors, strict=True)
            if m.record is None
        ]
        await connection.copy_records_to_table("vectors", records=records, columns=VECTOR_COLUMNS)


async def _write(connection: Connection, account: AccountId, made: Sequence[rows.NewMemory]) -> int:
    """Store these memories; the number of the newest before them."""
    heads = await lock_account(connection, account)
    assert heads is not None
    await write(
        connection,
        account,
        Write(
            now=utc_now(),
            memories=made,
            episodes=(),
            marks=(),
            marks_expire_at=utc_now(),
            index_version=INDEX_VERSION,
            memory_seq=heads.memory_seq,
            receipts=(),
            receipt_seq=heads.receipt_seq,
            receipt_head=heads.receipt_head,
            blobs_here=True,
        ),
    )
    return heads.memory_seq


def _with_vectors(
    account: Account, key: NamespaceKey, made: Sequence[rows.NewMemory], vectors: Vectors
) -> list[rows.NewMemory]:
    """These memories with their vectors in their records."""
    found = []
    for memory, vector in zip(made, quantise(vectors), strict=True):
        place = (key, account.id, memory.memory_id, memory.revision)
        record = replace(open_record(*place, memory.record or b""), vectors=vector[None])
        found.append(replace(memory, record=seal_record(*place, record)))
    return found


def _memories(
    account: Account, key: NamespaceKey, entry: NamespaceEntry, numbers: range
) -> list[rows.NewMemory]:
    return [_memory(account, key, entry, number) for number in numbers]


def _long_text(number: int, text_bytes: int) -> str:
    """Sentences of that length together, others than those of other numbers."""
    first, texts, size = number * text_bytes, list[str](), 0
    while size <= text_bytes:
        texts.append(sentence(first + len(texts)))
        size += len(texts[-1].encode()) + 1
    return " ".join(texts).encode()[:text_bytes].decode(errors="ignore")


def _memory(
    account: Account, key: NamespaceKey, entry: NamespaceEntry, number: int, text: str = ""
) -> rows.NewMemory:
    writer, created_at = account.founder.public_key, FIRST_AT + number * APART
    draft = Draft(text=text or sentence(number), namespace=key.namespace)
    address = envelope.Address(envelope.MEMORY, account.id, new_id(), 1)
    blob = envelope.seal(key, address, encode(draft, writer), created_ms=to_ms(created_at))
    return new_memory(
        draft, key, entry, address=address, blob=blob, writer=writer, created_at=created_at
    )


def _upload(
    account: Account, key: NamespaceKey, entry: NamespaceEntry, number: int
) -> rows.NewMemory:
    """Foreign bytes, as `Manual.remember` stores them."""
    created_at = FIRST_AT + number * APART
    return new_upload(
        key,
        entry,
        os.urandom(UPLOAD_BYTES),
        writer=account.founder.public_key,
        created_at=created_at,
    )
