"""A relayer whose database is set back to yesterday beside the blobs of today."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from relayer.database.pool import Database
from relayer.journal.outbox import GRACE
from relayer.sealed.keys import AccountId
from relayer.storage import replay_on
from relayer.upkeep.provision import NewKey
from tests.conftest import BenchMaker
from tests.services import Bench

TABLES = (
    "accounts", "namespaces", "namespace_keys", "memories", "postings", "links", "receipts",
    "tombstones", "episodes", "grants", "key_owner", "idempotency",
)  # fmt: skip
NOTES = "SELECT t::text FROM blob_outbox t"


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


async def set_back(bench: Bench, database: Database, saved: dict[str, list[Any]]) -> Bench:
    """A relayer that starts on this backup, and has caught up."""
    await put_back(database, saved)
    started = bench.another()
    await catch_up(started)
    return started


async def restarted(bench: Bench, founder: NewKey) -> Bench:
    """A relayer that has started and given memories their rows."""
    started = bench.another()
    await catch_up(started)
    keys = await started.storage.custody.job_keys(founder.account)
    assert keys is not None
    await started.services.restore.complete(founder.account, keys)
    return started


async def snapshot(database: Database) -> dict[str, list[Any]]:
    return await backup(database) | {"blob_outbox": await database.fetch(NOTES)}


def take_within_a_put(
    bench: Bench, database: Database, monkeypatch: pytest.MonkeyPatch
) -> dict[str, list[Any]]:
    """What the next put of this relayer fills with the tables as they are by then."""
    saved: dict[str, list[Any]] = {}
    put_many = bench.storage.blobs.put_many

    async def put_and_save(account: AccountId, blobs: Mapping[str, bytes]) -> None:
        await put_many(account, blobs)
        if not saved:
            saved.update(await snapshot(database))

    monkeypatch.setattr(bench.storage.blobs, "put_many", put_and_save)
    return saved


async def serve_for_a_while(started: Bench, founder: NewKey) -> None:
    """Beyond the grace of everything that was being put."""
    started.clock.advance(GRACE.total_seconds() + 60)
    await started.storage.outbox.empty()
    await started.services.collector.collect()
    keys = await started.storage.custody.job_keys(founder.account)
    assert keys is not None
    await started.services.restore.complete(founder.account, keys)
