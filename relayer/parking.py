"""Setting jobs aside that end every worker which takes them, so that the others go on.

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
PARKED_MIN: Final = timedelta(minutes=10)
PARKED_MAX: Final = timedelta(days=1)  # another release may cope with it
SPREAD_S: Final = 2.0  # over which jobs are begun that a worker ended over
log = logging.getLogger("relayer.parking")


async def set_aside(
    database: Database, job: Job, account: AccountId, ids: Sequence[uuid.UUID], *, taken: int
) -> bool:
    """Whether a job was taken apart that workers kept ending over, `taken` times by now.

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
        raise RetryRequested(parked_for(datetime.now(UTC) - job.created), "parked")
    async with database.connection() as connection:
        for one in ids:
            await queue.enqueue(connection, job.entrypoint, account, [one], priority=job.priority)
    return True


def parked_for(age: timedelta) -> timedelta:
    """How long a job of that age is put off: each time about three times as long as before."""
    return min(max(2 * age, PARKED_MIN), PARKED_MAX)
