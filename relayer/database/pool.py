"""The connection pool, and asyncpg's errors in the relayer's words.

Not here: statements (the sibling modules) and the embedded server (`relayer.postgres.embedded`).
"""

import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import asyncpg
import numpy as np
import numpy.typing as npt
from pgvector import HalfVector
from pgvector.asyncpg import register_vector

from relayer.errors import Unavailable
from relayer.logs import warn

log = logging.getLogger("relayer.database")

Connection: TypeAlias = asyncpg.Connection  # or the pool's proxy of one
Row: TypeAlias = asyncpg.Record
UniqueViolation = asyncpg.UniqueViolationError
STATEMENT_TIMEOUT_S: Final = 10
ACQUIRE_TIMEOUT_S: Final = 5
APPLICATION: Final = "memrelay"  # by which the server knows whose sessions these are

_AWAY: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.QueryCanceledError,
    asyncpg.InsufficientResourcesError,  # its disk is full, or it has no connection left
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.InvalidAuthorizationSpecificationError,  # its password was changed: the operator's turn
    asyncpg.InvalidCatalogNameError,  # it is being put in another one's place
    asyncpg.ReadOnlySQLTransactionError,  # it follows another server, which is the primary now
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a connection that was cut while idle, used once more
    OSError,
    TimeoutError,
)
# A kept plan knows neither how long an array is, nor how large a young table has become, nor that
# an account has nothing: some statements took a hundred times as long. But planning each of a
# request's look-ups anew takes longer than looking up.
_PLANS: Final = {"plan_cache_mode": "auto"}
_PLAN_ANEW: Final = "SET LOCAL plan_cache_mode = force_custom_plan"
_BEGIN: Final = f"BEGIN; {_PLAN_ANEW}"
_BEGIN_SNAPSHOT: Final = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_PLAN_ANEW}"
_IS_CLUSTER: Final = "SELECT count(*) FROM pg_extension WHERE extname = 'citus'"


def halfvec(vector: npt.NDArray[np.float16] | None) -> HalfVector | None:
    """A vector as a parameter: in a list, asyncpg would take a bare array for a nested one."""
    return None if vector is None else HalfVector(vector)


@contextmanager
def translated() -> Iterator[None]:
    """Turn "the database is away" into `Unavailable`; every other error is a bug and stays one."""
    try:
        yield
    except _AWAY:
        raise Unavailable("The database is away.", code="database.unavailable") from None
    except asyncpg.InternalServerError as error:
        # A distributed commit that lost a node says so in words only.
        if "could not commit" in str(error):
            raise Unavailable("The database is away.", code="database.unavailable") from None
        raise


@dataclass(frozen=True)
class Load:
    """Connections that a pool has open, those at work, who waits for one, how many it may have."""

    open: int
    in_use: int
    waited_for: int
    max: int


async def _keep(_: Connection) -> None:
    """Nothing to reset: no statement here leaves a session setting, a cursor or a session lock."""


async def _roll_back(connection: Connection) -> None:
    """End a transaction, with its connection if need be; whoever waits hears what it failed of."""
    try:
        await connection.execute("ROLLBACK")
    except Exception as error:
        warn(log, "a transaction ends with its connection", "database.rollback", error)
        with suppress(asyncpg.InterfaceError):  # it is gone, and given back, already
            connection.terminate()


class Database:
    """A pool of connections with binary vector codecs, and the only way to reach one.

    Attributes:
        is_cluster: whether several servers may be behind it.
    """

    def __init__(self, pool: asyncpg.Pool, *, is_cluster: bool = False) -> None:
        self._pool = pool
        self._waited_for = 0
        self.is_cluster = is_cluster

    @classmethod
    async def connect(
        cls,
        arguments: Mapping[str, Any],
        *,
        connections: int,
        timeout_s: float = STATEMENT_TIMEOUT_S,
        pooled: bool = False,
    ) -> "Database":
        """A pool on a migrated database; `arguments` are asyncpg's own.

        With `pooled` another pool stands between, which gives each transaction another session:
        nothing is left in one, no prepared statement either.

        Raises:
            Unavailable: nobody answers.
        """
        options = {} if pooled else _PLANS
        with translated():
            pool = await asyncpg.create_pool(
                **arguments,
                min_size=1,
                max_size=connections,
                init=register_vector,
                reset=_keep,
                command_timeout=timeout_s,
                server_settings={"application_name": APPLICATION} | options,
                **({"statement_cache_size": 0} if pooled else {}),
            )
            is_cluster = bool(await pool.fetchval(_IS_CLUSTER))
        return cls(pool, is_cluster=is_cluster)

    async def close(self) -> None:
        """Close every connection, those in use after their work."""
        await self._pool.close()

    def load(self) -> Load:
        """How much is asked of the pool now."""
        there = self._pool.get_size()
        return Load(
            open=there,
            in_use=there - self._pool.get_idle_size(),
            waited_for=self._waited_for,
            max=self._pool.get_max_size(),
        )

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One connection, held only while talking to the database."""
        with translated():
            self._waited_for += 1
            try:
                connection = await self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S)
            finally:
                self._waited_for -= 1
            try:
                yield connection
            except BaseException:
                # A failure here must not take the place of what was raised, a stop least of all.
                # The pool has ended such a connection, and opens another.
                with suppress(Exception):
                    await self._pool.release(connection)
                raise
            await self._pool.release(connection)

    def transaction(self) -> AbstractAsyncContextManager[Connection]:
        """One short transaction; nothing but the connection is awaited inside.

        What it does is planned for what it is given, be that one row or thousands.
        """
        return self._begun(_BEGIN)

    def snapshot(self) -> AbstractAsyncContextManager[Connection]:
        """One moment's view of everything, for reading what has to agree; planned likewise."""
        return self._begun(_BEGIN_SNAPSHOT)

    @asynccontextmanager
    async def _begun(self, begin: str) -> AsyncIterator[Connection]:
        # The library begins by itself only, and how to plan would take another trip.
        async with self.connection() as connection:
            await connection.execute(begin)
            try:
                yield connection
            except BaseException:
                await _roll_back(connection)
                raise
            await connection.execute("COMMIT")

    async def fetch(self, statement: str, *arguments: Any) -> list[Row]:
        """All rows of one statement, which keeps its plan."""
        async with self.connection() as connection:
            return list(await connection.fetch(statement, *arguments))

    async def fetch_planned(self, statement: str, *arguments: Any) -> list[Row]:
        """All rows of one statement, planned for these arguments."""
        async with self.snapshot() as connection:
            return list(await connection.fetch(statement, *arguments))

    async def fetchmany(self, statement: str, arguments: Sequence[Sequence[Any]]) -> list[Row]:
        """All rows of one statement with each of these arguments: one trip, one transaction."""
        async with self.connection() as connection:
            return list(await connection.fetchmany(statement, arguments))

    async def fetchrow(self, statement: str, *arguments: Any) -> Row | None:
        """The first row of one statement."""
        async with self.connection() as connection:
            return await connection.fetchrow(statement, *arguments)

    async def execute(self, statement: str, *arguments: Any) -> None:
        """One statement without rows."""
        async with self.connection() as connection:
            await connection.execute(statement, *arguments)
