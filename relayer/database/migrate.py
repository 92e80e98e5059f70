"""Bringing a database to the current schema: the numbered revisions, then the job queue's tables.

Not here: the revisions (`migrations/`).
"""

import asyncio
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


async def migrate(connect_args: dict[str, Any], url: str) -> None:
    """Apply what is missing; processes that start together take turns.

    Raises:
        Unavailable: nobody answers.
    """
    with translated():
        connection = await asyncpg.connect(**connect_args)
    try:
        await check_server(connection)
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK)
        # Alembic's environment runs its own event loop, so it needs a thread of its own.
        await asyncio.to_thread(_upgrade, url)
        await queue.install(connection)
    finally:
        await connection.close()


async def revision(connect_args: dict[str, Any]) -> str | None:
    """The number of the last revision that a database has; None before the first.

    Raises:
        Unavailable: nobody answers.
        PostgresError: it lets this user in nowhere, or not into that database.
    """
    try:
        with translated():
            connection = await asyncpg.connect(**connect_args)
    except (
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InvalidCatalogNameError,
    ) as error:
        raise PostgresError(f"the database refuses us: {type(error).__name__}") from None
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


def _upgrade(url: str) -> None:
    config = _config()
    config.attributes["url"] = url
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
