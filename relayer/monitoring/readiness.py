"""Readiness for writes: the parts that a write needs, looked at without writing.

Not here: who is told (`routes/memwal_discovery.py`, `exposition.py`).

- However many ask, the database is asked once a second and a bucket four times a minute.
- What cannot be told in time counts as not ready: fail closed.
- A line in the log says what is lacking, or that nothing is, whenever that has changed.
"""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from relayer.blobs.cache import beneath
from relayer.blobs.store import BlobStore
from relayer.database import watch
from relayer.database.migrate import head
from relayer.database.pool import Database
from relayer.errors import Unavailable
from relayer.monitoring.single_flight import SingleFlight
from relayer.sealed.keys import AccountId
from relayer.settings import Settings
from relayer.storage import write_folders

_log = logging.getLogger(__name__)
KEPT_S: Final = 1.0
WATCH_S: Final = 30.0  # as often as a container asks, so that the log knows where nobody does
STORE_KEPT_S: Final = 15.0  # of what an outside store said, which may cost money
DEADLINE_S: Final = 3.0
DISK_BYTES_MIN: Final = 128 * 2**20  # eight files of PostgreSQL's log ahead
_NOBODY: Final = AccountId(bytes(32))
CHECKS: Final = ("database", "schema", "store", "disk", "jobs")


class Room:
    """A check, in time, that every folder can be written to and has so much room left."""

    def __init__(self, folders: Sequence[Path], bytes_min: int, deadline_s: float) -> None:
        self._folders = folders
        self._bytes_min = bytes_min
        self._deadline_s = deadline_s
        self._looking: asyncio.Task[bool] | None = None

    async def __call__(self) -> bool:
        """Look at the folders; false, too, when the disk does not answer in time."""
        if self._looking is None:
            look = asyncio.to_thread(_have_room, self._folders, self._bytes_min)
            self._looking = asyncio.create_task(look)
        # A disk that hangs keeps its thread: another one would only hang beside it.
        done, _ = await asyncio.wait({self._looking}, timeout=self._deadline_s)
        if not done:
            return False
        looked, self._looking = self._looking, None
        return looked.result()


class Readiness:
    """Looks at the write path of one process."""

    def __init__(
        self,
        *,
        database: Database,
        blobs: BlobStore,
        settings: Settings,
        works: Callable[[], bool],
        disk_bytes_min: int = DISK_BYTES_MIN,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """Take the checks' parts; `works` says whether this process takes jobs."""
        self._database = database
        self._blobs = beneath(blobs)
        self._works = works
        self._has_room = Room(write_folders(settings), disk_bytes_min, deadline_s)
        self._deadline_s = deadline_s
        self._needed = ""
        self._lacking: tuple[str, ...] = ()
        self._look_once = SingleFlight(self._look, kept_s=KEPT_S)
        self._ask_store_once = SingleFlight(self._ask_store, kept_s=STORE_KEPT_S)

    async def checks(self) -> Mapping[str, bool]:
        """Return each of `CHECKS`, and whether it holds."""
        return await self._look_once()

    async def write_ready(self) -> bool:
        """Return true if all checks hold."""
        return all((await self.checks()).values())

    async def watch(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            with suppress(Exception):  # a process may be short of threads; it looks again
                await self.checks()

    async def _look(self) -> dict[str, bool]:
        (database, schema), store, disk = await asyncio.gather(
            self._ask_database(),
            self._ask_store_once() if not self._blobs.transactional else _true(),
            self._has_room(),
        )
        found = (database, schema, store, disk, self._works())
        checks = dict(zip(CHECKS, found, strict=True))
        self._tell(tuple(name for name, holds in checks.items() if not holds))
        return checks

    def _tell(self, lacking: tuple[str, ...]) -> None:
        before, self._lacking = self._lacking, lacking
        if lacking and lacking != before:
            extra = {"event": "write_ready.lost", "lacking": list(lacking)}
            _log.warning("no writes are taken", extra=extra)
        elif before and not lacking:
            _log.info("writes are taken again", extra={"event": "write_ready.back"})

    async def _ask_database(self) -> tuple[bool, bool]:
        """Return whether it takes writes, and whether its schema is new enough for this release."""
        if not self._needed:
            self._needed = await asyncio.to_thread(head)
        try:
            async with asyncio.timeout(self._deadline_s):
                writable, revision = await watch.state(self._database)
        except (Unavailable, TimeoutError):
            return False, False
        return writable, revision is not None and revision >= self._needed

    async def _ask_store(self) -> bool:
        """Return true if an outside store answers; it is asked for something that is not there."""
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._blobs.read_mark(_NOBODY)
        except (Unavailable, TimeoutError):
            return False
        return True


async def _true() -> bool:
    return True


def _have_room(folders: Sequence[Path], bytes_min: int) -> bool:
    """Return true if every folder can be written to and has room left."""
    try:
        return all(
            os.access(folder, os.W_OK | os.X_OK) and shutil.disk_usage(folder).free >= bytes_min
            for folder in folders
        )
    except OSError:
        return False
