"""Stores of sealed bytes: in PostgreSQL beside their rows, or in a local folder.

Not here: buckets (`buckets.py`), what the bytes mean (`sealed.envelope`) and who may read them
(`memories/memory.py`).

- Objects are named by the hash of their bytes, per account, written once and never changed.
- Every read checks the name, so a store that alters a byte is noticed, not believed.
- One file that cannot be read makes nothing beside it unavailable: it is left out like a missing
  one, and may come back. Who deletes, or repeats erasures, asks what is `unreadable`.
"""

import asyncio
import errno
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final, ParamSpec, Protocol, TypeVar

from relayer import durable
from relayer.database import blobs as statements
from relayer.database.pool import Database
from relayer.errors import Corrupted, Unavailable
from relayer.sealed.envelope import blob_hash
from relayer.sealed.envelope import blob_id as name_of
from relayer.sealed.keys import AccountId
from relayer.sealed.primitives import CryptoError, blake2b_256

log = logging.getLogger("relayer.blobs")

P = ParamSpec("P")
T = TypeVar("T")

LIST_PAGE: Final = 500
NEWEST: Final = "newest"
MARK_MAX: Final = 2**53
ACCOUNT: Final = re.compile("[0-9a-f]{64}")
# What is wrong with one file; anything else is so with all, such as too many open ones.
_OF_ONE_FILE: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EIO, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EUCLEAN}
)
# Of these, what is so with no other file of the account: a wrong owner may be, or a wrong folder.
_DAMAGE: Final = frozenset({errno.EIO, errno.EISDIR, errno.EUCLEAN})


class BlobStore(Protocol):
    """Write-once objects under (account, blob id)."""

    @property
    def transactional(self) -> bool:
        """Return true if blobs commit and vanish together with the rows that refer to them."""

    async def put_many(self, account: AccountId, blobs: Mapping[str, bytes]) -> None:
        """Store blobs durably; storing one again changes nothing."""

    async def get_many(
        self, account: AccountId, names: Sequence[str]
    ) -> dict[str, bytes | Corrupted]:
        """Return the blobs that exist, each verified or the error that says why not.

        Missing in it may be what is there and cannot be read now.
        """

    async def unreadable(self, account: AccountId, names: Sequence[str]) -> list[str]:
        """Return those of these, which were not read, that are there all the same."""

    async def delete(self, account: AccountId, name: str) -> None:
        """Remove one blob; a missing one is no error."""

    def names(self, account: AccountId, *, after: str = "") -> AsyncIterator[str]:
        """Yield every name of the account, or those behind one, in the store's own order."""

    async def accounts(self) -> list[AccountId]:
        """Return every account that has objects here."""

    async def mark(self, account: AccountId, seq: int) -> None:
        """Remember that the account's history had come as far as this number."""

    async def read_mark(self, account: AccountId) -> int:
        """Return the highest number that was marked; 0 where the rows themselves are here."""

    async def unmark(self, account: AccountId) -> None:
        """Forget that, once nothing of the account is here any more."""

    async def drop_drafts(self, account: AccountId, *, older_than: timedelta) -> bool:
        """Delete what crashes left of objects that were never there whole, if nobody can be putting
        them still; whether younger ones are there."""


def verify_blob(name: str, data: bytes) -> bytes | Corrupted:
    """Return the bytes when they have this name, else the error."""
    return data if name_of(data) == name else _mismatch()


def verify_hash(digest: bytes, data: bytes) -> bytes | Corrupted:
    """Return the bytes when this is their hash, which their name says, else the error."""
    return data if blake2b_256(data) == digest else _mismatch()


def _mismatch() -> Corrupted:
    return Corrupted("A stored object does not match its name.")


def read_mark(data: bytes) -> int:
    """Return the number in a mark; 0 for a damaged one, which could hide all that is lost."""
    with suppress(ValueError):
        return number if (number := int(data)) < MARK_MAX else 0
    return 0


async def select_unread(
    store: BlobStore,
    account: AccountId,
    names: Sequence[str],
    found: Mapping[str, bytes | Corrupted],
) -> list[str]:
    """Return those of these names that are there and were not among what was `found` of them."""
    missing = [name for name in names if name not in found]
    return await store.unreadable(account, missing) if missing else []


class PostgresStore:
    """Blobs in the database, written by the same statement as their rows."""

    transactional = True

    def __init__(self, *, database: Database) -> None:
        self._database = database

    async def put_many(self, account: AccountId, blobs: Mapping[str, bytes]) -> None:
        """Store blobs durably; storing one again changes nothing."""
        await statements.insert(self._database, account, blobs)

    async def get_many(
        self, account: AccountId, names: Sequence[str]
    ) -> dict[str, bytes | Corrupted]:
        """Return the blobs that exist, each verified or the error that says why not."""
        found = await statements.find(self._database, account, names)
        return {name: verify_blob(name, data) for name, data in found.items()}

    async def unreadable(self, account: AccountId, names: Sequence[str]) -> list[str]:
        """Return no name: a row is read, or the database is away."""
        return []

    async def delete(self, account: AccountId, name: str) -> None:
        """Remove one blob; a missing one is no error."""
        await statements.delete(self._database, account, name)

    async def names(self, account: AccountId, *, after: str = "") -> AsyncIterator[str]:
        """Yield every name of the account, or those behind one, in the store's own order."""
        while page := await statements.names_after(self._database, account, after, LIST_PAGE):
            for name in page:
                yield name
            after = page[-1]

    async def accounts(self) -> list[AccountId]:
        """Return every account that has objects here."""
        return await statements.accounts(self._database)

    async def mark(self, account: AccountId, seq: int) -> None:
        """Do nothing: what is here cannot be newer than the rows."""

    async def read_mark(self, account: AccountId) -> int:
        """Return 0: what is here cannot be newer than the rows."""
        return 0

    async def unmark(self, account: AccountId) -> None:
        """Do nothing: no account is marked here."""

    async def drop_drafts(self, account: AccountId, *, older_than: timedelta) -> bool:
        """Return false: a transaction leaves all or none."""
        return False


class FolderStore:
    """Blobs as files `<folder>/<account>/<first two characters>/<blob id>`.

    A blob is written to a temporary name, synced, linked to its own name, and the folder synced:
    after a crash there is the whole object or none, and maybe the temporary name, until somebody
    drops it. `<folder>/<account>/newest` holds the number of the newest receipt that anything there
    speaks of.

    Once another folder has its name, such as the bare mount point of a disk that went away, the
    store is away: what was written there would hide that everything else is missing.
    """

    transactional = False

    def __init__(self, *, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._opened = folder.stat()

    async def put_many(self, account: AccountId, blobs: Mapping[str, bytes]) -> None:
        """Store blobs durably; storing one again changes nothing."""
        await self._use(self._put_all, account, blobs)

    async def get_many(
        self, account: AccountId, names: Sequence[str]
    ) -> dict[str, bytes | Corrupted]:
        """Return the blobs that exist, each verified or the error that says why not."""
        return await self._use(self._get_all, account, names)

    async def unreadable(self, account: AccountId, names: Sequence[str]) -> list[str]:
        """Return those of these, which were not read, that are there all the same."""
        return await self._use(self._unreadable, account, names)

    async def delete(self, account: AccountId, name: str) -> None:
        """Remove one blob; a missing one is no error."""
        await self._use(self._delete, account, name)

    async def names(self, account: AccountId, *, after: str = "") -> AsyncIterator[str]:
        """Yield every name of the account, or those behind one, in the store's own order."""
        folders = await self._use(self._folders, account)
        for folder in folders:
            if folder.name < after[:2]:
                continue
            found = await self._use(_names_in, folder)
            for name in found:
                if name > after:
                    yield name

    async def accounts(self) -> list[AccountId]:
        """Return every account that has objects here."""
        return await self._use(self._accounts)

    async def mark(self, account: AccountId, seq: int) -> None:
        """Remember that the account's history had come as far as this receipt."""
        await self._use(self._mark, account, seq)

    async def read_mark(self, account: AccountId) -> int:
        """Return the highest receipt number that was marked."""
        return await self._use(self._read_mark, account)

    async def unmark(self, account: AccountId) -> None:
        """Forget that, once nothing of the account is here any more."""
        await self._use(self._unmark, account)

    async def drop_drafts(self, account: AccountId, *, older_than: timedelta) -> bool:
        """Delete what crashes left under temporary names, if nobody can be writing them still;
        whether younger ones are there."""
        return await self._use(self._drop_drafts, account, older_than)

    async def _use(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do some work on the folder in a thread, and return its result.

        Raises:
            Unavailable: the folder is away, or refuses the work.
        """

        def in_place() -> T:
            self._refuse_other()
            return work(*args, **kwargs)

        with _translate_errors():
            return await asyncio.to_thread(in_place)

    def _refuse_other(self) -> None:
        """Return if the store's name still leads to its folder.

        Raises:
            OSError: it leads nowhere, or elsewhere.
        """
        if not os.path.samestat(self._folder.stat(), self._opened):
            log.error("the blob folder is another one by now", extra={"event": "blobs.other"})
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    def _path(self, account: AccountId, name: str) -> Path:
        blob_hash(name)  # refuses anything that could walk out of the folder
        return self._folder / account.hex() / name[:2] / name

    def _put_all(self, account: AccountId, blobs: Mapping[str, bytes]) -> None:
        folders = set()
        for name, data in blobs.items():
            path = self._path(account, name)
            for level in (path.parent.parent, path.parent):  # parents=True would ignore the mode
                level.mkdir(mode=0o700, exist_ok=True)
            if not path.exists():
                with suppress(FileExistsError):  # the same bytes: their hash is the name
                    durable.place(path, data)
            folders.add(path.parent)
        for folder in folders:
            for level in (folder, folder.parent, folder.parent.parent):
                durable.sync(level)

    def _get_all(self, account: AccountId, names: Sequence[str]) -> dict[str, bytes | Corrupted]:
        found: dict[str, bytes | Corrupted] = {}
        refused: list[OSError] = []
        for name in names:
            try:
                found[name] = verify_blob(name, self._path(account, name).read_bytes())
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in _OF_ONE_FILE:
                    raise
                refused.append(error)
        if refused:
            self._folders(account)  # refuses, too, where it is more than some files
            cause = refused[-1].strerror  # the system's word for it, without the path
            extra = {"event": "blobs.unreadable", "count": len(refused), "cause": cause}
            log.error("blobs cannot be read", extra=extra)
        return found

    def _unreadable(self, account: AccountId, names: Sequence[str]) -> list[str]:
        return [name for name in names if _is_there(self._path(account, name))]

    def _delete(self, account: AccountId, name: str) -> None:
        path = self._path(account, name)
        with suppress(FileNotFoundError):
            path.unlink()
            durable.sync(path.parent)

    def _folders(self, account: AccountId) -> list[Path]:
        # Not by a pattern: what does not let itself be listed would count as empty.
        try:
            found = list((self._folder / account.hex()).iterdir())
        except FileNotFoundError:
            self._refuse_other()  # the account has nothing only if the store is there
            return []
        return sorted(path for path in found if len(path.name) == 2)

    def _accounts(self) -> list[AccountId]:
        with os.scandir(self._folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
        return [AccountId(bytes.fromhex(name)) for name in names if ACCOUNT.fullmatch(name)]

    def _mark(self, account: AccountId, seq: int) -> None:
        if seq > self._read_mark(account):
            path = self._folder / account.hex() / NEWEST
            path.parent.mkdir(mode=0o700, exist_ok=True)
            durable.replace(path, str(seq).encode())

    def _read_mark(self, account: AccountId) -> int:
        try:
            return read_mark((self._folder / account.hex() / NEWEST).read_bytes())
        except FileNotFoundError:
            return 0
        except OSError as error:
            if error.errno not in _DAMAGE:
                raise
            extra = {"event": "blobs.mark", "cause": error.strerror}
            log.error("a mark cannot be read", extra=extra)
            return 0

    def _unmark(self, account: AccountId) -> None:
        place = self._folder / account.hex()
        (place / NEWEST).unlink(missing_ok=True)
        self._drop_drafts(account, timedelta(0))  # else what is left of a crash keeps the folder
        for empty in (*self._folders(account), place):
            with suppress(OSError):  # something of a stranger's may be there
                empty.rmdir()

    def _drop_drafts(self, account: AccountId, older_than: timedelta) -> bool:
        young = False
        for folder in (self._folder / account.hex(), *self._folders(account)):
            young |= durable.drop_drafts(folder, older_than)
        return young


def _is_there(path: Path) -> bool:
    """Return true if something has this name, as far as that can be told."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _names_in(folder: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(f.name for f in folder.iterdir() if is_name(f.name))
    return []


def is_name(name: str) -> bool:
    """Return true if a file is a blob rather than a leftover of a crash or a stranger's."""
    try:
        blob_hash(name)
    except CryptoError:
        return False
    return True


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except OSError:
        raise Unavailable("The blob store is away.", code="blobs.unavailable") from None
