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
from relayer.clock import utc_now
from relayer.errors import Unavailable
from relayer.identity import make_identity
from relayer.sealed.keys import AccountId
from relayer.settings import Settings, SettingsError
from relayer.storage import Storage, opened
from relayer.upkeep import backup, provision
from relayer.upkeep.doctor import examine
from tests.conftest import BenchMaker
from tests.life import WAIT_S_MAX
from tests.services import Bench


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def outside(lean: Settings, folder: Path) -> Settings:
    """Settings of a relayer whose blobs are in a folder."""
    return replace(lean, blob_store=f"file:{folder}")


async def create(storage: Storage) -> AccountId:
    new = await provision.create_account(storage, label="", custody="managed", clock=utc_now)
    return new.account


@pytest.fixture
async def account(outside: Settings) -> AccountId:
    """An account that was published."""
    async with opened(outside) as storage:
        return await create(storage)


async def start(settings: Settings) -> None:
    async with opened(settings):
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


async def test_an_empty_mount_point_is_refused(
    outside: Settings, folder: Path, account: AccountId
) -> None:
    aside = folder.rename(folder.with_name("aside"))
    for _ in range(2):
        with pytest.raises(SettingsError, match=r"RELAYER_BLOB_STORE.*mounted.*blobs accept"):
            await start(outside)
    folder.rmdir()
    aside.rename(folder)
    await start(outside)


async def test_so_is_a_folder_of_others(
    outside: Settings, folder: Path, account: AccountId
) -> None:
    folder.rename(folder.with_name("aside"))
    (folder / ("0" * 64)).mkdir(parents=True)
    with pytest.raises(SettingsError):
        await start(outside)


async def test_so_is_the_store_that_was_moved_from(
    outside: Settings, folder: Path, account: AccountId
) -> None:
    new = f"file:{folder.with_name('new')}"
    for place in (folder / account.hex()).iterdir():
        if place.is_dir():
            (place / ".new-left").write_bytes(b"of a relayer that was killed")
    done = blobs(outside, "move", "--to", new)
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []
    with pytest.raises(SettingsError):
        await start(outside)
    await start(replace(outside, blob_store=new))


async def test_a_store_restored_from_before_an_account_is_taken(
    outside: Settings, folder: Path, account: AccountId, caplog: pytest.LogCaptureFixture
) -> None:
    copy = copytree(folder, folder.with_name("copy"))
    async with opened(outside) as storage:
        await create(storage)
    rmtree(folder)
    copy.rename(folder)
    await start(outside)
    assert [r.event for r in caplog.records if hasattr(r, "accounts")] == ["replay.missing"]


async def test_a_store_of_a_release_without_marks_is_taken(
    outside: Settings, folder: Path, account: AccountId
) -> None:
    newest = folder / account.hex() / "newest"
    told = newest.read_text()
    newest.unlink()
    async with opened(outside) as storage:
        await storage.outbox.publish()
    assert newest.read_text() == told, "it is told what it was not told of"


async def test_one_that_takes_nothing_more_is_read(
    outside: Settings, folder: Path, account: AccountId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk is full, or only to be read."""
    newest = folder / account.hex() / "newest"
    newest.write_text("1")

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(durable, "replace", full)
    async with opened(outside) as storage:
        with pytest.raises(Unavailable):
            await storage.outbox.publish()
    assert newest.read_text() == "1"


async def test_so_is_an_empty_one_for_what_was_inside_the_database(
    lean: Settings, outside: Settings
) -> None:
    """It is published there, all of it."""
    async with opened(lean) as storage:
        await create(storage)
    await start(outside)


async def test_an_empty_store_is_accepted_when_it_is_said_so(
    outside: Settings, folder: Path, account: AccountId
) -> None:
    folder.rename(folder.with_name("aside"))
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
        await bench.remember(caller, "Anna prefers tea.", "Ben prefers coffee.")
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
        assert not said["ok"]
        assert "RELAYER_BLOB_STORE" in str(said["detail"])

    async def test_nor_is_the_database_accepted(self, lean: Settings, written: Bench) -> None:
        done = blobs(lean, "accept")
        assert done.returncode == 1
        assert "name an empty one" in done.stderr

    async def test_accounts_that_lost_theirs_are_accepted_beside_others(
        self, lean: Settings, written: Bench
    ) -> None:
        """As where a folder had lost them before its blobs were moved into the database."""
        other = await written.caller(await written.account())
        await written.remember(other, "Carl prefers water.")
        await written.sql(
            "INSERT INTO blobs (account_id, blob_id, bytes, created_at)"
            " SELECT account_id, blob_id, 'there', now() FROM memories WHERE account_id = $1",
            other.access.account,
        )
        with pytest.raises(SettingsError, match=r"some accounts.*relayer blobs accept"):
            await start(lean)
        done = blobs(lean, "accept")
        assert (done.returncode, json.loads(done.stdout)) == (0, {"accounts": 1}), done.stderr
        await start(lean)
        await written.sql("DELETE FROM blobs")
        with pytest.raises(SettingsError, match="are not in it"):
            await start(lean)

    async def test_one_damaged_memory_keeps_nobody_from_starting(
        self, lean: Settings, written: Bench
    ) -> None:
        await written.sql(
            "INSERT INTO blobs (account_id, blob_id, bytes, created_at)"
            " SELECT account_id, blob_id, 'damaged', now() FROM memories WHERE seq = 1"
        )
        await start(lean)
