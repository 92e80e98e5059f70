"""One suite that every blob store passes, and a relayer on a folder."""

import asyncio
import errno
import os
import signal
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import obstore
import pytest

from relayer.blobs.buckets import BucketStore
from relayer.blobs.store import BlobStore, FolderStore, PostgresStore, select_unread
from relayer.clock import utc_now
from relayer.database.accounts import insert_account
from relayer.database.pool import Database
from relayer.errors import Corrupted, NotFound, QuotaExceeded, Unavailable
from relayer.journal.outbox import GRACE
from relayer.sealed.envelope import blob_hash, blob_id
from relayer.sealed.keys import AccountId
from relayer.sealed.primitives import CryptoError, to_base64url
from relayer.upkeep.check import check
from tests.chains import assert_chain_holds
from tests.conftest import BenchMaker
from tests.services import COUNT, TEAM, Bench
from tests.swift import LISTED_MAX, bucket_store
from tests.unreadable import make_unreadable, refuse_listing

ONE, TWO = AccountId(bytes(32)), AccountId(bytes([1]) * 32)
DATA = [bytes([n]) * (n + 1) * 100 for n in range(7)]
NAMES = [blob_id(data) for data in DATA]
Spoil = Callable[[str, bytes | None], object]
PURGED = "SELECT purged_at FROM accounts"
KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from relayer.blobs.store import FolderStore
from relayer.sealed.envelope import blob_id
from relayer.sealed.keys import AccountId
os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
store, account = FolderStore(folder=Path(sys.argv[1])), AccountId(bytes.fromhex(sys.argv[2]))
asyncio.run(store.put_many(account, {blob_id(b"sealed"): b"sealed"}))
"""


@pytest.fixture(params=["postgres", "folder", "bucket"])
def store(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> BlobStore:
    if request.param == "postgres":
        return PostgresStore(database=database)
    if request.param == "folder":
        return FolderStore(folder=tmp_path / "blobs")
    return bucket_store(request.getfixturevalue("swift"))


async def spoil(store: BlobStore, database: Database, name: str, data: bytes) -> None:
    """Put other bytes under a name, as a broken disk would."""
    if isinstance(store, BucketStore):
        await obstore.put_async(store._objects, f"{ONE.hex()}/{name[:2]}/{name}", data)
        return
    if isinstance(store, PostgresStore):
        change = "UPDATE blobs SET bytes = $1 WHERE blob_id = $2"
        await database.execute(change, data, blob_hash(name))
        return
    assert isinstance(store, FolderStore)
    for path in store._folder.rglob(name):
        path.write_bytes(data)


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def names(store: BlobStore, account: AccountId) -> list[str]:
    return [name async for name in store.names(account)]


def killed_while_putting(folder: Path, account: AccountId) -> Path:
    """What a process leaves in a folder that is killed before its blob has its name."""
    killed = subprocess.run([sys.executable, "-c", KILLED, str(folder), account.hex()], check=False)
    assert killed.returncode == -signal.SIGKILL
    [draft] = folder.rglob(".new-*")
    return draft


def make_old(path: Path) -> None:
    """Let a file be written so long ago that nobody can be at it still."""
    then = time.time() - GRACE.total_seconds() - 1
    os.utime(path, (then, then))


class TestEveryStore:
    async def test_keeps_what_it_is_given(self, store: BlobStore) -> None:
        await store.put_many(ONE, dict(zip(NAMES, DATA, strict=True)))
        assert await store.get_many(ONE, NAMES) == dict(zip(NAMES, DATA, strict=True))
        assert sorted(await names(store, ONE)) == sorted(NAMES)

    async def test_missing_ones_are_left_out(self, store: BlobStore) -> None:
        await store.put_many(ONE, {NAMES[0]: DATA[0]})
        assert await store.get_many(ONE, NAMES[:2]) == {NAMES[0]: DATA[0]}
        assert await store.get_many(ONE, []) == {}
        assert await store.get_many(TWO, NAMES) == {}
        assert await names(store, TWO) == []

    async def test_accounts_have_their_own_objects(self, store: BlobStore) -> None:
        for account in (ONE, TWO):
            await store.put_many(account, {NAMES[0]: DATA[0]})
        await store.delete(ONE, NAMES[0])
        assert await store.get_many(ONE, NAMES) == {}
        assert await store.get_many(TWO, NAMES) == {NAMES[0]: DATA[0]}

    async def test_putting_twice_changes_nothing(self, store: BlobStore) -> None:
        for _ in range(2):
            await store.put_many(ONE, {NAMES[0]: DATA[0]})
        assert await names(store, ONE) == [NAMES[0]]
        assert await store.get_many(ONE, NAMES) == {NAMES[0]: DATA[0]}

    async def test_putting_nothing(self, store: BlobStore) -> None:
        await store.put_many(ONE, {})
        assert await names(store, ONE) == []

    async def test_concurrent_puts_of_the_same(self, store: BlobStore) -> None:
        blobs = dict(zip(NAMES, DATA, strict=True))
        await asyncio.gather(*(store.put_many(ONE, blobs) for _ in range(8)))
        assert await store.get_many(ONE, NAMES) == blobs
        assert len(await names(store, ONE)) == len(NAMES)

    async def test_deleting_twice(self, store: BlobStore) -> None:
        await store.put_many(ONE, {NAMES[0]: DATA[0], NAMES[1]: DATA[1]})
        for _ in range(2):
            await store.delete(ONE, NAMES[0])
        assert await names(store, ONE) == [NAMES[1]]
        await store.put_many(ONE, {NAMES[0]: DATA[0]})
        assert len(await store.get_many(ONE, NAMES)) == 2

    @pytest.mark.parametrize("data", [b"", b"other bytes", DATA[3][:-1], DATA[3] + b"\0"])
    async def test_altered_objects_are_not_believed(
        self, store: BlobStore, database: Database, data: bytes
    ) -> None:
        await store.put_many(ONE, {NAMES[3]: DATA[3], NAMES[4]: DATA[4]})
        await spoil(store, database, NAMES[3], data)
        found = await store.get_many(ONE, NAMES)
        assert isinstance(found[NAMES[3]], Corrupted)
        assert found[NAMES[4]] == DATA[4]

    @pytest.mark.parametrize(
        "name", ["", ".", "../../etc/passwd", "..", NAMES[0] + "=", NAMES[0][:-1], "a/b", "ä" * 43]
    )
    async def test_names_that_are_none_are_refused(self, store: BlobStore, name: str) -> None:
        with pytest.raises(CryptoError):
            await store.put_many(ONE, {name: b"x"})
        with pytest.raises(CryptoError):
            await store.get_many(ONE, [name])
        with pytest.raises(CryptoError):
            await store.delete(ONE, name)

    async def test_many_names_in_pages(self, store: BlobStore) -> None:
        number = 2 * LISTED_MAX + 1 if isinstance(store, BucketStore) else 501
        blobs = {blob_id(data): data for data in (b"%d" % n for n in range(number))}
        await store.put_many(ONE, blobs)
        listed = await names(store, ONE)
        assert sorted(listed) == sorted(blobs)
        for at in (0, number // 2, number - 1):
            assert [name async for name in store.names(ONE, after=listed[at])] == listed[at + 1 :]

    async def test_its_accounts(self, store: BlobStore, database: Database) -> None:
        assert await store.accounts() == []
        if isinstance(store, PostgresStore):  # knows them by their rows
            async with database.connection() as connection:
                for account in (ONE, TWO):
                    await insert_account(connection, account=account, label="", now=utc_now())
        for account in (TWO, ONE):
            await store.put_many(account, {NAMES[0]: DATA[0]})
        assert sorted(await store.accounts()) == [ONE, TWO]

    async def test_there_are_no_drafts(self, store: BlobStore) -> None:
        await store.put_many(ONE, dict(zip(NAMES, DATA, strict=True)))
        await store.mark(ONE, 7)
        for account in (ONE, TWO):
            assert not await store.drop_drafts(account, older_than=timedelta(0))
        assert sorted(await names(store, ONE)) == sorted(NAMES)

    async def test_a_mark_goes_forward_only(self, store: BlobStore) -> None:
        for account, seq in ((ONE, 7), (ONE, 5), (TWO, 1)):
            await store.mark(account, seq)
        marks = [await store.read_mark(ONE), await store.read_mark(TWO)]
        assert marks == ([0, 0] if store.transactional else [7, 1])
        assert await names(store, ONE) == []


class TestFolder:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path / "deep" / "blobs"

    @pytest.fixture
    def folder_store(self, folder: Path) -> FolderStore:
        return FolderStore(folder=folder)

    async def test_nobody_else_may_look(self, folder: Path, folder_store: FolderStore) -> None:
        before = os.umask(0)
        try:
            await folder_store.put_many(ONE, {NAMES[0]: DATA[0]})
        finally:
            os.umask(before)
        [file] = files_in(folder)
        assert file == folder / ONE.hex() / NAMES[0][:2] / NAMES[0]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for level in (folder, folder / ONE.hex(), file.parent):
            assert stat.S_IMODE(level.stat().st_mode) == 0o700

    async def test_what_a_crash_left_is_no_object(
        self, folder: Path, folder_store: FolderStore
    ) -> None:
        await folder_store.put_many(ONE, {NAMES[0]: DATA[0]})
        beside = folder / ONE.hex() / NAMES[0][:2]
        (beside / ".new-abcdefgh").write_bytes(DATA[1][:10])
        (beside / "notes.txt").write_text("a stranger's")
        assert await names(folder_store, ONE) == [NAMES[0]]
        await folder_store.put_many(ONE, {NAMES[1]: DATA[1]})
        assert await folder_store.get_many(ONE, NAMES[:2]) == {NAMES[0]: DATA[0], NAMES[1]: DATA[1]}

    async def test_what_crashes_left_goes_when_nobody_can_be_writing_it(
        self, folder: Path, folder_store: FolderStore
    ) -> None:
        for account in (ONE, TWO):
            await folder_store.put_many(account, {NAMES[0]: DATA[0]})
            beside = folder / account.hex() / NAMES[0][:2]
            for path in (beside / ".new-old", beside.parent / ".new-old", beside / "notes.txt"):
                path.write_bytes(DATA[1][:10])
                make_old(path)
        (folder / ONE.hex() / NAMES[0][:2] / ".new-young").write_bytes(DATA[1][:10])
        assert await folder_store.drop_drafts(ONE, older_than=GRACE)
        assert {p.name for p in files_in(folder / ONE.hex())} == {
            NAMES[0],
            ".new-young",
            "notes.txt",
        }
        assert [p.name for p in files_in(folder / TWO.hex())].count(".new-old") == 2
        assert not await folder_store.drop_drafts(ONE, older_than=timedelta(0))
        assert {p.name for p in files_in(folder / ONE.hex())} == {NAMES[0], "notes.txt"}

    async def test_no_temporary_file_stays(self, folder: Path, folder_store: FolderStore) -> None:
        await folder_store.put_many(ONE, dict(zip(NAMES, DATA, strict=True)))
        assert {p.name for p in files_in(folder)} == set(NAMES)

    async def test_an_unusable_folder_is_unavailable(
        self, folder: Path, folder_store: FolderStore
    ) -> None:
        (folder / ONE.hex()).write_text("a file where a folder should be")
        for use in (
            folder_store.put_many(ONE, {NAMES[0]: DATA[0]}),
            folder_store.get_many(ONE, NAMES),
            folder_store.delete(ONE, NAMES[0]),
        ):
            with pytest.raises(Unavailable) as caught:
                await use
            assert caught.value.code == "blobs.unavailable"

    @pytest.mark.parametrize("fault", ["a file", "a loop", "denied"])
    async def test_a_folder_that_cannot_be_listed_is_not_empty(
        self, folder: Path, folder_store: FolderStore, monkeypatch: pytest.MonkeyPatch, fault: str
    ) -> None:
        own = folder / ONE.hex()
        if fault == "a file":
            own.write_text("a file where a folder should be")
        elif fault == "a loop":
            own.symlink_to(own)
        else:
            await folder_store.put_many(ONE, {NAMES[0]: DATA[0]})
            refuse_listing(monkeypatch, own)
        with pytest.raises(Unavailable):
            await names(folder_store, ONE)
        with pytest.raises(Unavailable):
            await folder_store.drop_drafts(ONE, older_than=GRACE)

    async def test_a_file_that_cannot_be_read_hides_nothing_beside_it(
        self, folder: Path, folder_store: FolderStore
    ) -> None:
        await folder_store.put_many(ONE, dict(zip(NAMES, DATA, strict=True)))
        make_unreadable(folder, NAMES[1])
        read = await folder_store.get_many(ONE, NAMES[:3])
        assert read == {NAMES[0]: DATA[0], NAMES[2]: DATA[2]}
        await folder_store.delete(ONE, NAMES[0])
        assert await folder_store.unreadable(ONE, NAMES[:2]) == [NAMES[1]]
        assert await select_unread(folder_store, ONE, NAMES[1:3], read) == [NAMES[1]]

    async def test_what_is_wrong_with_all_files_is_told_of_all(
        self, folder_store: FolderStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await folder_store.put_many(ONE, {NAMES[0]: DATA[0]})

        def too_many(path: Path) -> bytes:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(Path, "read_bytes", too_many)
        with pytest.raises(Unavailable):
            await folder_store.get_many(ONE, NAMES)

    async def test_a_store_that_is_gone_is_not_empty(
        self, folder: Path, folder_store: FolderStore
    ) -> None:
        """Its disk is not mounted."""
        await folder_store.put_many(ONE, {NAMES[0]: DATA[0]})
        folder.rename(folder.with_name("elsewhere"))
        with pytest.raises(Unavailable):
            await names(folder_store, ONE)

    async def test_nothing_is_written_into_a_folder_that_took_the_store_s_name(
        self, folder: Path, folder_store: FolderStore
    ) -> None:
        """Its disk went away, and its mount point is bare."""
        await folder_store.put_many(ONE, {NAMES[0]: DATA[0]})
        disk = folder.rename(folder.with_name("disk"))
        folder.mkdir()
        for use in (
            folder_store.put_many(ONE, {NAMES[1]: DATA[1]}),
            folder_store.get_many(ONE, NAMES),
            folder_store.unreadable(ONE, NAMES),
            folder_store.mark(ONE, 7),
            folder_store.read_mark(ONE),
            folder_store.delete(ONE, NAMES[0]),
            folder_store.accounts(),
            names(folder_store, ONE),
        ):
            with pytest.raises(Unavailable):
                await use
        assert not list(folder.iterdir())
        folder.rmdir()
        disk.rename(folder)
        await folder_store.put_many(ONE, {NAMES[1]: DATA[1]})
        assert set(await names(folder_store, ONE)) == set(NAMES[:2])


class TestRelayerOnFolder:
    @pytest.fixture
    def on_folder(self, make_bench: BenchMaker, tmp_path: Path) -> Bench:
        return make_bench(blob_store=f"file:{tmp_path / 'blobs'}")

    def files(self, tmp_path: Path) -> list[bytes]:
        return [p.read_bytes() for p in files_in(tmp_path / "blobs")]

    async def test_remember_recall_forget(self, on_folder: Bench, tmp_path: Path) -> None:
        caller = await on_folder.caller(await on_folder.account())
        stored = await on_folder.remember(caller, "Anna prefers tea.", "Ben sells cups.")
        assert await on_folder.value("SELECT count(*) FROM blobs") == 0
        assert await on_folder.texts(caller, "tea") == ["Anna prefers tea."]
        receipt, pending = await on_folder.services.memory.forget(caller.access, stored[0].id)
        assert pending
        assert await on_folder.texts(caller, "tea") == []
        name = await on_folder.value("SELECT blob_ids[1] FROM tombstones")
        assert any(blob_hash(blob_id(f)) == name for f in self.files(tmp_path))
        await on_folder.storage.outbox.empty()
        files = self.files(tmp_path)
        assert not any(blob_hash(blob_id(f)) == name for f in files)
        assert receipt in files  # what was erased is known beside the blobs too
        assert await on_folder.value("SELECT count(*) FROM blob_outbox") == 0
        assert await on_folder.texts(caller, "cups") == ["Ben sells cups."]
        await assert_chain_holds(on_folder, caller.access.account)

    async def test_what_a_killed_process_left_is_deleted(
        self, on_folder: Bench, tmp_path: Path
    ) -> None:
        founder = await on_folder.account()
        await on_folder.remember(await on_folder.caller(founder), "Anna prefers tea.")
        kept = self.files(tmp_path)
        draft = killed_while_putting(tmp_path / "blobs", founder.account)
        await on_folder.another().services.collector.collect()
        assert draft.exists(), "somebody may be writing it"
        make_old(draft)
        await on_folder.another().services.collector.collect()
        assert self.files(tmp_path) == kept

    async def test_a_file_that_cannot_be_read_is_one_memory_less(
        self, on_folder: Bench, tmp_path: Path
    ) -> None:
        caller = await on_folder.caller(await on_folder.account())
        texts = ("Anna prefers tea.", "Ben sells cups.", "Carl drinks tea.")
        hidden, *_ = await on_folder.remember(caller, *texts)
        await on_folder.storage.outbox.publish()
        back = make_unreadable(tmp_path, await self.name_of(on_folder, hidden.id))
        assert {*await on_folder.texts(caller, "tea cups")} == {*texts[1:]}
        with pytest.raises(Corrupted):
            await on_folder.services.memory.get(caller, hidden.id)
        [problem] = (await check(on_folder.storage)).problems
        assert (problem["problem"], problem["id"]) == ("its blob is missing", str(hidden.id))
        back()
        assert {*await on_folder.texts(caller, "tea cups")} == {*texts}

    async def test_rows_come_back_beside_a_file_that_cannot_be_read(
        self, on_folder: Bench, tmp_path: Path
    ) -> None:
        founder = await on_folder.account()
        caller = await on_folder.caller(founder)
        texts = ("Anna prefers tea.", "Ben sells cups.", "Carl drinks tea.")
        hidden, *_ = await on_folder.remember(caller, *texts)
        await on_folder.storage.outbox.publish()
        name = await self.name_of(on_folder, hidden.id)
        back = make_unreadable(tmp_path, name)
        await on_folder.sql("DELETE FROM memories")
        await on_folder.sql("UPDATE accounts SET incomplete = true")
        restore, deletion = on_folder.services.restore, on_folder.services.deletion
        await restore.complete(founder.account, caller.keys)
        assert {*await on_folder.texts(caller, "tea cups")} == {*texts[1:]}
        assert (await restore.restore(caller, TEAM, 9)).failed == 1
        problems = [(p["problem"], p["id"]) for p in (await check(on_folder.storage)).problems]
        assert ("an object that nothing refers to cannot be read", name) in problems
        with pytest.raises(Unavailable):  # nobody knows whether it is in there
            await deletion.forget_namespace(caller.access, TEAM)
        back()
        await restore.complete(founder.account, caller.keys)
        assert {*await on_folder.texts(caller, "tea cups")} == {*texts}
        await deletion.forget_namespace(caller.access, TEAM)

    async def name_of(self, bench: Bench, memory_id: uuid.UUID) -> str:
        found = await bench.value("SELECT blob_id FROM memories WHERE memory_id = $1", memory_id)
        return to_base64url(found)

    async def test_nothing_a_killed_process_left_stays_of_an_erased_account(
        self, on_folder: Bench, tmp_path: Path
    ) -> None:
        founder = await on_folder.account()
        caller = await on_folder.caller(founder)
        await on_folder.remember(caller, "Anna prefers tea.")
        draft = killed_while_putting(tmp_path / "blobs", founder.account)
        closing = on_folder.services.closing
        closed = await closing.close(caller.access)
        await closing.purge()
        assert await on_folder.value(PURGED) is None, "somebody may be writing it"
        make_old(draft)
        await closing.purge()
        assert await on_folder.value(PURGED) is not None
        own = tmp_path / "blobs" / founder.account.hex()
        assert {p.name for p in files_in(own)} == {blob_id(closed.receipt), "newest"}

    async def test_an_account_whose_folder_cannot_be_listed_is_not_empty(
        self, on_folder: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        founder = await on_folder.account()
        caller = await on_folder.caller(founder)
        await on_folder.remember(caller, "Anna prefers tea.")
        closing = on_folder.services.closing
        with monkeypatch.context() as while_closing:
            refuse_listing(while_closing, tmp_path / "blobs" / founder.account.hex())
            closed = await closing.close(caller.access)
            await closing.purge()
            assert await on_folder.value(PURGED) is None
        await closing.purge()
        assert await on_folder.value(PURGED) is not None
        left = await names(on_folder.storage.blobs, founder.account)
        assert left == [blob_id(closed.receipt)]

    async def test_job_empties_the_outbox(self, on_folder: Bench) -> None:
        caller = await on_folder.caller(await on_folder.account())
        async with on_folder.working():
            [stored] = await on_folder.remember(caller, "Anna prefers tea.")
            await on_folder.services.memory.forget(caller.access, stored.id)
            await on_folder.until("SELECT count(*) FROM blob_outbox", 0)
        assert await on_folder.services.restore.restore(caller, TEAM, 9)

    async def test_a_refused_write_leaves_no_blob(
        self, make_bench: BenchMaker, tmp_path: Path
    ) -> None:
        bench = make_bench(blob_store=f"file:{tmp_path / 'blobs'}", storage_bytes_max=9000)
        caller = await bench.caller(await bench.account())
        await asyncio.gather(*(bench.remember(caller, "Anna prefers tea.") for _ in range(6)))
        with pytest.raises(QuotaExceeded):
            await bench.remember(caller, "x" * 30000)
        assert await bench.value(COUNT) == 1
        bench.clock.advance(GRACE.total_seconds())
        await bench.storage.outbox.empty()
        envelopes = [f for f in self.files(tmp_path) if f[0] == 1]
        assert len(envelopes) == 1
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        await bench.services.memory.forget(caller.access, stored.id)
        await bench.storage.outbox.empty()
        assert (await bench.services.restore.restore(caller, TEAM, 9)).total == 0

    async def test_equal_uploads_share_a_file(self, on_folder: Bench, tmp_path: Path) -> None:
        caller = await on_folder.caller(await on_folder.account())
        manual, vector = on_folder.services.manual, np.ones(6, np.float32)
        data = b"\x02 foreign bytes"
        one, _ = await manual.remember(caller, TEAM, data, vector)
        two, _ = await manual.remember(caller, TEAM, data, vector)
        await on_folder.services.memory.forget(caller.access, one)
        await on_folder.storage.outbox.empty()
        assert data in self.files(tmp_path)
        await on_folder.services.memory.forget(caller.access, two)
        three, _ = await manual.remember(caller, TEAM, data, vector)
        await on_folder.storage.outbox.empty()  # due for the second, kept for the third
        assert data in self.files(tmp_path)
        await on_folder.services.memory.get(caller, three)
        await on_folder.services.memory.forget(caller.access, three)
        await on_folder.storage.outbox.empty()
        assert data not in self.files(tmp_path)
        with pytest.raises(NotFound):
            await on_folder.services.memory.get(caller, three)

    async def test_grants_are_kept_beside_the_blobs(self, on_folder: Bench, tmp_path: Path) -> None:
        founder = await on_folder.account()
        await on_folder.key(founder, TEAM)
        grants = await on_folder.sql("SELECT object FROM grants")
        newest = str(await on_folder.value("SELECT receipt_seq FROM accounts")).encode()
        assert {r["object"] for r in grants} | {newest} == set(self.files(tmp_path))

    async def test_a_store_that_is_away_acknowledges_nothing(
        self, on_folder: Bench, tmp_path: Path
    ) -> None:
        founder = await on_folder.account()
        caller = await on_folder.caller(founder)
        own = tmp_path / "blobs" / founder.account.hex()
        own.rename(tmp_path / "aside")
        own.write_text("in the way")
        with pytest.raises(Unavailable):
            await on_folder.remember(caller, "Anna prefers tea.")
        assert await on_folder.value(COUNT) == 0
        own.unlink()
        (tmp_path / "aside").rename(own)
        await on_folder.remember(caller, "Anna prefers tea.")
