"""When each key last asked, to the hour.

Not here: SQL (`database/key_uses.py`), requests (`http/checks.py`).

- A request notes it in memory alone. Once a minute that is stored, behind all answers: a key that
  asks all day is one write an hour.
- It is a help for people who look for keys that nobody uses. A relayer that is killed loses a
  minute of it.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from relayer.database import key_uses as rows
from relayer.database.pool import Database
from relayer.sealed.keys import AccountId, PublicKey
from relayer.tenants.regular_storing import store_regularly

log = logging.getLogger("relayer.keys")

KEYS_MAX: Final = 100_000  # about 20 MB


class KeyUses:
    """Notes which keys ask, and stores the hour of it."""

    def __init__(self, *, database: Database) -> None:
        self._database = database
        self._stored: dict[tuple[AccountId, PublicKey], datetime] = {}
        self._due: dict[tuple[AccountId, PublicKey], datetime] = {}

    def note(self, account: AccountId, key: PublicKey, now: datetime) -> None:
        """Note that a key asks; where too many wait to be stored, it is passed over."""
        hour, pair = now.replace(minute=0, second=0, microsecond=0), (account, key)
        if self._stored.get(pair) != hour and len(self._due) < KEYS_MAX:
            self._due[pair] = hour

    async def last_uses(
        self, account: AccountId, keys: Sequence[PublicKey]
    ) -> dict[PublicKey, datetime]:
        """Return key → the beginning of the hour in which it last asked, of those that did."""
        found = await rows.uses_of(self._database, account, keys)
        due = {key: hour for key in keys if (hour := self._due.get((account, key))) is not None}
        return found | {key: max(hour, found.get(key, hour)) for key, hour in due.items()}

    async def store(self) -> None:
        """Store what was noted; of an account that cannot be written, it is tried again."""
        by_account = defaultdict[AccountId, dict[PublicKey, datetime]](dict)
        for (account, key), hour in self._due.items():
            by_account[account][key] = hour
        for account, uses in by_account.items():
            await rows.note_uses(self._database, account, uses)
            for key, hour in uses.items():
                self._note_stored((account, key), hour)

    def _note_stored(self, pair: tuple[AccountId, PublicKey], hour: datetime) -> None:
        if len(self._stored) >= KEYS_MAX:
            self._stored.clear()  # at worst, each is stored once more
        self._stored[pair] = hour
        if self._due.get(pair) == hour:
            del self._due[pair]

    async def run(self) -> None:
        """Store what was noted, again and again; until it is cancelled, and then once more."""
        await store_regularly(self.store, log, "uses of keys are stored later", "keys.uses")
