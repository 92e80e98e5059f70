"""Bringing a database to the current schema: the numbered revisions, then the job queue's tables.

Not here: the revisions (`migrations/`).
"""

import asyncio
from pathlib import Path
from typing import Any, Final

import asyncpg
from alembic import command
from alembic.config import Config

import relayer
from relayer.database import queue
from relayer.database.pool import translated
from relayer.postgres.embedded import check_server

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


def _upgrade(url: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["url"] = url
    command.upgrade(config, "head")


def folder() -> Path:
    """The revisions: inside the installed package, or beside it in a checkout."""
    package = Path(relayer.__file__).parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent / "migrations"
