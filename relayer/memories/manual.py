"""MemWal's manual mode: a client's own ciphertext under its own vector.

Not here: its routes (`memwal_manual.py`). Foreign bytes are stored as they came, never opened,
never taken for an envelope; they have no words, so only their vectors are searched. A vector of
the relayer's own model (`/api/embed`) also finds what was remembered, as with MemWal's relayer.

- An upload has the name of its bytes, as the journal's objects have: bytes that could be one of
  these, or a sealed blob of the account, are refused.
- Vectors are turned on managed accounts and stored as sent on sealed ones, whose client turns them.
  An account's custody may change, so each vector says which it is, and a query looks for both.
- What was remembered is looked at on managed accounts only: a vector that its client has turned is
  as near to all of it.
- Only the direction of a vector counts.
"""

import math
import uuid
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.concurrency import TURNING, offload
from relayer.database import memories as rows
from relayer.database import recall as search
from relayer.database.pool import Database
from relayer.database.vectors import SENT, TURNED, UploadVector, upload_model
from relayer.embedding.embedders import Embedder
from relayer.errors import BadRequest
from relayer.memories.opener import Caller
from relayer.memories.writer import Writer
from relayer.memory_index.distances import Measuring
from relayer.memory_index.evidence import nearest_memories
from relayer.memory_index.index import MemoryIndex
from relayer.memory_index.namespace import LoadedNamespace
from relayer.query.rank import Weights, weigh
from relayer.record import new_id
from relayer.sealed.envelope import MEMORY, blob_hash, blob_id
from relayer.sealed.foreign import is_foreign
from relayer.sealed.index_record import IndexRecord, quantise, seal_record
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey, PublicKey
from relayer.sealed.primitives import to_base64url
from relayer.sealed.vector_turn import derive_vector_turn
from relayer.tenants.accounts import Access
from relayer.tenants.namespaces import NamespaceEntry, Namespaces

ONLY_NEARNESS: Final = Weights()
_SQUARES_FIT: Final = (1e-100, 1e100)  # lengths whose squares are in the range of a float


class Manual:
    """Keeps and finds foreign ciphertext."""

    def __init__(
        self,
        *,
        database: Database,
        namespaces: Namespaces,
        writer: Writer,
        resident: MemoryIndex,
        embedder: Embedder | None,
    ) -> None:
        self._database = database
        self._namespaces = namespaces
        self._resident = resident
        self._embedder = embedder
        self._writer = writer

    async def remember(
        self,
        caller: Caller,
        namespace: Namespace,
        ciphertext: bytes,
        vector: npt.NDArray[np.floating],
    ) -> tuple[uuid.UUID, str]:
        """Store foreign bytes, and return (memory id, blob id).

        Raises:
            NotAllowed: not a writer of the namespace, or its key is missing.
            BadRequest: the bytes have the form of the account's own objects, or the vector has no
                direction.
        """
        caller.access.require(namespace, "writer")
        unit = _unit(vector)
        key = caller.keys.of(namespace)[0]
        if not is_foreign(caller.access.account, ciphertext):
            raise BadRequest(
                "An upload cannot be a signed object or a sealed memory.", code="upload.reserved"
            )
        form = TURNED if caller.access.custody == "managed" else SENT
        entry = await self._namespaces.ensure(caller.access, key, caller.keys.lender)
        memory = new_upload(
            key, entry, ciphertext, writer=caller.access.key, created_at=caller.access.time
        )
        model, shown = upload_model(form, len(unit)), _turn(key, unit, form)
        stored = UploadVector(model, shown)
        if entry.sealed_index:
            memory = _with_record(memory, shown, caller.access.account, key)
            stored = UploadVector(model, None)
        await self._writer.store(
            caller.access,
            [memory],
            op="remember",
            names={entry.namespace_id: namespace},
            manual_vector=stored,
        )
        return memory.memory_id, blob_id(ciphertext)

    async def recall(
        self,
        caller: Caller,
        namespace: Namespace,
        vector: npt.NDArray[np.floating],
        limit: int,
        weights: Weights = ONLY_NEARNESS,
    ) -> list[tuple[str, float]]:
        """Return (blob id, cosine distance) of what is nearest, in the order of the weights.

        Raises:
            NotAllowed: not a reader of the namespace, or its key is missing.
            BadRequest: the vector has no direction.
        """
        caller.access.require(namespace, "reader")
        unit = _unit(vector)
        keys = caller.keys.of(namespace)
        entry = await self._namespaces.find_now(caller.access, namespace)
        if entry is None:
            return []
        forms = self._forms(caller.access, len(unit))
        if held := await self._find_loaded(caller.access, entry, keys):
            # Turning is a good part of such a request: only where there are vectors to compare.
            asked = await _query_vectors(keys, unit, forms, held[0].passages)
            numbered = [(entry.namespace_id, key) for key in keys]
            measure = partial(
                Measuring, self._database, caller.access.account, numbered, entry.has_records
            )
            name = partial(search.blob_ids, self._database, caller.access.account)
            found = await nearest_memories(held[0], asked, caller.access.time, limit, measure, name)
        else:
            found = await search.search_manual(
                self._database,
                account=caller.access.account,
                namespace_id=entry.namespace_id,
                embeddings=await _query_vectors(keys, unit, forms),
                now=caller.access.time,
                limit=limit,
            )
        return _order(found, weights, caller.access.time)

    async def _find_loaded(
        self, access: Access, entry: NamespaceEntry, keys: Sequence[NamespaceKey]
    ) -> list[LoadedNamespace] | None:
        """Return the namespace in memory; None where a statement is to search it."""
        if entry.has_records:
            return await self._resident.sealed.load(access, {entry.namespace_id: keys})
        return await self._resident.find(access, [entry.namespace_id])

    def _forms(self, access: Access, dim: int) -> dict[str, str]:
        """Return model → how its vectors are turned, of all that such a vector may be near."""
        forms = {upload_model(form, dim): form for form in (TURNED, SENT)}
        if (own := self._embedder) is not None and own.dim == dim and access.custody == "managed":
            forms[own.model_id] = own.model_id
        return forms


def _order(found: search.Nearest, weights: Weights, now: datetime) -> list[tuple[str, float]]:
    """Return (blob id, distance), best first; of equals the nearest."""
    scores, _, _ = weigh(1.0 - found.distances, found.moments, found.importances, weights, now)
    names = [to_base64url(blob_hash) for blob_hash in found.blob_ids]
    order = np.argsort(-scores, kind="stable")
    return [(names[n], float(found.distances[n])) for n in order]


async def _query_vectors(
    keys: Sequence[NamespaceKey],
    unit: npt.NDArray[np.float32],
    forms: Mapping[str, str],
    there: Container[tuple[int, str]] | None = None,
) -> dict[tuple[int, str], npt.NDArray[np.float16]]:
    """Return (epoch, model) → the query as its vectors are, for all or those that are there."""
    places = {(key.epoch, model): (key, form) for key in keys for model, form in forms.items()}
    wanted = {place: how for place, how in places.items() if there is None or place in there}
    return await offload(TURNING * len(wanted) * len(unit), _all_shown, wanted, unit)


def _all_shown(
    places: Mapping[tuple[int, str], tuple[NamespaceKey, str]], unit: npt.NDArray[np.float32]
) -> dict[tuple[int, str], npt.NDArray[np.float16]]:
    return {place: _turn(key, unit, form) for place, (key, form) in places.items()}


def _turn(key: NamespaceKey, unit: npt.NDArray[np.float32], form: str) -> npt.NDArray[np.float16]:
    """Return the vector, of length 1, as the database sees it: as it is, or turned for a model."""
    if form != SENT:
        unit = derive_vector_turn(key, form, len(unit)).apply(unit[None])[0]
    return unit.astype(np.float16)


def _with_record(
    memory: rows.NewMemory,
    vector: npt.NDArray[np.float16],
    account: AccountId,
    key: NamespaceKey,
) -> rows.NewMemory:
    """Return an upload with its vector in a sealed record."""
    own = IndexRecord.of(0, None, {}, quantise(vector[None]))
    record = seal_record(key, account, memory.memory_id, memory.revision, own)
    return replace(memory, record=record)


def _unit(vector: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Return the vector at length 1."""
    with np.errstate(over="ignore"):
        length = math.sqrt(vector @ vector)
    if not _SQUARES_FIT[0] < length < _SQUARES_FIT[1]:
        largest = np.abs(vector).max()
        if not 0 < largest < math.inf:
            raise BadRequest("vector must have a direction.")
        vector = vector / largest
        length = math.sqrt(vector @ vector)
    unit: npt.NDArray[np.float32] = (vector / length).astype(np.float32)
    return unit


def new_upload(
    key: NamespaceKey,
    entry: NamespaceEntry,
    ciphertext: bytes,
    *,
    writer: PublicKey,
    created_at: datetime,
) -> rows.NewMemory:
    """Return the row that is stored for foreign bytes."""
    return rows.NewMemory(
        memory_id=new_id(),
        namespace_id=entry.namespace_id,
        epoch=key.epoch,
        revision=1,
        type=MEMORY,
        format=rows.OPAQUE,
        writer=writer,
        created_at=created_at,
        kind="fact",
        importance="standard",
        confidence="high",
        event_time=None,
        expires_at=None,
        blob_id=blob_hash(blob_id(ciphertext)),
        blob=ciphertext,
        word_count=0,
        postings={},
        source=None,
        fingerprint=None,
        stored_at=created_at,
    )
