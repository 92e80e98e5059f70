"""Bringing a database to the current schema: the numbered revisions, then the job queue's tables.

Not here: the revisions (`migrations/`).
"""

import asyncio
import ssl
from pathlib import Path
from typing import Any, Final

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

import relayer
from relayer.database import queue
from relayer.database.pool import translated
from relayer.postgres.embedded import PostgresError, check_server

LOCK: Final = 7236411


_BACKEND: Final = "SELECT pg_backend_pid()"


async def migrate(connect_args: dict[str, Any]) -> None:
    """Apply what is missing; processes that start together take turns.

    Raises:
        Unavailable: nobody answers.
        PostgresError: it does not let us in, or is not fit for memrelay.
    """
    connection = await _connected(connect_args)
    try:
        await check_server(connection)
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK)
        # Alembic's environment runs its own event loop, so it needs a thread of its own.
        await asyncio.to_thread(_upgrade, connect_args)
        await queue.install(connection)
    finally:
        await connection.close()


async def refuse_pooler(connect_args: dict[str, Any]) -> None:
    """Return if these arguments lead to the server itself.

    A pooler gives each transaction another connection: who waits for notices by it, or holds a
    lock of a session, does so by chance.

    Raises:
        Unavailable: nobody answers.
        PostgresError: it does not let us in, or is a pooler.
    """
    connection = await _connected(connect_args)
    try:
        if await connection.fetchval(_BACKEND) != connection.get_server_pid():
            raise PostgresError(
                "RELAYER_DATABASE_URL leads to a connection pooler: name the server itself, or a "
                "pooler of whole sessions, in RELAYER_DATABASE_DIRECT_URL as well"
            )
    finally:
        await connection.close()


async def _connected(connect_args: dict[str, Any]) -> asyncpg.Connection:
    """A connection of one's own.

    Raises:
        Unavailable: nobody answers.
        PostgresError: waiting will not help: its certificate does not hold, or it lets this user
            in nowhere, or not into that database.
    """
    with translated():
        try:
            return await asyncpg.connect(**connect_args)
        except ssl.CertificateError as error:
            raise PostgresError(f"the database's certificate: {error.verify_message}") from None
        except (
            asyncpg.InvalidAuthorizationSpecificationError,
            asyncpg.InvalidCatalogNameError,
        ) as error:
            raise PostgresError(f"the database refuses us: {type(error).__name__}") from None


async def revision(connect_args: dict[str, Any]) -> str | None:
    """The number of the last revision that a database has; None before the first.

    Raises:
        Unavailable: nobody answers.
        PostgresError: it does not let us in.
    """
    connection = await _connected(connect_args)
    try:
        if await connection.fetchval("SELECT to_regclass('alembic_version')") is None:
            return None
        found: str | None = await connection.fetchval("SELECT version_num FROM alembic_version")
        return found
    finally:
        await connection.close()


def head() -> str:
    """The number of the last revision that this release knows."""
    newest = ScriptDirectory.from_config(_config()).get_current_head()
    assert newest is not None
    return newest


def _upgrade(connect_args: dict[str, Any]) -> None:
    config = _config()
    config.attributes["connect_args"] = connect_args
    command.upgrade(config, "head")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def folder() -> Path:
    """The revisions: inside the installed package, or beside it in a checkout."""
    package = Path(relayer.__file__).parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent / "migrations"
