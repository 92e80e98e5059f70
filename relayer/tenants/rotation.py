"""Beginning a new epoch of an account, and how far its memories have followed.

Not here: sealing them anew (`memories/reseal.py`), accepting single grants (`granting.py`).
Source: SPEC §16.

- A rotation is accepted as a whole: revocations first, then a grant of the new epoch to everybody
  who still holds one. Nobody joins by it, and nobody is left behind.
- The relayer never sees a root, unless it is the account's custodian.
- What cannot follow is looked for where it is asked for: nothing of it is stored, or remembered.
- An epoch is not left out while something that a rebuilt account has no row of yet needs its key.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from relayer.blobs.store import BlobStore
from relayer.clock import Clock, to_ms
from relayer.database import queue
from relayer.database import reseal as rows
from relayer.database.memories import OPAQUE
from relayer.database.pool import Connection, Database, Row
from relayer.database.rebuild import is_incomplete
from relayer.errors import BadRequest, Conflict, Corrupted, NotAllowed, NotFound, Unavailable
from relayer.record import UnknownVersion, decode
from relayer.sealed import envelope
from relayer.sealed.grants import (
    Chain,
    Grant,
    Revocation,
    parse_grant,
    parse_revocation,
)
from relayer.sealed.keys import AccountId, Identity, Namespace, NamespaceKey, PublicKey
from relayer.sealed.primitives import CryptoError, to_base64url
from relayer.tenants.access import Access
from relayer.tenants.accounts import Accounts
from relayer.tenants.custody import Custody, Keys
from relayer.tenants.granting import Granting
from relayer.tenants.new_grants import (
    check_bounds,
    check_scope,
    check_use,
    named_by_live,
    uuids_of,
)

Choice = Literal["revoked", "all", "none"]
Problem = Literal["missing", "later"]
Outlook = Problem | Literal["moves"]
# Whether a rebuilt account has no row yet of something of these epochs.
Needs = Callable[[AccountId, range], Awaitable[bool]]
REFUSED: Final = "grant.invalid"
BLOCKED_MAX: Final = 20  # looked at in an answer, which a client asks for every second or two
LOOK_AT_ONCE: Final = 4  # of these; each may have a mebibyte


@dataclass(frozen=True)
class Rotated:
    """What an accepted rotation came to."""

    epoch: int
    serial: int
    receipts: Sequence[bytes]


@dataclass(frozen=True)
class NamespaceProgress:
    """How far one namespace is, in memories, their earlier revisions and turns."""

    name: str
    total: int
    remaining: int
    waiting_for_keys: int

    @property
    def done(self) -> int:
        """How many need no more work."""
        return self.total - self.remaining


@dataclass(frozen=True)
class Blocked:
    """A memory or turn that cannot be sealed anew for now.

    Attributes:
        problem: its bytes are `missing`, or its record is of a `later` release.
    """

    id: uuid.UUID
    namespace: str
    problem: Problem


@dataclass(frozen=True)
class Progress:
    """How far an account has followed to its newest epoch.

    Attributes:
        older: what is still sealed under an older epoch, also where that is to stay so.
        namespaces: those that are to be sealed anew.
        blocked: of the first `BLOCKED_MAX` that remain, as far as sealing anew has come, those that
            wait for something else than a key or their turn.
        unrestored: whether the account was rebuilt and may lack rows, which nothing here counts.
    """

    epoch: int
    started_ms: int
    older: int
    namespaces: Sequence[NamespaceProgress]
    blocked: Sequence[Blocked]
    unrestored: bool


class Rotations:
    """Accepts rotations and tells their progress."""

    def __init__(
        self,
        *,
        database: Database,
        blobs: BlobStore,
        accounts: Accounts,
        granting: Granting,
        custody: Custody,
        needs: Needs,
        identity: Identity,
        clock: Clock,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._accounts = accounts
        self._granting = granting
        self._custody = custody
        self._needs = needs
        self._identity = identity
        self._clock = clock

    async def rotate(
        self,
        access: Access,
        *,
        revocations: Sequence[bytes],
        grants: Sequence[bytes],
        reseal: Choice | Sequence[Namespace],
    ) -> Rotated:
        """Accept a rotation and have sealed anew what it names.

        Raises:
            NotAllowed: not an owner.
            NotAuthenticated: the key was revoked meanwhile.
            BadRequest: an object breaks a rule, or a key would be left behind.
            Conflict: another serial is due, or an epoch that is left out is in use.
            NotFound: a namespace to be sealed anew, or the account, is not there.
            QuotaExceeded: the account has no room for more grants.
        """
        access.require_owner()
        before = await self._accounts.chain(access.account)
        items = await _parsed(revocations, grants)
        after = await self._continued(before, items)
        below = _below(after, reseal)
        left_out = _left_out(before, items, to_ms(self._clock()))
        if left_out and await self._needs(access.account, left_out):
            raise Conflict(
                "Something that may need an older epoch is not restored yet since the database was "
                "lost: recall there with its key, and ask again.",
                code="epoch.in_use",
            )
        begins = access.custody == "managed" or (not items and await self._lent(access.account))

        async def also(connection: Connection) -> None:
            await _check_left_out(connection, access.account, left_out)
            chosen = await rows.choose(connection, account=access.account, below=below)
            if not isinstance(reseal, str) and set(reseal) - chosen:
                raise NotFound("No such namespace; nothing was changed.")
            if begins:
                await queue.enqueue(connection, queue.RESEAL, access.account)

        receipts = await self._granting.accept_rotation(after, items, access=access, also=also)
        return Rotated(after.epoch, after.serial, receipts)

    async def _lent(self, account: AccountId) -> bool:
        """Whether keys are here by which memories are sealed anew.

        Those of a new epoch are lent after it, which begins the work; lent again they begin none.
        """
        return await self._custody.reseal_keys(account) is not None

    async def progress(self, access: Access) -> Progress:
        """How far the namespaces are that the key may read."""
        chain = await self._accounts.chain(access.account)
        keys = await self._custody.reseal_keys(access.account)
        found = await rows.standing(self._database, account=access.account, names=access.namespaces)
        things: dict[str, list[tuple[int, int, int]]] = {}
        for row in found:
            entry = (row["epoch"], row["things"], row["reseal_below"])
            things.setdefault(row["name"], []).append(entry)
        namespaces = [
            _namespace_progress(Namespace(name), own, keys)
            for name, own in things.items()
            if own[0][2]
        ]
        remains = any(entry.remaining for entry in namespaces)
        return Progress(
            epoch=chain.epoch,
            started_ms=_started_ms(chain),
            older=sum(n for own in things.values() for epoch, n, _ in own if epoch < chain.epoch),
            namespaces=namespaces,
            blocked=await self._blocked(access, keys) if remains else [],
            unrestored=await is_incomplete(self._database, access.account),
        )

    async def _blocked(self, access: Access, keys: Keys | None) -> list[Blocked]:
        """What of the first that are due cannot be sealed anew, as far as the keys at hand tell."""
        due = await rows.first_due(
            self._database, account=access.account, names=access.namespaces, limit=BLOCKED_MAX
        )
        found: list[Blocked] = []
        for at in range(0, len(due), LOOK_AT_ONCE):
            some = due[at : at + LOOK_AT_ONCE]
            names = [to_base64url(row["blob_id"]) for row in some]
            try:
                blobs = await self._blobs.get_many(access.account, names)
            except Unavailable:
                break  # of a store that is away, nobody knows what is missing in it
            stored = [blobs.get(name) for name in names]
            judged = await asyncio.to_thread(_judged, access.account, some, stored, keys)
            found += [
                Blocked(row["id"], row["namespace"], one)
                for row, one in zip(some, judged, strict=True)
                if one is not None and one != "moves"
            ]
            if "moves" in judged:
                break  # it has not come to what is behind this one
        return found

    async def _continued(self, before: Chain, items: Sequence[Grant | Revocation]) -> Chain:
        """The chain after a rotation's objects.

        Raises:
            BadRequest, Conflict: it does not accept them.
            QuotaExceeded: the account has no room for them.
        """
        after, now_ms = before.copy(), to_ms(self._clock())
        if items and items[0].serial != before.serial + 1:
            raise Conflict(
                f"The next serial of this account is {before.serial + 1}.", code="grant.serial"
            )
        named = named_by_live(before, now_ms)
        roots = {place: ids for place, ids in named.items() if place[0] is None}
        uuids = uuids_of(before)
        try:
            for item in items:
                if isinstance(item, Grant):
                    if not after.live(item.recipient, now_ms):
                        raise CryptoError("a rotation gives nothing to new or withdrawn keys")
                    self._granting.check_custodian(item)
                    check_use(item, uuids, now_ms)
                    uuids.add(item.grant)
                    # Of a namespace it gives what its roots say: so a wrong key is put right.
                    check_scope(item, roots)
                check_bounds(item)
                self._granting.check_room(after, item)
                after.add(item)
                await asyncio.sleep(0)  # others have their turn
            if after.epoch > before.epoch:
                self._check_epoch(before, after, now_ms)
        except CryptoError as error:
            raise BadRequest(f"The rotation was refused: {error}.", code=REFUSED) from None
        return after

    def _check_epoch(self, before: Chain, after: Chain, now_ms: int) -> None:
        """Return when one new epoch begins, for everybody who writes or reads here.

        Raises:
            CryptoError: one is skipped, there are two roots of it, or a key is left behind.
        """
        entries = [e for own in after.grants.values() for g in own for e in g.scope]
        roots = {e.key_id for e in entries if e.namespace is None and e.epoch == after.epoch}
        if after.epoch != before.epoch + 1 or len(roots) != 1:
            raise CryptoError("a rotation begins the next epoch, with one root")
        if any(self._takes_part(after, key, now_ms) for key in after.left_behind(now_ms)):
            raise CryptoError("a key is left behind without the newest epoch")

    def _takes_part(self, chain: Chain, key: PublicKey, now_ms: int) -> bool:
        """Whether a key is used here: all are, but other relayers as custodians."""
        roles = {grant.role for grant in chain.live(key, now_ms)}
        return key == self._identity.public_key or roles != {"custodian"}


def _left_out(before: Chain, items: Sequence[Grant | Revocation], now_ms: int) -> range:
    """The epochs, alive until now, that these grants leave out."""
    oldest = min((e.epoch for g in items if isinstance(g, Grant) for e in g.scope), default=0)
    return range(before.oldest_alive(now_ms), oldest)


async def _check_left_out(connection: Connection, account: AccountId, left_out: range) -> None:
    """Return when no row needs one of these epochs.

    Raises:
        Conflict: one does.
    """
    if left_out and await rows.anything_below(connection, account=account, epoch=left_out.stop):
        raise Conflict("An older epoch is still in use.", code="epoch.in_use")


async def _parsed(
    revocations: Sequence[bytes], grants: Sequence[bytes]
) -> list[Grant | Revocation]:
    items: list[Grant | Revocation] = []
    try:
        items += map(parse_revocation, revocations)
        for signed in grants:
            items.append(parse_grant(signed))
            await asyncio.sleep(0)  # others have their turn
        return items
    except CryptoError as error:
        raise BadRequest(f"The rotation was refused: {error}.", code=REFUSED) from None


def _below(chain: Chain, reseal: Choice | Sequence[Namespace]) -> Mapping[Namespace | None, int]:
    """Namespace (None: each) → the epoch below which it is to be sealed anew."""
    if reseal == "none":
        return {}
    if reseal == "all":
        return {None: chain.epoch}
    if reseal == "revoked":
        known = _known_to_withdrawn(chain)
        return {name: min(epoch + 1, chain.epoch) for name, epoch in known.items()}
    return {Namespace(name): chain.epoch for name in reseal}


def _known_to_withdrawn(chain: Chain) -> dict[Namespace | None, int]:
    """Namespace (None: each) → the newest epoch whose key a withdrawn key was given."""
    known: dict[Namespace | None, int] = {}
    for key, serial in chain.revoked_at.items():
        for grant in chain.grants.get(key, ()):
            for entry in grant.scope if grant.serial < serial else ():
                known[entry.namespace] = max(entry.epoch, known.get(entry.namespace, 0))
    return known


def _started_ms(chain: Chain) -> int:
    """When the newest epoch began."""
    return min(
        grant.created_ms
        for grants in chain.grants.values()
        for grant in grants
        if any(entry.epoch == chain.epoch for entry in grant.scope)
    )


def _namespace_progress(
    name: Namespace, things: Sequence[tuple[int, int, int]], keys: Keys | None
) -> NamespaceProgress:
    """`things` are (epoch, how many, below which they are due)."""
    held = _epochs(keys, name)
    due = [(epoch, count) for epoch, count, below in things if epoch < below]
    return NamespaceProgress(
        name=name,
        total=sum(count for _, count, _ in things),
        remaining=sum(count for _, count in due),
        waiting_for_keys=sum(count for epoch, count in due if epoch not in held),
    )


def _epochs(keys: Keys | None, name: Namespace) -> dict[int, NamespaceKey]:
    """Epoch → the key of a namespace, of those at hand."""
    try:
        return {} if keys is None else {key.epoch: key for key in keys.of(name)}
    except NotAllowed:
        return {}


def _judged(
    account: AccountId,
    due: Sequence[Row],
    blobs: Sequence[bytes | Corrupted | None],
    keys: Keys | None,
) -> list[Outlook | None]:
    """What keeps each of these; None for a key, and for what is altered, which nobody waits for."""
    return [_outlook(account, row, blob, keys) for row, blob in zip(due, blobs, strict=True)]


def _outlook(
    account: AccountId, row: Row, blob: bytes | Corrupted | None, keys: Keys | None
) -> Outlook | None:
    key = _epochs(keys, Namespace(row["namespace"])).get(row["epoch"])
    if row["format"] == OPAQUE:
        return None if key is None else "moves"
    if blob is None:
        return "missing"
    if key is None or not isinstance(blob, bytes):
        return None
    address = envelope.Address(row["type"], account, row["id"], row["revision"])
    try:
        decode(envelope.open_envelope(key, address, blob))
    except UnknownVersion:
        return "later"
    except CryptoError:
        return None
    return "moves"
