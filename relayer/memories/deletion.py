"""Forgetting one memory, several, what fits a filter, or a whole namespace: who may, and how much
at a time.

Not here: erasing (`eraser.py`), erasing an account (`tenants/closing.py`), what expires
(`expiry.py`).

- Whoever may write in a namespace may forget there. Foreign and absent are the same.
- What was erased before is said to be erased: a request that is repeated does not look like a
  failure.
- One request erases a bounded number; whoever wants more asks again.
- What an account that was rebuilt has no row of yet cannot be erased: then nothing is, and the
  answer says so, for what is restored afterwards would come back.
"""

import uuid
from collections.abc import Awaitable, Callable, Container, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal

from relayer.database import deletion as rows
from relayer.database import erasure as erasure_rows
from relayer.database import namespaces as namespace_rows
from relayer.database import outbox as outbox_rows
from relayer.database.pool import Database
from relayer.database.rebuild import is_incomplete
from relayer.errors import NotAllowed, NotFound
from relayer.memories.eraser import Eraser, Erasure
from relayer.memories.opener import Caller, unrestored
from relayer.memories.record_search import RecordSearch
from relayer.sealed import index
from relayer.sealed.keys import AccountId, Namespace, PublicKey
from relayer.tenants.accounts import Access
from relayer.tenants.ledger import Ledger
from relayer.tenants.namespaces import NamespaceEntry

PAGE: Final = 500
ERASED_MAX: Final = 2_000  # of one request, whose deadline they have to meet
State = Literal["active", "superseded", "pending_review", "rejected", "all"]
Fate = Literal["erased", "already_erased", "not_found", "matched"]
Find = Callable[[int], Awaitable[Sequence[uuid.UUID]]]
# Whether something under one of these keys has no row yet: one of these ids, or (None) anything.
Waits = Callable[[AccountId, Container[bytes], Container[uuid.UUID] | None], Awaitable[bool]]


@dataclass(frozen=True, kw_only=True)
class Filter:
    """A choice of memories to forget in a namespace: those that fit all of it."""

    namespace: Namespace
    kind: str | None = None
    tags: Sequence[str] = field(default=(), repr=False)
    source: str | None = field(default=None, repr=False)
    writer: PublicKey | None = None
    after: datetime | None = None
    before: datetime | None = None
    pinned: bool | None = None
    state: State = "active"


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """The outcome of an erasure, or of its rehearsal.

    Attributes:
        matched: how many there were; of these, `erased` are gone, and with `more` some are left.
        pending: whether an outside store has still to confirm.
        ids: what was erased, the things that went along with it, too.
        fates: of each id that was named, in order.
    """

    matched: int
    erased: int = 0
    more: bool = False
    pending: bool = False
    ids: Sequence[uuid.UUID] = ()
    receipts: Sequence[bytes] = ()
    fates: Sequence[Fate] | None = None


class Deletion:
    """Forgets in one account at a time."""

    def __init__(
        self,
        *,
        database: Database,
        ledger: Ledger,
        records: RecordSearch,
        eraser: Eraser,
        waits: Waits,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._records = records
        self._namespaces = records.namespaces
        self._eraser = eraser
        self._waits = waits

    async def forget(self, access: Access, memory_id: uuid.UUID) -> Forgotten:
        """Erase one memory or episode, expired or not.

        Raises:
            NotFound: absent, somebody else's, or in a namespace the key may not read.
            NotAllowed: the key only reads.
        """
        done = await self.forget_ids(access, [memory_id])
        assert done.fates is not None
        if done.fates[0] == "not_found":
            raise NotFound("No such memory.")
        return done

    async def forget_ids(
        self, access: Access, ids: Sequence[uuid.UUID], *, dry_run: bool = False
    ) -> Forgotten:
        """Erase these memories and episodes.

        Raises:
            NotAllowed: the key only reads in a namespace of one of them; then nothing is erased,
                or nothing further if it lost its right meanwhile.
            NotAuthenticated: it was revoked meanwhile; likewise.
            Unavailable: one has no row yet; then neither.
        """
        fates, namespaces = await self._fates(access, ids)
        if absent := {i for i in ids if fates[i] == "not_found"}:
            await self._check_restored(access, absent)
        living = [i for i in dict.fromkeys(ids) if fates[i] == "matched"]
        erasure = Erasure()
        if not dry_run and living:
            erasure = await self._eraser.erase(access, namespaces, living)
            fates |= {i: "erased" for i in erasure.ids if i in fates}
            # Somebody else was there in between: erased it, or took the facts of an episode.
            rest = [i for i in living if fates[i] == "matched"]
            now, _ = await self._fates(access, rest)
            fates |= {i: "not_found" if now[i] == "matched" else now[i] for i in rest}
        done = await self._report(access.account, erasure, matched=len(living))
        gone = [i for i in ids if fates[i] == "already_erased"]
        pending = done.pending or await self._is_erasing(access.account, gone)
        return replace(done, pending=pending, fates=[fates[i] for i in ids])

    async def _fates(
        self, access: Access, ids: Sequence[uuid.UUID]
    ) -> tuple[dict[uuid.UUID, Fate], set[Namespace]]:
        """Return each id's fate, as far as the key may know it, and the namespaces of those there.

        Raises:
            NotAllowed: the key only reads there.
        """
        if not ids:
            return {}, set()
        places = await rows.places(self._database, account=access.account, ids=ids)
        tombstones = await erasure_rows.tombstones(
            self._database, account=access.account, memory_ids=[i for i in ids if i not in places]
        )
        fates: dict[uuid.UUID, Fate] = dict.fromkeys(ids, "not_found")
        for found, fate in ((places, "matched"), (tombstones, "already_erased")):
            for memory_id, name in found.items():
                namespace = None if name is None else Namespace(name)
                if not access.strength(namespace):
                    continue
                if not access.may_write(namespace):
                    raise NotAllowed("This key is not a writer of that namespace.")
                fates[memory_id] = fate  # type: ignore[assignment]  # one of the two above
        there = {Namespace(name) for i, name in places.items() if fates[i] == "matched"}
        return fates, there

    async def _check_restored(
        self, access: Access, ids: Set[uuid.UUID] | None, *entries: NamespaceEntry
    ) -> None:
        """Return if these have their rows: what is in these namespaces, or of all that the key may
        write in what has one of these ids.

        Raises:
            Unavailable: `memory.unrestored`.
        """
        account = access.account
        if not await is_incomplete(self._database, account):
            return
        key_ids = {key_id for entry in entries for key_id in entry.key_ids.values()}
        if not entries:
            found = await namespace_rows.find_namespaces(self._database, account, None)
            key_ids = {r["key_id"] for r in found if access.may_write(Namespace(r["name"]))}
        if await self._waits(account, key_ids, ids):
            raise unrestored()

    async def _is_erasing(self, account: AccountId, ids: Sequence[uuid.UUID]) -> bool:
        """Return true if an outside store has still to delete some of these erased memories."""
        blobs = await erasure_rows.find_erased_blobs(
            self._database, account=account, memory_ids=ids
        )
        return bool(blobs) and await self._is_pending(account, blobs)

    async def forget_matching(
        self, caller: Caller, chosen: Filter, *, dry_run: bool = False
    ) -> Forgotten:
        """Erase memories that fit, the oldest first.

        Raises:
            NotAllowed: not a writer of the namespace; or there are tags or a source to look for,
                and a key of the namespace is missing.
            Unavailable: something there has no row yet.
        """
        access = caller.access
        access.require(chosen.namespace, "writer")
        entry = await self._namespaces.find(access.account, chosen.namespace)
        if entry is None:
            return Forgotten(matched=0)
        await self._check_restored(access, None, entry)
        matches = await self._matches(caller, chosen, entry.namespace_id)
        account, number = access.account, entry.namespace_id

        async def find(limit: int) -> list[uuid.UUID]:
            found: list[uuid.UUID] = []
            for match in matches:
                found += await rows.find_matching(
                    self._database,
                    account=account,
                    namespace_id=number,
                    match=match,
                    limit=limit - len(found),
                )
            return found

        matched = sum(
            [
                await rows.count_matching(
                    self._database, account=account, namespace_id=number, match=match
                )
                for match in matches
            ]
        )
        if dry_run:
            return Forgotten(matched=matched, ids=await find(PAGE))
        return await self._erase_found(access, chosen.namespace, find, matched)

    async def _matches(self, caller: Caller, chosen: Filter, namespace_id: int) -> list[rows.Match]:
        """Return the matches to look for: one, or one an epoch for keyed hashes."""
        match = rows.Match(
            kind=chosen.kind,
            writer=chosen.writer,
            after=chosen.after,
            before=chosen.before,
            pinned=chosen.pinned,
            state=chosen.state,
        )
        if not chosen.tags and chosen.source is None:
            return [match]
        keys = caller.keys.of(chosen.namespace)
        if await rows.has_other_epochs(
            self._database,
            account=caller.access.account,
            namespace_id=namespace_id,
            epochs=[key.epoch for key in keys],
        ):
            raise NotAllowed("The key of an older epoch is missing.", code="unlock_required")
        seqs = await self._records.find_tagged(
            caller, [chosen.namespace], tags=chosen.tags, source=chosen.source
        )
        if seqs is not None:
            return [replace(match, seqs=seqs)]
        return [
            replace(
                match,
                epoch=key.epoch,
                tokens=index.filters(key, tags=chosen.tags, source=chosen.source),
            )
            for key in keys
        ]

    async def forget_namespace(self, access: Access, namespace: Namespace) -> Forgotten:
        """Erase what is in a namespace, whatever its state, and then the namespace.

        Raises:
            NotAllowed: not a writer of the namespace.
            Unavailable: something there has no row yet.
        """
        access.require(namespace, "writer")
        entry = await self._namespaces.find(access.account, namespace)
        if entry is None:
            return Forgotten(matched=0)
        await self._check_restored(access, None, entry)
        account, number = access.account, entry.namespace_id

        async def find(limit: int) -> list[uuid.UUID]:
            return await rows.contents(
                self._database, account=account, namespace_id=number, limit=limit
            )

        matched = await rows.count_contents(self._database, account=account, namespace_id=number)
        done = await self._erase_found(access, namespace, find, matched)
        if not done.more:
            async with self._ledger.change(access, [namespace]) as change:
                await rows.close_namespace(
                    change.connection, account=account, namespace_id=number, now=change.time
                )
        return done

    async def _erase_found(
        self, access: Access, namespace: Namespace, find: Find, matched: int
    ) -> Forgotten:
        """Erase what is found, page by page, until nothing is or it is enough for one request."""
        erasure = Erasure()
        while len(erasure.ids) < ERASED_MAX:
            found = await find(min(PAGE, ERASED_MAX - len(erasure.ids)))
            if not found:
                return await self._report(access.account, erasure, matched=matched)
            # What one was merged into may not fit what was asked for.
            erasure.add(await self._eraser.erase(access, [namespace], found, upward=False))
        forgotten = await self._report(access.account, erasure, matched=matched)
        return replace(forgotten, more=bool(await find(1)))

    async def _report(self, account: AccountId, erasure: Erasure, *, matched: int) -> Forgotten:
        return Forgotten(
            matched=matched,
            erased=len(erasure.ids),
            pending=await self._is_pending(account, erasure.blob_ids),
            ids=erasure.ids,
            receipts=erasure.receipts,
        )

    async def _is_pending(self, account: AccountId, blob_ids: Sequence[bytes]) -> bool:
        found = await outbox_rows.deletions_pending(
            self._database, account=account, blob_ids=blob_ids
        )
        return found > 0
