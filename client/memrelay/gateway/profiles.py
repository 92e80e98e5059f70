"""The client of a profile that is looked at anew when its file changes: a rotated key needs no
restart.

It does not own which profile is whose (`roster.py`).

- While a changed profile cannot be used, the key of before counts.
- What cannot be used is tried again after a few seconds: not all faults are in the file.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from memrelay.async_client import MemoryClient
from memrelay.config import Settings
from memrelay.errors import ConfigError, MemrelayError

log = logging.getLogger("memrelay.gateway")

FAULT_S = 5.0  # until a profile that could not be used is tried again

Version = tuple[int, ...] | None
Connect = Callable[[Settings], MemoryClient]
Source = tuple[Path, Callable[[], Settings]]


@dataclass(frozen=True, kw_only=True)
class ProfileState:
    """The content of a profile when its file had this version, and the time of that."""

    version: Version
    client: MemoryClient | None
    at_s: float
    failed: bool = False

    def holds(self, version: Version, now_s: float) -> bool:
        """Return whether it need not be looked at again."""
        recent = not self.failed or now_s - self.at_s < FAULT_S
        return self.version == version and recent


class LiveProfile:
    """A profile and the client that works with it, which is another one once the file changed.

    `source` is the profile's path, and what loads its settings anew; `connect` makes a client.
    """

    def __init__(
        self,
        client: MemoryClient | None,
        source: Source | None = None,
        *,
        connect: Connect = MemoryClient.from_settings,
        version: Version = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._connect = connect
        self._now_s = monotonic
        self._known = ProfileState(version=version, client=client, at_s=monotonic())
        self._replaced: tuple[MemoryClient, ...] = ()

    @classmethod
    def load(cls, path: Path, load: Callable[[], Settings], *, connect: Connect) -> Self:
        """Return the profile at a path, which has to be usable now.

        Raises:
            ConfigError: it is not.
        """
        version = version_of(path)
        return cls(connect(load()), (path, load), connect=connect, version=version)

    @property
    def version(self) -> Version:
        """The version of the file that was looked at last."""
        return self._known.version

    def client(self) -> MemoryClient | None:
        """Return the client of the profile as it is now, or was when it could be used last."""
        if self._source is None:
            return self._known.client
        path, load = self._source
        version, client, failed = version_of(path), self._known.client, False
        if self._known.holds(version, self._now_s()):
            return client
        try:
            settings = load()
            if client is None or client.settings != settings:
                fresh = self._connect(settings)
                # What is under way with the one before may end.
                self._replaced += (client,) if client else ()
                client = fresh
        except ConfigError as error:
            failed = True
            if self._known.version != version:
                log.warning("the main profile cannot be used: its key stays as it was (%s)", error)
        self._known = ProfileState(
            version=version, client=client, at_s=self._now_s(), failed=failed
        )
        return client

    async def close(self) -> None:
        """Close the connections of all clients that there were."""
        last = (self._known.client,) if self._known.client else ()
        await close_all((*last, *self._replaced))


async def close_all(clients: tuple[MemoryClient, ...]) -> None:
    """Close clients; one that cannot be closed well costs no other."""
    for client in clients:
        try:
            await client.close()
        except MemrelayError as error:
            log.warning("a client was not closed well (%s)", type(error).__name__)


def version_of(path: Path) -> Version:
    """Return what is another after each change of a profile, None if there is certainly none."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return () if path.is_symlink() else None  # a link that leads nowhere is a broken profile
    except OSError:
        return ()  # whether there is one cannot be told: no reason to use the owner's key
    # The time of the last change of contents or mode: `chmod 600` mends a profile, too.
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino
