"""Accounts, their chains of grants, and what a key may do now: its access.

Not here: founding and granting (`granting.py`), keys themselves (`custody.py`), request checks
(`http/checks.py`), SQL (`database.accounts`).

- The signed grants are the authority. Columns beside them only help to list; nothing here reads a
  role or a scope from one.
- A chain is cached by its serial and continued, never trusted beyond it: every request reads the
  account's current serial, so a revocation counts from the next request on every replica.
- A request may wait long, for a model or for a lock: what it writes is committed only if its key
  still has the right under the account's lock, which tells the serial in the same trip.
- A chain may be long: it is verified once for all who ask meanwhile, and others have their turn
  after each of its objects.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, TypedDict

import msgspec

from relayer.clock import Clock, rfc3339, rfc3339_ms, to_ms
from relayer.database import accounts as statements
from relayer.database import recall_counts as recall_rows
from relayer.database.index_steps import IndexMark
from relayer.database.pool import Batches, Connection, Database, Row
from relayer.errors import Corrupted, Misdirected, NotAllowed, NotAuthenticated, NotFound
from relayer.preferences import DEFAULTS, AccountSettings, parse_settings
from relayer.sealed.grants import (
    Chain,
    Grant,
    Revocation,
    Role,
    parse_any,
)
from relayer.sealed.keys import AccountId, Identity, Namespace, PublicKey
from relayer.sealed.primitives import CryptoError
from relayer.telemetry.instruments import count_lookups
from relayer.tenants.key_uses import KeyUses

CHAINS_MAX: Final = 10_000
CHAINS_BYTES_MAX: Final = 64 * 2**20  # of the objects of these; parsed, they take thrice that
OUTDATED: Final = "The account has newer keys: fetch /v1/grants and retry."
STRENGTH: Final = {"reader": 1, "writer": 2, "owner": 3}


@dataclass(frozen=True)
class Access:
    """The key that is asking, and its live grants: made once a request, never stored.

    `time` is the one time of the request: all that it looks for and makes goes by that.
    """

    account: AccountId
    key: PublicKey
    grants: tuple[Grant, ...]
    custody: Literal["managed", "sealed"]
    serial: int
    time: datetime
    settings: AccountSettings = DEFAULTS
    index_mark: IndexMark | None = None  # as the request found it
    index_choices: int | None = None  # the same of how often the account chose an index
    unrestored: bool = False  # the account was rebuilt, and may lack rows

    def strength(self, namespace: Namespace | None) -> int:
        """Return 0 none, 1 reader, 2 writer, 3 owner, in a namespace or (None) in the account."""
        return max(
            (STRENGTH.get(g.role, 0) for g in self.grants if _covers(g, namespace)), default=0
        )

    def may_write(self, namespace: Namespace | None) -> bool:
        """Return true if the key may write in a namespace, or (None) in the whole account."""
        return self.strength(namespace) >= STRENGTH["writer"]

    @property
    def is_asked(self) -> bool:
        """Return true if a key asks, whose right counts; else accepted work goes on."""
        return self.serial > 0

    def ends_ms(self, namespace: Namespace, latest_ms: int) -> int:
        """Return when the key's strongest right in the namespace ends, at most `latest_ms`."""
        strongest = self.strength(namespace)
        ends = [
            latest_ms if grant.expires_ms is None else min(grant.expires_ms, latest_ms)
            for grant in self.grants
            if _covers(grant, namespace) and STRENGTH.get(grant.role) == strongest
        ]
        return max(ends, default=0)

    def require(self, namespace: Namespace, role: Role) -> None:
        """Return when the key may act as `role` in the namespace.

        Raises:
            NotAllowed: it may not.
        """
        if self.strength(namespace) < STRENGTH[role]:
            raise NotAllowed(f"This key is not a {role} of that namespace.")

    def require_owner(self) -> None:
        """Return when the key owns the account.

        Raises:
            NotAllowed: it does not.
        """
        if not self.is_owner:
            raise NotAllowed("Only an owner of the account may do that.")

    @property
    def is_owner(self) -> bool:
        """Return true if the key owns the account."""
        return self.strength(None) == STRENGTH["owner"]

    @property
    def namespaces(self) -> list[Namespace] | None:
        """Return the namespaces it may read, None for all."""
        if any(g.whole_account for g in self.grants):
            return None
        return sorted({e.namespace for g in self.grants for e in g.scope if e.namespace})


@dataclass(frozen=True)
class LookUp:
    """An account as it was read: its chain as far as it was known before, and its row."""

    chain: Chain
    row: Row | None


class KeyEntry(TypedDict):
    """One key as its grants say; `namespaces` is None for the whole account.

    `last_used_at` is the hour in which it last asked, None if it never did.
    """

    public_key: str
    label: str
    role: Role
    namespaces: list[str] | None
    created_at: str
    last_used_at: str | None
    expires_at: str | None
    revoked: bool


class Accounts:
    """Tells what a key may do, by chains that it keeps."""

    def __init__(
        self,
        *,
        database: Database,
        identity: Identity,
        clock: Clock,
        key_uses: KeyUses,
    ) -> None:
        self._database = database
        self._identity = identity
        self._clock = clock
        self._key_uses = key_uses
        self._chains: OrderedDict[AccountId, Chain] = OrderedDict()
        self._chains_bytes = 0
        self._continuing: dict[tuple[AccountId, int], asyncio.Task[Chain]] = {}
        self._rows = Batches.of(database, statements.find_accounts)

    @property
    def relayer(self) -> PublicKey:
        """Return the key of this relayer."""
        return self._identity.public_key

    def chain_at_hand(self, account: AccountId) -> Chain:
        """Return the account's chain as far as it is known here, for whoever will read its row.

        The chain comes first: a grant that commits meanwhile may be in it and not in the row.
        """
        return self._chains.get(account) or Chain(account)

    async def access(
        self,
        account: AccountId,
        key: PublicKey,
        read: LookUp | None = None,
        *,
        time: datetime | None = None,
    ) -> Access | None:
        """Return the key's access to the account at a time; None when it holds no live grant.

        The grants are those of when this account was read, if it was. The time is now, if it was
        not taken before.
        """
        chain, row = await self._current(account, read)
        time = time or self._clock()
        now_ms = to_ms(time)
        grants = tuple(g for g in chain.live(key, now_ms) if g.role != "custodian")
        if not grants:
            return None
        settings = parse_settings(row["settings"])
        mark = IndexMark(row["receipt_head"], row["receipt_seq"] + row["index_changes"])
        custody = self.custody(chain, now_ms)
        return Access(
            *(account, key, grants, custody, chain.serial, time, settings),
            index_mark=mark,
            index_choices=row["index_choices"],
            unrestored=row["incomplete"],
        )

    async def lock(
        self,
        connection: Connection,
        access: Access,
        namespaces: Iterable[Namespace],
        *,
        as_owner: bool = False,
    ) -> tuple[statements.Heads, datetime]:
        """Lock the account and return its heads and the change's time, if who asks may still write.

        The time is not the request's, which may have waited long, for a model or for this lock.
        Before the transaction stores any grant, which would be taken for committed.

        Raises:
            NotFound: the account is gone.
            NotAuthenticated: the key was revoked or has expired since its request was checked.
            NotAllowed: it is no writer of one of these namespaces any more, or, `as_owner`, does
                not own the account.
        """
        heads = await statements.lock_heads(connection, access.account)
        time = heads.time(self._clock())
        if access.is_asked or as_owner:
            still = await self._still(connection, access, heads, to_ms(time))
            if as_owner:
                still.require_owner()
            for namespace in namespaces:
                still.require(namespace, "writer")
        return heads, time

    async def _still(
        self, connection: Connection, access: Access, heads: statements.Heads, now_ms: int
    ) -> Access:
        """Return the access of who asks as it is by now, under the account's lock.

        Read by the same connection: all others may be held by who waits for this lock.

        Raises:
            NotAuthenticated: nothing.
            Corrupted: as `chain`.
        """
        held: Sequence[Grant] = access.grants
        serial, chain = heads.grant_serial, self.chain_at_hand(access.account)
        _check_whole(serial, heads.grant_serial_due, known=max(access.serial, chain.serial))
        if serial > access.serial:
            if serial > chain.serial:
                chain = await self._read_on(connection, chain, serial)
                self.remember(chain)
            held = [g for g in chain.live(access.key, now_ms) if g.role != "custodian"]
        grants = tuple(grant for grant in held if not grant.expired(now_ms))
        if not grants:
            raise NotAuthenticated("grant")
        return replace(access, grants=grants, serial=serial)

    async def is_closed(self, account: AccountId) -> bool:
        """Return true if an account was erased, for good."""
        row = await statements.find_account(self._database, account)
        return row is not None and row["closed_at"] is not None

    async def settings(self, account: AccountId) -> AccountSettings:
        """Return the account's settings.

        Raises:
            NotFound: no such account.
        """
        row = await statements.find_account(self._database, account)
        if row is None:
            raise NotFound("No such account.")
        return parse_settings(row["settings"])

    async def unasked(self, account: AccountId, key: PublicKey) -> Access:
        """Return the access of work that was accepted before, by the account's settings of now.

        Raises:
            NotFound: no such account.
        """
        return unasked(account, key, self._clock(), await self.settings(account))

    async def choose(self, access: Access, settings: AccountSettings) -> None:
        """Store what the account has chosen; it counts from the next request.

        Raises:
            NotAllowed: the key does not own the account.
            NotAuthenticated: it was revoked meanwhile.
        """
        access.require_owner()
        chosen = msgspec.json.encode(settings).decode()
        async with self._database.transaction() as connection:
            await self.lock(connection, access, (), as_owner=True)
            await statements.update_settings(connection, account=access.account, settings=chosen)
            if settings.count_recalls:
                await recall_rows.begin_counting(connection, access.account, access.time.date())
            else:
                await recall_rows.end_counting(connection, access.account)

    def custody(self, chain: Chain, now_ms: int | None = None) -> Literal["managed", "sealed"]:
        """Return "managed" while this relayer holds a live custodian grant, else "sealed".

        It is computed, never stored.
        """
        return "managed" if self.custodian_grants(chain, now_ms) else "sealed"

    def custodian_grants(self, chain: Chain, now_ms: int | None = None) -> list[Grant]:
        """Return the live grants that make this relayer the custodian, now or at a time."""
        now_ms = to_ms(self._clock()) if now_ms is None else now_ms
        live = chain.live(self._identity.public_key, now_ms)
        return [g for g in live if g.role == "custodian"]

    async def chain(self, account: AccountId, *, serial: int | None = None) -> Chain:
        """Return the account's verified chain, to its current serial or one that was just read.

        Raises:
            NotFound: no such account.
            Corrupted: the stored grants do not verify, or history went backwards.
        """
        known = self._chains.get(account)
        if known is not None and known.serial == serial:
            return known
        return (await self._current(account))[0]

    async def _current(self, account: AccountId, read: LookUp | None = None) -> tuple[Chain, Row]:
        """Return the account's verified chain and its row."""
        if read is None:
            read = LookUp(self.chain_at_hand(account), await self._rows.ask(account))
        chain, row = read.chain, read.row
        if row is None or row["closed_at"] is not None:
            raise NotFound("No such account.")
        _check_whole(row["grant_serial"], row["grant_serial_due"], known=chain.serial)
        count_lookups("chains", row["grant_serial"] == chain.serial)
        if row["grant_serial"] > chain.serial:
            chain = await self._extend(chain, row["grant_serial"])
        self.remember(chain)
        return chain, row

    async def _extend(self, chain: Chain, serial: int) -> Chain:
        """Return the chain as stored, to this serial at least; read once for all who wait."""
        place = (chain.account, serial)
        if place not in self._continuing:
            # Not part of a request: when that one is given up, others still wait for the chain.
            task = asyncio.create_task(self._read_on(self._database, chain, serial))
            self._continuing[place] = task
            task.add_done_callback(lambda _: self._continuing.pop(place))
        return await asyncio.shield(self._continuing[place])

    async def _read_on(self, source: Database | Connection, chain: Chain, serial: int) -> Chain:
        rows = await statements.grants_after(source, chain.account, chain.serial)
        longer = chain.copy()
        try:
            for row in rows:
                if row["succession"] is not None:
                    longer.learn(row["succession"])
                longer.add(parse_any(row["object"]))
                await asyncio.sleep(0)
        except CryptoError:
            raise Corrupted("The account's grants do not verify.") from None
        if longer.serial < serial:
            raise Corrupted("The account's grants are incomplete.")
        return longer

    def remember(self, chain: Chain) -> None:
        """Keep a chain that was verified; what was asked for longest ago makes room."""
        known = self._chains.pop(chain.account, None)
        self._chains_bytes += chain.bytes - (0 if known is None else known.bytes)
        self._chains[chain.account] = chain
        while len(self._chains) > CHAINS_MAX or (
            self._chains_bytes > CHAINS_BYTES_MAX and len(self._chains) > 1
        ):
            _, oldest = self._chains.popitem(last=False)
            self._chains_bytes -= oldest.bytes

    async def claim(self, account: AccountId, key: PublicKey) -> bool:
        """Claim a key that signed a request naming this account; true if it belongs to it now.

        So do keys whose grants came from another relayer or from the journal. The request proves
        who holds the key and which account it means; a grant alone could name a stranger's key.

        For a stranger no chain is verified: it would take long where there is one, and show that.
        """
        if not await statements.is_recipient(self._database, account, key):
            return False
        try:
            chain = await self.chain(account)
        except NotFound:
            return False
        if all(grant.role == "custodian" for grant in chain.live(key, to_ms(self._clock()))):
            return False
        async with self._database.transaction() as connection:
            if await statements.lock_account(connection, account) is None:
                return False  # closed meanwhile
            return await statements.claim_key(connection, key=key, account=account)

    async def list_grants(self, access: Access) -> list[dict[str, Any]]:
        """Return signed grants and revocations: all for owners, else one's own and the chain above.

        The bytes are those that are stored, so that who asks sees what became of them.
        """
        chain = await self.chain(access.account)
        items = chain.items if access.is_owner else _above(chain, access.key)
        rows = await statements.grants_of(
            self._database, access.account, [item.serial for item in items]
        )
        stored = {row["serial"]: row for row in rows}
        return [
            {
                "kind": "grant" if isinstance(item, Grant) else "revoke",
                "serial": item.serial,
                "object": stored[item.serial]["object"],
                "label": stored[item.serial]["label"],
                "succession": stored[item.serial]["succession"],
            }
            for item in items
            if item.serial in stored
        ]

    async def list_keys(self, access: Access) -> list[KeyEntry]:
        """Return the account's keys as their grants say: all for owners, else one's own."""
        if access.is_owner:
            return await self.all_keys(access.account)
        return await self._key_entries(await self.chain(access.account), [access.key])

    async def all_keys(self, account: AccountId) -> list[KeyEntry]:
        """Return every key of an account, in order of its first grant."""
        chain = await self.chain(account)
        return await self._key_entries(chain, list(chain.grants))

    async def _key_entries(self, chain: Chain, keys: Sequence[PublicKey]) -> list[KeyEntry]:
        labels = await self._labels(chain, keys)
        uses = await self._key_uses.last_uses(chain.account, keys)
        now_ms = to_ms(self._clock())
        return [_key_entry(chain, key, labels, uses.get(key), now_ms) for key in keys]

    async def labels(self, account: AccountId, keys: Iterable[PublicKey]) -> dict[str, str]:
        """Return public key → label of those of an account's keys that have one.

        It is shown to whoever may read what such a key wrote.
        """
        chain = await self.chain(account)
        seen = [key for key in set(keys) if key in chain.grants]
        labels = await self._labels(chain, seen)
        found = {key.hex(): labels.get(chain.grants[key][-1].serial) for key in seen}
        return {key: label for key, label in found.items() if label}

    async def labels_of_keys(self, chain: Chain) -> dict[PublicKey, str]:
        """Return the newest label that each key of a chain was given, of those that have one."""
        serials = [item.serial for item in chain.items]
        labels = await statements.labels_of(self._database, chain.account, serials)
        return {i.recipient: labels[i.serial] for i in chain.items if labels.get(i.serial)}

    async def _labels(self, chain: Chain, keys: Sequence[PublicKey]) -> dict[int, str]:
        """Return serial → label of the newest grant of each key."""
        serials = [chain.grants[key][-1].serial for key in keys]
        return await statements.labels_of(self._database, chain.account, serials) if serials else {}


def _check_whole(serial: int, due: int, *, known: int) -> None:
    """Return when an account's grants are all there, as far as anybody knew of them.

    Raises:
        Corrupted: they are not.
    """
    if serial < due:  # half a chain could leave out a revocation
        raise Corrupted("The account's grants are incomplete.")
    if serial < known:
        raise Corrupted("The account's grants went backwards.")


def _above(chain: Chain, key: PublicKey) -> list[Grant | Revocation]:
    """Return the grants and revocations of a key, of its givers, and so on up the chain."""
    wanted = {key}
    for item in reversed(chain.items):
        if item.recipient in wanted:
            wanted.add(item.issuer)
    return [item for item in chain.items if item.recipient in wanted]


def _key_entry(
    chain: Chain,
    key: PublicKey,
    labels: dict[int, str],
    used_at: datetime | None,
    now_ms: int,
) -> KeyEntry:
    floor = chain.revoked_at.get(key, 0)
    grants = [g for g in chain.grants[key] if g.serial > floor] or chain.grants[key][-1:]
    held = chain.live(key, now_ms) or grants  # of what is over, what it was
    strongest = max(held, key=lambda g: STRENGTH.get(g.role, 0))
    whole = any(g.whole_account for g in held)
    expiries = [g.expires_ms for g in held if g.expires_ms is not None]
    return {
        "public_key": key.hex(),
        "label": labels[grants[-1].serial],
        "role": strongest.role,
        "namespaces": None
        if whole
        else sorted({e.namespace for g in held for e in g.scope if e.namespace}),
        "created_at": rfc3339_ms(grants[0].created_ms),
        "last_used_at": rfc3339(used_at),
        "expires_at": rfc3339_ms(max(expiries)) if len(expiries) == len(held) else None,
        "revoked": not chain.live(key, now_ms) and key in chain.revoked_at,
    }


def unasked(
    account: AccountId, key: PublicKey, time: datetime, settings: AccountSettings = DEFAULTS
) -> Access:
    """Return the access of background work, which follows from what was accepted.

    It needs no right.
    """
    return Access(account, key, (), custody="sealed", serial=0, time=time, settings=settings)


def _covers(grant: Grant, namespace: Namespace | None) -> bool:
    return grant.whole_account or any(e.namespace == namespace for e in grant.scope)


def check_newest(newest: int, epochs: Iterable[int]) -> None:
    """Return when new things are sealed under the account's newest epoch, as they must be.

    Raises:
        Misdirected: they are not; whoever fetches its grants again finds that epoch.
    """
    if any(epoch < newest for epoch in epochs):
        raise Misdirected(OUTDATED, code="epoch.outdated")
