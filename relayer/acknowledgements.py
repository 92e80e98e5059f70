"""Jobs that a worker takes off the queue, and how it acknowledges them: over, failed, again.

Not here: what jobs do (`jobs.py`), statements (`database.queue`).
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from pgqueuer import AsyncpgDriver, Job, Queries
from pgqueuer.models import TracebackRecord
from pgqueuer.ports.repository import EntrypointExecutionParameter
from pgqueuer.types import JOB_STATUS, JobId, QueueEntrypoint, QueueManagerId

from relayer.database import queue
from relayer.database.pool import Database
from relayer.logs import warn

log = logging.getLogger("relayer.jobs")

BEAT_S_MAX: Final = 1.0  # by the worker's own connection: others take a job soon after a late beat
Ended = tuple[Job, JOB_STATUS, TracebackRecord | None]


@dataclass
class Acknowledgements(Queries):
    """pgqueuer's statements; but each kind has places of its own, and what was asked for while it
    ran begins again instead of ending.

    `places` are those of one worker, of kinds that it may have many jobs of. The others have few in
    all workers together, by their limit in the queue. No kind ever takes the place of another.

    What becomes of a job is written by the pool's connections: a worker that lost its own one goes
    on with what it does, and has done what it did.
    """

    database: Database = field(kw_only=True)
    places: Mapping[str, int] = field(kw_only=True)

    async def dequeue(
        self,
        batch_size: int,
        entrypoints: dict[QueueEntrypoint, EntrypointExecutionParameter],
        queue_manager_id: QueueManagerId,
        global_concurrency_limit: int | None,
        heartbeat_timeout: timedelta,
    ) -> list[Job]:
        """Take jobs of each kind that has a place free."""
        others = {kind: each for kind, each in entrypoints.items() if kind not in self.places}
        groups = [(others, global_concurrency_limit)]
        groups += [({k: entrypoints[k]}, self.places[k]) for k in entrypoints if k in self.places]
        found = list[Job]()
        for kinds, most in groups:
            if kinds:
                found += await super().dequeue(
                    batch_size, kinds, queue_manager_id, most, heartbeat_timeout
                )
        return found

    async def update_heartbeat(self, job_ids: list[JobId]) -> None:
        """Note that jobs are still worked on, by the worker's own connection while there is one:
        for one of the pool it might wait until others take the jobs."""
        try:
            async with asyncio.timeout(BEAT_S_MAX):
                await queue.beat(self.driver, job_ids)
        except Exception:  # it is lost, or carries nothing, and whoever waits for that will know
            await queue.beat(self.database, job_ids)

    async def retry_job(
        self, job: Job, delay: timedelta, traceback_record: TracebackRecord | None
    ) -> None:
        """Put a job back; who cannot is not the one to say that it failed, and leaves it to those
        who take it when its heartbeats end."""
        try:
            async with self.database.connection() as connection:
                queries = Queries(AsyncpgDriver(connection))
                await queries.retry_job(job, delay, traceback_record)
        except Exception as error:
            warn(log, "a job is not put back", "jobs.put_back", error)

    async def log_jobs(self, job_status: list[Ended]) -> None:
        """Note which jobs are over, and how; one that was stopped with its process is not."""
        ended = {
            int(job.id): queue.STOPPED if status == "canceled" else queue.count_asked(job.headers)
            for job, status, _ in job_status
        }
        async with self.database.transaction() as connection:
            again = await queue.begin_again(connection, ended)
            over = [one for one in job_status if one[0].id not in again]
            await Queries(AsyncpgDriver(connection)).log_jobs(over)
