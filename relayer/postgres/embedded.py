"""The embedded PostgreSQL server: started by its first user, shared, stopped by its last.

It does not own the cluster's folder (`relayer.postgres.cluster`), the accounts and programs
(`relayer.postgres.programs`), tables (migrations) or connection pools (`relayer.database`).

Three advisory locks (flock; the kernel drops them when their holder dies, however it dies):

- `transition.lock`, exclusive: held during every start and stop, so that they never overlap.
- `users.lock`, shared: held by each user of the server; who gets it exclusively is the last one.
- `server.lock`, exclusive: inherited by the server and all its children. Who gets it knows that no
  process of the cluster is left, even one that outlived a killed server and holds its memory.

- No TCP: the only way in is a socket in a 0700 folder, with a random password (SCRAM).
- The log holds no statement and no value of one: errors go to the client that caused them.
- Only a process proven to be this cluster's server is ever signalled, and never with SIGKILL.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import asyncpg

from relayer.locks import lock, try_lock
from relayer.postgres.cluster import ADMIN_ROLE, APP_ROLE, Cluster
from relayer.postgres.programs import PostgresError
from relayer.postgres.server import POLL_S, SETTINGS, Server

__all__ = ["EmbeddedPostgres", "PostgresError", "check_server", "check_versions"]

DATABASE = "memrelay"
SERVER_VERSION_MIN = 15
PGVECTOR_VERSION_MIN = (0, 8)

_log = logging.getLogger("relayer.postgres")

_WATCH_S = 1.0
_RESTART_PAUSE_S = 0.5
# Why a server that has just been launched may give up although nothing is wrong with it.
_LINGERING = re.compile("pre-existing shared memory block|lock file .* already exists")

_CONNECT_TIMEOUT_S = 5.0

# The server is on its way up or down; anything else is an answer.
_NOT_YET = (
    OSError,
    asyncpg.CannotConnectNowError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.TooManyConnectionsError,
)


class _TimedOut(PostgresError):
    """The server was still on its way when the patience of this process ended."""


class EmbeddedPostgres:
    """One process's use of the PostgreSQL server below `data_dir`.

    `start` and `stop` may overlap with those of any other process of the same user. An instance
    that has been stopped can be started again.
    """

    def __init__(
        self,
        *,
        data_dir: Path,
        runtime_dir: Path | None = None,
        start_timeout_s: float = 60.0,
        stop_timeout_s: float = 30.0,
    ) -> None:
        self._cluster = Cluster(
            data_dir=data_dir, runtime_dir=runtime_dir or Path(tempfile.gettempdir())
        )
        self._server = Server(cluster=self._cluster)
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._users: int | None = None
        self._launched = False
        self._failure: PostgresError | None = None
        self._passwords: dict[str, str] = {}
        self._socket_folder = Path()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def connect_args(self) -> dict[str, Any]:
        """Return keyword arguments for `asyncpg.connect`, as the database's owner."""
        return self._connect_args(APP_ROLE)

    @property
    def admin_args(self) -> dict[str, Any]:
        """Return the same as the superuser: for creating databases and extensions."""
        return self._connect_args(ADMIN_ROLE)

    @property
    def dsn(self) -> str:
        """Return a connection string for asyncpg and pgqueuer. It holds the password."""
        arguments = self.connect_args
        host = quote(arguments["host"], safe="")
        login = f"{arguments['user']}:{arguments['password']}"
        return f"postgresql://{login}@/{DATABASE}?host={host}&port={arguments['port']}"

    @property
    def log_path(self) -> Path:
        """Return the server's log file."""
        return self._server.log

    async def start(self) -> None:
        """Start the server; return when it accepts connections.

        Create, launch or join it as needed.

        Raises: PostgresError.
        """
        if self._users is not None:
            raise PostgresError("this instance is already started")
        deadline = time.monotonic() + self._start_timeout_s
        self._launched, self._failure = False, None
        self._cluster.prepare()
        async with self._transition(deadline):
            users = self._try_lock("users", fcntl.LOCK_SH)
            if users is None:
                raise PostgresError(f"{self._lock_path('users')} is locked by another program")
            try:
                await self._cluster.create(timeout_s=_remaining_s(deadline))
                self._passwords = self._cluster.passwords()
                await self._bring_up(deadline)
            except BaseException as error:
                await self._give_up(users, error)
                if isinstance(error, OSError):
                    reason = f"cannot use {self._cluster.home}: {error.strerror}"
                    raise PostgresError(reason) from error
                raise
            self._users = users

    async def keep_up(self) -> None:
        """Bring the server back whenever it is gone, until cancelled.

        A machine short of memory kills the largest process, and nobody else looks after this one.
        """
        while True:
            await asyncio.sleep(_WATCH_S)
            try:
                if self._users is not None and not self.is_running():
                    await self._bring_back()
            except Exception as error:  # also of looking: a process may be short of open files
                extra = {"event": "postgres.waits", "cause": type(error).__name__}
                _log.error("the database server does not come back", extra=extra)

    async def _bring_back(self) -> None:
        _log.warning("the database server is gone", extra={"event": "postgres.gone"})
        deadline = time.monotonic() + self._start_timeout_s
        async with self._transition(deadline):
            await self._bring_up(deadline)
        _log.info("the database server is back", extra={"event": "postgres.back"})

    async def stop(self) -> None:
        """Ends this use; the server stops when it was the last one.

        Raises: PostgresError if the server does not stop.
        """
        users, self._users = self._users, None
        if users is None:
            return
        try:
            # Who holds the transition beyond the timeout is starting, hence a user who stays.
            with contextlib.suppress(_TimedOut):
                async with self._transition(time.monotonic() + self._stop_timeout_s):
                    if lock(users, fcntl.LOCK_EX):
                        await self._server.stop(timeout_s=self._stop_timeout_s)
        finally:
            os.close(users)

    def is_running(self) -> bool:
        """Return true if the server's process exists; says nothing about its health."""
        return self._server.pid() is not None

    async def _bring_up(self, deadline: float) -> None:
        launched = False
        while True:
            server = self._server.lock_if_gone()
            if server is not None:
                try:
                    if launched:
                        await self._pause_or_raise(deadline)
                    launched = self._launched = True
                    await self._server.launch(server, timeout_s=_remaining_s(deadline))
                finally:
                    os.close(server)
            try:
                await self._admit()
            except _NOT_YET as error:
                if time.monotonic() < deadline:
                    await asyncio.sleep(POLL_S)
                    continue
                raise self._overdue(error) from error
            return

    async def _pause_or_raise(self, deadline: float) -> None:
        """Return if the launch that has just failed is worth repeating."""
        reason = self._server.last_words()
        self._failure = PostgresError(
            f"PostgreSQL did not start: {reason} (the log is {self._server.log})"
        )
        if not _LINGERING.search(reason) or time.monotonic() > deadline:
            raise self._failure
        await asyncio.sleep(_RESTART_PAUSE_S)

    def _overdue(self, error: BaseException) -> PostgresError:
        """Return the error to raise when time is up, given how the latest attempt failed."""
        recovering = isinstance(error, asyncpg.CannotConnectNowError)
        if self._failure is not None and not recovering:
            return self._failure
        if self._server.pid() is None:
            return _TimedOut(
                f"processes of an earlier PostgreSQL server still use {self._cluster.folder}: wait "
                f"for them to end or end them (the log is {self._server.log})"
            )
        return _TimedOut(
            f"PostgreSQL accepts no connections after {self._start_timeout_s:.0f} s "
            f"({type(error).__name__}). It goes on starting, after a crash this may take minutes: "
            f"try again later (the log is {self._server.log})"
        )

    async def _admit(self) -> None:
        """Prove by the password that the server is ours, and complete its first start."""
        self._socket_folder = self._server.socket_folder()
        try:
            try:
                connection = await self._connect(DATABASE)
            except asyncpg.InvalidCatalogNameError:
                await self._create_database()
                connection = await self._connect(DATABASE)
            async with _close_after(connection):
                await _update_pgvector(connection)
        except asyncpg.InvalidAuthorizationSpecificationError as error:
            raise PostgresError(
                f"the server in {self._cluster.folder} refuses the password kept in "
                f"{self._cluster.home}: restore both from the same backup"
            ) from error
        except _NOT_YET:
            raise
        except asyncpg.exceptions.PostgresError as error:
            raise PostgresError(
                f"PostgreSQL could not set up its database: {type(error).__name__} "
                f"(the log is {self._server.log})"
            ) from error

    async def _connect(self, database: str) -> Any:
        arguments = {**self.admin_args, "database": database}
        return await asyncpg.connect(**arguments, timeout=_CONNECT_TIMEOUT_S)

    async def _create_database(self) -> None:
        """Create role and database; the latter last, so that its existence means completeness."""
        # pgvector's own scripts need a superuser; in the template it reaches every new database.
        async with _close_after(await self._connect("template1")) as connection:
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            known = await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", APP_ROLE)
            verb = "ALTER" if known else "CREATE"
            # DDL takes no parameters; the password is hexadecimal and statements are not logged.
            await connection.execute(
                f"{verb} ROLE {APP_ROLE} LOGIN PASSWORD '{self._passwords[APP_ROLE]}'"
            )
            await connection.execute(f"CREATE DATABASE {DATABASE} OWNER {APP_ROLE}")

    async def _give_up(self, users: int, error: BaseException) -> None:
        """Leave after a failed or cancelled start; a server that needs longer is left to it."""
        try:
            wanted = isinstance(error, _TimedOut)
            if self._launched and not wanted and lock(users, fcntl.LOCK_EX):
                await self._server.stop(timeout_s=self._stop_timeout_s)
        finally:
            os.close(users)

    def _connect_args(self, role: str) -> dict[str, Any]:
        if not self._passwords:
            raise PostgresError("the embedded PostgreSQL is not started")
        return {
            "host": str(self._socket_folder),
            "port": int(SETTINGS["port"]),
            "user": role,
            "password": self._passwords[role],
            "database": DATABASE,
            "ssl": False,  # PGSSLMODE in the environment may ask for what a socket cannot do
        }

    def _lock_path(self, name: str) -> Path:
        return self._cluster.home / f"{name}.lock"

    def _try_lock(self, name: str, kind: int) -> int | None:
        try:
            return try_lock(self._lock_path(name), kind)
        except OSError as error:  # a disk that can only be read, for instance
            reason = f"cannot use {self._cluster.home}: {error.strerror}"
            raise PostgresError(reason) from error

    @contextlib.asynccontextmanager
    async def _transition(self, deadline: float) -> AsyncIterator[None]:
        while (held := self._try_lock("transition", fcntl.LOCK_EX)) is None:
            if time.monotonic() > deadline:
                raise _TimedOut(
                    f"another process is starting or stopping the PostgreSQL server in "
                    f"{self._cluster.home} and does not finish"
                )
            await asyncio.sleep(POLL_S)
        try:
            yield
        finally:
            os.close(held)


async def check_server(connection: Any) -> None:
    """Check a server that the operator provides (an asyncpg connection to the database in use).

    Raises: PostgresError.
    """
    row = await connection.fetchrow(
        "SELECT default_version, installed_version FROM pg_available_extensions"
        " WHERE name = 'vector'"
    )
    check_versions(
        server_version_num=int(await connection.fetchval("SHOW server_version_num")),
        pgvector_available=row["default_version"] if row else None,
        pgvector_installed=row["installed_version"] if row else None,
    )


def check_versions(
    *, server_version_num: int, pgvector_available: str | None, pgvector_installed: str | None
) -> None:
    """Compare versions with those memrelay needs; pgvector may be available and not created yet.

    Raises: PostgresError.
    """
    wanted = ".".join(map(str, PGVECTOR_VERSION_MIN))
    if server_version_num < SERVER_VERSION_MIN * 10_000:
        raise PostgresError(
            f"the database server is PostgreSQL {server_version_num // 10_000}, memrelay needs "
            f"{SERVER_VERSION_MIN} or later: upgrade it or point RELAYER_DATABASE_URL elsewhere"
        )
    if pgvector_available is None:
        raise PostgresError(
            f"the database server has no pgvector, memrelay needs version {wanted} or later: "
            "install the extension on the server"
        )
    if _parse_version(pgvector_available) < PGVECTOR_VERSION_MIN:
        raise PostgresError(
            f"the database server has pgvector {pgvector_available}, memrelay needs {wanted} or "
            "later: upgrade the extension on the server"
        )
    if pgvector_installed and _parse_version(pgvector_installed) < PGVECTOR_VERSION_MIN:
        raise PostgresError(
            f"the database still uses pgvector {pgvector_installed}, memrelay needs {wanted} or "
            "later: run ALTER EXTENSION vector UPDATE in it"
        )


async def _update_pgvector(connection: Any) -> None:
    """Bring the extension in the database to the version of the installed programs."""
    outdated = await connection.fetchval(
        "SELECT installed_version <> default_version FROM pg_available_extensions"
        " WHERE name = 'vector'"
    )
    if outdated:
        await connection.execute("ALTER EXTENSION vector UPDATE")


@contextlib.asynccontextmanager
async def _close_after(connection: Any) -> AsyncIterator[Any]:
    try:
        yield connection
    finally:
        await connection.close(timeout=_CONNECT_TIMEOUT_S)


def _parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def _remaining_s(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.1)
