"""How far a job falls behind others that wait.

Not here: that it falls (`test_jobs_asked_again.py`, `test_jobs.py`).
"""

from relayer.database import queue
from relayer.sealed.keys import AccountId
from tests.conftest import BenchMaker
from tests.services import Bench

ONE, OTHER = AccountId(bytes(31) + b"\1"), AccountId(bytes(31) + b"\2")
PLACE = "SELECT priority FROM pgqueuer ORDER BY id LIMIT 1"
NEXT = """
SELECT convert_from(payload, 'UTF8') FROM pgqueuer WHERE execute_after <= now()
ORDER BY priority DESC, id LIMIT 1
"""


async def begin_again(bench: Bench, times: int) -> int:
    """Put in the job of one account, and let it begin again so often; its id."""
    async with bench.storage.database.connection() as connection:
        await queue.enqueue(connection, queue.RESTORE, ONE)
        job_id: int = await connection.fetchval("SELECT min(id) FROM pgqueuer")
    for number in range(times):
        async with bench.storage.database.transaction() as connection:
            await queue.enqueue(connection, queue.RESTORE, ONE)
            assert await queue.begin_again(connection, {job_id: number}) == {job_id}
    return job_id


async def test_a_job_that_begins_again_and_again_comes_last_and_no_further(
    make_bench: BenchMaker,
) -> None:
    bench = make_bench()
    job_id = await begin_again(bench, 2 - queue.LAST)
    assert await bench.value(PLACE) == queue.LAST
    await queue.step_behind(bench.storage.database, job_id)
    assert await bench.value(PLACE) == queue.LAST


async def test_of_two_that_are_last_the_older_lets_the_other_go_first(
    make_bench: BenchMaker,
) -> None:
    bench = make_bench()
    async with bench.storage.database.connection() as connection:
        await begin_again(bench, 1 - queue.LAST)
        await queue.enqueue(connection, queue.RESTORE, OTHER, priority=queue.LAST)
    assert OTHER.hex() in await bench.value(NEXT)
