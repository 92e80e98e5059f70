"""What the server and the command line share: database, blobs, identity, accounts, keys.

Not here: the services and the application (`app.py`), which need a model and a web framework; the
commands on accounts and keys start without either.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from relayer.accounts import Accounts
from relayer.announcing import Announcements
from relayer.blob_cache import CachedStore
from relayer.blobs import BlobStore, FolderStore, PostgresStore
from relayer.buckets import BucketStore
from relayer.clock import Clock, utc_now
from relayer.closing import Closing
from relayer.custody import Custody
from relayer.database.migrate import distribute, head, migrate, refuse_pooler, revision
from relayer.database.pool import Database
from relayer.eraser import Eraser
from relayer.identity import load_identity, load_succession, refuse_interrupted
from relayer.namespaces import Namespaces
from relayer.outbox import Outbox
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.replay import Replay
from relayer.sealed.keys import Identity, PublicKey
from relayer.sealed.succession import keys_of
from relayer.settings import Settings
from relayer.unlocking import UnlockKeys

STORE_SHARE: Final = 0.6  # of a request's time that one use of a bucket may take
SOON_SHARE: Final = 0.2  # and that publishing what it committed may take


@dataclass(frozen=True)
class Storage:
    """What the server and the command line share: database, blobs, identity, accounts."""

    connect_args: dict[str, Any]  # asyncpg's, to a session of one's own
    database: Database
    blobs: BlobStore
    outbox: Outbox
    identity: Identity
    succession: tuple[bytes, ...]
    accounts: Accounts
    namespaces: Namespaces
    custody: Custody
    announcements: Announcements

    @property
    def relayers(self) -> tuple[PublicKey, ...]:
        """Every key that this relayer has had, oldest first, today's last."""
        return keys_of(self.succession, self.identity.public_key)


class NotInstalled(Exception):
    """There is no installation here that this release can use; `do` says what makes one."""

    def __init__(self, message: str, do: str) -> None:
        super().__init__(message)
        self.do = do


@asynccontextmanager
async def opened(
    settings: Settings,
    clock: Clock = utc_now,
    *,
    rotating: bool = False,
    unlock_keys: UnlockKeys | None = None,
) -> AsyncIterator[Storage]:
    """Storage on a migrated database; the embedded server is started and stopped with it.

    What a database that was set back has forgotten is repeated first. Without `unlock_keys` the
    process makes its own.

    Raises:
        Unavailable: the blob store is away.
        IdentityError: the relayer's key cannot be used, or is half replaced and not `rotating`.
    """
    _make_folder(settings)
    if not rotating:
        refuse_interrupted(key_path(settings))
    identity = load_identity(key_path(settings))
    async with database_server(settings) as connect_args:
        if settings.database_url and not settings.database_direct_url:
            await refuse_pooler(connect_args)
        await migrate(connect_args)
        async with _connected(settings, connect_args, identity, clock, unlock_keys) as storage:
            await replay_on(storage, clock).catch_up()
            yield storage


async def migrated(settings: Settings, *, distributed: bool) -> list[str]:
    """Bring the database to this release's schema; with `distributed`, lay it out over a cluster.

    The tables that were laid out now.

    Raises:
        NotInstalled: the embedded server is to be distributed, which is one machine.
        Unavailable: the database is away.
        PostgresError: it does not let us in, or cannot be migrated so.
    """
    if distributed and not settings.database_url:
        raise NotInstalled(
            "the embedded PostgreSQL is one machine: name a cluster's coordinator",
            "relayer migrate --distributed --database-url URL",
        )
    _make_folder(settings)
    async with database_server(settings) as connect_args:
        if settings.database_url and not settings.database_direct_url:
            await refuse_pooler(connect_args)
        if distributed:
            return await distribute(connect_args)
        await migrate(connect_args)
        return []


def _make_folder(settings: Settings) -> None:
    # The embedded server drops root and must still walk through; what is inside is closed.
    mode = 0o711 if os.geteuid() == 0 else 0o700
    settings.data_dir.mkdir(mode=mode, parents=True, exist_ok=True)


@asynccontextmanager
async def as_found(settings: Settings, clock: Clock = utc_now) -> AsyncIterator[Storage]:
    """Storage on what is there, to examine it: nothing is made, and nothing migrated.

    Raises:
        NotInstalled: something is missing, or the schema is not this release's.
    """
    cluster = [] if settings.database_url else [settings.data_dir / "postgres" / "cluster"]
    for path in (settings.data_dir, key_path(settings), *cluster):
        if not path.exists():
            raise NotInstalled(
                f"no installation here: there is no {path}",
                "name the right --data-dir and --key-file; relayer serve makes a new installation",
            )
    _require_folder(settings)
    refuse_interrupted(key_path(settings))
    identity = load_identity(key_path(settings))
    async with database_server(settings) as connect_args:
        present, needed = await revision(connect_args), head()
        if present != needed:
            newer = present is not None and present > needed
            raise NotInstalled(
                f"its schema is {present or 'not there yet'}, this release needs {needed}",
                "install the newer release" if newer else "relayer serve (it migrates)",
            )
        async with _connected(settings, connect_args, identity, clock) as storage:
            yield storage


def _require_folder(settings: Settings) -> None:
    kind, _, folder = settings.blob_store.partition(":")
    if kind == "file" and not Path(folder).is_dir():
        raise NotInstalled(
            f"there is no folder {folder}, which RELAYER_BLOB_STORE names",
            "name the right one; relayer serve makes it on a new installation",
        )


def key_path(settings: Settings) -> Path:
    """Where the relayer's own key is."""
    return Path(settings.key_file or settings.data_dir / "relayer.key")


@asynccontextmanager
async def _connected(
    settings: Settings,
    connect_args: dict[str, Any],
    identity: Identity,
    clock: Clock,
    unlock_keys: UnlockKeys | None = None,
) -> AsyncIterator[Storage]:
    pooled = bool(settings.database_direct_url)
    database = await Database.connect(
        {"dsn": settings.database_url} if pooled else connect_args,
        connections=settings.database_connections,
        timeout_s=settings.database_timeout_s,
        pooled=pooled,
    )
    try:
        succession = load_succession(key_path(settings))
        yield storage_on(settings, connect_args, database, identity, clock, succession, unlock_keys)
    finally:
        await database.close()


@asynccontextmanager
async def database_server(settings: Settings) -> AsyncIterator[dict[str, Any]]:
    """asyncpg's arguments of the database's server itself."""
    if settings.database_url:
        yield {"dsn": settings.database_direct_url or settings.database_url}
        return
    async with EmbeddedPostgres(data_dir=settings.data_dir) as server:
        watch = asyncio.create_task(server.keep_up())
        try:
            yield server.connect_args
        finally:
            watch.cancel()
            await asyncio.wait({watch})


def closing_on(storage: Storage, clock: Clock) -> Closing:
    """What erases accounts of this storage."""
    return Closing(
        database=storage.database,
        blobs=storage.blobs,
        outbox=storage.outbox,
        identity=storage.identity,
        clock=clock,
    )


def replay_on(storage: Storage, clock: Clock) -> Replay:
    """What repeats on this storage what its database has forgotten."""
    database, outbox, identity = storage.database, storage.outbox, storage.identity
    return Replay(
        database=database,
        blobs=storage.blobs,
        accounts=storage.accounts,
        namespaces=storage.namespaces,
        eraser=Eraser(database=database, outbox=outbox, identity=identity, clock=clock),
        closing=closing_on(storage, clock),
        outbox=outbox,
        identity=identity,
        clock=clock,
        relayers=storage.relayers,
    )


def blobs_on(settings: Settings, database: Database) -> BlobStore:
    """The blob store that the settings name."""
    kind, _, place = settings.blob_store.partition(":")
    if kind == "file":
        return FolderStore(folder=Path(place))
    if kind == "s3":
        deadline_s = STORE_SHARE * settings.request_timeout_s
        bucket = BucketStore(bucket=settings.bucket, deadline_s=deadline_s)
        return CachedStore(store=bucket, bytes_max=settings.blob_cache_bytes)
    return PostgresStore(database=database)


def storage_on(
    settings: Settings,
    connect_args: dict[str, Any],
    database: Database,
    identity: Identity,
    clock: Clock,
    succession: tuple[bytes, ...] = (),
    unlock_keys: UnlockKeys | None = None,
) -> Storage:
    """Storage on a database that is connected and migrated."""
    blobs = blobs_on(settings, database)
    soon_s = SOON_SHARE * settings.request_timeout_s
    outbox = Outbox(database=database, blobs=blobs, clock=clock, soon_s=soon_s)
    accounts = Accounts(database=database, outbox=outbox, identity=identity, clock=clock)
    namespaces = Namespaces(database=database, outbox=outbox, identity=identity, clock=clock)
    custody = Custody(
        accounts=accounts,
        namespaces=namespaces,
        identity=identity,
        clock=clock,
        unlock_keys=unlock_keys,
    )
    return Storage(
        connect_args=connect_args,
        database=database,
        blobs=blobs,
        outbox=outbox,
        identity=identity,
        succession=succession,
        accounts=accounts,
        namespaces=namespaces,
        custody=custody,
        announcements=Announcements(
            database=database, custody=custody, identity=identity, clock=clock
        ),
    )
