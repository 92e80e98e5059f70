"""Statements on when keys last asked.

Not here: noting it while requests are answered (`relayer.tenants.key_uses`).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from relayer.database.pool import Database
from relayer.sealed.keys import AccountId, PublicKey

# Whoever closes an account holds its row: what is stored here is there before it is emptied.
_LOCK_OPEN: Final = """
SELECT true FROM accounts WHERE account_id = $1 AND closed_at IS NULL FOR KEY SHARE
"""
# In one order, so that two relayers never wait for each other.
_NOTE: Final = """
INSERT INTO key_uses (account_id, public_key, used_at)
SELECT $1, u.public_key, u.used_at
FROM unnest($2::bytea[], $3::timestamptz[]) AS u (public_key, used_at)
ORDER BY u.public_key
ON CONFLICT (account_id, public_key) DO UPDATE SET used_at = excluded.used_at
WHERE key_uses.used_at < excluded.used_at
"""
_USES: Final = """
SELECT public_key, used_at FROM key_uses WHERE account_id = $1 AND public_key = ANY ($2)
"""


async def note_uses(
    database: Database, account: AccountId, uses: Mapping[PublicKey, datetime]
) -> None:
    """Store when keys of an account asked, unless it is closed; a later time stays."""
    async with database.transaction() as connection:
        if await connection.fetchval(_LOCK_OPEN, account):
            await connection.execute(_NOTE, account, list(uses), list(uses.values()))


async def uses_of(
    database: Database, account: AccountId, keys: Sequence[PublicKey]
) -> dict[PublicKey, datetime]:
    """Return key → when it last asked, of those of these keys that did."""
    rows = await database.fetch(_USES, account, keys)
    return {PublicKey(row["public_key"]): row["used_at"] for row in rows}
