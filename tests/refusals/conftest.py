"""One relayer with a few accounts, shared by everything here: refusals change nothing."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from relayer.postgres.embedded import EmbeddedPostgres
from tests.conftest import TestDatabase, database_copy
from tests.processes import RunningRelayer, running_relayer
from tests.refusals.world import World

QUIET = {"RELAYER_EMBEDDER": "none", "RELAYER_RATE_LIMIT": "off"}
# What a refused request may leave behind: that it came, never what it said; and who is there. When
# keys asked is stored once a minute, also of requests that passed before.
COUNTERS = {
    "nonces",
    "nonces_ahead",
    "nonce_floor",
    "request_windows",
    "unlock_keys",
    "key_uses",
}


@dataclass(frozen=True)
class Desk:
    """The relayer, the accounts, and a look into the database beside it."""

    world: World
    relayer: RunningRelayer
    database: TestDatabase

    async def stored(self) -> dict[str, Any]:
        """Number and content of the rows of every table but the counters."""
        connection = await asyncpg.connect(**self.database.connect_args)
        try:
            tables = await connection.fetch(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            )
            found = {}
            for name in {row["tablename"] for row in tables} - COUNTERS:
                found[name] = await connection.fetchval(
                    f'SELECT (count(*), sum(hashtextextended(t::text, 0)))::text FROM "{name}" t'
                )
            return found
        finally:
            await connection.close()


@pytest_asyncio.fixture(scope="package")
async def desk(
    postgres: EmbeddedPostgres, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Desk]:
    folder: Path = tmp_path_factory.mktemp("refusals")
    async with database_copy(postgres, template) as copy:
        with running_relayer(folder / "data", folder, database_url=copy.url, **QUIET) as relayer:
            yield Desk(await World.of(relayer), relayer, copy)
