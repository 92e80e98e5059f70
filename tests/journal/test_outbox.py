"""An outside store and the database stay in step, whatever ends between them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relayer.blobs.store import FolderStore
from relayer.database import outbox as outbox_rows
from relayer.database.accounts import lock_account
from relayer.database.namespaces import recount
from relayer.database.pool import Database
from relayer.errors import Unavailable
from relayer.journal.outbox import GRACE, PAGE
from relayer.memories.revisions import Edit
from relayer.memories.writer import WORDS_FEW
from relayer.sealed.envelope import blob_hash, blob_id
from relayer.sealed.keys import AccountId
from relayer.sealed.primitives import to_base64url
from relayer.upkeep.check import check
from tests.chains import assert_chain_holds
from tests.conftest import BenchMaker
from tests.moving import EMPTY, packed
from tests.racing import WAITING, race
from tests.services import TEAM, Bench
from tests.staging import outbox_on, staged


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def bench(make_bench: BenchMaker, folder: Path) -> Bench:
    """A relayer whose blobs are outside its database."""
    return make_bench(blob_store=f"file:{folder}")


def stored(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()} - {"newest"}


class Crash(Exception):
    """The process ends here."""


async def test_what_a_crash_leaves_is_no_lost_memory(bench: Bench, folder: Path) -> None:
    """Put, crash, retry, forget: the first blob must not bring the erased fact back."""
    caller = await bench.caller(await bench.account())
    [kept] = await bench.remember(caller, "Anna prefers tea.")
    [name] = [n for n in stored(folder) if (await envelope_of(folder, n))[:1] == b"\x01"]
    left = await envelope_of(folder, name)
    lost = left[:-1] + bytes([left[-1] ^ 1])
    with pytest.raises(Crash):
        async with bench.storage.outbox.transaction(
            caller.access.account, [(blob_hash(blob_id(lost)), lost)]
        ):
            raise Crash
    assert blob_id(lost) in stored(folder)
    await bench.services.memory.forget(caller.access, kept.id)
    assert (await bench.services.restore.restore(caller, TEAM, 9)).total == 0
    bench.clock.advance(GRACE.total_seconds())
    await bench.storage.outbox.empty()
    assert blob_id(lost) not in stored(folder)


async def envelope_of(folder: Path, name: str) -> bytes:
    [path] = folder.rglob(name)
    return path.read_bytes()


async def test_what_was_committed_outlives_the_grace(bench: Bench, folder: Path) -> None:
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "Anna prefers tea.")
    before = stored(folder)
    bench.clock.advance(2 * GRACE.total_seconds())
    await bench.storage.outbox.empty()
    assert stored(folder) == before
    assert await bench.texts(caller, "tea") == ["Anna prefers tea."]


async def test_the_journal_waits_for_its_store(bench: Bench, folder: Path) -> None:
    """Grants, revocations and erasures are accepted while the store is away, and reach it later."""
    founder = await bench.account()
    caller = await bench.caller(founder)
    [doomed] = await bench.remember(caller, "Anna prefers tea.")
    aside = folder.rename(folder.with_name("aside"))
    folder.write_text("not a folder")
    agent = await bench.key(founder, TEAM)
    await bench.revoke(founder, agent.identity.public_key)
    receipt, pending = await bench.services.memory.forget(caller.access, doomed.id)
    assert pending
    assert await bench.storage.accounts.access(founder.account, agent.identity.public_key) is None
    with pytest.raises(Unavailable):
        await bench.storage.outbox.publish()
    folder.unlink()
    aside.rename(folder)
    await bench.storage.outbox.publish()
    await bench.storage.outbox.empty()
    objects = [r["object"] for r in await bench.sql("SELECT object FROM grants")]
    objects += [r["object"] for r in await bench.sql("SELECT object FROM namespace_keys")]
    assert {blob_id(o) for o in [*objects, receipt]} == stored(folder)
    assert await bench.value("SELECT count(*) FROM blobs") == 0
    await assert_chain_holds(bench, founder.account)


async def slept(bench: Bench, account: AccountId, work: Awaitable[Any]) -> Any:
    """What became of work that slept until its grace was over, when it had put its blobs and before
    it could refer to them; another process kept house meanwhile."""
    async with bench.storage.database.transaction() as connection:
        await lock_account(connection, account)
        begun = asyncio.ensure_future(work)
        await bench.until(WAITING, 1)
        bench.clock.advance(GRACE.total_seconds())
        due = await outbox_rows.due_deletions(
            bench.storage.database, now=bench.clock(), after=0, limit=PAGE
        )
        for _, blob in due:
            assert to_base64url(blob) in stored(Path(bench.settings.blob_store[len("file:") :]))
            await bench.storage.blobs.delete(account, to_base64url(blob))
            await outbox_rows.confirm_deletion(connection, account=account, blob_id=blob)
    assert len(due) == 1
    return await begun


class TestSleep:
    """A blob that was deleted before anything referred to it is put again."""

    async def test_of_a_write(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "Ben sells cups.")
        account = caller.access.account
        [kept] = await slept(bench, account, bench.remember(caller, "Anna prefers tea."))
        assert not kept.duplicate
        assert await bench.texts(caller, "tea", mode="keyword") == ["Anna prefers tea."]
        await self.all_agrees(bench)

    async def test_of_words_that_come_before_the_account_is_locked(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "Ben sells cups.")
        text = " ".join(f"w{n}" for n in range(WORDS_FEW + 1))
        await slept(bench, caller.access.account, bench.remember(caller, text))
        assert await bench.texts(caller, "w77", mode="keyword") == [text]
        await self.all_agrees(bench)

    async def test_of_an_edit(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        [kept] = await bench.remember(caller, "Anna prefers tea.")
        edit = bench.services.reviser.edit(caller, kept.id, Edit(changes={"text": "Coffee."}))
        assert (await slept(bench, caller.access.account, edit)).revision == 2
        assert await bench.texts(caller, "coffee", mode="keyword") == ["Coffee."]
        await self.all_agrees(bench)

    async def test_of_rows_that_arrive(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "Anna prefers tea.")
        arrival = await packed(bench, caller)
        [row] = arrival.memories
        assert row.blob is not None
        await bench.sql("DELETE FROM postings")
        await bench.sql("DELETE FROM memories")
        await recount(bench.storage.database, caller.access.account)
        again = bench.services.importer.take_in(caller.access, replace(EMPTY, memories=[row]))
        done = await slept(bench, caller.access.account, again)
        assert done.results == [(row.id, "imported")]
        assert await bench.texts(caller, "tea", mode="keyword") == ["Anna prefers tea."]
        await self.all_agrees(bench)

    async def test_of_an_upload(self, bench: Bench, folder: Path) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "Ben sells cups.")
        vector = np.ones(6, np.float32)
        upload = bench.services.manual.remember(caller, TEAM, b"the same bytes", vector)
        _, name = await slept(bench, caller.access.account, upload)
        assert name in stored(folder)
        await self.all_agrees(bench)

    async def all_agrees(self, bench: Bench) -> None:
        await bench.storage.outbox.empty()
        assert (await check(bench.storage)).problems == []
        assert await bench.value("SELECT count(*) FROM blob_outbox") == 0


async def test_nothing_is_written_when_every_put_was_too_slow(bench: Bench, folder: Path) -> None:
    caller = await bench.caller(await bench.account())
    store = Slow(folder=folder)
    store.passes = lambda: bench.clock.advance(GRACE.total_seconds())
    outbox = outbox_on(bench, store, soon_s=60)
    with pytest.raises(Unavailable) as caught:
        async with outbox.transaction(
            caller.access.account, [(blob_hash(blob_id(b"one")), b"one")]
        ):
            raise Crash
    assert caught.value.code == "store.late"
    await bench.storage.outbox.empty()
    assert blob_id(b"one") not in stored(folder)


@pytest.mark.parametrize("upload_first", [True, False])
async def test_an_upload_comes_while_its_bytes_are_deleted(
    bench: Bench, folder: Path, upload_first: bool
) -> None:
    """The same bytes had been uploaded and erased before."""
    caller = await bench.caller(await bench.account())
    vector = np.ones(6, np.float32)
    doomed, name = await bench.services.manual.remember(caller, TEAM, b"the same bytes", vector)
    await bench.services.deletion.forget(caller.access, doomed)
    works: list[Awaitable[Any]] = [
        bench.services.manual.remember(caller, TEAM, b"the same bytes", vector),
        bench.storage.outbox.empty(),
    ]
    done = await race(bench, caller.access.account, *(works if upload_first else works[::-1]))
    assert [one for one in done if isinstance(one, BaseException)] == []
    assert name in stored(folder)
    bench.clock.advance(GRACE.total_seconds())
    await bench.storage.outbox.empty()
    assert name in stored(folder)
    assert (await check(bench.storage)).problems == []


async def test_many_uploads_of_the_same_bytes(bench: Bench, folder: Path) -> None:
    caller = await bench.caller(await bench.account())
    vector = np.ones(6, np.float32)
    await bench.remember(caller, "Ben sells cups.")
    uploads = [
        bench.services.manual.remember(caller, TEAM, b"the same bytes", vector) for _ in range(3)
    ]
    done = await race(bench, caller.access.account, *uploads)
    assert [name for _, name in done] == [blob_id(b"the same bytes")] * 3
    assert (await check(bench.storage)).problems == []


async def test_what_was_erased_and_comes_again_is_deleted(bench: Bench, folder: Path) -> None:
    """Its bytes had been due, and were deleted while it came."""
    caller = await bench.caller(await bench.account())
    [doomed] = await bench.remember(caller, "Anna prefers tea.")
    [row] = (await packed(bench, caller)).memories
    await bench.services.deletion.forget(caller.access, doomed.id)
    again = bench.services.importer.take_in(caller.access, replace(EMPTY, memories=[row]))
    done = await slept(bench, caller.access.account, again)
    assert done.results == [(doomed.id, "erased")]
    bench.clock.advance(GRACE.total_seconds())
    await bench.storage.outbox.empty()
    assert row.blob_id not in stored(folder)


class TestResistingJournal:
    """What the store does not take of one account waits, with the rest of that account alone."""

    async def test_it_keeps_no_other_account(self, bench: Bench, folder: Path) -> None:
        one, two = await bench.account(), await bench.account()
        callers = [await bench.caller(one), await bench.caller(two)]
        doomed = [(await bench.remember(caller, "Anna prefers tea."))[0] for caller in callers]
        own = folder / one.account.hex()
        aside = own.rename(folder.with_name("aside"))
        own.write_text("in the way")
        for caller, memory in zip(callers, doomed, strict=True):
            receipt, _ = await bench.services.memory.forget(caller.access, memory.id)
        assert blob_id(receipt) in stored(folder)
        assert await waiting(bench) == {one.account: 1}
        with pytest.raises(Unavailable):
            await bench.storage.outbox.publish()
        own.unlink()
        aside.rename(own)
        await bench.storage.outbox.publish()
        assert await waiting(bench) == {}
        for founder in (one, two):
            await assert_chain_holds(bench, founder.account)

    async def test_what_is_behind_it_waits_its_turn(self, bench: Bench, folder: Path) -> None:
        account = (await bench.account()).account
        own = folder / account.hex()
        own.rename(folder.with_name("aside"))
        own.mkdir()
        for n, data in enumerate((b"{first}", b"{second}")):
            await bench.sql(
                "INSERT INTO blobs (account_id, blob_id, bytes, created_at)"
                " VALUES ($1, $2, $3, $4)",
                account,
                blob_hash(blob_id(data)),
                data,
                bench.clock() + timedelta(seconds=n),
            )
        in_the_way = own / blob_id(b"{first}")[:2]
        in_the_way.write_text("")
        with pytest.raises(Unavailable):
            await bench.storage.outbox.publish()
        in_the_way.unlink()
        assert stored(own) == set()
        await bench.storage.outbox.publish()
        assert stored(own) == {blob_id(b"{first}"), blob_id(b"{second}")}

    async def test_a_stop_is_heard_while_marks_wait(self, bench: Bench, folder: Path) -> None:
        account = (await bench.account()).account
        store = Halting(folder=folder)
        outbox = outbox_on(bench, store, soon_s=60)
        with pytest.raises(Unavailable):
            await outbox.mark(account)
        await staged(bench)
        publishing = asyncio.create_task(outbox.publish())
        await store.reached.wait()
        publishing.cancel()
        await asyncio.wait([publishing])
        assert publishing.cancelled(), "an outage would be what a loop goes on after"

    async def test_a_store_that_is_away_is_not_asked_for_all(
        self, bench: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("relayer.journal.outbox.RESISTING_SOON_MAX", 2)
        monkeypatch.setattr("relayer.journal.outbox.RESISTING_MAX", 3)
        for _ in range(5):
            await bench.account()
        await staged(bench)
        store = Away(folder=folder)
        outbox = outbox_on(bench, store, soon_s=60)
        await outbox.publish_soon()
        assert store.asked == 2
        with pytest.raises(Unavailable):
            await outbox.publish()
        assert store.asked == 2 + 3

    async def test_marks_take_a_turn_and_no_longer(
        self, bench: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What else housekeeping does would wait for each of them."""
        accounts = [(await bench.account()).account for _ in range(3)]
        store = Tired(folder=folder)
        outbox = outbox_on(bench, store, soon_s=60)
        outbox.mark_later(accounts)
        monkeypatch.setattr("relayer.journal.outbox.TURN_S", -1.0)
        for round_ in range(1, 4):
            with pytest.raises(Unavailable):
                await outbox.publish()
            assert store.asked == accounts[:round_], "the others are next"


async def waiting(bench: Bench) -> dict[bytes, int]:
    """Account → how many of its journal objects wait."""
    rows = await bench.sql(
        "SELECT whole_id, count(*) AS n FROM blobs JOIN accounts USING (account_id) GROUP BY 1"
    )
    return {r["whole_id"]: r["n"] for r in rows}


class Away(FolderStore):
    """A store that takes nothing now."""

    asked = 0

    async def put_many(self, account: AccountId, blobs: Mapping[str, bytes]) -> None:
        """Nothing; it is counted."""
        self.asked += 1
        raise Unavailable("The blob store is away.", code="blobs.unavailable")


class Halting(FolderStore):
    """A store that takes no mark, and nothing ever comes to its end in."""

    def __init__(self, *, folder: Path) -> None:
        super().__init__(folder=folder)
        self.reached = asyncio.Event()

    async def put_many(self, account: AccountId, blobs: Mapping[str, bytes]) -> None:
        """Nothing, ever; it is told that it began."""
        self.reached.set()
        await asyncio.Event().wait()

    async def mark(self, account: AccountId, seq: int) -> None:
        """Nothing."""
        raise Unavailable("The blob store is away.", code="blobs.unavailable")


class Tired(FolderStore):
    """A store that takes no mark."""

    def __init__(self, *, folder: Path) -> None:
        super().__init__(folder=folder)
        self.asked: list[AccountId] = []

    async def mark(self, account: AccountId, seq: int) -> None:
        """Nothing; it is counted."""
        self.asked.append(account)
        raise Unavailable("The blob store is away.", code="blobs.unavailable")


class Hanging(FolderStore):
    """A store that never takes anything."""

    async def put_many(self, account: AccountId, blobs: Mapping[str, bytes]) -> None:
        """Nothing, ever."""
        await asyncio.Event().wait()


class Slow(FolderStore):
    """A store that takes what it is given after some time."""

    passes: Callable[[], object]

    async def put_many(self, account: AccountId, blobs: Mapping[str, bytes]) -> None:
        """What a folder does, late."""
        await super().put_many(account, blobs)
        self.passes()


class Overtaken(FolderStore):
    """A store in which something happens between reading a mark and writing the next."""

    happens: Callable[[], Awaitable[object]] | None = None

    async def mark(self, account: AccountId, seq: int) -> None:
        """What a bucket does: the mark that is written last stays."""
        if (happens := self.happens) is not None:
            self.happens = None
            await happens()
            (self._folder / account.hex() / "newest").unlink()
        await super().mark(account, seq)


class Lingering(FolderStore):
    """A store that deletes, but takes its time for it."""

    def __init__(self, *, folder: Path) -> None:
        super().__init__(folder=folder)
        self.asked, self.goes_on = asyncio.Event(), asyncio.Event()

    async def delete(self, account: AccountId, name: str) -> None:
        """What a folder does, when it is told to go on."""
        self.asked.set()
        await self.goes_on.wait()
        await super().delete(account, name)


async def test_a_slow_deletion_keeps_no_write_of_its_account(bench: Bench, folder: Path) -> None:
    caller = await bench.caller(await bench.account())
    vector = np.ones(6, np.float32)
    manual = bench.services.manual
    doomed, name = await manual.remember(caller, TEAM, b"the same bytes", vector)
    await bench.services.deletion.forget(caller.access, doomed)
    store = Lingering(folder=folder)
    deleting = asyncio.create_task(outbox_on(bench, store, soon_s=60).empty())
    await store.asked.wait()
    async with asyncio.timeout(60):
        [kept] = await bench.remember(caller, "Ben sells cups.")
        await bench.services.deletion.forget(caller.access, kept.id)
    again = asyncio.create_task(manual.remember(caller, TEAM, b"the same bytes", vector))
    await bench.until(WAITING, 1)  # only who brings what is being deleted has to wait
    async with asyncio.timeout(60):
        await bench.remember(caller, "Carl drinks tea.")
    store.goes_on.set()
    await deleting
    assert (await again)[1] == name
    assert name in stored(folder)
    assert (await check(bench.storage)).problems == []


async def test_a_write_that_is_late_keeps_its_blob(bench: Bench, folder: Path) -> None:
    """Its grace is over between its last look and its commit."""
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "Ben sells cups.")
    data = b"\x02 foreign bytes"
    blob = (blob_hash(blob_id(data)), data)
    async with bench.storage.outbox.transaction(caller.access.account, [blob]) as connection:
        bench.clock.advance(2 * GRACE.total_seconds())
        deleting = asyncio.create_task(bench.storage.outbox.empty())
        await bench.until(WAITING, 1)
        await connection.execute("DELETE FROM blob_outbox WHERE blob_id = $1", blob[0])
    await deleting
    assert blob_id(data) in stored(folder)


async def test_a_slow_store_holds_no_request(bench: Bench, folder: Path) -> None:
    await bench.account()
    waiting = await staged(bench)
    outbox = outbox_on(bench, Hanging(folder=folder), soon_s=0.05)
    async with asyncio.timeout(60):
        await outbox.publish_soon()
    assert [r["bytes"] for r in await bench.sql("SELECT bytes FROM blobs")] == waiting
    await bench.storage.outbox.publish()
    assert blob_id(b"{waits}") in stored(folder)


async def test_a_slow_process_takes_no_mark_back(bench: Bench, folder: Path) -> None:
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "Anna prefers tea.")
    await staged(bench)
    store = Overtaken(folder=folder)
    store.happens = lambda: bench.remember(caller, "Ben sells cups.")
    await outbox_on(bench, store, soon_s=60).publish()
    newest = await bench.value("SELECT receipt_seq FROM accounts")
    assert await store.read_mark(caller.access.account) == newest


async def test_deletions_take_turns_with_other_work(
    bench: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await bench.caller(await bench.account())
    await bench.sql(
        "INSERT INTO blob_outbox (account_id, blob_id, due_at)"
        " SELECT $1, b, $3 FROM unnest($2::bytea[]) AS n (b)",
        caller.access.account,
        [blob_hash(blob_id(bytes([n]))) for n in range(3)],
        bench.clock(),
    )
    monkeypatch.setattr("relayer.journal.outbox.TURN_S", -1.0)
    for left in (2, 1, 0, 0):
        await bench.storage.outbox.empty()
        assert await bench.value("SELECT count(*) FROM blob_outbox") == left


async def test_what_is_uploaded_again_is_not_deleted(bench: Bench, folder: Path) -> None:
    """The same bytes come again after their deletion was looked up, before it is done."""
    caller = await bench.caller(await bench.account())
    vector = np.ones(6, np.float32)
    _, name = await bench.services.manual.remember(caller, TEAM, b"the same bytes", vector)
    await bench.sql(
        "INSERT INTO blob_outbox (account_id, blob_id, due_at) VALUES ($1, $2, $3)",
        caller.access.account,
        blob_hash(name),
        bench.clock(),
    )
    await bench.storage.outbox.empty()
    assert name in stored(folder)
    assert await bench.value("SELECT count(*) FROM blob_outbox") == 0


async def test_many_that_resist_keep_no_other(bench: Bench, folder: Path) -> None:
    caller = await bench.caller(await bench.account())
    [doomed] = await bench.remember(caller, "Anna prefers tea.")
    before = stored(folder)
    resisting = [blob_id(bytes([n])) for n in range(PAGE + 1)]
    [one] = folder.rglob(next(iter(before)))
    for name in resisting:
        (one.parent.parent / name[:2] / name).mkdir(parents=True)
    await bench.sql(
        "INSERT INTO blob_outbox (account_id, blob_id, due_at)"
        " SELECT $1, b, $3 FROM unnest($2::bytea[]) AS n (b)",
        caller.access.account,
        [blob_hash(name) for name in resisting],
        bench.clock(),
    )
    bench.clock.advance(1)
    await bench.services.deletion.forget(caller.access, doomed.id)
    with pytest.raises(Unavailable):
        await bench.storage.outbox.empty()
    assert len(before - stored(folder)) == 1
    assert await bench.value("SELECT count(*) FROM blob_outbox") == len(resisting)


async def test_one_blob_that_resists_keeps_no_other(
    bench: Bench, folder: Path, database: Database
) -> None:
    caller = await bench.caller(await bench.account())
    one, two = await bench.remember(caller, "Anna prefers tea.", "Ben prefers milk.")
    names = {
        r["memory_id"]: blob_id(await envelope_of(folder, n))
        for r in await database.fetch("SELECT memory_id, blob_id FROM memories")
        for n in stored(folder)
        if blob_hash(n) == r["blob_id"]
    }
    [path] = folder.rglob(names[one.id])
    path.unlink()
    path.mkdir()
    for item in (one, two):
        await bench.services.memory.forget(caller.access, item.id)
    with pytest.raises(Unavailable):
        await bench.storage.outbox.empty()
    assert names[two.id] not in stored(folder)
    path.rmdir()
    await bench.storage.outbox.empty()
    assert await bench.value("SELECT count(*) FROM blob_outbox") == 0
