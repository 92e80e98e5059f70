"""A database beside a blob store that is not its own: a disk that is not mounted, a wrong name."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree

import pytest

from relayer import durable
from relayer.blobs.store import PostgresStore
from relayer.clock import utc_now
from relayer.database.blobs import newest_names
from relayer.errors import Unavailable
from relayer.identity import make_identity
from relayer.installation import open_storage
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.sealed.keys import AccountId
from relayer.settings import Settings, SettingsError
from relayer.storage import Storage
from relayer.upkeep import backup, provision
from relayer.upkeep.doctor import examine
from tests.conftest import BenchMaker, database_copy
from tests.life import WAIT_S_MAX
from tests.services import Bench


@pytest.fixture
def outside(lean: Settings, blobs_folder: Path) -> Settings:
    """Settings of a relayer whose blobs are in a folder."""
    return replace(lean, blob_store=f"file:{blobs_folder}")


async def create(storage: Storage) -> AccountId:
    new = await provision.create_account(storage, label="", custody="managed", clock=utc_now)
    return new.account


@pytest.fixture
async def account(outside: Settings) -> AccountId:
    """An account that was published."""
    async with open_storage(outside) as storage:
        return await create(storage)


async def start(settings: Settings) -> None:
    async with open_storage(settings):
        pass


def blobs(settings: Settings, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """What an operator types."""
    return subprocess.run(
        [sys.executable, "-m", "relayer", "blobs", *arguments, "--json"]
        + ["--data-dir", str(settings.data_dir), "--database-url", settings.database_url]
        + ["--blob-store", settings.blob_store],
        env=os.environ.copy(),
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )


def accepted(settings: Settings) -> int:
    """How many accounts an operator accepts to have lost theirs."""
    done = blobs(settings, "accept")
    assert done.returncode == 0, done.stderr
    return int(json.loads(done.stdout)["accounts"])


async def remembering(bench: Bench, text: str) -> AccountId:
    """A new account with one memory."""
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, text)
    return caller.access.account


async def put_inside(bench: Bench, account: AccountId) -> list[str]:
    """Put the blobs of an account's memories into the database; their names."""
    database = bench.storage.database
    names = await newest_names(database, account, 100)
    found = await bench.storage.blobs.get_many(account, names)
    whole = {name: data for name, data in found.items() if isinstance(data, bytes)}
    await PostgresStore(database=database).put_many(account, whole)
    return names


async def test_an_empty_mount_point_is_refused(
    outside: Settings, blobs_folder: Path, account: AccountId
) -> None:
    aside = blobs_folder.rename(blobs_folder.with_name("aside"))
    for _ in range(2):
        with pytest.raises(SettingsError, match=r"RELAYER_BLOB_STORE.*mounted.*blobs accept"):
            await start(outside)
    blobs_folder.rmdir()
    aside.rename(blobs_folder)
    await start(outside)


async def test_so_is_a_folder_of_others(
    outside: Settings, blobs_folder: Path, account: AccountId
) -> None:
    blobs_folder.rename(blobs_folder.with_name("aside"))
    (blobs_folder / ("0" * 64)).mkdir(parents=True)
    with pytest.raises(SettingsError):
        await start(outside)


async def test_so_is_the_store_that_was_moved_from(
    outside: Settings, blobs_folder: Path, account: AccountId
) -> None:
    new = f"file:{blobs_folder.with_name('new')}"
    for place in (blobs_folder / account.hex()).iterdir():
        if place.is_dir():
            (place / ".new-left").write_bytes(b"of a relayer that was killed")
    done = blobs(outside, "move", "--to", new)
    assert done.returncode == 0, done.stderr
    assert list(blobs_folder.iterdir()) == []
    with pytest.raises(SettingsError):
        await start(outside)
    await start(replace(outside, blob_store=new))


async def test_a_store_restored_from_before_an_account_is_taken(
    outside: Settings, blobs_folder: Path, account: AccountId, caplog: pytest.LogCaptureFixture
) -> None:
    copy = copytree(blobs_folder, blobs_folder.with_name("copy"))
    async with open_storage(outside) as storage:
        await create(storage)
    rmtree(blobs_folder)
    copy.rename(blobs_folder)
    await start(outside)
    assert [vars(r)["event"] for r in caplog.records if hasattr(r, "accounts")] == [
        "replay.missing"
    ]


async def test_a_store_of_a_release_without_marks_is_taken(
    outside: Settings, blobs_folder: Path, account: AccountId
) -> None:
    newest = blobs_folder / account.hex() / "newest"
    told = newest.read_text()
    newest.unlink()
    async with open_storage(outside) as storage:
        await storage.outbox.publish()
    assert newest.read_text() == told, "it is told what it was not told of"


async def test_one_that_takes_nothing_more_is_read(
    outside: Settings, blobs_folder: Path, account: AccountId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk is full, or only to be read."""
    newest = blobs_folder / account.hex() / "newest"
    newest.write_text("1")

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(durable, "replace", full)
    async with open_storage(outside) as storage:
        with pytest.raises(Unavailable):
            await storage.outbox.publish()
    assert newest.read_text() == "1"


async def test_so_is_an_empty_one_for_what_was_inside_the_database(
    lean: Settings, outside: Settings
) -> None:
    """It is published there, all of it."""
    async with open_storage(lean) as storage:
        await create(storage)
    await start(outside)


async def test_an_empty_store_is_accepted_when_it_is_said_so(
    outside: Settings, blobs_folder: Path, account: AccountId
) -> None:
    blobs_folder.rename(blobs_folder.with_name("aside"))
    done = blobs(outside, "accept")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"accounts": 1}
    await start(outside)


class TestBlobsInAFolderWhereTheDatabaseIsNamed:
    """As a shell does that was not given what `relayer serve` is given."""

    @pytest.fixture
    async def written(self, outside: Settings, make_bench: BenchMaker) -> Bench:
        """A relayer with memories in a folder."""
        identity = make_identity(outside.data_dir / "relayer.key")
        bench = make_bench(identity=identity, blob_store=outside.blob_store)
        caller = await bench.caller(await bench.account())
        await bench.remember(
            caller, "Anna prefers tea.", "Ben prefers coffee.", "Emil prefers soup."
        )
        await bench.storage.outbox.publish()
        await bench.caller(await bench.account())
        return bench

    async def test_no_relayer_starts(self, lean: Settings, written: Bench) -> None:
        with pytest.raises(SettingsError, match="RELAYER_BLOB_STORE is postgres"):
            await start(lean)
        await start(written.settings)

    async def test_there_is_no_backup(self, lean: Settings, written: Bench) -> None:
        folder = lean.data_dir / "backup"
        with pytest.raises(SettingsError, match="RELAYER_BLOB_STORE"):
            await backup.create(lean, folder, utc_now)
        assert not folder.exists()

    @pytest.mark.parametrize("verb", ["copy", "move"])
    async def test_none_is_brought_elsewhere(
        self, lean: Settings, written: Bench, verb: str
    ) -> None:
        done = blobs(lean, verb, "--to", f"file:{lean.data_dir / 'other'}")
        assert done.returncode == 1
        assert "RELAYER_BLOB_STORE" in done.stderr

    async def test_the_doctor_says_so(self, lean: Settings, written: Bench) -> None:
        [said] = [one for one in await examine(lean, "") if one["check"] == "blobs"]
        assert said["state"] == "problem"
        assert "RELAYER_BLOB_STORE" in str(said["detail"])

    async def test_nor_is_the_database_accepted(self, lean: Settings, written: Bench) -> None:
        done = blobs(lean, "accept")
        assert done.returncode == 1
        assert "name an empty one" in done.stderr

    async def test_accounts_that_lost_theirs_are_accepted_beside_others(
        self, lean: Settings, written: Bench
    ) -> None:
        """As where a folder had lost them before its blobs were moved into the database."""
        await put_inside(written, await remembering(written, "Carl prefers water."))
        with pytest.raises(SettingsError, match=r"some accounts.*relayer blobs accept"):
            await start(lean)
        assert accepted(lean) == 1
        await start(lean)
        await written.sql("DELETE FROM blobs")
        with pytest.raises(SettingsError, match="are not in it"):
            await start(lean)

    async def test_those_that_come_later_are_not(self, lean: Settings, written: Bench) -> None:
        carl = await remembering(written, "Carl prefers water.")
        await put_inside(written, carl)
        assert accepted(lean) == 1
        dora = await written.caller(await written.account())
        await written.remember(dora, "Dora prefers milk.")
        await put_inside(written, carl)  # who writes into the folder has published it there
        with pytest.raises(SettingsError, match="some accounts"):
            await start(lean)
        assert accepted(lean) == 1
        await start(lean)
        await written.remember(dora, "Dora has moved to Bonn.")
        await put_inside(written, carl)
        with pytest.raises(SettingsError, match="some accounts"):
            await start(lean)

    async def test_they_are_accepted_in_a_backup_too(
        self, lean: Settings, written: Bench, postgres: EmbeddedPostgres, tmp_path: Path
    ) -> None:
        await put_inside(written, await remembering(written, "Carl prefers water."))
        assert accepted(lean) == 1
        await backup.create(lean, tmp_path / "backup", utc_now)
        async with database_copy(postgres, "template1") as empty:
            restored = replace(lean, database_url=empty.url)
            await backup.restore(restored, tmp_path / "backup", utc_now)
            await start(restored)

    async def test_what_an_account_has_lost_keeps_nobody_from_anything(
        self, lean: Settings, written: Bench, tmp_path: Path
    ) -> None:
        """Its first and its newest memory, and no other account has any."""
        [one] = await written.sql(
            "SELECT DISTINCT whole_id FROM memories JOIN accounts USING (account_id)"
        )
        account = AccountId(one["whole_id"])
        names = await put_inside(written, account)
        for name in (names[0], names[-1]):
            await PostgresStore(database=written.storage.database).delete(account, name)
        await start(lean)
        await backup.create(lean, tmp_path / "backup", utc_now)
        assert accepted(lean) == 0
        new = lean.data_dir / "new"
        for verb in ("copy", "move"):
            done = blobs(lean, verb, "--to", f"file:{new}")
            assert done.returncode == 0, done.stderr
        assert len([path for path in new.rglob("*") if path.name in names]) == len(names) - 2

    async def test_nor_from_going_on_with_a_move_that_was_interrupted(
        self, lean: Settings, written: Bench
    ) -> None:
        """Where the new store had it all, but what was lost before."""
        await put_inside(written, await remembering(written, "Carl prefers water."))
        [first, *_] = await written.sql(
            "SELECT whole_id FROM memories JOIN accounts USING (account_id) ORDER BY seq"
        )
        account = AccountId(first["whole_id"])
        newest = (await newest_names(written.storage.database, account, 1))[0]
        await written.storage.blobs.delete(account, newest)
        done = blobs(lean, "move", "--to", written.settings.blob_store)
        assert done.returncode == 0, done.stderr
        await start(written.settings)
