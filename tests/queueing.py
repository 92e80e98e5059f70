"""The queue that workers share: what there is in it, and forgetting what it keeps of jobs."""

from relayer.database import queue
from relayer.jobs import HELD
from tests.services import Bench

VECTORS = "SELECT count(*) FROM vectors"
JOBS = "SELECT count(*) FROM pgqueuer"


async def forget(bench: Bench) -> None:
    await queue.forget(bench.storage.database, older_than=HELD, pages_max=1)
