"""A backup taken while agents write, and a relayer made of it somewhere else.

Not here: copying blobs (`test_transfer.py`), what a database set back repeats (`test_replay.py`).

- Real relayers on the embedded PostgreSQL, the real client, the commands an operator types.
"""

import asyncio
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from memrelay import SyncMemoryClient
from relayer.clock import utc_now
from relayer.database.migrate import LOCK, has_tables, restore_statement
from relayer.installation import NotInstalled, as_found, open_storage
from relayer.postgres.dump import dump, load, without_password
from relayer.postgres.embedded import EmbeddedPostgres, PostgresError
from relayer.postgres.programs import find_binaries
from relayer.settings import Settings
from relayer.upkeep import provision
from relayer.upkeep.backup import BackupError, Manifest, create, restore
from tests.conftest import TestDatabase, database_copy
from tests.forked import forked
from tests.life import WAIT_S_MAX, until
from tests.optional import unwrap
from tests.processes import RunningRelayer, client, create_account, lasting_port, running_relayer

TEAM = "team"
KEPT = "The cellar key is under the mat."
FORGOTTEN_BEFORE, FORGOTTEN_SINCE = "Anna owes Benjamin ten.", "Dora has the ladder."
WRITTEN_SINCE = "Clara came late."
WRITTEN_MAX = 90  # no more than one recall gives back


@dataclass
class Lost:
    """An installation that was backed up and is gone, and the client that used it."""

    folder: Path
    model_dir: Path
    outside: bool  # its blobs were in a folder of their own, not in the database
    port: str
    account: dict[str, Any]
    agent: SyncMemoryClient
    environment: dict[str, str]
    acknowledged: set[str] = field(default_factory=set)
    before: set[str] = field(default_factory=set)  # acknowledged before the backup began

    @property
    def backup(self) -> Path:
        return self.folder / "backup"

    def command(self, *arguments: str, data: Path, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
        """What a command prints, run on a data folder; it must end with such an exit code."""
        done = forked(
            *("relayer", *arguments, "--data-dir", str(data), "--json"),
            env=self.environment | store(self.folder, "copy", outside=self.outside),
            timeout_s=WAIT_S_MAX,
        )
        assert done.returncode in codes, done.stderr
        told: dict[str, Any] = json.loads(done.stdout) if done.stdout else {"said": done.stderr}
        return told

    def home(self, name: str, *, key: bool = True) -> Path:
        """An empty data folder, with the relayer's key in it."""
        home = self.folder / name
        home.mkdir(mode=0o700)
        if key:
            shutil.copy2(self.folder / "safe/relayer.key", home / "relayer.key")
        return home


def store(folder: Path, name: str, *, outside: bool) -> dict[str, str]:
    return {"RELAYER_BLOB_STORE": f"file:{folder / name}"} if outside else {}


def texts(agent: SyncMemoryClient, query: str) -> set[str]:
    found = agent.recall(query, namespace=TEAM, limit=100, mode="keyword")
    return {unwrap(one.text) for one in found.results}


@contextmanager
def writing(relayer: RunningRelayer, lost: Lost) -> Iterator[Callable[[int], None]]:
    """An agent that goes on writing; gives what waits until so many are acknowledged."""
    stop = threading.Event()

    def write() -> None:
        with client(lost.account, relayer.url) as agent:
            for number in range(1, WRITTEN_MAX + 1):
                if stop.is_set():
                    return
                text = f"Crate {number} stands in row {number * 7}."
                agent.remember(text, namespace=TEAM)
                lost.acknowledged.add(text)

    def wait_for(number: int) -> None:
        until(lambda: written.done() or len(lost.acknowledged) >= number, "the agent writes")
        if written.done():
            written.result()  # what went wrong there goes wrong here
        assert len(lost.acknowledged) >= number

    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(write)
        try:
            yield wait_for
        finally:
            stop.set()
        written.result()


@pytest.fixture(scope="module", params=["inside", "outside"])
def lost(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, model_dir: Path
) -> Iterator[Lost]:
    """Written to, backed up meanwhile, written to again, and destroyed but for copies and key."""
    folder, outside = tmp_path_factory.mktemp("lost"), request.param == "outside"
    data, port = folder / "data", str(lasting_port())
    with ExitStack() as last:
        blobs = store(folder, "blobs", outside=outside)
        with running_relayer(data, model_dir, "--port", port, **blobs) as relayer:
            account = create_account(relayer, "sealed")
            agent = last.enter_context(client(account, relayer.url))
            lost = Lost(folder, model_dir, outside, port, account, agent, relayer.environment)
            _fill(lost, relayer)
            if outside:
                copied = relayer.command("blobs", "copy", "--to", f"file:{folder / 'copy'}")
                assert copied["ok"]
        (folder / "safe").mkdir(mode=0o700)
        shutil.move(data / "relayer.key", folder / "safe/relayer.key")
        shutil.rmtree(data)
        shutil.rmtree(folder / "blobs", ignore_errors=True)
        yield lost


def _fill(lost: Lost, relayer: RunningRelayer) -> None:
    lost.agent.remember(KEPT, namespace=TEAM)
    early = lost.agent.remember(FORGOTTEN_BEFORE, namespace=TEAM)
    late = lost.agent.remember(FORGOTTEN_SINCE, namespace=TEAM)
    lost.agent.forget(early.id)
    with writing(relayer, lost) as wait_for:
        wait_for(10)
        lost.before = {KEPT, *lost.acknowledged}
        made = relayer.command("backup", "create", str(lost.backup))
        wait_for(min(WRITTEN_MAX, len(lost.before) + 3))
    assert made["blobs_inside"] is not lost.outside
    lost.agent.remember(WRITTEN_SINCE, namespace=TEAM)
    lost.agent.forget(late.id)
    lost.agent.receipts()


def test_a_restored_relayer_has_what_was_acknowledged_and_not_what_was_forgotten(
    lost: Lost,
) -> None:
    home = lost.home("restored")
    told = lost.command("backup", "restore", str(lost.backup), data=home)
    assert told["relayer_key"] == lost.account["relayer_key"]
    blobs = store(lost.folder, "copy", outside=lost.outside)
    with running_relayer(home, lost.model_dir, "--port", lost.port, **blobs):
        assert lost.before <= texts(lost.agent, "crate") | texts(lost.agent, "cellar key")
        assert FORGOTTEN_BEFORE not in texts(lost.agent, FORGOTTEN_BEFORE)
        if lost.outside:  # the copy of the blobs is younger than the database, and tells the rest
            until(lambda: WRITTEN_SINCE in texts(lost.agent, WRITTEN_SINCE), "the rest comes back")
            until(lambda: lost.acknowledged <= texts(lost.agent, "crate"), "all of it")
            assert FORGOTTEN_SINCE not in texts(lost.agent, FORGOTTEN_SINCE)
        else:  # nothing but the backup tells anything
            assert WRITTEN_SINCE not in texts(lost.agent, WRITTEN_SINCE)
            assert FORGOTTEN_SINCE in texts(lost.agent, FORGOTTEN_SINCE)
        lost.agent.remember("Everything goes on.", namespace=TEAM)
        # Who followed the history sees that it was set back, whatever came behind it since.
        found = {finding.what for finding in lost.agent.verify().findings}
        assert found & {"rollback", "fork"}
        until(lambda: lost.command("check", data=home, codes=(0, 1))["ok"], "all is whole")
    refused = lost.command("backup", "restore", str(lost.backup), data=home, codes=(1,))
    assert "holds tables already" in refused["said"]


def test_a_store_that_is_not_that_of_the_backup_is_told(lost: Lost) -> None:
    """An empty folder may be a disk that is not mounted: it may be put in its place later."""
    home = lost.home("misplaced")
    done = forked(
        *("relayer", "backup", "restore", str(lost.backup), "--data-dir", str(home), "--json"),
        env=lost.environment | store(lost.folder, "wrong", outside=True),
        timeout_s=WAIT_S_MAX,
    )
    assert done.returncode == 1
    if not lost.outside:
        assert "Its blobs are in the database" in done.stderr
        return
    assert "has none of its blobs" in done.stderr
    assert f"relayer check --data-dir {home}" in done.stderr
    copy = store(lost.folder, "copy", outside=True)
    with running_relayer(home, lost.model_dir, "--port", lost.port, **copy):
        assert KEPT in texts(lost.agent, "cellar key")


def test_a_backup_is_restored_beside_its_own_key_only(lost: Lost) -> None:
    refused = lost.command(
        "backup", "restore", str(lost.backup), data=lost.home("keyless", key=False), codes=(1,)
    )
    assert "key back first" in refused["said"]
    home = lost.home("stranger", key=False)
    (home / "relayer.key").write_text("07" * 32)
    (home / "relayer.key").chmod(0o600)
    refused = lost.command("backup", "restore", str(lost.backup), data=home, codes=(1,))
    assert "not the key of this backup" in refused["said"]
    assert sorted(path.name for path in home.iterdir()) == ["relayer.key"]


def test_a_backup_goes_on_with_another_key_when_its_own_is_lost(lost: Lost) -> None:
    home = lost.home("heir", key=False)
    told = lost.command("backup", "restore", str(lost.backup), "--other-key", data=home)
    assert told["relayer_key"] == lost.account["relayer_key"]
    heir = lost.command("identity", "show", data=home)
    assert heir["relayer_key"] != lost.account["relayer_key"]
    assert heir["earlier"] == []
    added = lost.command("account", "create", data=home)
    assert added["relayer_key"] == heir["relayer_key"], "it opens, and writes"
    findings = lost.command("doctor", data=home, codes=(0, 1))["findings"]
    assert [one["state"] for one in findings if one["check"] == "identity"] == ["ok"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("database.dump", lambda data: data[:-1]),
        ("database.dump", lambda data: data[:-1] + bytes([data[-1] ^ 1])),
        ("database.dump", None),
        ("backup.json", lambda data: data[:-3]),
        ("backup.json", lambda data: data.replace(b'"format": 1', b'"format": 2')),
        ("backup.json", lambda data: data.replace(b'"schema": "0', b'"schema": "9')),
        ("backup.json", None),
    ],
)
async def test_a_backup_that_is_not_whole_is_refused(
    lost: Lost, tmp_path: Path, name: str, change: Callable[[bytes], bytes] | None
) -> None:
    copy = shutil.copytree(lost.backup, tmp_path / "backup")
    data = (copy / name).read_bytes()
    (copy / name).unlink()
    if change is not None:
        (copy / name).write_bytes(change(data))
        assert change(data) != data
    home = tmp_path / "home"
    with pytest.raises(BackupError):
        await restore(Settings(data_dir=home), copy, utc_now)
    assert not home.exists()


def test_a_backup_has_no_key_and_is_its_owner_s_alone(lost: Lost) -> None:
    seed = (lost.folder / "safe/relayer.key").read_text().split()[0]
    command = [str(find_binaries() / "pg_restore"), "--file=-", str(lost.backup / "database.dump")]
    dumped = subprocess.run(command, capture_output=True, check=True, timeout=WAIT_S_MAX).stdout
    assert (
        lost.account["account_id"].removeprefix("0x").encode() in dumped
    )  # the file itself is compressed
    assert seed.encode() not in dumped
    files = sorted(lost.backup.iterdir())
    assert [file.name for file in files] == ["backup.json", "database.dump"]
    for file in files:
        assert file.stat().st_mode & 0o077 == 0
        assert seed.encode() not in file.read_bytes()
    assert lost.backup.stat().st_mode & 0o077 == 0


async def test_what_is_there_already_is_not_written_over(
    fresh_database: TestDatabase, tmp_path: Path
) -> None:
    file = tmp_path / "database.dump"
    file.write_bytes(b"precious")
    with pytest.raises(PostgresError, match="cannot write"):
        await dump(fresh_database.connect_args, file)
    assert file.read_bytes() == b"precious"
    with pytest.raises(PostgresError, match="pg_restore failed"):
        await load(fresh_database.connect_args, file)
    backup = tmp_path / "backup"
    backup.mkdir()
    (tmp_path / "relayer.key").write_text("07" * 32)
    (tmp_path / "relayer.key").chmod(0o600)
    settings = Settings(data_dir=tmp_path, database_url=fresh_database.url)
    with pytest.raises(BackupError, match="File exists"):
        await create(settings, backup, utc_now)
    closed = f"{fresh_database.url}{'&' if '?' in fresh_database.url else '?'}sslpassword=s3cret"
    settings = Settings(data_dir=tmp_path, database_url=closed)
    with pytest.raises(PostgresError, match="sslpassword"):
        await create(settings, tmp_path / "failed", utc_now)
    assert not (tmp_path / "failed").exists()
    with pytest.raises(PostgresError, match="sslpassword"):
        without_password({"dsn": closed})


# Whether anybody waits for a lock of this database.
WAITED_FOR = """
SELECT EXISTS (
  SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
  WHERE d.datname = current_database() AND NOT l.granted)
"""


async def start(settings: Settings) -> None:
    async with open_storage(settings):
        pass


async def test_an_interrupted_restore_is_seen_and_goes_on(
    postgres: EmbeddedPostgres, template: str, lean: Settings
) -> None:
    """Killed when the dump was loaded, before what was revoked or accepted since was looked at."""
    first, second = lean.data_dir / "first", lean.data_dir / "second"
    for folder in (first, second):
        async with open_storage(lean) as storage:
            await provision.create_account(storage, label="", custody="managed", clock=utc_now)
        await create(lean, folder, utc_now)
    manifest = Manifest.read(first)
    async with database_copy(postgres, "template1") as empty:
        again = replace(lean, database_url=empty.url)
        note = restore_statement(manifest.sha256)
        await load(empty.connect_args, first / "database.dump", then=note)
        for settings_open in (open_storage(again), as_found(again)):
            with pytest.raises(NotInstalled, match="is being restored"):
                async with settings_open:
                    pytest.fail("it is used")
        with pytest.raises(BackupError, match="holds tables"):
            await restore(again, second, utc_now)
        assert await restore(again, first, utc_now) == manifest
        async with open_storage(again) as storage:
            floor = await storage.database.fetch("SELECT floor_s FROM nonce_floor")
            assert floor[0]["floor_s"] > 0, "what was accepted before is not accepted again"
        with pytest.raises(BackupError, match="holds tables"):
            await restore(again, first, utc_now)


async def test_a_relayer_that_began_before_the_backup_was_loaded_does_not_serve_it(
    postgres: EmbeddedPostgres, template: str, lean: Settings
) -> None:
    folder = lean.data_dir / "backup"
    await start(lean)
    manifest = await create(lean, folder, utc_now)
    async with database_copy(postgres, "template1") as empty:
        other = await asyncpg.connect(**empty.connect_args)
        await other.execute("SELECT pg_advisory_lock($1)", LOCK)  # as one that migrates
        waiting = asyncio.create_task(start(replace(lean, database_url=empty.url)))
        while not await other.fetchval(WAITED_FOR):
            await asyncio.sleep(0.01)
        note = restore_statement(manifest.sha256)
        await load(empty.connect_args, folder / "database.dump", then=note)
        await other.close()
        with pytest.raises(NotInstalled, match="is being restored"):
            await waiting


async def test_what_is_loaded_comes_with_its_note_or_not_at_all(
    postgres: EmbeddedPostgres, template: str, tmp_path: Path
) -> None:
    async with database_copy(postgres, template) as full:
        await dump(full.connect_args, tmp_path / "dump")
    async with database_copy(postgres, "template1") as empty:
        with pytest.raises(PostgresError, match="psql failed"):
            await load(empty.connect_args, tmp_path / "dump", then="SELECT 1 / 0;")
        assert not await has_tables(empty.connect_args)


async def test_tables_in_a_schema_that_the_url_names_are_restored(
    postgres: EmbeddedPostgres, lean: Settings
) -> None:
    folder, path = lean.data_dir / "backup", "search_path=mem,public"
    async with database_copy(postgres, "template1") as full:
        connection = await asyncpg.connect(**full.connect_args)
        await connection.execute("CREATE SCHEMA mem")
        await connection.close()
        there = replace(lean, database_url=f"{full.url}{'&' if '?' in full.url else '?'}{path}")
        async with open_storage(there) as storage:
            await provision.create_account(storage, label="", custody="managed", clock=utc_now)
        await create(there, folder, utc_now)
    async with database_copy(postgres, "template1") as empty:
        again = replace(lean, database_url=f"{empty.url}{'&' if '?' in empty.url else '?'}{path}")
        await restore(again, folder, utc_now)
        async with open_storage(again) as storage:
            assert await storage.database.fetch("SELECT FROM mem.accounts")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3cret@db:5432/m?sslmode=require", "postgresql://ann@db:5432/m?sslmode=require"),
        ("postgresql://ann@db/m?password=s3cret", "postgresql://ann@db/m"),
        ("postgresql://ann:s3cret@one:1,two:2/m", "postgresql://ann@one:1,two:2/m"),
        ("postgresql://:s3cret@/m?host=/run/pg", "postgresql:///m?host=%2Frun%2Fpg"),
        ("postgresql://ann:s3cret@db/m?password=old&jit=off", "postgresql://ann@db/m"),
    ],
)  # fmt: skip
def test_no_command_line_has_a_password(url: str, shown: str) -> None:
    plain, password = without_password({"dsn": url})
    assert password == "s3cret"
    assert "s3cret" not in plain
    assert plain.replace("//@", "//") == shown
