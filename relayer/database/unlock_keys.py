"""Statements on the unlock keys that the relayer's processes announce to one another.

Not here: what an announcement says, and whether it may be believed
(`relayer.tenants.unlock_directory`). These rows are public keys under the relayer's signature, of
no account.
"""

from datetime import timedelta
from typing import Final

from relayer.database.pool import Database

# That a process with this newest key runs now.
_ANNOUNCE: Final = """
INSERT INTO unlock_keys (kid, signed, seen_at) VALUES ($1, $2, now())
ON CONFLICT (kid) DO UPDATE SET signed = excluded.signed, seen_at = excluded.seen_at
"""
# What those announce that were seen lately, the latest first.
_ANNOUNCED: Final = """
SELECT signed FROM unlock_keys WHERE seen_at > now() - $1::interval ORDER BY seen_at DESC LIMIT $2
"""
_FORGET_SILENT: Final = "DELETE FROM unlock_keys WHERE seen_at < now() - $1::interval"


async def announce(database: Database, *, kid: bytes, signed: bytes) -> None:
    """Note what the process whose newest unlock key this is says of its keys."""
    await database.execute(_ANNOUNCE, kid, signed)


async def find_announcements(database: Database, *, within: timedelta, limit: int) -> list[bytes]:
    """Return the statements of processes that were seen within that time."""
    rows = await database.fetch(_ANNOUNCED, within, limit)
    return [row["signed"] for row in rows]


async def forget_silent(database: Database, *, since: timedelta) -> None:
    """Forget processes that were not seen for so long."""
    await database.execute(_FORGET_SILENT, since)
