"""A relayer on a PostgreSQL server of the operator's: reached safely or not at all."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from relayer.clock import utc_now
from relayer.database.pool import Database
from relayer.errors import Unavailable
from relayer.postgres.embedded import PostgresError
from relayer.settings import Settings, SettingsError
from relayer.storage import opened
from relayer.upkeep import check, provision
from tests.conftest import TestDatabase
from tests.own_server import OwnServer, other_authority, own_server


@pytest.fixture
def server(fresh_database: TestDatabase, tmp_path: Path) -> Iterator[OwnServer]:
    with own_server(fresh_database.connect_args, tmp_path) as running:
        yield running


def settings(folder: Path, url: str, **changed: object) -> Settings:
    return Settings(data_dir=folder, database_url=url, **changed)  # type: ignore[arg-type]


async def test_it_is_reached_by_tls_with_everything_checked(
    server: OwnServer, tmp_path: Path
) -> None:
    async with opened(settings(tmp_path, server.url())) as storage:
        await provision.create_account(storage, label="own", custody="sealed", clock=utc_now)
        assert (await check.check(storage)).ok
    assert server.encrypted > 1
    assert server.refused == []


async def test_another_authority_is_not_believed(server: OwnServer, tmp_path: Path) -> None:
    url = server.url(sslmode="verify-full", sslrootcert=str(other_authority(tmp_path)))
    with pytest.raises(PostgresError, match="certificate"):
        async with opened(settings(tmp_path, url)):
            pytest.fail("it was reached")


async def test_another_name_is_not_believed(server: OwnServer, tmp_path: Path) -> None:
    options = {"sslmode": "verify-full", "sslrootcert": str(server.authority)}
    with pytest.raises(PostgresError, match="certificate"):
        async with opened(settings(tmp_path, server.url(host="localhost", **options))):
            pytest.fail("it was reached")


async def test_a_server_that_wants_tls_is_not_reached_without(
    server: OwnServer, tmp_path: Path
) -> None:
    with pytest.raises(PostgresError, match="refuses us"):
        async with opened(settings(tmp_path, server.url(sslmode="disable"))):
            pytest.fail("it was reached")
    assert (len(server.refused), server.encrypted) == (1, 0)


async def test_another_password_is_refused(server: OwnServer, tmp_path: Path) -> None:
    url = server.url().replace(server.connect_args["password"], os.urandom(8).hex())
    with pytest.raises(PostgresError, match="refuses us"):
        async with opened(settings(tmp_path, url)):
            pytest.fail("it was reached")


async def test_a_pooler_is_noticed_and_wants_the_server_named(
    fresh_database: TestDatabase, tmp_path: Path
) -> None:
    with own_server(fresh_database.connect_args, tmp_path, renames=True) as pooler:
        with pytest.raises(PostgresError, match="RELAYER_DATABASE_DIRECT_URL"):
            async with opened(settings(tmp_path, pooler.url())):
                pytest.fail("it went on")
        past = settings(tmp_path, pooler.url(), database_direct_url=fresh_database.url)
        async with opened(past) as storage:
            assert (await check.check(storage)).ok
            prepared = await storage.database.fetchrow(
                "SELECT count(*) AS left_behind FROM pg_prepared_statements"
            )
            assert prepared is not None
            assert prepared["left_behind"] == 0


async def test_a_statement_that_takes_too_long_is_given_up(server: OwnServer) -> None:
    database = await Database.connect({"dsn": server.url()}, connections=2, timeout_s=8.0)
    try:
        with pytest.raises(Unavailable):
            await database.execute("SELECT pg_sleep(300)")
        assert await database.fetchrow("SELECT 1") is not None
    finally:
        await database.close()


@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
def test_a_deadline_is_needed(tmp_path: Path, timeout_s: float) -> None:
    with pytest.raises(SettingsError, match="RELAYER_DATABASE_TIMEOUT_S"):
        settings(tmp_path, "", database_timeout_s=timeout_s)


def test_past_a_pooler_there_has_to_be_a_pooler(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="RELAYER_DATABASE_URL"):
        settings(tmp_path, "", database_direct_url="postgresql://here/memrelay")
