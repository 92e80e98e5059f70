"""The parts that the server and the command line share, built on a database that is connected.

Not here: which database, blobs and key that are (`installation.py`); the services and the
application (`services.py`, `app.py`), which need a model and a web framework.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from relayer.blobs.buckets import BucketStore
from relayer.blobs.cache import CachedStore
from relayer.blobs.store import BlobStore, FolderStore, PostgresStore
from relayer.clock import Clock
from relayer.database.pool import Database
from relayer.journal.outbox import Outbox
from relayer.memories.eraser import Eraser
from relayer.recovery.account_replay import AccountReplay, Erasures
from relayer.recovery.examiner import Examiner
from relayer.recovery.replay import Replay
from relayer.sealed.keys import Identity, PublicKey
from relayer.sealed.succession import keys_of
from relayer.settings import Settings, SettingsError
from relayer.tenants.accounts import Accounts
from relayer.tenants.closing import Closing
from relayer.tenants.custody import Custody
from relayer.tenants.granting import Granting
from relayer.tenants.key_uses import KeyUses
from relayer.tenants.ledger import Ledger
from relayer.tenants.namespaces import Namespaces
from relayer.tenants.recall_counts import RecallCounts
from relayer.tenants.unlock_directory import UnlockDirectory
from relayer.tenants.unlock_key_pairs import UnlockKeys

STORE_SHARE: Final = 0.6  # of a request's time that one use of a bucket may take
SOON_SHARE: Final = 0.2  # and that publishing what it committed may take


@dataclass(frozen=True)
class Storage:
    """The parts that server and command line share: database, blobs, identity, accounts."""

    connect_args: dict[str, Any]  # asyncpg's, to a session of one's own
    database: Database
    blobs: BlobStore
    outbox: Outbox
    identity: Identity
    succession: tuple[bytes, ...]
    accounts: Accounts
    key_uses: KeyUses
    recall_counts: RecallCounts
    ledger: Ledger
    granting: Granting
    namespaces: Namespaces
    custody: Custody
    announcements: UnlockDirectory

    @property
    def relayers(self) -> tuple[PublicKey, ...]:
        """Return every key that this relayer has had, oldest first, today's last."""
        return keys_of(self.succession, self.identity.public_key)


def storage_on(
    settings: Settings,
    connect_args: dict[str, Any],
    database: Database,
    identity: Identity,
    clock: Clock,
    succession: tuple[bytes, ...] = (),
    unlock_keys: UnlockKeys | None = None,
) -> Storage:
    """Return storage on a database that is connected and migrated."""
    blobs = blobs_on(settings, database)
    soon_s = SOON_SHARE * settings.request_timeout_s
    outbox = Outbox(database=database, blobs=blobs, clock=clock, soon_s=soon_s)
    key_uses = KeyUses(database=database)
    accounts = Accounts(database=database, identity=identity, clock=clock, key_uses=key_uses)
    ledger = Ledger(accounts=accounts, outbox=outbox, identity=identity, clock=clock)
    namespaces = Namespaces(database=database, accounts=accounts, ledger=ledger, clock=clock)
    granting = Granting(
        accounts=accounts,
        ledger=ledger,
        namespaces=namespaces,
        identity=identity,
        clock=clock,
        grants_max=settings.account_grants_max,
    )
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
        key_uses=key_uses,
        recall_counts=RecallCounts(database=database),
        ledger=ledger,
        granting=granting,
        namespaces=namespaces,
        custody=custody,
        announcements=UnlockDirectory(
            database=database, custody=custody, identity=identity, clock=clock
        ),
    )


def blobs_on(settings: Settings, database: Database) -> BlobStore:
    """Return the blob store that the settings name.

    Raises:
        SettingsError: it is a folder that cannot be made.
    """
    kind, _, place = settings.blob_store.partition(":")
    if kind == "file":
        try:
            return FolderStore(folder=Path(place))
        except OSError as error:
            raise SettingsError(
                f"{settings.blob_store}: cannot make that folder for blobs: {error.strerror}"
            ) from None
    if kind == "s3":
        deadline_s = STORE_SHARE * settings.request_timeout_s
        bucket = BucketStore(bucket=settings.bucket, deadline_s=deadline_s)
        return CachedStore(store=bucket, bytes_max=settings.blob_cache_bytes)
    return PostgresStore(database=database)


def write_folders(settings: Settings) -> Sequence[Path]:
    """Return the folders that a write goes to on this machine."""
    kind, _, place = settings.blob_store.partition(":")
    stored = [Path(place)] if kind == "file" else []
    return stored if settings.database_url else [settings.data_dir, *stored]


def closing_on(storage: Storage, clock: Clock) -> Closing:
    """Build the service that erases accounts of this storage."""
    return Closing(
        database=storage.database,
        ledger=storage.ledger,
        blobs=storage.blobs,
        outbox=storage.outbox,
        clock=clock,
    )


def replay_on(storage: Storage, clock: Clock) -> Replay:
    """Build the service that repeats on this storage what its database has forgotten."""
    database, blobs = storage.database, storage.blobs
    accounts = AccountReplay(
        database=database,
        examiner=Examiner(database=database, blobs=blobs, relayers=storage.relayers),
        ledger=storage.ledger,
        granting=storage.granting,
        namespaces=storage.namespaces,
        erasures=Erasures(
            Eraser(database=database, ledger=storage.ledger), closing_on(storage, clock)
        ),
    )
    return Replay(database=database, blobs=blobs, outbox=storage.outbox, accounts=accounts)
