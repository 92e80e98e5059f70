"""A relayer on a PostgreSQL server of the operator's: reached safely or not at all."""

import asyncio
import os
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from alembic import command
from alembic.config import Config

from relayer.clock import utc_now
from relayer.database.migrate import LOCK, folder, migrate
from relayer.database.pool import Database
from relayer.errors import Unavailable
from relayer.installation import open_storage
from relayer.postgres.embedded import EmbeddedPostgres, PostgresError
from relayer.settings import Settings, SettingsError
from relayer.upkeep import check, provision
from tests.conftest import TestDatabase, database_copy
from tests.own_server import OwnServer, other_authority, own_server

# Whether somebody has waited for a lock of the session for longer than a deadline of 50 ms.
WAITED_LONG = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
AND wait_event = 'advisory' AND now() - query_start > interval '200 ms'
"""


@pytest.fixture
def server(fresh_database: TestDatabase, tmp_path: Path) -> Iterator[OwnServer]:
    with own_server(fresh_database.connect_args, tmp_path) as running:
        yield running


def settings(folder: Path, url: str, **changed: Any) -> Settings:
    return Settings(data_dir=folder, database_url=url, **changed)


async def test_it_is_reached_by_tls_with_everything_checked(
    server: OwnServer, tmp_path: Path
) -> None:
    async with open_storage(settings(tmp_path, server.url())) as storage:
        await provision.create_account(storage, label="own", custody="sealed", clock=utc_now)
        assert (await check.check(storage)).ok
    assert server.encrypted > 1
    assert server.refused == []


async def test_another_authority_is_not_believed(server: OwnServer, tmp_path: Path) -> None:
    url = server.url(sslmode="verify-full", sslrootcert=str(other_authority(tmp_path)))
    with pytest.raises(PostgresError, match="certificate"):
        async with open_storage(settings(tmp_path, url)):
            pytest.fail("it was reached")


async def test_another_name_is_not_believed(server: OwnServer, tmp_path: Path) -> None:
    options = {"sslmode": "verify-full", "sslrootcert": str(server.authority)}
    with pytest.raises(PostgresError, match="certificate"):
        async with open_storage(settings(tmp_path, server.url(host="localhost", **options))):
            pytest.fail("it was reached")


async def test_a_server_that_wants_tls_is_not_reached_without(
    server: OwnServer, tmp_path: Path
) -> None:
    with pytest.raises(PostgresError, match="refuses us"):
        async with open_storage(settings(tmp_path, server.url(sslmode="disable"))):
            pytest.fail("it was reached")
    assert (len(server.refused), server.encrypted) == (1, 0)


async def test_another_password_is_refused(server: OwnServer, tmp_path: Path) -> None:
    url = server.url().replace(server.connect_args["password"], os.urandom(8).hex())
    with pytest.raises(PostgresError, match="refuses us"):
        async with open_storage(settings(tmp_path, url)):
            pytest.fail("it was reached")


async def test_a_pooler_is_noticed_and_wants_the_server_named(
    fresh_database: TestDatabase, tmp_path: Path
) -> None:
    with own_server(fresh_database.connect_args, tmp_path, renames=True) as pooler:
        with pytest.raises(PostgresError, match="RELAYER_DATABASE_DIRECT_URL"):
            async with open_storage(settings(tmp_path, pooler.url())):
                pytest.fail("it went on")
        past = settings(tmp_path, pooler.url(), database_direct_url=fresh_database.url)
        async with open_storage(past) as storage:
            assert (await check.check(storage)).ok
            prepared = await storage.database.fetchrow(
                "SELECT count(*) AS left_behind FROM pg_prepared_statements"
            )
            assert prepared is not None
            assert prepared["left_behind"] == 0


async def test_two_urls_lead_to_one_database(
    postgres: EmbeddedPostgres, template: str, fresh_database: TestDatabase, tmp_path: Path
) -> None:
    direct = settings(tmp_path, fresh_database.url, database_direct_url=fresh_database.url)
    async with open_storage(direct):
        pass
    async with database_copy(postgres, template) as other:
        with pytest.raises(PostgresError, match="lead to two databases"):
            async with open_storage(replace(direct, database_url=other.url)):
                pytest.fail("it writes into one and works in the other")


class TestAStartThatTheDatabaseRefuses:
    """One sentence says what to do."""

    @pytest.fixture
    async def admin(
        self, postgres: EmbeddedPostgres, fresh_database: TestDatabase
    ) -> AsyncIterator[asyncpg.Connection]:
        arguments = postgres.admin_args | {"database": fresh_database.connect_args["database"]}
        connection = await asyncpg.connect(**arguments)
        yield connection
        await connection.close()

    @pytest.fixture
    async def guest(self, admin: asyncpg.Connection) -> AsyncIterator[str]:
        """A user who owns nothing."""
        name = f"guest_{secrets.token_hex(4)}"
        await admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
        yield name
        await admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")

    @staticmethod
    def url_of(database: TestDatabase, user: str) -> str:
        return re.sub("//.*?@", f"//{user}:secret@", database.url)

    async def test_a_user_who_may_read_nothing(
        self, fresh_database: TestDatabase, guest: str, tmp_path: Path
    ) -> None:
        with pytest.raises(PostgresError, match=r"permission denied.*GRANT CREATE"):
            async with open_storage(settings(tmp_path, self.url_of(fresh_database, guest))):
                pytest.fail("it starts")

    async def test_a_user_who_may_make_no_table(
        self,
        admin: asyncpg.Connection,
        fresh_database: TestDatabase,
        guest: str,
        tmp_path: Path,
    ) -> None:
        await admin.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await admin.execute("GRANT USAGE ON SCHEMA public TO public")
        with pytest.raises(PostgresError, match=r"permission denied.*CREATE EXTENSION vector"):
            async with open_storage(settings(tmp_path, self.url_of(fresh_database, guest))):
                pytest.fail("it starts")

    async def test_a_table_that_another_session_keeps(
        self, admin: asyncpg.Connection, fresh_database: TestDatabase, tmp_path: Path
    ) -> None:
        await asyncio.to_thread(downgrade, fresh_database.connect_args, "0008")
        async with admin.transaction():
            await admin.execute("LOCK TABLE tombstones IN ACCESS SHARE MODE")
            with pytest.raises(PostgresError, match=r"lock timeout.*such as a dump"):
                async with open_storage(settings(tmp_path, fresh_database.url)):
                    pytest.fail("it starts")
        async with open_storage(settings(tmp_path, fresh_database.url)):
            pass

    async def test_who_migrates_is_waited_for_beyond_the_users_own_deadline(
        self, admin: asyncpg.Connection, fresh_database: TestDatabase, tmp_path: Path
    ) -> None:
        database = fresh_database.connect_args["database"]
        for name in ("statement_timeout", "lock_timeout"):
            await admin.execute(f"ALTER DATABASE {database} SET {name} = '50ms'")
        await admin.execute("SELECT pg_advisory_lock($1)", LOCK)
        starting = asyncio.create_task(migrate(fresh_database.connect_args))
        while not await admin.fetchval(WAITED_LONG):
            assert not starting.done(), starting.result()
            await asyncio.sleep(0.01)
        await admin.execute("SELECT pg_advisory_unlock($1)", LOCK)
        await starting

    @pytest.mark.parametrize(
        ("changed", "why"),
        [
            (
                ("//[^@]*@", "//memrelay:wrong@"),
                'password authentication failed for user "memrelay"',
            ),
            (("/[a-z0-9_]+[?]", "/none?"), 'database "none" does not exist'),
        ],
        ids=["password", "database"],
    )
    async def test_a_pooler_that_does_not_let_us_in(
        self, fresh_database: TestDatabase, tmp_path: Path, changed: tuple[str, str], why: str
    ) -> None:
        url = fresh_database.url
        wrong = settings(tmp_path, re.sub(*changed, url), database_direct_url=url)
        with pytest.raises(PostgresError, match=f"refuses us: {why}"):
            async with open_storage(wrong):
                pytest.fail("it starts")

    async def test_a_database_that_another_application_has_migrated(
        self, admin: asyncpg.Connection, fresh_database: TestDatabase, tmp_path: Path
    ) -> None:
        await admin.execute("UPDATE alembic_version SET version_num = '00a5ea83b712'")
        with pytest.raises(PostgresError, match=r"another application, 00a5ea83b712: name a"):
            async with open_storage(settings(tmp_path, fresh_database.url)):
                pytest.fail("it starts")

    async def test_a_database_that_has_somebody_elses_tables(
        self, admin: asyncpg.Connection, fresh_database: TestDatabase, tmp_path: Path
    ) -> None:
        await admin.execute("DROP TABLE alembic_version")
        with pytest.raises(PostgresError, match=r'no relayer.*"accounts" already exists\. Nothing'):
            async with open_storage(settings(tmp_path, fresh_database.url)):
                pytest.fail("it starts")

    async def test_what_a_server_hints_at_does_not_break_the_sentence(
        self, admin: asyncpg.Connection, fresh_database: TestDatabase, guest: str, tmp_path: Path
    ) -> None:
        await admin.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await admin.execute(f"GRANT ALL ON SCHEMA public TO {guest}")
        with pytest.raises(
            PostgresError, match='permission denied to create extension "vector"\\. I'
        ):
            async with open_storage(settings(tmp_path, self.url_of(fresh_database, guest))):
                pytest.fail("it starts")


class TestAUrlThatLeadsNowhere:
    """Why is told, and nothing that may be a password."""

    PASSWORD = "8c0e1f77"

    async def refusal(self, folder: Path, rest: str) -> str:
        url = f"postgresql://memrelay:{self.PASSWORD}@{rest}"
        with pytest.raises((PostgresError, Unavailable)) as raised:
            async with open_storage(settings(folder, url)):
                pytest.fail("it starts")
        assert self.PASSWORD not in str(raised.value)
        return str(raised.value)

    @pytest.mark.parametrize(
        ("rest", "why"),
        [
            ("127.0.0.1:1/memrelay", "at 127.0.0.1:1 is away: Connection refused."),
            ("nowhere.invalid/memrelay", "at nowhere.invalid is away: "),
            ("/memrelay?host=/nowhere", "at /nowhere is away: No such file or directory."),
            ("127.0.0.1:port/memrelay", "malformed: postgresql://USER:PASSWORD@HOST:PORT/NAME"),
            ("127.0.0.1:1/memrelay?sslmode=full", "`sslmode` parameter must be one of"),
            (
                "127.0.0.1:1/memrelay?sslmode=verify-full&sslrootcert=/nowhere",
                "sslrootcert names a file that cannot be read: /nowhere",
            ),
        ],
    )
    async def test_it_says_what_is_wrong(self, tmp_path: Path, rest: str, why: str) -> None:
        assert why in await self.refusal(tmp_path, rest)

    async def test_who_checks_certificates_has_to_name_whose(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        said = await self.refusal(tmp_path, "127.0.0.1:1/memrelay?sslmode=verify-full")
        assert "\n" not in said
        assert "&sslrootcert=PATH" in said

    async def test_what_a_server_does_not_know_is_named(
        self, fresh_database: TestDatabase, tmp_path: Path
    ) -> None:
        url = f"{fresh_database.url}&channel_binding=require"
        with pytest.raises(PostgresError, match='parameter "channel_binding": leave that out'):
            async with open_storage(settings(tmp_path, url)):
                pytest.fail("it starts")

    async def test_a_server_without_tls_is_told_from_one_that_is_away(self, tmp_path: Path) -> None:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(8)
            writer.write(b"N")
            writer.close()

        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            said = await self.refusal(tmp_path, f"127.0.0.1:{port}/memrelay?sslmode=require")
        assert said == f"The database at 127.0.0.1:{port} is away: it has no TLS."


def downgrade(connect_args: dict[str, Any], to: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(folder()))
    config.set_main_option("path_separator", "os")
    config.attributes["connect_args"] = connect_args
    command.downgrade(config, to)


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
