"""A relayer whose database is set back to yesterday beside the blobs of today."""

from pathlib import Path
from typing import Any

import pytest

from relayer.database.pool import Database
from relayer.storage import replay_on
from relayer.upkeep.provision import NewKey
from tests.conftest import BenchMaker
from tests.services import Bench

TABLES = (
    "accounts", "namespaces", "namespace_keys", "memories", "postings", "links", "receipts",
    "tombstones", "episodes", "grants", "key_owner", "idempotency",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def bench(make_bench: BenchMaker, folder: Path) -> Bench:
    """A relayer whose blobs outlive its database."""
    return make_bench(blob_store=f"file:{folder}")


async def catch_up(bench: Bench) -> None:
    """What a relayer does before it answers anybody."""
    await replay_on(bench.storage, bench.clock).catch_up()


async def backup(database: Database) -> dict[str, list[Any]]:
    return {table: await database.fetch(f'SELECT t::text FROM "{table}" t') for table in TABLES}


async def put_back(database: Database, saved: dict[str, list[Any]]) -> None:
    tables = ", ".join((*TABLES, "vectors", "blobs", "blob_outbox", "index_steps"))
    await database.execute(f"TRUNCATE {tables} CASCADE")
    for table, rows in saved.items():
        await database.execute(
            f'INSERT INTO "{table}" SELECT (t::"{table}").* FROM unnest($1::text[]) t',
            [r[0] for r in rows],
        )


async def restarted(bench: Bench, founder: NewKey) -> Bench:
    """A relayer that has started and given memories their rows."""
    started = bench.another()
    await catch_up(started)
    keys = await started.storage.custody.job_keys(founder.account)
    assert keys is not None
    await started.services.restore.complete(founder.account, keys)
    return started
