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
from typing import Any

from relayer.accounts import Accounts
from relayer.blobs import BlobStore, FolderStore, PostgresStore
from relayer.clock import Clock, utc_now
from relayer.closing import Closing
from relayer.custody import Custody
from relayer.database.migrate import head, migrate, revision
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


@dataclass(frozen=True)
class Storage:
    """What the server and the command line share: database, blobs, identity, accounts."""

    connect_args: dict[str, Any]
    database: Database
    blobs: BlobStore
    outbox: Outbox
    identity: Identity
    succession: tuple[bytes, ...]
    accounts: Accounts
    namespaces: Namespaces
    custody: Custody

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
    settings: Settings, clock: Clock = utc_now, *, rotating: bool = False
) -> AsyncIterator[Storage]:
    """Storage on a migrated database; the embedded server is started and stopped with it.

    What a database that was set back has forgotten is repeated first.

    Raises:
        Unavailable: the blob store is away.
        IdentityError: the relayer's key cannot be used, or is half replaced and not `rotating`.
    """
    # The embedded server drops root and must still walk through; what is inside is closed.
    mode = 0o711 if os.geteuid() == 0 else 0o700
    settings.data_dir.mkdir(mode=mode, parents=True, exist_ok=True)
    if not rotating:
        refuse_interrupted(key_path(settings))
    identity = load_identity(key_path(settings))
    async with _connect_args(settings) as (connect_args, url):
        await migrate(connect_args, url)
        async with _connected(settings, connect_args, identity, clock) as storage:
            await replay_on(storage, clock).catch_up()
            yield storage


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
    refuse_interrupted(key_path(settings))
    identity = load_identity(key_path(settings))
    async with _connect_args(settings) as (connect_args, _):
        present, needed = await revision(connect_args), head()
        if present != needed:
            newer = present is not None and present > needed
            raise NotInstalled(
                f"its schema is {present or 'not there yet'}, this release needs {needed}",
                "install the newer release" if newer else "relayer serve (it migrates)",
            )
        async with _connected(settings, connect_args, identity, clock) as storage:
            yield storage


def key_path(settings: Settings) -> Path:
    """Where the relayer's own key is."""
    return Path(settings.key_file or settings.data_dir / "relayer.key")


@asynccontextmanager
async def _connected(
    settings: Settings, connect_args: dict[str, Any], identity: Identity, clock: Clock
) -> AsyncIterator[Storage]:
    database = await Database.connect(connect_args, connections=settings.database_connections)
    try:
        succession = load_succession(key_path(settings))
        yield storage_on(settings, connect_args, database, identity, clock, succession)
    finally:
        await database.close()


@asynccontextmanager
async def _connect_args(settings: Settings) -> AsyncIterator[tuple[dict[str, Any], str]]:
    """asyncpg's arguments and SQLAlchemy's URL of the database."""
    if settings.database_url:
        scheme, _, rest = settings.database_url.partition("://")
        del scheme
        yield {"dsn": settings.database_url}, f"postgresql+asyncpg://{rest}"
        return
    async with EmbeddedPostgres(data_dir=settings.data_dir) as server:
        watch = asyncio.create_task(server.keep_up())
        try:
            yield server.connect_args, server.sqlalchemy_url
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


def storage_on(
    settings: Settings,
    connect_args: dict[str, Any],
    database: Database,
    identity: Identity,
    clock: Clock,
    succession: tuple[bytes, ...] = (),
) -> Storage:
    """Storage on a database that is connected and migrated."""
    blobs: BlobStore = PostgresStore(database=database)
    if settings.blob_store.startswith("file:"):
        blobs = FolderStore(folder=Path(settings.blob_store.removeprefix("file:")))
    outbox = Outbox(database=database, blobs=blobs, clock=clock)
    accounts = Accounts(database=database, outbox=outbox, identity=identity, clock=clock)
    namespaces = Namespaces(database=database, outbox=outbox, identity=identity, clock=clock)
    custody = Custody(accounts=accounts, namespaces=namespaces, identity=identity, clock=clock)
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
    )
