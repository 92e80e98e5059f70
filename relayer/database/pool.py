"""The connection pool, and asyncpg's errors in the relayer's words.

Not here: statements (the sibling modules) and the embedded server (`relayer.postgres.embedded`).
- Questions of the same moment are put together (`Batches`): their way costs more than an answer. An
  answer is never older than its question, and whoever finds the way free waits for nobody.
- A batch belongs to nobody: who stops waiting takes no answer from the others of it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

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
WARM_S: Final = 1.0  # at most, that a connection stays out of the pool without work
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
_BEGIN_KEPT: Final = "BEGIN"
_BEGIN_SNAPSHOT: Final = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_PLAN_ANEW}"
_IS_CLUSTER: Final = "SELECT count(*) FROM pg_extension WHERE extname = 'citus'"


def halfvec(vector: npt.NDArray[np.float16] | None) -> HalfVector | None:
    """Return a vector as a parameter; in a list, asyncpg takes a bare array for a nested one."""
    return None if vector is None else HalfVector(vector)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn "the database is away" into `Unavailable`; every other error is a bug and stays one."""
    try:
        yield
    except Exception as error:
        _raise_if_away(error)
        raise


def _raise_if_away(error: BaseException) -> None:
    # A distributed commit that lost a node says so in words only.
    lost = isinstance(error, asyncpg.InternalServerError) and "could not commit" in str(error)
    if lost or isinstance(error, _AWAY):
        away = Unavailable("The database is away.", code="database.unavailable")
        away.cause = type(error).__name__  # its disk, a lock, the network …
        raise away from None


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


def _is_fit(connection: Connection) -> bool:
    """Return true if a connection can be reused as it is: open, and in no transaction."""
    try:
        return not connection.is_closed() and not connection.is_in_transaction()
    except asyncpg.InterfaceError:  # it was lost, and the pool has its place back already
        return False


class _Held:
    """One connection as long as `async with` lasts."""

    __slots__ = ("_connection", "_database")

    def __init__(self, database: "Database") -> None:
        self._database = database

    async def __aenter__(self) -> Connection:
        try:
            self._connection = await self._database.take()
        except Exception as error:
            _raise_if_away(error)
            raise
        return self._connection

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        if error is not None:
            await self._database.drop(self._connection)
            _raise_if_away(error)
            return
        try:
            await self._database.give(self._connection)
        except Exception as failure:
            _raise_if_away(failure)
            raise


class Database:
    """A pool of connections with binary vector codecs, and the only way to reach one.

    What is given back is lent again without the pool, whose way there and back is a task and two
    timers, a tenth of a signed request's processor time. After a moment the pool has it back: it
    ends what is idle for long.

    Attributes:
        is_cluster: whether several servers may be behind it.
    """

    def __init__(self, pool: asyncpg.Pool, *, is_cluster: bool = False) -> None:
        self._pool = pool
        self._waited_for = 0
        self._warm: list[Connection] = []  # given back a moment ago
        self._cooling: asyncio.TimerHandle | None = None
        self._returning: set[asyncio.Task[None]] = set()  # the loop keeps no strong reference
        self._is_closing = False
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
        """Return a pool on a migrated database; `arguments` are asyncpg's own.

        With `pooled` another pool stands between, which gives each transaction another session:
        nothing is left in one, no prepared statement either.

        Raises:
            Unavailable: nobody answers.
        """
        options = {} if pooled else _PLANS
        with translate_errors():
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
        """Close every connection, those in use after their work; all at once if it is stopped."""
        self._is_closing = True
        if self._cooling is not None:
            self._cooling.cancel()
        try:
            await self._return()
        except BaseException:
            self._pool.terminate()  # as its own closing does
            raise
        await self._pool.close()

    def load(self) -> Load:
        """Return the load of the pool now."""
        there = self._pool.get_size()
        return Load(
            open=there,
            in_use=there - self._pool.get_idle_size() - sum(map(_is_fit, self._warm)),
            waited_for=self._waited_for,
            max=self._pool.get_max_size(),
        )

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """Return one connection, held only while talking to the database."""
        return _Held(self)

    async def take(self) -> Connection:
        """Return a connection that was given back a moment ago, or one of the pool."""
        while self._warm:
            connection = self._warm.pop()
            if _is_fit(connection):
                return connection
            await self.drop(connection)
        self._waited_for += 1
        try:
            return await self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S)
        finally:
            self._waited_for -= 1

    async def give(self, connection: Connection) -> None:
        """Give a connection back after work that succeeded; whoever waits gets it from the pool."""
        if self._is_closing or self._waited_for or not _is_fit(connection):
            await self._pool.release(connection)
            return
        self._warm.append(connection)
        if self._cooling is None:
            loop = asyncio.get_running_loop()
            self._cooling = loop.call_later(WARM_S, self._cool, context=Context())

    async def drop(self, connection: Connection) -> None:
        """Give a connection back after work that failed; the pool looks at it, or ends it.

        A failure here must not take the place of what was raised, a stop least of all: the pool has
        ended such a connection, and opens another.
        """
        with suppress(Exception):
            await self._pool.release(connection)

    def _cool(self) -> None:
        self._cooling = None
        task = asyncio.create_task(self._return())
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def _return(self) -> None:
        """Give the pool back what nobody uses at the moment."""
        while self._warm:
            await self.drop(self._warm.pop())

    def transaction(self, *, keeps_plans: bool = False) -> AbstractAsyncContextManager[Connection]:
        """Return one short transaction; nothing but the connection is awaited inside.

        What it does is planned for what it is given, be that one row or thousands. Statements of
        which one plan fits all that they are given may keep theirs; a cluster plans each anew.
        """
        return self._begin(_BEGIN_KEPT if keeps_plans and not self.is_cluster else _BEGIN)

    def snapshot(self) -> AbstractAsyncContextManager[Connection]:
        """Return one moment's view of everything, to read what has to agree; planned likewise."""
        return self._begin(_BEGIN_SNAPSHOT)

    @asynccontextmanager
    async def _begin(self, begin: str) -> AsyncIterator[Connection]:
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
        """Return all rows of one statement, which keeps its plan."""
        async with self.connection() as connection:
            return list(await connection.fetch(statement, *arguments))

    async def fetch_planned(self, statement: str, *arguments: Any) -> list[Row]:
        """Return all rows of one statement, planned for these arguments."""
        async with self.snapshot() as connection:
            return list(await connection.fetch(statement, *arguments))

    async def fetchmany(self, statement: str, arguments: Sequence[Sequence[Any]]) -> list[Row]:
        """Return all rows of one statement with each of these arguments, in one transaction."""
        async with self.connection() as connection:
            return list(await connection.fetchmany(statement, arguments))

    async def fetchrow(self, statement: str, *arguments: Any) -> Row | None:
        """Return the first row of one statement."""
        async with self.connection() as connection:
            return await connection.fetchrow(statement, *arguments)

    async def execute(self, statement: str, *arguments: Any) -> None:
        """Execute one statement without rows."""
        async with self.connection() as connection:
            await connection.execute(statement, *arguments)


Q = TypeVar("Q")
A = TypeVar("A")

SIZE_MAX: Final = 64  # questions of a batch
UNDER_WAY_MAX: Final = 2  # so that one connection that hangs does not stop everybody


class Batches(Generic[Q, A]):
    """Puts questions to `ask`, which answers each of them in their order.

    Where not `together`, each goes by itself: a cluster's nodes fail one by one, and a question for
    one that is away would take others' answers along.
    """

    def __init__(
        self, ask: Callable[[Sequence[Q]], Awaitable[Sequence[A]]], *, together: bool = True
    ) -> None:
        self._ask = ask
        self._together = together
        self._waiting: deque[tuple[Q, asyncio.Future[A]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop keeps no strong reference
        self._under_way = 0
        self._boarding = False

    @classmethod
    def of(
        cls,
        database: Database,
        statement: Callable[[Database, Sequence[Q]], Awaitable[Sequence[A]]],
    ) -> Self:
        """Return those that a statement of a database answers."""
        return cls(partial(statement, database), together=not database.is_cluster)

    def ask(self, question: Q) -> "asyncio.Future[A]":
        """Return the answer to come; it fails as `ask` does. Nobody has to wait for it."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        self._set_out()
        return answer

    def _set_out(self) -> None:
        """Begin a batch, if there is a way for it, in the loop's next turn.

        So whoever asks in this one is aboard.
        """
        if self._boarding or (self._together and self._under_way >= UNDER_WAY_MAX):
            return
        self._boarding = True
        self._under_way += 1
        task = asyncio.create_task(self._carry(), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self) -> None:
        self._boarding = False
        try:
            while batch := self._next():
                if self._waiting:
                    self._set_out()
                await self._answer(batch)
        finally:
            self._under_way -= 1

    def _next(self) -> list[tuple[Q, "asyncio.Future[A]"]]:
        batch: list[tuple[Q, asyncio.Future[A]]] = []
        while self._waiting and len(batch) < (SIZE_MAX if self._together else 1):
            question, answer = self._waiting.popleft()
            if not answer.done():  # who asked has been stopped
                batch.append((question, answer))
        return batch

    async def _answer(self, batch: Sequence[tuple[Q, "asyncio.Future[A]"]]) -> None:
        try:
            found = await self._ask([question for question, _ in batch])
            answered = list(zip(batch, found, strict=True))
        except Exception as error:
            # Without its frames: those know the answers, which know the error.
            _fail(batch, error.with_traceback(None))
        except BaseException:  # stopped: nobody may wait for ever
            _fail([*batch, *self._waiting], Unavailable("The relayer stops."))
            self._waiting.clear()
            raise
        else:
            for (_, answer), result in answered:
                if not answer.done():
                    answer.set_result(result)


def _fail(asked: Sequence[tuple[Q, "asyncio.Future[A]"]], error: Exception) -> None:
    for _, answer in asked:
        if not answer.done():
            answer.set_exception(error)
            answer.exception()  # marks it as seen, should nobody wait for it
