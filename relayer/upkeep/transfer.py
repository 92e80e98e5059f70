"""Bringing every blob into another store: beside a running relayer, or for good.

Not here: the stores (`blobs/store.py`, `blobs/buckets.py`), what is erased or astray
(`recovery/collection.py`).

- Every object is read back from the new store before it counts; what was brought before counts
  too, so that whatever interrupts this, the next call goes on.
- Until all of them are there, the old store stays as it is. Then an object is removed from it only
  if the new one has just given it back.
- What does not match its name is told and stays where it is.
- Two names may lead to one store. Before anything else, what is put by the new name must not be
  found by the old one: all that is removed as "moved" would be lost.
- An account may have been erased since it was copied: what the new store still has of it goes once
  more.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from relayer.blobs.store import BlobStore, select_unread
from relayer.database import closing as closing_rows
from relayer.database import outbox as outbox_rows
from relayer.database import rebuild as rebuild_rows
from relayer.errors import Conflict, Corrupted
from relayer.installation import open_storage, require
from relayer.recovery.replay import refuse_blobs_elsewhere
from relayer.run_file import alone, is_served
from relayer.sealed.envelope import blob_id
from relayer.sealed.keys import AccountId, account_text
from relayer.settings import Settings
from relayer.storage import Storage, blobs_on

AT_ONCE: Final = 16  # objects in memory; each may have a mebibyte
TOLD_EVERY: Final = 1_000


@dataclass
class Report:
    """The numbers of objects that were moved so far, and the problems found.

    Attributes:
        copied: objects that were brought, and read back.
        already_there: those that an earlier call had brought, read back as well.
        removed: those that are not in the old store any more.
    """

    copied: int = 0
    already_there: int = 0
    removed: int = 0
    bytes: int = 0
    problems: list[dict[str, str]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return true if the new store has everything that the old one had."""
        return not self.problems

    def problem(self, account: AccountId, what: str, name: str) -> None:
        """Note an object that could not be brought."""
        self.problems.append({"account_id": account_text(account), "problem": what, "id": name})

    def as_json(self) -> dict[str, Any]:
        """Return the report for scripts."""
        return {"ok": self.ok, **vars(self)}

    def as_text(self) -> str:
        """Return the report for people."""
        lines = [f"{p['account_id']}: {p['problem']}: {p['id']}" for p in self.problems]
        done = f"{self.copied} objects copied ({self.bytes} bytes)"
        return "\n".join(
            [f"{done}, {self.already_there} were there, {self.removed} removed", *lines]
        )


async def transfer(
    settings: Settings, to: str, *, move: bool, tell: Callable[[Report], None]
) -> Report:
    """Copy every blob into the store `to`; with `move`, remove them from the old one afterwards.

    Raises:
        Conflict: the stores are the same, the other one is somebody else's, or a relayer runs.
        NotInstalled: there is no installation.
        IdentityError: its key is gone, beside accounts.
        SettingsError: `to` names no store, or a folder that cannot be; the blobs are not where the
            settings say.
        Unavailable: one of the stores is away.
    """
    # Nothing is kept in memory: what is read back has to come from the store.
    settings = replace(settings, blob_cache_bytes=0)
    wanted = replace(settings, blob_store=to)
    _check(settings, wanted, move=move)
    await require(settings)
    with contextlib.ExitStack() as held:
        if move:
            held.enter_context(alone(settings.data_dir))
        return await _transfer(settings, wanted, move=move, tell=tell)


async def _transfer(
    settings: Settings, wanted: Settings, *, move: bool, tell: Callable[[Report], None]
) -> Report:
    to = wanted.blob_store
    # A move out of the database that was interrupted goes on: what is not there is in the new one.
    begun = move and settings.blob_store == "postgres"
    async with open_storage(settings, new=False, whatever_store=begun) as storage:
        new = blobs_on(wanted, storage.database)
        if begun:
            await refuse_blobs_elsewhere(storage.database, new)
        strangers = set(await new.accounts()) - await rebuild_rows.find_accounts(storage.database)
        if strangers:
            raise _conflict(f"{to} holds accounts that this relayer does not know.")
        if await leads_to(storage.blobs, new):
            raise _already_in(to)
        if move:
            await storage.outbox.publish()
            await storage.outbox.empty()
        work = Transfer(storage, new, tell)
        await work.copy_all()
        if move and work.report.ok:
            await work.remove_all()
        return work.report


def _check(settings: Settings, wanted: Settings, *, move: bool) -> None:
    if _place(wanted) == _place(settings):
        raise _already_in(wanted.blob_store)
    if _is_within(wanted, settings) or _is_within(settings, wanted):
        raise _conflict(
            f"{wanted.blob_store} and {settings.blob_store} lie within one another: what is an"
            " object of the one would be listed in the other. Name a folder beside it."
        )
    if move and is_served(settings.data_dir):
        raise _conflict("Stop the relayer first; relayer blobs copy brings most of it before that.")
    if not move and wanted.blob_store == "postgres":
        raise _conflict("A relayer would publish them again: stop it, then relayer blobs move.")


def _is_within(inner: Settings, outer: Settings) -> bool:
    """Return true if a store is a folder below another one."""
    one, other = _place(inner), _place(outer)
    return isinstance(one, Path) and isinstance(other, Path) and other in one.parents


def _place(settings: Settings) -> object:
    """Return the place where the name of a store leads, as far as a name tells."""
    kind, _, path = settings.blob_store.partition(":")
    if kind == "file":
        return Path(path).resolve()
    return settings.bucket if kind == "s3" else kind


async def leads_to(old: BlobStore, new: BlobStore) -> bool:
    """Return true if objects put into one store are found in the other; the probe is deleted."""
    probe = b"probe " + secrets.token_bytes(32)
    name = blob_id(probe)
    for account in (await old.accounts())[:1]:  # an empty store has nothing to lose
        try:
            await new.put_many(account, {name: probe})
            return bool(await old.get_many(account, [name]))
        finally:
            await new.delete(account, name)
    return False


def _already_in(place: str) -> Conflict:
    return _conflict(f"The blobs are in {place} already.")


def _conflict(message: str) -> Conflict:
    return Conflict(message, code="blobs.in_use")


class Transfer:
    """The two halves of it, told to `report`."""

    def __init__(self, storage: Storage, new: BlobStore, tell: Callable[[Report], None]) -> None:
        self._storage = storage
        self._old = storage.blobs
        self._new = new
        self._tell = tell
        self._untold = 0
        self.report = Report()

    async def copy_all(self) -> None:
        """Bring what the new store has not, and read it back."""
        for account in await self._old.accounts():
            async for page in _pages(self._old, account):
                await self._copy(account, page)
                self._progress(len(page))
            newest = await outbox_rows.newest_mark(self._storage.database, account)
            await self._new.mark(account, max(newest, await self._old.read_mark(account)))
        await self._empty_again()

    async def remove_all(self) -> None:
        """Take out of the old store what the new one gives back."""
        for account in await self._old.accounts():
            moved = True
            async for page in _pages(self._old, account):
                found = await self._new.get_many(account, page)
                safe = [name for name in page if isinstance(found.get(name), bytes)]
                for name in set(page).difference(safe):
                    self.report.problem(account, "it came meanwhile: does a relayer run?", name)
                moved &= len(safe) == len(page)
                await asyncio.gather(*(self._old.delete(account, name) for name in safe))
                self.report.removed += len(safe)
                self._progress(len(page))
            if moved:  # else a relayer that is started here by mistake would not see that it is
                await self._old.unmark(account)

    async def _empty_again(self) -> None:
        """Let the relayer empty accounts that were closed after they had been copied."""
        copied = set(await self._new.accounts())
        for account in await closing_rows.find_closed(self._storage.database):
            if account in copied and not await self._is_emptied(account):
                await closing_rows.set_unpurged(self._storage.database, account)

    async def _is_emptied(self, account: AccountId) -> bool:
        """Return true if the new store has at most the last receipt of a closed account."""
        receipt = await closing_rows.last_receipt(self._storage.database, account)
        kept = receipt and blob_id(receipt)
        async for name in self._new.names(account):
            if name != kept:
                return False
        return True

    async def _copy(self, account: AccountId, page: list[str]) -> None:
        missing = await self._find_missing(account, page)
        found = await self._old.get_many(account, missing)
        whole = {name: data for name, data in found.items() if isinstance(data, bytes)}
        for name in found.keys() - whole.keys():
            self.report.problem(account, "it does not match its name", name)
        for name in await select_unread(self._old, account, missing, found):
            self.report.problem(account, "it cannot be read", name)
        await self._new.put_many(account, whole)
        again = await self._new.get_many(account, list(whole))
        for name, data in whole.items():
            if again.get(name) == data:
                self.report.copied += 1
                self.report.bytes += len(data)
            else:
                self.report.problem(account, "the new store does not give it back", name)

    async def _find_missing(self, account: AccountId, page: list[str]) -> list[str]:
        """Return those that the new store has not, or not whole: such a one is removed there."""
        found = await self._new.get_many(account, page)
        for name, data in found.items():
            if isinstance(data, Corrupted):
                await self._new.delete(account, name)
            else:
                self.report.already_there += 1
        return [name for name in page if not isinstance(found.get(name), bytes)]

    def _progress(self, objects: int) -> None:
        self._untold += objects
        if self._untold >= TOLD_EVERY:
            self._untold = 0
            self._tell(self.report)


async def _pages(store: BlobStore, account: AccountId) -> AsyncIterator[list[str]]:
    page: list[str] = []
    async for name in store.names(account):
        page.append(name)
        if len(page) == AT_ONCE:
            yield page
            page = []
    if page:
        yield page
