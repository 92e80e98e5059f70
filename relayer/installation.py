"""An installation: its folder, its key and its database, opened, made, or refused as another's.

Not here: the parts that are built on it (`storage.py`); the embedded server
(`postgres/embedded.py`); who serves a folder (`run_file.py`).

- A key is made once, and only where nothing was written by another.
- Nothing is made where nobody asked for it.
"""

import asyncio
import os
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from relayer.clock import Clock, utc_now
from relayer.database import accounts as account_rows
from relayer.database.migrate import (
    distribute,
    find_restore,
    has_accounts,
    head,
    migrate,
    refuse_pooler,
    refuse_two,
    revision,
)
from relayer.database.pool import Database
from relayer.durable import create
from relayer.identity import (
    IdentityError,
    load_identity,
    load_succession,
    load_taken_over,
    make_identity,
    refuse_interrupted,
)
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.sealed.keys import Identity
from relayer.sealed.objects import claimed
from relayer.sealed.primitives import CryptoError
from relayer.settings import Settings, SettingsError
from relayer.storage import Storage, blobs_on, replay_on, storage_on
from relayer.tenants.unlock_key_pairs import UnlockKeys

ELSEWHERE_FILE: Final = "database.elsewhere"
ACCOUNTS_MAX: Final = 100  # whose newest receipt is looked at, to know whose they are


class NotInstalled(Exception):
    """There is no installation here that this release can use; `do` says what makes one."""

    def __init__(self, message: str, do: str) -> None:
        super().__init__(message)
        self.do = do


@asynccontextmanager
async def open_storage(
    settings: Settings,
    clock: Clock = utc_now,
    *,
    new: bool = True,
    rotating: bool = False,
    whatever_store: bool = False,
    restoring: bool = False,
    unlock_keys: UnlockKeys | None = None,
) -> AsyncIterator[Storage]:
    """Yield storage on a migrated database; the embedded server is started and stopped with it.

    Where there is nothing yet a `new` installation is made. What a database that was set back has
    forgotten is repeated first; with `whatever_store`, also where the blob store has nothing of any
    account, or the database is to hold the blobs and does not. Without `unlock_keys` the process
    makes its own.

    Raises:
        SettingsError: the blob store is not that of this database, or the database is elsewhere.
        Unavailable: the blob store is away.
        IdentityError: the relayer's key cannot be used, is not there or not that of the accounts,
            or is half replaced and not `rotating`.
        NotInstalled: there is no installation, and none is to be made; or one is restored from a
            backup, and this is not what is `restoring` it.
    """
    if not new:
        await require(settings)
    make_folder(settings)
    if not rotating:
        refuse_interrupted(key_path(settings))
    async with database_server(settings) as connect_args:
        if settings.database_url and not settings.database_direct_url:
            await refuse_pooler(connect_args)
        path = key_path(settings)
        if not path.exists() and await has_accounts(connect_args):
            raise _identity_lost(path)
        await migrate(connect_args)
        if not restoring:  # not before: into what is migrated no backup is loaded any more
            await _refuse_restored(connect_args)
        async with connect_database(settings, connect_args) as database:
            identity = await _identity(settings, database)
            storage = _storage(settings, connect_args, database, identity, clock, unlock_keys)
            await _refuse_other_key(storage, path)
            await replay_on(storage, clock).catch_up(whatever_store=whatever_store)
            # An empty one beside an embedded one was only tried, or its URL is for something else.
            if settings.database_url and (
                not _cluster_of(settings).exists() or await has_accounts(connect_args)
            ):
                _note_elsewhere(settings)
            yield storage


@asynccontextmanager
async def as_found(settings: Settings, clock: Clock = utc_now) -> AsyncIterator[Storage]:
    """Yield storage on what is there, to examine it: nothing is made, and nothing migrated.

    Raises:
        NotInstalled: something is missing, or the schema is not this release's.
        SettingsError: the database is elsewhere, and not named.
        IdentityError: the relayer's key cannot be used, or is not there beside accounts.
    """
    await require(settings)
    _require_database(settings)
    _require_folder(settings)
    refuse_interrupted(key_path(settings))
    identity = load_identity(key_path(settings))
    async with database_server(settings) as connect_args:
        await _refuse_restored(connect_args)
        present, needed = await revision(connect_args), head()
        if present != needed:
            newer = present is not None and present > needed
            raise NotInstalled(
                f"its schema is {present or 'not there yet'}, this release needs {needed}",
                "install the newer release" if newer else f"relayer serve{at(settings)}",
            )
        async with connect_database(settings, connect_args) as database:
            yield _storage(settings, connect_args, database, identity, clock)


async def require(settings: Settings) -> None:
    """Return if there is an installation: its folder and its key.

    Raises:
        NotInstalled: something is missing.
        IdentityError: it is the key, and there are accounts, which a new installation would lose.
    """
    _require_there(settings.data_dir)
    path = key_path(settings)
    if not path.exists() and (settings.database_url or _cluster_of(settings).exists()):
        async with database_server(settings) as connect_args:
            if await has_accounts(connect_args):
                raise _identity_lost(path)
    _require_there(path)


async def migrate_database(settings: Settings, *, distributed: bool) -> list[str]:
    """Bring the database to this release's schema; with `distributed`, lay it out over a cluster.

    The tables that were laid out now.

    Raises:
        NotInstalled: there is no embedded one, and none is named.
        Unavailable: the database is away.
        PostgresError: it does not let us in, or cannot be migrated so.
    """
    _require_database(settings)
    make_folder(settings)
    async with database_server(settings) as connect_args:
        if settings.database_url and not settings.database_direct_url:
            await refuse_pooler(connect_args)
        if distributed:
            return await distribute(connect_args)
        await migrate(connect_args)
        return []


def make_folder(settings: Settings) -> None:
    """Make the data folder, unless it is there.

    Raises:
        SettingsError: it cannot be made.
    """
    # The embedded server drops root and must still walk through; what is inside is closed.
    mode = 0o711 if os.geteuid() == 0 else 0o700
    try:
        settings.data_dir.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"RELAYER_DATA_DIR: cannot make the folder {settings.data_dir}: {error.strerror}"
        ) from None


def key_path(settings: Settings) -> Path:
    """Return the path of the relayer's own key."""
    return Path(settings.key_file or settings.data_dir / "relayer.key")


def at(settings: Settings) -> str:
    """Return the options by which a command finds the same installation."""
    named = {
        "--data-dir": (str(settings.data_dir), str(Settings.data_dir)),
        "--key-file": (settings.key_file, ""),
        "--blob-store": (settings.blob_store, Settings.blob_store),
    }
    # Not the database's URL, which may have a password; its variable is all that is typed then.
    given = (
        f" {name} {shlex.quote(value)}" for name, (value, usual) in named.items() if value != usual
    )
    return "".join(given)


def own_keys(storage: Storage, path: Path) -> set[str]:
    """Return the keys, in hex, that this relayer has had, and those whose accounts it took over.

    Raises:
        IdentityError: the file at `path` names one that is no key.
    """
    return {key.hex() for key in (*storage.relayers, *load_taken_over(path))}


async def last_writers(database: Database, *, limit: int | None = ACCOUNTS_MAX) -> list[str]:
    """Return the relayer's key, in hex, that the newest receipt of each account names; "" for none.

    The newest accounts come first.
    """
    return [_relayer_of(signed) for signed in await account_rows.newest_receipts(database, limit)]


def _relayer_of(signed: bytes) -> str:
    try:
        return claimed(signed, "relayer")
    except CryptoError:
        return ""


def _storage(
    settings: Settings,
    connect_args: dict[str, Any],
    database: Database,
    identity: Identity,
    clock: Clock,
    unlock_keys: UnlockKeys | None = None,
) -> Storage:
    """Return storage with what the key file says of the keys before today's."""
    succession = load_succession(key_path(settings))
    return storage_on(settings, connect_args, database, identity, clock, succession, unlock_keys)


async def _identity(settings: Settings, database: Database) -> Identity:
    """Return the relayer's key; a new one only where nothing was written by another.

    Raises:
        IdentityError: it cannot be used, or there is none and the blob store holds accounts.
    """
    path = key_path(settings)
    if path.exists():
        return load_identity(path)
    if await blobs_on(settings, database).accounts():
        raise _identity_lost(path)
    if not path.parent.is_dir():  # the data folder is there: it is a mistyped one
        raise IdentityError(
            f"There is no folder {path.parent} for the relayer's key: make it, or name the right"
            " --key-file."
        )
    return make_identity(path)


def _identity_lost(path: Path) -> IdentityError:
    return IdentityError(
        f"There is no {path}, and there are accounts, which belong to the key that was there: put"
        " it back or name the right --key-file (deploy/backup.md)."
    )


async def _refuse_other_key(storage: Storage, path: Path) -> None:
    """Return if the newest accounts were last written by this relayer.

    Raises:
        IdentityError: one was by another key; receipts of two keys can never be verified.
    """
    # What is no receipt is for `relayer check` to tell.
    others = {*await last_writers(storage.database)} - own_keys(storage, path) - {""}
    if others:
        raise IdentityError(
            f"{path} is not the key by which accounts here were last written, which is"
            f" {min(others)}: put that one back or name the right --key-file (deploy/backup.md)."
        )


async def _refuse_restored(connect_args: dict[str, Any]) -> None:
    """Return unless a backup was loaded whose restore has not ended: what was revoked or accepted
    since it was made is not looked at before that.

    Raises:
        NotInstalled: so it is.
    """
    if await find_restore(connect_args) is not None:
        raise NotInstalled(
            "a backup is being restored into this database, or was when that was interrupted",
            "relayer backup restore FOLDER, as before, which goes on with it",
        )


def _require_database(settings: Settings) -> None:
    """Return if a database is named, or the embedded one is there."""
    if not settings.database_url:
        _refuse_another(settings)
        _require_there(_cluster_of(settings))


def _require_there(path: Path) -> None:
    if not path.exists():
        raise NotInstalled(
            f"no installation here: there is no {path.absolute()}",
            "name the right --data-dir and --key-file; relayer serve makes a new installation",
        )


def _require_folder(settings: Settings) -> None:
    kind, _, folder = settings.blob_store.partition(":")
    if kind == "file" and not Path(folder).is_dir():
        raise NotInstalled(
            f"there is no folder {folder}, which RELAYER_BLOB_STORE names",
            "name the right one; relayer serve makes it on a new installation",
        )


@asynccontextmanager
async def database_server(settings: Settings) -> AsyncIterator[dict[str, Any]]:
    """Yield asyncpg's arguments of the database's server itself.

    Raises:
        SettingsError: it is elsewhere, and not named.
    """
    if settings.database_url:
        yield {"dsn": settings.database_direct_url or settings.database_url}
        return
    _refuse_another(settings)
    async with EmbeddedPostgres(data_dir=settings.data_dir) as server:
        watch = asyncio.create_task(server.keep_up())
        try:
            yield server.connect_args
        finally:
            watch.cancel()
            await asyncio.wait({watch})


@asynccontextmanager
async def connect_database(
    settings: Settings, connect_args: dict[str, Any]
) -> AsyncIterator[Database]:
    """Yield a pool on the database that these arguments lead to, or on the pooler before it.

    Raises:
        PostgresError: the pooler leads to another database.
    """
    pooled = bool(settings.database_direct_url)
    if pooled:
        await refuse_two(connect_args, {"dsn": settings.database_url})
    database = await Database.connect(
        {"dsn": settings.database_url} if pooled else connect_args,
        connections=settings.database_connections,
        timeout_s=settings.database_timeout_s,
        pooled=pooled,
    )
    try:
        yield database
    finally:
        await database.close()


def _note_elsewhere(settings: Settings) -> None:
    """Let commands that are not told of this database find no empty one here instead of it."""
    # Where nothing can be written, nothing is made instead of it, either.
    with suppress(OSError):
        if not (note := settings.data_dir / ELSEWHERE_FILE).exists():
            create(note, b"The database of this relayer is not here: RELAYER_DATABASE_URL.\n")


def _refuse_another(settings: Settings) -> None:
    """Return unless the database is another than the embedded one, which there may be from before.

    Raises:
        SettingsError: so it is.
    """
    note = settings.data_dir / ELSEWHERE_FILE
    if note.exists():
        raise SettingsError(
            "RELAYER_DATABASE_URL is not given, and the relayer of this folder has its database"
            " elsewhere: give it as `relayer serve` gets it. To go back to an embedded database"
            f" here, see deploy/backup.md before you remove {note}"
        )


def is_made_by_serving(settings: Settings) -> bool:
    """Return whether serving makes an embedded database in this folder, as there is none yet."""
    return not (settings.database_url or _cluster_of(settings).exists())


def _cluster_of(settings: Settings) -> Path:
    return settings.data_dir / "postgres" / "cluster"
