"""A backup of the database, made beside a running relayer, and a new relayer made of it.

Not here: the sealed bytes of a store outside the database (`transfer.py` copies them), the dump
itself (`postgres/dump.py`).

- The relayer's key is not in it: whoever has both reads the managed accounts. It is kept elsewhere,
  and has to be there before a backup is restored.
- The folder counts when its manifest is there, which is written last and tells the dump's digest.
- A store outside is copied *after* the database. Then it has all that the database names, and what
  was erased since is erased again (`recovery/replay.py`); the other way round, memories would lack
  bytes.
"""

import asyncio
import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from relayer import __version__
from relayer.clock import Clock, rfc3339
from relayer.database import requests as request_rows
from relayer.database.migrate import (
    end_restore,
    find_restore,
    has_tables,
    head,
    migrate,
    restore_statement,
)
from relayer.durable import replace
from relayer.identity import load_identity, make_identity, refuse_interrupted, take_over
from relayer.installation import (
    as_found,
    at,
    connect_database,
    database_server,
    key_path,
    last_writers,
    make_folder,
    open_storage,
)
from relayer.postgres.dump import dump, load
from relayer.recovery.replay import refuse_blobs_elsewhere
from relayer.sealed.keys import parse_public_key
from relayer.settings import Settings
from relayer.storage import Storage, replay_on
from relayer.upkeep import sample

DUMP_FILE: Final = "database.dump"
MANIFEST_FILE: Final = "backup.json"
FORMAT: Final = 1


class BackupError(Exception):
    """A backup cannot be made or restored; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The description of a backup."""

    format: int
    release: str
    schema: str
    relayer_key: str  # the public one
    blobs_inside: bool  # else they are in a store of their own
    created_at: str
    bytes: int
    sha256: str

    def as_json(self) -> dict[str, Any]:
        """Return the manifest as its file has it."""
        return asdict(self)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the manifest of a folder, whose dump is whole.

        Raises:
            BackupError: there is none, or it does not describe what lies beside it.
        """
        try:
            found = cls(**json.loads((folder / MANIFEST_FILE).read_bytes()))
            digest = _sha256(folder / DUMP_FILE)
        except (OSError, ValueError, TypeError):
            raise BackupError(f"{folder} is no complete backup.") from None
        if found.format != FORMAT:
            raise BackupError(f"{folder} was made by another release ({found.release}).")
        if digest != found.sha256:
            raise BackupError(
                f"{folder / DUMP_FILE} is not the file that was written; use another."
            )
        return found


async def create(settings: Settings, folder: Path, clock: Clock) -> Manifest:
    """Write a backup into a new folder, beside a running relayer or without one.

    Raises:
        BackupError: the folder is there already, or cannot be made.
        NotInstalled: there is nothing to back up, or this is not the release that made it.
        SettingsError: the blobs are not where the settings say.
    """
    async with as_found(settings, clock) as storage:
        if storage.blobs.transactional:
            await refuse_blobs_elsewhere(storage.database)
        try:
            os.makedirs(folder, mode=0o700)
        except OSError as error:
            raise BackupError(f"cannot make {folder}: {error.strerror}") from None
        try:
            return await _fill(folder, settings, storage, clock)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # so that the same line can be typed again
            raise


async def _fill(folder: Path, settings: Settings, storage: Storage, clock: Clock) -> Manifest:
    began = clock()
    await dump(storage.connect_args, folder / DUMP_FILE)
    manifest = Manifest(
        format=FORMAT,
        release=__version__,
        schema=head(),
        relayer_key=storage.identity.public_key.hex(),
        blobs_inside=_has_blobs_inside(settings),
        created_at=str(rfc3339(began)),
        bytes=(folder / DUMP_FILE).stat().st_size,
        sha256=await asyncio.to_thread(_sha256, folder / DUMP_FILE),
    )
    text = json.dumps(manifest.as_json(), indent=1) + "\n"
    # Not `create`, which needs links: a backup may go to a disk that has none.
    replace(folder / MANIFEST_FILE, text.encode())
    return manifest


async def restore(
    settings: Settings, folder: Path, clock: Clock, *, other_key: bool = False
) -> Manifest:
    """Make a relayer of a backup: on an empty database, with the key of the one that was backed up.

    What an outside store knows to have been decided since holds again, before anybody is answered.
    Interrupted, the same call goes on.

    Raises:
        BackupError: the backup is not whole or of a later release, the key is not there or, unless
            `other_key`, not the same, the settings name another place for the blobs than they
            are in, or the database holds something; or the database is restored, and the store of
            its blobs has none of them.
    """
    manifest = await asyncio.to_thread(Manifest.read, folder)
    if manifest.schema > head():
        raise BackupError(f"It was made by a later release ({manifest.release}): install that.")
    if manifest.blobs_inside is not _has_blobs_inside(settings):
        place = "the database" if manifest.blobs_inside else "a folder or bucket"
        raise BackupError(f"Its blobs are in {place}: let RELAYER_BLOB_STORE name that.")
    _require_key(settings, manifest, other_key=other_key)
    make_folder(settings)
    async with database_server(settings) as connect_args:
        begun = await find_restore(connect_args)
        if begun != manifest.sha256:
            if begun or await has_tables(connect_args):
                raise BackupError("The database holds tables already: name an empty one.")
            await load(connect_args, folder / DUMP_FILE, then=restore_statement(manifest.sha256))
        if other_key:
            await _take_over(settings, connect_args)
    # A store that is put in its place later is refused by who serves until then.
    async with open_storage(settings, clock, whatever_store=True, restoring=True) as storage:
        # Which requests were accepted since the backup, nobody knows any more.
        await request_rows.restore_nonces(storage.database)
        # Nor which puts that it saw came to their end, where the store was told of nothing since.
        await replay_on(storage, clock).end_puts()
        await end_restore(storage.connect_args)
        await _require_blobs(settings, storage)
        return manifest


async def _require_blobs(settings: Settings, storage: Storage) -> None:
    """Return if the store of a relayer that was restored has any of what was looked for.

    Raises:
        BackupError: it has not.
    """
    if storage.blobs.transactional:
        return
    found = await sample.take(storage)
    if found.looked and found.missing == found.looked:
        raise BackupError(
            f"The database is restored, but {settings.blob_store} has none of its blobs: put their"
            f" copy in that place, or name the right one; then type: relayer check{at(settings)}"
        )


async def _take_over(settings: Settings, connect_args: dict[str, Any]) -> None:
    """Let the key here, a new one if there is none, go on with whatever others have written."""
    await migrate(connect_args)
    async with connect_database(settings, connect_args) as database:
        writers = {*await last_writers(database, limit=None)} - {""}
    own = make_identity(key_path(settings)).public_key.hex()
    take_over(key_path(settings), map(parse_public_key, sorted(writers - {own})))


def _has_blobs_inside(settings: Settings) -> bool:
    return settings.blob_store == "postgres"


def _require_key(settings: Settings, manifest: Manifest, *, other_key: bool) -> None:
    path = key_path(settings)
    refuse_interrupted(path)
    if not path.exists() and not other_key:
        raise BackupError(f"Put the relayer's key back first: there is no {path}.")
    if not other_key and load_identity(path).public_key.hex() != manifest.relayer_key:
        raise BackupError(f"{path} is not the key of this backup, {manifest.relayer_key}.")


def _sha256(file: Path) -> str:
    with file.open("rb") as opened_file:
        return hashlib.file_digest(opened_file, "sha256").hexdigest()
