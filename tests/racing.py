"""Several things done to one account at once, in a known order.

The locks that all of them take are held until all have been seen to wait for them.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

from relayer.database.accounts import lock_account
from relayer.sealed.keys import AccountId
from tests.services import Bench

WAITING = """
SELECT count(*)::int FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
LOCK_MEMORIES = "SELECT FROM memories WHERE account_id = $1 FOR UPDATE"
LOCK_TURNS = "SELECT FROM episodes WHERE account_id = $1 FOR UPDATE"
LOCK_NOTES = "SELECT FROM blob_outbox WHERE account_id = $1 FOR UPDATE"


async def race(bench: Bench, account: AccountId, *works: Awaitable[Any]) -> list[Any]:
    """What became of each, begun in this order while another transaction holds what they lock."""
    begun: list[asyncio.Future[Any]] = []
    async with bench.storage.database.transaction() as connection:
        await lock_account(connection, account)
        for statement in (LOCK_MEMORIES, LOCK_TURNS, LOCK_NOTES):
            await connection.execute(statement, account)
        for number, work in enumerate(works, 1):
            begun.append(asyncio.ensure_future(work))
            await bench.until(WAITING, number)
            assert not any(one.done() for one in begun)
    return await asyncio.gather(*begun, return_exceptions=True)
