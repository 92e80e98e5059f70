"""What the database says it cannot do now is a 503 to come back from; everything else is a bug."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

import asyncpg
import pytest
import pytest_asyncio

from relayer.database import closing, expiry, rebuild, recall, vectors
from relayer.database.pool import Connection, Database
from relayer.errors import Unavailable
from relayer.sealed.keys import AccountId
from tests.conftest import TestDatabase

ACCOUNT = AccountId(bytes(32))
NOW = datetime(2026, 11, 23, tzinfo=UTC)
# A statement, and what asks it.
ASKED_WIDELY: dict[str, tuple[str, Callable[[Database], Awaitable[object]]]] = {
    "remnants of an account": (
        closing._REMNANTS,
        lambda database: closing.remnants(database, ACCOUNT, b""),
    ),
    "accounts to index": (
        vectors._ACCOUNTS_DUE,
        lambda database: vectors.accounts_due(
            database, versions=vectors.Versions(1, None), before=NOW
        ),
    ),
    "accounts with what is over": (
        expiry._ACCOUNTS_EXPIRED,
        lambda database: expiry.accounts_expired(database, now=NOW),
    ),
    "revisions to make anew": (
        rebuild._REVISIONS,
        lambda database: rebuild.revisions(database, ACCOUNT, []),
    ),
    "what is sealed": (
        rebuild._SEALED,
        lambda database: rebuild.find_sealed(database, ACCOUNT, []),
    ),
    "a search": (
        recall._EVIDENCE,
        lambda database: recall.gather(
            database,
            ACCOUNT,
            recall.Search(
                scopes=[], query_words=0, filters=recall.Filters(NOW), limit=10, neighbours=True
            ),
        ),
    ),
}
RAISE = "DO $$ BEGIN RAISE EXCEPTION 'no matter what' USING ERRCODE = '{}'; END $$"
INTERNAL = "DO $$ BEGIN RAISE EXCEPTION '{}' USING ERRCODE = 'XX000'; END $$"
NOT_NOW = {
    "disk_full": "53100",
    "out_of_memory": "53200",
    "too_many_connections": "53300",
    "query_canceled": "57014",
    "admin_shutdown": "57P01",
    "crash_shutdown": "57P02",
    "cannot_connect_now": "57P03",
    "serialization_failure": "40001",
    "deadlock_detected": "40P01",
    "connection_failure": "08006",
    "read_only_sql_transaction": "25006",
    "invalid_authorization_specification": "28000",
    "invalid_password": "28P01",
    "invalid_catalog_name": "3D000",
}
BUGS = {"division_by_zero": "22012", "undefined_table": "42P01", "check_violation": "23514"}


@pytest.mark.parametrize("name", NOT_NOW)
async def test_a_database_that_cannot_now_is_away(database: Database, name: str) -> None:
    with pytest.raises(Unavailable, match=r"^The database is away\.$"):
        await database.execute(RAISE.format(NOT_NOW[name]))


@pytest.mark.parametrize("name", BUGS)
async def test_a_bug_is_not_taken_for_an_outage(database: Database, name: str) -> None:
    with pytest.raises(asyncpg.PostgresError):
        await database.execute(RAISE.format(BUGS[name]))


async def test_a_commit_that_lost_a_node_is_no_bug(database: Database) -> None:
    """A cluster says so in words alone; whoever asks again by the same key learns what became."""
    lost = "could not commit transaction for shard 102041 on at least one active node"
    with pytest.raises(Unavailable):
        await database.execute(INTERNAL.format(lost))


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (asyncpg.InternalServerError, INTERNAL.format("cannot drop a shard")),
        (asyncpg.FeatureNotSupportedError, RAISE.format("0A000")),
    ],
)
async def test_what_a_cluster_cannot_run_is_a_bug(
    database: Database, error: type[Exception], what: str
) -> None:
    with pytest.raises(error):
        await database.execute(what)


class TestPlans:
    LOOK_UP = "SELECT account_id FROM accounts WHERE account_id = $1"
    OFTEN = 8  # what is planned anew five times may have its plan kept

    async def kept(self, database: Database) -> bool:
        """Whether the session keeps a plan of the look-up."""
        [row] = await database.fetch(
            "SELECT generic_plans FROM pg_prepared_statements WHERE statement = $1", self.LOOK_UP
        )
        return bool(row[0])

    @pytest_asyncio.fixture
    async def session(self, fresh_database: TestDatabase) -> AsyncIterator[Database]:
        """The one session of a pool."""
        database = await Database.connect(fresh_database.connect_args, connections=1)
        yield database
        await database.close()

    async def test_a_look_up_keeps_its_plan(self, session: Database) -> None:
        for _ in range(self.OFTEN):
            await session.fetch(self.LOOK_UP, 0)
        assert await self.kept(session)

    @pytest.mark.parametrize("begin", [Database.transaction, Database.snapshot])
    async def test_a_transaction_plans_for_what_it_is_given(
        self,
        session: Database,
        begin: Callable[[Database], AbstractAsyncContextManager[Connection]],
    ) -> None:
        for _ in range(self.OFTEN):
            async with begin(session) as connection:
                await connection.fetch(self.LOOK_UP, 0)
        assert not await self.kept(session)
        [after] = await session.fetch("SHOW plan_cache_mode")
        assert after[0] == "auto"

    async def test_a_transaction_keeps_plans_where_it_may(self, session: Database) -> None:
        for _ in range(self.OFTEN):
            async with session.transaction(keeps_plans=True) as connection:
                await connection.fetch(self.LOOK_UP, 0)
        assert await self.kept(session)

    async def test_a_cluster_plans_each_anew(self, session: Database) -> None:
        session.is_cluster = True
        for _ in range(self.OFTEN):
            async with session.transaction(keeps_plans=True) as connection:
                await connection.fetch(self.LOOK_UP, 0)
        assert not await self.kept(session)

    @pytest.mark.parametrize("name", ASKED_WIDELY)
    async def test_what_looks_far_is_planned_each_time(self, session: Database, name: str) -> None:
        """Kept, its plan would read whole tables, or take a thousand of something for ten."""
        statement, ask = ASKED_WIDELY[name]
        for _ in range(self.OFTEN):
            await ask(session)
        [row] = await session.fetch(
            "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement = $1",
            statement,
        )
        assert tuple(row) == (0, self.OFTEN)


async def test_a_frozen_server_does_not_keep_a_request(fresh_database: TestDatabase) -> None:
    """It hears no cancelling either, so nobody waits for that for ever."""
    database = await Database.connect(fresh_database.connect_args, connections=1)
    backends: list[int] = []

    async def work() -> None:
        async with database.transaction() as connection:
            backends.append(await connection.fetchval("SELECT pg_backend_pid()"))
            os.kill(backends[0], signal.SIGSTOP)
            await connection.fetchval("SELECT 1", timeout=1)

    request = asyncio.create_task(work())
    try:
        ended, _ = await asyncio.wait({request}, timeout=120)
    finally:
        for pid in backends:
            os.kill(pid, signal.SIGCONT)
    assert ended == {request}
    assert isinstance(request.exception(), Unavailable)
    assert await database.fetch("SELECT 1")
    await database.close()


class TestCancelling:
    """A stop cancels a task; what fails while it gives its connection back must not hide that."""

    async def test_a_server_that_ended_the_session(
        self, fresh_database: TestDatabase, database: Database
    ) -> None:
        session = await Database.connect(fresh_database.connect_args, connections=1)
        began = asyncio.Event()
        backends: list[int] = []

        async def work() -> None:
            async with session.transaction() as connection:
                backends.append(await connection.fetchval("SELECT pg_backend_pid()"))
                began.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await began.wait()
        await database.execute("SELECT pg_terminate_backend($1, 10000)", backends[0])
        task.cancel()
        await asyncio.wait({task})
        cancelled = task.cancelled()
        assert cancelled
        assert await session.fetch("SELECT 1")
        await session.close()

    @pytest.mark.parametrize("begin", [Database.connection, Database.transaction])
    async def test_a_server_that_does_not_hear_it(
        self,
        fresh_database: TestDatabase,
        begin: Callable[[Database], AbstractAsyncContextManager[Connection]],
    ) -> None:
        session = await Database.connect(fresh_database.connect_args, connections=1, timeout_s=1)
        asked = asyncio.Event()
        backends: list[int] = []

        async def work() -> None:
            async with begin(session) as connection:
                backends.append(await connection.fetchval("SELECT pg_backend_pid()"))
                os.kill(backends[0], signal.SIGSTOP)
                asked.set()
                await connection.fetchval("SELECT pg_sleep(60)", timeout=60)

        task = asyncio.create_task(work())
        try:
            await asked.wait()
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.wait({task}, timeout=60)
        finally:
            for pid in backends:
                os.kill(pid, signal.SIGCONT)
        cancelled = task.cancelled()
        assert cancelled
        assert await session.fetch("SELECT 1")
        await session.close()

    async def test_an_error_of_its_own_is_told(
        self, fresh_database: TestDatabase, database: Database
    ) -> None:
        session = await Database.connect(fresh_database.connect_args, connections=1)

        async def work() -> None:
            async with session.transaction() as connection:
                pid = await connection.fetchval("SELECT pg_backend_pid()")
                await database.execute("SELECT pg_terminate_backend($1, 10000)", pid)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await work()
        await session.close()


class TestWarm:
    """What was given back is lent again without the pool, which gets it back a moment later."""

    @pytest_asyncio.fixture
    async def session(self, fresh_database: TestDatabase) -> AsyncIterator[Database]:
        """A pool of one."""
        database = await Database.connect(fresh_database.connect_args, connections=1)
        yield database
        await asyncio.wait_for(database.close(), 60)

    async def test_it_is_not_in_use_and_nobody_opens_another(self, session: Database) -> None:
        [one], [two] = [await session.fetch("SELECT pg_backend_pid()") for _ in range(2)]
        assert one[0] == two[0]
        assert session._pool.get_idle_size() == 0, "it would have gone through the pool"
        load = session.load()
        assert (load.open, load.in_use, load.waited_for) == (1, 0, 0)

    async def test_the_pool_gets_back_what_rests(
        self, session: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("relayer.database.pool.WARM_S", 0.01)
        for _ in range(2):
            await session.fetch("SELECT 1")
            while not session._pool.get_idle_size():
                await asyncio.sleep(0.01)
            assert session.load().in_use == 0

    async def test_whoever_waits_gets_it(
        self, session: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("relayer.database.pool.WARM_S", 3_600)  # longer than anybody waits

        async def work() -> None:
            for _ in range(5):
                async with session.connection() as connection:
                    await connection.fetch("SELECT 1")

        await asyncio.wait_for(asyncio.gather(*(work() for _ in range(4))), 60)
        assert session.load().waited_for == 0

    async def test_one_that_was_lost_meanwhile_is_replaced(
        self, session: Database, database: Database
    ) -> None:
        [before] = await session.fetch("SELECT pg_backend_pid()")
        [kept] = session._warm
        await database.execute("SELECT pg_terminate_backend($1, 10000)", before[0])
        while kept._con is not None and not kept.is_closed():
            await asyncio.sleep(0.01)
        assert session.load().in_use == 0
        [after] = await session.fetch("SELECT pg_backend_pid()")
        assert after[0] != before[0]

    async def test_an_open_transaction_is_nobody_elses(self, session: Database) -> None:
        async with session.connection() as connection:
            await connection.execute("BEGIN; SET LOCAL work_mem = '1MB'")
        [after] = await session.fetch("SHOW work_mem")
        assert after[0] != "1MB"

    async def test_what_failed_is_left_to_the_pool(self, session: Database) -> None:
        with pytest.raises(asyncpg.PostgresError):
            await session.execute(RAISE.format(BUGS["division_by_zero"]))
        assert not session._warm
        assert session._pool.get_idle_size() == 1

    async def test_no_connection_outlives_a_closing_that_was_stopped(
        self, fresh_database: TestDatabase, database: Database
    ) -> None:
        session = await Database.connect(fresh_database.connect_args, connections=3)
        all_at_once = (session.fetch("SELECT pg_backend_pid(), pg_sleep(0.1)") for _ in range(3))
        pids = [row[0] for [row] in await asyncio.gather(*all_at_once)]
        closing = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait({closing})
        assert closing.cancelled()
        left = "SELECT pid FROM pg_stat_activity WHERE pid = ANY ($1)"
        async with asyncio.timeout(60):
            while await database.fetch(left, pids):
                await asyncio.sleep(0.01)
