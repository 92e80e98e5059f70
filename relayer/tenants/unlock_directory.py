"""Unlock keys that a client may use: those of this process and those of the relayer's others.

Not here: making keys (`unlock_key_pairs.py`), opening headers (`custody.py`).

- A header has a box for each key that the statement lists, so whichever process a request reaches
  opens it, and a process that has just begun is known before it answers anybody.
- Private halves stay where they are. Others are told a signed statement: whoever can write to the
  database, and nothing else, cannot have the relayer name a key of his own.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Final

from relayer.clock import Clock, to_ms
from relayer.database import unlock_keys as rows
from relayer.database.pool import Database
from relayer.errors import Unavailable
from relayer.logs import warn
from relayer.sealed.keys import Identity
from relayer.sealed.primitives import CryptoError
from relayer.sealed.receipts import ListedKey, open_statement, sign_statement
from relayer.sealed.unlock import BOXES_MAX
from relayer.tenants.custody import Custody

log = logging.getLogger("relayer.announcing")

ROUND_S: Final = 60.0
SEEN: Final = timedelta(minutes=3)  # three rounds
SILENT: Final = timedelta(days=1)  # longer than any key lives
READ_MAX: Final = 64


class UnlockDirectory:
    """Tells the other processes this one's unlock keys, and clients those of all."""

    def __init__(
        self, *, database: Database, custody: Custody, identity: Identity, clock: Clock
    ) -> None:
        self._database = database
        self._custody = custody
        self._identity = identity
        self._clock = clock
        self._told = b""
        self._believed: dict[bytes, list[ListedKey]] = {}  # anybody may ask; verifying takes time

    async def run(self) -> None:
        """Announce every minute from now on until cancelled, whatever fails.

        A task of its own: others would drop the keys of a process whose housekeeping takes long.
        """
        while True:
            await asyncio.sleep(ROUND_S)
            try:
                await self.announce()
            except Exception as error:
                warn(log, "announcing waits", "announcing.wait", error)

    async def announce(self) -> None:
        """Say that this process is there, and forget those that have long been gone.

        Raises:
            Unavailable: the database is away.
        """
        signed = self._custody.statement()
        if own := open_statement(signed, self._identity.public_key):
            await rows.announce(self._database, kid=own[-1].kid, signed=signed)
            self._told = own[-1].kid
        await rows.forget_silent(self._database, since=SILENT)

    async def statement(self) -> bytes:
        """Return the signed `relayer` statement with every process's unlock keys, at most eight.

        While the database is away, this process speaks for itself.
        """
        alone = self._custody.statement()
        own = open_statement(alone, self._identity.public_key)
        try:
            if own and own[-1].kid != self._told:
                await self.announce()
            others = await rows.find_announcements(self._database, within=SEEN, limit=READ_MAX)
        except Unavailable:
            return alone
        now_ms = to_ms(self._clock())
        self._believed = {signed: self._believe(signed) for signed in others}
        told = {key.kid: key for keys in self._believed.values() for key in keys}
        mine = {key.kid for key in own}
        strange = [k for k in told.values() if k.kid not in mine and k.not_after_ms > now_ms]
        strange.sort(key=lambda key: -key.not_after_ms)
        listed = [*own, *strange][:BOXES_MAX]
        return sign_statement(self._identity, issued_ms=now_ms, unlock_keys=listed)

    def _believe(self, signed: bytes) -> list[ListedKey]:
        """Return the keys of an announcement; none if it is not under the relayer's present key."""
        if (known := self._believed.get(signed)) is not None:
            return known
        try:
            return open_statement(signed, self._identity.public_key)
        except CryptoError:
            return []
