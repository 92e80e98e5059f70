"""A quarantine of poison jobs, which end every worker that takes them, so that the others go on.

Not here: what jobs do, and how they fail in words (`jobs.py`).

- A job was taken in vain when nobody said what became of it: its worker was killed, or cut off.
- It is put off, not given up: what it is about stays as found as it is, and is tried again. Workers
  that were ended by something else leave the same trace, so at first that is soon.
"""

import asyncio
import logging
import secrets
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from pgqueuer import Job
from pgqueuer.errors import RetryRequested

from relayer.database import queue
from relayer.database.pool import Database
from relayer.sealed.keys import AccountId

TAKEN_MAX: Final = 5  # in vain; processes also end for reasons that are not a job's
QUARANTINE_MIN: Final = timedelta(minutes=10)
QUARANTINE_MAX: Final = timedelta(days=1)  # another release may cope with it
SPREAD_S: Final = 2.0  # over which jobs are begun that a worker ended over
log = logging.getLogger("relayer.quarantine")


async def isolate(
    database: Database, job: Job, account: AccountId, ids: Sequence[uuid.UUID], *, taken: int
) -> bool:
    """Take a job apart, or put it off, over which workers ended `taken` times by now.

    Returns:
        True if it was taken apart; False if it is to be done now.

    Raises:
        RetryRequested: it was about one thing only, and is parked.
        Unavailable: the database is away.
    """
    if taken <= TAKEN_MAX:
        if taken > 1:
            # Whichever of them ended it shall not take the same others along every time.
            await asyncio.sleep(secrets.SystemRandom().uniform(0, SPREAD_S))
        return False
    if len(ids) <= 1:
        log.error("a job is parked", extra={"event": "jobs.parked", "job": job.entrypoint})
        raise RetryRequested(quarantine_time(datetime.now(UTC) - job.created), "parked")
    async with database.connection() as connection:
        for one in ids:
            await queue.enqueue(connection, job.entrypoint, account, [one], priority=job.priority)
    return True


def quarantine_time(age: timedelta) -> timedelta:
    """Return how long to put off a job of that age: about three times as long each time."""
    return min(max(2 * age, QUARANTINE_MIN), QUARANTINE_MAX)
