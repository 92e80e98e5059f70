"""Rebuilding index rows from sealed blobs.

Not here: finding blobs without rows (`lost.py`), writing rows (`writer.py`), founding accounts
again (`rebuild.py`). The blob says nearly everything a row needs, the journal's `state` objects the
rest; who may read the namespace is asked as always, and what was erased stays erased.

- A turn that was kept beside its facts is so again. Another one had to wait, or had waited: its
  facts are taken (again), and known ones are recognised.
- Of a memory's revisions the highest is the memory; the others become earlier revisions of it,
  one that has its row already, too.
- Rows come back in the order of what they tell of, so that neighbours are neighbours again.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from relayer.access import Access
from relayer.blobs import BlobStore
from relayer.clock import from_ms
from relayer.custody import Keys, LentKeys, RootKeys
from relayer.database import memories as rows
from relayer.database import namespaces as namespace_rows
from relayer.database import rebuild as rebuild_rows
from relayer.database.pool import Database, UniqueViolation
from relayer.database.states import CONTRADICTS, SOURCE, TURN, Link
from relayer.errors import NotFound
from relayer.lost import PAGE, Finder, Lost
from relayer.namespaces import Namespaces
from relayer.opening import Caller
from relayer.record import (
    AGAINST,
    SOURCES,
    Draft,
    State,
    decode,
    first_stored_at,
    is_kept,
    revision_row_id,
)
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId, Identity, Namespace, NamespaceKey, PublicKey
from relayer.sealed.primitives import CryptoError
from relayer.sealed.states import UNSAID, SignedState
from relayer.sealing import new_memory
from relayer.writer import Effects, Writer

RESTORE: Final = "restore"


@dataclass(frozen=True)
class Restored:
    """What a restore did: `total` blobs of the namespace were seen, `skipped` had their rows."""

    restored: int
    skipped: int
    failed: int
    total: int
    truncated: bool


class Restore:
    """Finds blobs without rows and gives them theirs."""

    def __init__(
        self,
        *,
        database: Database,
        blobs: BlobStore,
        namespaces: Namespaces,
        writer: Writer,
        identity: Identity,
        relayers: Sequence[PublicKey],
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._namespaces = namespaces
        self._writer = writer
        self._identity = identity
        self._finder = Finder(database=database, blobs=blobs, relayers=relayers)

    async def restore(self, caller: Caller, namespace: Namespace, limit: int) -> Restored:
        """Give at most `limit` blobs of the namespace their rows back.

        Raises:
            NotAllowed: not a writer of the namespace, or its key is missing.
        """
        caller.access.require(namespace, "writer")
        keys = {key.key_id: key for key in caller.keys.of(namespace)}
        lost = await self._finder.lost(caller.access.account, keys)
        indexed = await self._indexed(caller, namespace)
        restored, failed = await self._restore(caller.access, keys, lost, limit)
        found = len(lost.memories) + len(lost.turns)
        inspected = min(found, limit)
        return Restored(
            restored=restored,
            skipped=indexed + inspected - restored - failed,
            failed=failed + lost.altered,
            total=found + indexed + lost.altered,
            truncated=found > limit,
        )

    async def complete(self, account: AccountId, keys: Keys) -> None:
        """Give a rebuilt account's memories their rows, as far as these keys go.

        When nothing is left that other keys would open, the account is complete.
        """
        if not await rebuild_rows.is_incomplete(self._database, account):
            return
        at_hand = await self._keys_at_hand(account, keys)
        lost = await self._finder.lost(account, at_hand)
        # Nobody asked for it: the relayer itself is whom the receipts name.
        access = Access(account, self._identity.public_key, (), "sealed", 0)
        await self._restore(access, at_hand, lost, len(lost.memories) + len(lost.turns))
        if not lost.others:
            await rebuild_rows.set_complete(self._database, account)

    async def _keys_at_hand(self, account: AccountId, keys: Keys) -> dict[bytes, NamespaceKey]:
        if isinstance(keys, LentKeys):
            return {key.key_id: key for held in keys.keys.values() for key in held}
        assert isinstance(keys, RootKeys)
        found = await namespace_rows.find_namespaces(self._database, account, None)
        names = {Namespace(row["name"]) for row in found}
        return {key.key_id: key for name in names for key in keys.of(name)}

    async def _restore(
        self, access: Access, keys: Mapping[bytes, NamespaceKey], lost: Lost, limit: int
    ) -> tuple[int, int]:
        """(how many rows came back, how many blobs did not open)."""
        if lost.memories or lost.turns:
            await namespace_rows.recount(self._database, access.account)
        # Turns first: memories are linked to them.
        turns = lost.turns[:limit]
        placed = await self._placed(access.account, lost)
        restored = failed = 0
        for name, header in turns:
            try:
                restored += await self._restore_turn(access, keys, name, header)
            except CryptoError:
                failed += 1
        for name, header, place in placed[: limit - len(turns)]:
            try:
                restored += await self._restore_one(access, keys, lost, name, header, place)
            except CryptoError:
                failed += 1
        return restored, failed

    async def _indexed(self, caller: Caller, namespace: Namespace) -> int:
        """How many memories of the namespace have their rows."""
        entry = await self._namespaces.find(caller.access.account, namespace)
        if entry is None:
            return 0
        return await rows.count_sealed(
            self._database, account=caller.access.account, namespace_id=entry.namespace_id
        )

    async def _placed(
        self, account: AccountId, lost: Lost
    ) -> list[tuple[str, envelope.Header, int | None]]:
        """Blobs in the order of what their rows tell of; with when the next revision was stored.

        A memory has its place since its first revision, an earlier one since it was replaced.
        """
        ids = sorted({header.address.memory for _, header in lost.memories})
        stored: dict[uuid.UUID, dict[int, int]] = {}
        for at in range(0, len(ids), PAGE):
            page = ids[at : at + PAGE]
            for row in await rebuild_rows.revisions(self._database, account, page):
                when = round(row["stored_at"].timestamp() * 1000)
                stored.setdefault(row["id"], {})[row["revision"]] = when
        for _, header in lost.memories:
            known = stored.setdefault(header.address.memory, {})
            known[header.address.revision] = header.created_ms
        placed = []
        for name, header in lost.memories:
            known = stored[header.address.memory]
            later = [n for n in known if n > header.address.revision]
            following = known[min(later)] if later else None
            when = known[min(known)] if following is None else following
            placed.append(
                (when, header.address.memory, header.address.revision, name, header, following)
            )
        placed.sort(key=lambda p: p[:4])
        return [(name, header, following) for *_, name, header, following in placed]

    async def _restore_one(
        self,
        access: Access,
        keys: Mapping[bytes, NamespaceKey],
        lost: Lost,
        name: str,
        header: envelope.Header,
        replaced_ms: int | None,
    ) -> bool:
        """Whether the blob got its row; not when it was erased, or its fact was said again since.

        Raises:
            CryptoError: it does not open.
        """
        account, address, key = access.account, header.address, keys[header.key_id]
        blob, record = await self._opened(account, key, name, header)
        draft, writer = decode(record)
        if draft.namespace != key.namespace:
            return False
        entry = await self._namespaces.ensure(account, key)
        stored_at = from_ms(header.created_ms)
        said = lost.states.get(address.memory)
        draft = draft if said is None else _as_long(draft, said[0], address.revision)
        memory = replace(
            new_memory(
                draft,
                key,
                entry,
                address=address,
                blob=blob,
                writer=writer,
                created_at=first_stored_at(record) or stored_at,
            ),
            stored_at=stored_at,
        )
        if replaced_ms is not None:
            memory = replace(
                memory,
                memory_id=revision_row_id(address.memory, address.revision),
                revision_of=address.memory,
                state=State(superseded_at=from_ms(replaced_ms)),
            )
        elif said is not None:
            memory = replace(memory, state=_state(said[0], address.revision))
        try:
            if replaced_ms is None and await self._is_here(access.account, address.memory):
                names = {entry.namespace_id: key.namespace}
                await self._writer.advance(access, memory, names=names)
                return True
            await self._writer.store(
                access,
                [memory],
                op=RESTORE,
                names={entry.namespace_id: key.namespace},
                effects=Effects(links=_links(memory, draft) if replaced_ms is None else ()),
            )
        except (UniqueViolation, NotFound):
            return False
        if said is not None and replaced_ms is None:
            objects = {address.memory: said[1]}
            await rebuild_rows.set_state_blobs(self._database, account, objects)
        return True

    async def _is_here(self, account: AccountId, memory_id: uuid.UUID) -> bool:
        """Whether a memory has a row, of another revision than the one to restore."""
        found = await rebuild_rows.revisions(self._database, account, [memory_id])
        return any(row["revision_of"] is None for row in found)

    async def _opened(
        self, account: AccountId, key: NamespaceKey, name: str, header: envelope.Header
    ) -> tuple[bytes, bytes]:
        """A blob and the record in it.

        Raises:
            CryptoError: it is gone or altered.
        """
        blob = (await self._blobs.get_many(account, [name])).get(name)
        if not isinstance(blob, bytes):
            raise CryptoError("altered")
        return blob, envelope.open_envelope(key, header.address, blob)

    async def _restore_turn(
        self,
        access: Access,
        keys: Mapping[bytes, NamespaceKey],
        name: str,
        header: envelope.Header,
    ) -> bool:
        """Whether a turn is back: kept if it says so, else to have its facts taken (again).

        Raises:
            CryptoError: it does not open.
        """
        key = keys[header.key_id]
        blob, record = await self._opened(access.account, key, name, header)
        draft, writer = decode(record)
        if draft.namespace != key.namespace:
            return False
        entry = await self._namespaces.ensure(access.account, key)
        turn = rows.NewEpisode(
            episode_id=header.address.memory,
            namespace_id=entry.namespace_id,
            epoch=key.epoch,
            writer=writer,
            blob_id=envelope.blob_hash(name),
            blob=blob,
            state=rows.KEPT if is_kept(record) else rows.PENDING,
            created_at=from_ms(header.created_ms),
        )
        names = {entry.namespace_id: key.namespace}
        try:
            await self._writer.store(access, [], op=RESTORE, names=names, episodes=[turn])
        except (UniqueViolation, NotFound):
            return False
        return True


def _links(memory: rows.NewMemory, draft: Draft) -> list[Link]:
    """What a record says of what its memory has to do with others."""
    links = [Link(memory.memory_id, TURN, draft.turn)] if draft.turn is not None else []
    links += [
        Link(memory.memory_id, relation, other)
        for relation, name in ((CONTRADICTS, AGAINST), (SOURCE, SOURCES))
        if relation != SOURCE or memory.type == envelope.SUMMARY or memory.kind == "procedural"
        for other in _ids(draft.metadata.get(name, ""))
    ]
    return links


def _ids(text: str) -> list[uuid.UUID]:
    """The ids in a text of a record; anybody may have written something else there."""
    try:
        return [uuid.UUID(word) for word in text.split()]
    except ValueError:
        return []


def _as_long(draft: Draft, said: SignedState, revision: int) -> Draft:
    """A draft that lives until what was said last of this revision."""
    if said.revision != revision or said.expires_ms == UNSAID:
        return draft
    return replace(draft, expires_at=from_ms(said.expires_ms))


def _state(said: SignedState, revision: int) -> State:
    """What held of a memory last; an edit since then made it fresh."""
    return State(
        pinned=said.pinned,
        review=said.review,
        stale=said.stale and said.revision == revision,
        superseded_at=from_ms(said.superseded_ms),
        superseded_by=said.superseded_by,
    )
