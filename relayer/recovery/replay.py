"""Repeating what a database set back to yesterday has forgotten, from the journal beside its blobs.

Not here: telling what it has forgotten (`examiner.py`), founding lost accounts again
(`upkeep/rebuild.py`), giving memories their rows (`restore.py`). Source: SPEC §17.4.

- Before anybody is answered: a key that was revoked since must not be believed for one request.
- First what holds of memories, then grants and revocations, then erasures, with receipts of the
  relayer's own. What else was stored since comes back as of a rebuilt account, and is not collected
  before.
- Grants and revocations come in the order of their serials, each verified against those before it.
  A chain that cannot be continued to its end is not believed at all: its account answers nobody.
- An account answers nobody until it has caught up. One that cannot keeps no other one from it, and
  is tried again at the next start and between two walks through the store.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from relayer.blobs.store import BlobStore
from relayer.clock import from_claimed_ms, from_ms
from relayer.database import accounts as account_rows
from relayer.database import blobs as blob_rows
from relayer.database import outbox as outbox_rows
from relayer.database import queue
from relayer.database import replay as rows
from relayer.database import requests as request_rows
from relayer.database import states as state_rows
from relayer.database.pool import Database, Row
from relayer.errors import Conflict, Corrupted, NotFound, Unavailable
from relayer.journal.outbox import GRACE, Outbox
from relayer.journal.states import STATE, Change, change_states
from relayer.logs import describe
from relayer.memories.eraser import RECEIPT_ITEMS_MAX, Eraser
from relayer.recovery.continuation import Step, continued
from relayer.recovery.examiner import Examiner
from relayer.recovery.found import merged_with
from relayer.sealed.envelope import blob_hash
from relayer.sealed.grants import Chain
from relayer.sealed.keys import AccountId, PublicKey
from relayer.sealed.named import NamedKey
from relayer.sealed.objects import claims_of, integer_member
from relayer.sealed.primitives import CryptoError
from relayer.sealed.receipts import Receipt
from relayer.sealed.states import SignedState
from relayer.settings import SettingsError
from relayer.tenants.closing import CLOSE, Closing
from relayer.tenants.granting import Granting
from relayer.tenants.ledger import Ledger
from relayer.tenants.namespaces import Namespaces

log = logging.getLogger("relayer.replay")

ACCOUNTS_MAX: Final = 100  # whose memories are looked for in the database
AT_ONCE: Final = 16  # marks read; a store that is far away has one for every account


async def refuse_blobs_elsewhere(database: Database, moved_to: BlobStore | None = None) -> None:
    """Return if each account has blobs of memories in a database that is to hold them, or they are
    in `moved_to`, or all of them were accepted as lost.

    Else a backup of it would have no memory, recalls would answer nothing, and what is erased would
    stay where it is.

    Raises:
        SettingsError: they are in a folder or a bucket.
    """
    found, others_here = await blob_rows.elsewhere(database, ACCOUNTS_MAX)
    if moved_to is not None:
        for account in list(found):
            names = await blob_rows.newest_names(database, account, AT_ONCE)
            if await moved_to.get_many(account, names):
                found.discard(account)
    if not found:
        return
    if not others_here:
        raise SettingsError(
            "RELAYER_BLOB_STORE is postgres, and the blobs of this database are not in it: name the"
            " folder or bucket that has them, as `relayer serve` is given it. If what was there is"
            " lost for good: name an empty one, then relayer blobs accept"
        )
    raise SettingsError(
        "RELAYER_BLOB_STORE is postgres, and the blobs of some accounts are not in it: name the"
        " folder or bucket that has them, or go on with `relayer blobs move` if that was"
        " interrupted. If what is missing is lost for good: relayer blobs accept"
    )


class Replay:
    """Brings accounts up to what their journal says."""

    def __init__(
        self,
        *,
        database: Database,
        blobs: BlobStore,
        granting: Granting,
        namespaces: Namespaces,
        eraser: Eraser,
        closing: Closing,
        outbox: Outbox,
        ledger: Ledger,
        relayers: Sequence[PublicKey],
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._granting = granting
        self._namespaces = namespaces
        self._eraser = eraser
        self._closing = closing
        self._outbox = outbox
        self._ledger = ledger
        self._relayers = relayers
        self._examiner = Examiner(database=database, blobs=blobs, relayers=relayers)

    async def catch_up(self, *, whatever_store: bool = False) -> None:
        """Repeat what accounts lack that an outside store knows to have come further.

        One small read an account, unless the database was set back. With `whatever_store`, one that
        has nothing of any account is not refused, nor a database without its memories' blobs.

        Raises:
            SettingsError: the store is not the one that this database's accounts were put into.
            Unavailable: the store is away; nobody knows what was revoked.
        """
        if self._blobs.transactional:
            if not whatever_store:
                await refuse_blobs_elsewhere(self._database)
            return
        accounts = {AccountId(row["account_id"]): row for row in await rows.newest(self._database)}
        marks = await self._marks(list(accounts))
        if not all(marks.values()) and not whatever_store:
            await self._refuse_other_store(accounts, marks)
        for account, mark in marks.items():
            row = accounts[account]
            if _is_behind(row, mark) and await self._is_still_behind(account, mark):
                event = {"event": "replay.older"}
                log.warning("an account is older than its blobs", extra=event)
                if mark > _told(row):  # else it is tried again, and has lost nothing more
                    # Which requests it had accepted since, nobody knows any more.
                    await request_rows.restore_nonces(self._database)
                await self._catch_up_alone(account, row["receipt_seq"], mark)
        await self._mark_missed(accounts, marks)

    async def _mark_missed(
        self, accounts: Mapping[AccountId, Row], marks: Mapping[AccountId, int]
    ) -> None:
        """Let the store be told what it was not told of when it was away, or by an earlier release.

        Not at once: a store that is full can be read, and others may mark newer receipts meanwhile.
        """
        missed = {account for account, mark in marks.items() if mark < _told(accounts[account])}
        if missed:
            # What is staged is told with that; what has nothing there may be in another store.
            missed -= set(await blob_rows.accounts(self._database))
            missed &= set(await self._blobs.accounts())
        self._outbox.mark_later(sorted(missed))

    async def _marks(self, accounts: Sequence[AccountId]) -> dict[AccountId, int]:
        marks: dict[AccountId, int] = {}
        for at in range(0, len(accounts), AT_ONCE):
            some = accounts[at : at + AT_ONCE]
            found = await asyncio.gather(*(self._blobs.marked(account) for account in some))
            marks |= dict(zip(some, found, strict=True))
        return marks

    async def _refuse_other_store(
        self, accounts: Mapping[AccountId, Row], marks: Mapping[AccountId, int]
    ) -> None:
        """Return unless accounts were published and the store has nothing of any.

        What was erased or revoked from now on would not be in the store that has everything.

        Raises:
            SettingsError: so it is.
        """
        # First: what is staged no more by then is in the store when that is asked.
        staged = set(await blob_rows.accounts(self._database))
        published = {a for a, row in accounts.items() if row["receipt_seq"]} - staged
        missing = {account for account in published if not marks[account]}
        if missing:
            missing -= set(await self._blobs.accounts())
        if not missing:
            return
        # One that was restored from a copy lacks what came after that.
        if missing == published:
            raise SettingsError(
                "RELAYER_BLOB_STORE: the database has accounts and nothing of any of them is there."
                " Is its disk mounted, and is it the right folder or bucket? If what was there is"
                " lost for good: relayer blobs accept"
            )
        extra = {"event": "replay.missing", "accounts": len(missing)}
        log.error("accounts have nothing in the blob store", extra=extra)

    async def accept_store(self) -> int:
        """Go on with a store that has lost what accounts had there; how many did.

        Raises:
            SettingsError: the store is the database, and has nothing at all.
        """
        if self._blobs.transactional:
            found, others_here = await blob_rows.elsewhere(self._database, ACCOUNTS_MAX)
            if found and others_here:
                await blob_rows.accept_lost(self._database, found)
            await refuse_blobs_elsewhere(self._database)
            return len(found)
        accounts = await rows.newest(self._database)
        present = set(await self._blobs.accounts())
        lost = [row for row in accounts if AccountId(row["account_id"]) not in present]
        for row in lost:
            await self._outbox.mark(AccountId(row["account_id"]))
        return len(lost)

    async def _is_still_behind(self, account: AccountId, mark: int) -> bool:
        """Whether a mark is not of what another process committed since all rows were read."""
        return any(_is_behind(row, mark) for row in await rows.newest(self._database, account))

    async def try_again(self) -> None:
        """Catch up with the accounts that could not be.

        Raises:
            Unavailable: database or store are away.
        """
        for row in await rows.newest(self._database):
            if row["grant_serial_due"] == rows.HELD:
                account = AccountId(row["account_id"])
                mark = await self._blobs.marked(account)
                await self._catch_up_alone(account, row["receipt_seq"], mark)

    async def catch_up_late(self, account: AccountId, history: Sequence[bytes]) -> None:
        """Catch up once more where the chain goes on in objects that came into the store late, as
        one that is still being copied has them.

        Raises:
            Unavailable: database or store are away.
        """
        _, steps, _ = await self._continuation(account, history)
        if not steps:
            return
        for row in await rows.newest(self._database, account):
            if row["grant_serial_due"] != rows.HELD:  # else that is tried again anyway
                log.warning("an account's grants came late", extra={"event": "replay.late"})
                mark = await self._blobs.marked(account)
                await self._catch_up_alone(account, row["receipt_seq"], mark)

    async def _catch_up_alone(self, account: AccountId, seq: int, mark: int) -> None:
        """Catch up with one account, whatever happens: what its journal says is its tenant's.

        Raises:
            Unavailable: database or store are away.
        """
        await rows.hold(self._database, account, mark)
        try:
            await self._end_puts(account, seq)
            try:
                due = await self._catch_up_one(account)
            except Conflict:  # another replica does the same
                due = await self._catch_up_one(account)
            # What comes back from now on waits for keys, not for another start.
            await rows.set_due(self._database, account, due)
        except Unavailable:
            raise
        except Exception as error:
            extra = {"event": "replay.failed", "exception": describe(error)}
            log.error("an account could not catch up, and answers nobody", extra=extra)

    async def end_puts(self) -> None:
        """Believe no note of a put that the database has: it is a copy of an earlier moment."""
        for account, seq in await rows.accounts_putting(self._database):
            await self._end_puts(account, seq)

    async def _end_puts(self, account: AccountId, seq: int) -> None:
        """Let blobs come back that were noted as being put when the database was of its age.

        A row may have come to refer to them since, and they would be deleted as abandoned. Of what
        is noted, only puts are due that long after the account's newest receipt.
        """
        newest = await account_rows.receipts_after(self._database, account, max(0, seq - 1), 1)
        for signed in newest:
            with suppress(CryptoError):
                # Unverified, since it may be of a key that is lost: it is a row of our own.
                known = from_claimed_ms(integer_member(claims_of(signed).get("time"), low=0))
                await rows.end_puts(self._database, account, known + GRACE / 2)

    async def _catch_up_one(self, account: AccountId) -> int:
        """Bring an account up to its journal; the serial that its chain has to reach.

        Raises:
            Corrupted: something cannot be read, which may be a revocation or an erasure.
        """
        history: list[bytes] = []
        erasures: list[Receipt] = []
        names: list[NamedKey] = []
        states: dict[str, SignedState] = {}
        serial = 0
        async for page in self._examiner.pages(account):
            found = await self._examiner.examine(account, page)
            if found.unread or found.altered:
                raise Corrupted("Objects that no row refers to cannot be read, or are altered.")
            history += found.history
            erasures += found.unknown
            names += found.names
            states |= found.states
            serial = max(serial, found.serial)
        # Before any other receipts: whether a state is of since, only its number tells. What comes
        # behind it may be interrupted.
        await self._say_again(account, states)
        due = max(serial, await self._continue(account, history))
        if await self.repeat(erasures):
            relayer = self._ledger.unasked(account)
            for named in names:
                place = (named.namespace, named.epoch)
                await self._namespaces.create(relayer, *place, named.key_id, by=None)
            async with self._database.transaction() as connection:
                await rows.set_incomplete(connection, account)
                await queue.enqueue(connection, queue.RESTORE, account, [])
        return due

    async def repeat(self, receipts: Iterable[Receipt]) -> bool:
        """Repeat erasures; whether the account is still there afterwards.

        Raises:
            RelayerError: one could not be repeated; what it names must not be shown meanwhile.
        """
        for receipt in receipts:
            try:
                if receipt.op == CLOSE:
                    await self._closing.close_account(receipt.account, receipt.actor)
                    return False
                await self._eraser.repeat(receipt)
            except NotFound:
                return False
        return True

    async def _say_again(self, account: AccountId, states: Mapping[str, SignedState]) -> None:
        """Let hold of memories that are here what was said of them last, with receipts of its own.

        All of it or nothing. The objects of before are of no use then; others wait for their
        memories (`restore.py`).
        """
        said = sorted(states.items(), key=lambda one: one[1].order)
        newest = {state.memory: state for _, state in said}
        with suppress(NotFound):  # it was closed
            async with self._ledger.change(self._ledger.unasked(account), op=STATE) as change:
                connection, now = change.connection, change.time
                found = await state_rows.lock_states(
                    connection, account=account, memory_ids=sorted(newest)
                )
                if not found:
                    return
                changes = {i: _change(newest[i], row["revision"]) for i, row in found.items()}
                back = [i for i, row in found.items() if _comes_back(row, changes[i])]
                staying = sorted(changes.keys() - set(back))
                for at in range(0, len(staying), RECEIPT_ITEMS_MAX):
                    part = {i: changes[i] for i in staying[at : at + RECEIPT_ITEMS_MAX]}
                    await change_states(change, part)
                for memory_id in sorted(back, key=lambda i: newest[i].order):
                    # What says the same here said something else by then: its edit is yet to come
                    # back.
                    await state_rows.give_up_words(connection, account=account, memory_id=memory_id)
                    await change_states(change, {memory_id: changes[memory_id]})
                links = [link for i in found for link in merged_with(i, newest[i], ())]
                await state_rows.link(connection, account=account, links=links, now=now)
                old = [blob_hash(name) for name, state in said if state.memory in found]
                await outbox_rows.intend(connection, account=account, blob_ids=old, due_at=now)

    async def _continue(self, account: AccountId, history: Sequence[bytes]) -> int:
        """Add what the journal has of the chain of grants; the serial that it has to reach.

        Raises:
            Conflict: another replica does the same; it comes as far.
        """
        chain, steps, due = await self._continuation(account, history)
        if steps:
            await self._granting.accept_moved(chain, steps, actor=self._ledger.relayer)
        return due

    async def _continuation(
        self, account: AccountId, history: Sequence[bytes]
    ) -> tuple[Chain, Sequence[Step], int]:
        """The chain of grants as these objects continue it, what they add, and the serial that it
        has to reach; nothing and 0 where what is stored does not hold, and answers nobody anyway.
        """
        chain = Chain(account)
        stored = await account_rows.grants_after(self._database, account, 0)
        try:
            return chain, *continued(chain, stored, history)
        except CryptoError:
            return chain, [], 0


def _is_behind(row: Row, mark: int) -> bool:
    return bool(mark > _told(row) or row["grant_serial"] < row["grant_serial_due"])


def _told(row: Row) -> int:
    """What the store is told of the newest receipt: beyond all that were lost with it before."""
    return int(row["receipt_seq"] + row["store_ahead"])


def _comes_back(row: Row, change: Change) -> bool:
    return bool(row["superseded_at"]) and not change["superseded_at"]


def _change(said: SignedState, revision: int) -> Change:
    change = Change(
        pinned=said.pinned,
        review=said.review,
        stale=said.stale and said.revision == revision,
        superseded_at=from_ms(said.superseded_ms),
        superseded_by=said.superseded_by,
        merged=said.merged,
    )
    if said.revision != revision:
        return change
    return change | Change(
        expires_at=from_ms(said.expires_ms), has_default_life=said.has_default_life
    )
