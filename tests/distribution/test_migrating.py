"""`relayer migrate --distributed`: in order, again, after a kill, and not where it must not."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from relayer.database import distribution, migrate
from relayer.database.distribution import BY_ACCOUNT, BY_KEY, EVERYWHERE
from relayer.database.pool import Database
from relayer.errors import Unavailable
from relayer.identity import make_identity
from relayer.installation import key_path
from relayer.postgres.embedded import EmbeddedPostgres, PostgresError
from relayer.settings import Settings
from relayer.upkeep import doctor
from relayer.upkeep.doctor import OK, PROBLEM
from tests.conftest import TestDatabase
from tests.distribution.cluster import Cluster, coordinator
from tests.older import database_at

UNCHANGEABLE = "take them back to the coordinator"
ALL = [*BY_ACCOUNT, *BY_KEY, *EVERYWHERE]


@pytest_asyncio.fixture
async def cluster(
    postgres: EmbeddedPostgres, fresh_database: TestDatabase
) -> AsyncIterator[Cluster]:
    """This test's database as a coordinator."""
    async with coordinator(postgres, fresh_database.connect_args) as one:
        yield one


@pytest_asyncio.fixture
async def older(postgres: EmbeddedPostgres) -> AsyncIterator[Cluster]:
    """A coordinator with a database of an earlier release."""
    async with database_at(postgres, "0002") as earlier, coordinator(postgres, **earlier) as one:
        yield one


async def run(folder: Path, *arguments: str, url: str = "") -> tuple[int, str, str]:
    """(exit code, output, errors) of `relayer migrate`."""
    environ = os.environ | {"RELAYER_DATA_DIR": str(folder), "RELAYER_DATABASE_URL": url}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "relayer", "migrate", *arguments),
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


class TestTheCommand:
    async def test_lays_out_every_table_once(
        self, cluster: Cluster, fresh_database: TestDatabase, tmp_path: Path
    ) -> None:
        """Twice the same command: the second finds nothing to do."""
        url = fresh_database.url
        first = await run(tmp_path, "--distributed", "--json", url=url)
        again = await run(tmp_path, "--distributed", "--json", url=url)
        assert (first[0], again[0]) == (0, 0), first + again
        assert json.loads(first[1]) == {"schema": migrate.head(), "distributed": ALL}
        assert json.loads(again[1]) == {"schema": migrate.head(), "distributed": []}
        assert await cluster.calls() == [
            *(("accounts", "account_id", "none"),),
            *((table, "account_id", "accounts") for table in BY_ACCOUNT[1:]),
            *(("key_owner", "public_key", "none"),),
            *((table, "public_key", "key_owner") for table in BY_KEY[1:]),
        ]
        assert await cluster.names("everywhere") == list(EVERYWHERE)

    async def test_says_what_keeps_it_from_it(
        self, cluster: Cluster, fresh_database: TestDatabase, tmp_path: Path
    ) -> None:
        await cluster.admin.execute("DELETE FROM pg_dist_node")
        code, output, errors = await run(
            tmp_path, "--distributed", "--json", url=fresh_database.url
        )
        assert (code, output) == (1, "")
        assert "no node of the cluster takes rows" in errors
        assert await cluster.calls() == []

    async def test_wants_another_server_than_its_own(self, tmp_path: Path) -> None:
        code, output, errors = await run(tmp_path / "data", "--distributed")
        assert (code, output) == (2, "")
        assert "--database-url" in errors
        assert not (tmp_path / "data").exists()


class TestRefusals:
    async def refused(self, one: Cluster, message: str) -> None:
        with pytest.raises(PostgresError, match=message):
            await migrate.distribute(one.connect_args)
        assert await one.calls() == []

    async def test_without_the_extension(self, cluster: Cluster) -> None:
        await cluster.admin.execute("DELETE FROM pg_extension WHERE extname = 'citus'")
        await self.refused(cluster, "has no Citus")

    @pytest.mark.parametrize("version", ["12.1-1", "9.5-1", "2.0"])
    async def test_of_an_old_release(
        self, postgres: EmbeddedPostgres, fresh_database: TestDatabase, version: str
    ) -> None:
        args = fresh_database.connect_args
        async with coordinator(postgres, args, version=version) as old:
            await self.refused(old, f"has Citus {version}, memrelay needs 13 or later")

    async def test_on_a_worker(self, cluster: Cluster) -> None:
        await cluster.admin.execute("UPDATE pg_dist_local_group SET groupid = 1")
        await self.refused(cluster, "name the coordinator")
        with pytest.raises(PostgresError, match="name the coordinator"):
            await migrate.migrate(cluster.connect_args)

    async def test_without_any_node(self, cluster: Cluster) -> None:
        """The extension alone makes no cluster: such a database is served as before."""
        await cluster.admin.execute("DELETE FROM pg_dist_node")
        await self.refused(cluster, "no node of the cluster takes rows")
        await migrate.migrate(cluster.connect_args)

    @pytest.mark.parametrize("lacking", ["isactive = false", "shouldhaveshards = false"])
    async def test_without_a_node_for_rows(self, cluster: Cluster, lacking: str) -> None:
        await cluster.admin.execute(f"UPDATE pg_dist_node SET {lacking}")
        await self.refused(cluster, "no node of the cluster takes rows")

    async def test_while_a_relayer_is_connected(self, cluster: Cluster) -> None:
        relayer = await Database.connect(cluster.connect_args, connections=1)
        await self.refused(cluster, "relayers are connected")
        await relayer.close()

    async def test_of_a_table_says_its_name_and_no_more(self, cluster: Cluster) -> None:
        await cluster.admin.execute("CREATE UNIQUE INDEX ON memories (memory_id)")
        with pytest.raises(PostgresError, match=r"did not take memories \(SQLSTATE 0A000;"):
            await migrate.distribute(cluster.connect_args)
        assert (await cluster.names())[-1] == "request_windows"


class TestInterrupted:
    async def half_done(self, one: Cluster) -> None:
        """The session dies as it lays out the vectors."""
        await one.admin.execute("INSERT INTO faults VALUES ('vectors', true)")
        with pytest.raises(Unavailable):
            await migrate.distribute(one.connect_args)
        await one.admin.execute("DELETE FROM faults")

    async def test_goes_on_where_it_was(self, cluster: Cluster) -> None:
        await self.half_done(cluster)
        before = BY_ACCOUNT.index("vectors")
        assert await cluster.names() == list(BY_ACCOUNT[:before])
        done = await migrate.distribute(cluster.connect_args)
        assert done == ALL[before:]
        assert await cluster.names() == [*BY_ACCOUNT, *BY_KEY]

    async def test_nobody_serves_what_is_half_done(self, cluster: Cluster) -> None:
        await self.half_done(cluster)
        with pytest.raises(PostgresError, match="not distributed yet"):
            await migrate.migrate(cluster.connect_args)
        await migrate.distribute(cluster.connect_args)
        await migrate.migrate(cluster.connect_args)

    async def test_what_was_begun_is_finished_before_a_later_revision(self, older: Cluster) -> None:
        """A revision's transaction is short, and does not look whether relayers are connected."""
        await older.admin.execute("INSERT INTO faults VALUES ('vectors', false)")
        connection = await asyncpg.connect(**older.connect_args)
        with pytest.raises(PostgresError, match="did not take vectors"):
            await distribution.distribute(connection)
        await connection.close()
        await older.admin.execute("DELETE FROM faults")
        before = await older.names()
        relayer = await Database.connect(older.connect_args, connections=1)
        with pytest.raises(PostgresError, match="relayers are connected"):
            await migrate.distribute(older.connect_args)
        await relayer.close()
        assert await older.names() == before
        with pytest.raises(PostgresError, match=UNCHANGEABLE):
            await migrate.distribute(older.connect_args)
        assert sorted(await older.names()) == sorted([*BY_ACCOUNT, *BY_KEY])

    async def test_two_at_once_take_turns(self, cluster: Cluster) -> None:
        both = await asyncio.gather(*(migrate.distribute(cluster.connect_args) for _ in range(2)))
        assert sorted(both) == [[], ALL]


class TestWhatIsThere:
    async def test_rows_are_not_left_on_the_coordinator(self, cluster: Cluster) -> None:
        """Last of all, since a table that is referred to from here cannot be emptied."""
        await cluster.admin.execute(
            "INSERT INTO accounts (account_id, whole_id, label, created_at, grant_serial,"
            " receipt_seq, receipt_head) VALUES (0, int8send(0), '', now(), 0, 0, '')"
        )
        await cluster.admin.execute("INSERT INTO grants VALUES (0, 1, '', '', '', now())")
        await migrate.distribute(cluster.connect_args)
        emptied = await cluster.names("empty")
        assert emptied == ["nonces", "grants", "accounts"]  # there is always the row of crashes
        order = await cluster.admin.fetch("SELECT what FROM calls ORDER BY n")
        assert [r["what"] for r in order[-3:]] == ["empty"] * 3

    async def test_nonces_outlive_the_crash_of_one_node(self, cluster: Cluster) -> None:
        how = "SELECT relpersistence::text FROM pg_class WHERE relname = 'nonces'"
        assert await cluster.admin.fetchval(how) == "u"
        await migrate.distribute(cluster.connect_args)
        assert await cluster.admin.fetchval(how) == "p"


class TestLaterRevisions:
    """On a database that was distributed by an earlier release."""

    async def distributed(self, one: Cluster) -> None:
        """What that release had."""
        connection = await asyncpg.connect(**one.connect_args)
        await distribution.distribute(connection)
        await connection.close()
        await one.admin.execute("TRUNCATE calls")

    async def test_lay_out_what_they_make(self, older: Cluster) -> None:
        await self.distributed(older)
        with pytest.raises(PostgresError, match=UNCHANGEABLE):
            await migrate.migrate(older.connect_args)
        made = ["links", "webhooks", "webhook_events", "consolidations"]
        assert await older.names() == [
            *made,
            "consolidation_actions",
            "index_steps",
            "lasting_objects",
            "key_uses",
            "memory_recalls",
        ]
        assert await older.names("everywhere") == ["unlock_keys"]

    async def test_change_no_column_by_which_rows_lie(self, older: Cluster) -> None:
        """All before that are applied, and the release before goes on with these."""
        await self.distributed(older)
        for change in (migrate.migrate, migrate.distribute):
            with pytest.raises(PostgresError, match=UNCHANGEABLE):
                await change(older.connect_args)
            assert await migrate.revision(older.connect_args) == "0026"
        await older.admin.execute("DELETE FROM pg_dist_partition")  # as undistribute_table does
        assert set(await migrate.distribute(older.connect_args)) == set(ALL)
        assert await migrate.revision(older.connect_args) == migrate.head()

    async def test_are_undone_with_what_they_could_not_lay_out(self, older: Cluster) -> None:
        await self.distributed(older)
        await older.admin.execute("INSERT INTO faults VALUES ('webhooks', false)")
        with pytest.raises(PostgresError, match="did not take webhooks"):
            await migrate.migrate(older.connect_args)
        assert await migrate.revision(older.connect_args) == "0002"
        assert await older.calls() == []
        await older.admin.execute("DELETE FROM faults")
        with pytest.raises(PostgresError, match=UNCHANGEABLE):
            await migrate.migrate(older.connect_args)
        assert "webhooks" in await older.names()

    async def test_leave_a_cluster_alone_that_holds_nothing_yet(self, older: Cluster) -> None:
        await migrate.migrate(older.connect_args)
        assert await migrate.revision(older.connect_args) == migrate.head()
        assert await older.calls() == []


class TestDoctor:
    async def finding(self, settings: Settings) -> doctor.Finding | None:
        make_identity(key_path(settings))
        found = {f["check"]: f for f in await doctor.examine(settings)}
        return found.get("cluster")

    async def test_has_nothing_to_say_without_citus(self, settings: Settings) -> None:
        assert await self.finding(settings) is None

    async def test_counts_tables_and_nodes(
        self, settings: Settings, postgres: EmbeddedPostgres, fresh_database: TestDatabase
    ) -> None:
        async with coordinator(postgres, fresh_database.connect_args) as one:
            nothing = await self.finding(settings)
            assert nothing is not None
            assert (nothing["state"], nothing["detail"]) == (OK, "0 tables over 2 nodes")
            await one.admin.execute("TRUNCATE nonces")
            await migrate.distribute(one.connect_args)
            found = await self.finding(settings)
            assert found is not None
            assert (found["state"], found["detail"]) == (OK, f"{len(ALL)} tables over 2 nodes")

    async def test_names_a_table_that_was_left_out(
        self, settings: Settings, postgres: EmbeddedPostgres, fresh_database: TestDatabase
    ) -> None:
        async with coordinator(postgres, fresh_database.connect_args) as one:
            await one.admin.execute("TRUNCATE nonces")
            await migrate.distribute(one.connect_args)
            await one.admin.execute(
                "DELETE FROM pg_dist_partition WHERE logicalrelid = 'links'::regclass"
            )
            found = await self.finding(settings)
            assert found is not None
            assert found["state"] == PROBLEM
            assert found["detail"].endswith("; not distributed: links")
            assert found["command"] == "relayer migrate --distributed"

    async def test_names_a_table_whose_old_rows_are_still_there(
        self, settings: Settings, postgres: EmbeddedPostgres, fresh_database: TestDatabase
    ) -> None:
        async with coordinator(postgres, fresh_database.connect_args) as one:
            await migrate.distribute(one.connect_args)
            found = await self.finding(settings)
            assert found is not None
            assert found["state"] == PROBLEM
            assert found["detail"].endswith("; old rows still on the coordinator: nonces")
