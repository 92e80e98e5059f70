"""Repeating what a database set back to yesterday has forgotten, from the journal beside its blobs.

Not here: telling what it has forgotten (`examiner.py`), repeating it in one account
(`account_replay.py`), founding lost accounts again (`upkeep/rebuild.py`), giving memories their
rows (`restore.py`). Source: SPEC §17.4.

- Before anybody is answered: a key that was revoked since must not be believed for one request.
- An account answers nobody until it has caught up. One that cannot keeps no other one from it, and
  is tried again at the next start and between two walks through the store.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from relayer.blobs.store import BlobStore
from relayer.clock import from_claimed_ms
from relayer.database import accounts as account_rows
from relayer.database import blobs as blob_rows
from relayer.database import replay as rows
from relayer.database import requests as request_rows
from relayer.database.pool import Database, Row
from relayer.errors import Conflict, Unavailable
from relayer.journal.outbox import GRACE, Outbox
from relayer.logs import describe
from relayer.recovery.account_replay import AccountReplay
from relayer.sealed.keys import AccountId
from relayer.sealed.objects import claims_of, integer_member
from relayer.sealed.primitives import CryptoError
from relayer.sealed.receipts import Receipt
from relayer.settings import SettingsError

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
        outbox: Outbox,
        accounts: AccountReplay,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._outbox = outbox
        self._accounts = accounts

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
        accounts = {AccountId(row["whole_id"]): row for row in await rows.newest(self._database)}
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
            found = await asyncio.gather(*(self._blobs.read_mark(account) for account in some))
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
        lost = [row for row in accounts if AccountId(row["whole_id"]) not in present]
        for row in lost:
            await self._outbox.mark(AccountId(row["whole_id"]))
        return len(lost)

    async def _is_still_behind(self, account: AccountId, mark: int) -> bool:
        """Return true if a mark is not of what another process committed since rows were read."""
        return any(_is_behind(row, mark) for row in await rows.newest(self._database, account))

    async def repeat(self, erasures: Iterable[Receipt]) -> bool:
        """Repeat erasures, as `Erasures.repeat`."""
        return await self._accounts.erasures.repeat(erasures)

    async def try_again(self) -> None:
        """Catch up with the accounts that could not be.

        Raises:
            Unavailable: database or store are away.
        """
        for row in await rows.newest(self._database):
            if row["grant_serial_due"] == rows.HELD:
                account = AccountId(row["whole_id"])
                mark = await self._blobs.read_mark(account)
                await self._catch_up_alone(account, row["receipt_seq"], mark)

    async def catch_up_late(self, account: AccountId, history: Sequence[bytes]) -> None:
        """Catch up once more where the chain goes on in objects that came into the store late, as
        one that is still being copied has them.

        Raises:
            Unavailable: database or store are away.
        """
        _, steps, _ = await self._accounts.continuation(account, history)
        if not steps:
            return
        for row in await rows.newest(self._database, account):
            if row["grant_serial_due"] != rows.HELD:  # else that is tried again anyway
                log.warning("an account's grants came late", extra={"event": "replay.late"})
                mark = await self._blobs.read_mark(account)
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
                due = await self._accounts.catch_up(account)
            except Conflict:  # another replica does the same
                due = await self._accounts.catch_up(account)
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


def _is_behind(row: Row, mark: int) -> bool:
    return bool(mark > _told(row) or row["grant_serial"] < row["grant_serial_due"])


def _told(row: Row) -> int:
    """Return the store's mark of the newest receipt: beyond all that were lost with it before."""
    return int(row["receipt_seq"] + row["store_ahead"])
