"""Databases of earlier releases."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from relayer.database import migrate
from relayer.database.upgrade import upgrade
from relayer.postgres.embedded import EmbeddedPostgres


@asynccontextmanager
async def database_at(postgres: EmbeddedPostgres, revision: str) -> AsyncIterator[dict[str, Any]]:
    """How to reach a database of an earlier release."""
    name = f"test_{uuid.uuid4().hex}"
    admin = await asyncpg.connect(**{**postgres.admin_args, "database": "postgres"})
    owner = postgres.connect_args["user"]
    await admin.execute(f'CREATE DATABASE "{name}" OWNER "{owner}"')
    connect_args = {**postgres.connect_args, "database": name}
    await asyncio.to_thread(upgrade, connect_args, folder=migrate.folder(), to=revision)
    yield {"connect_args": connect_args}
    await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await admin.close()
