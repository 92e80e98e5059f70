"""Statistics of tables that have just begun to grow.

Not here: those of all others, which the server gathers by itself.

- It does so after ten seconds to a minute. Until then a planner takes an account for one of two
  hundred, so that each look-up reads all that the account has: a first import took twice as long.
"""

from typing import Final

from relayer.database.accounts import find_account
from relayer.database.pool import Database
from relayer.sealed.keys import AccountId

STEPS: Final = (100, 1_000, 10_000)  # memories of an account at which it is looked

_KNOWN: Final = "SELECT reltuples FROM pg_class WHERE oid = to_regclass('memories')"
_GATHER: Final = "ANALYZE (SKIP_LOCKED) memories, postings, vectors, blobs, idempotency, receipts"


async def gather(database: Database, before: int, after: int) -> None:
    """Gather them if an account, which had so many memories before, has grown past what is known.

    Whoever stores often asks `STEPS` first. A cluster is left to its own, where it takes all
    shards.

    Raises:
        Unavailable: the database is away.
    """
    if database.is_cluster or not any(before < step <= after for step in STEPS):
        return
    known = await database.fetchrow(_KNOWN)
    if known is not None and known["reltuples"] < after / 2:
        await database.execute(_GATHER)


async def gather_after(database: Database, account: AccountId, came: int) -> None:
    """Gather statistics after at most so many memories came whose places were kept before.

    Raises:
        Unavailable: the database is away.
    """
    found = await find_account(database, account)
    after = 0 if found is None else found["memory_count"]
    await gather(database, after - came, after)
