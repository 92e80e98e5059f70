"""An outside store and the database stay in step, whatever ends between them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from relayer.blobs.store import BlobStore, FolderStore
from relayer.database.pool import Database
from relayer.errors import Unavailable
from relayer.journal.outbox import GRACE, PAGE, Outbox
from relayer.memories.revising import Edit
from relayer.sealed.envelope import blob_hash, blob_id
from relayer.sealed.keys import AccountId
from relayer.upkeep.check import check
from tests.conftest import BenchMaker
from tests.services import TEAM, Bench
from tests.test_memory import assert_chain_holds


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
    lost = (await envelope_of(folder, name))[:-1] + b"\x00"
    with pytest.raises(Crash):
        async with bench.storage.outbox.putting(
            caller.access.account, [(blob_hash(blob_id(lost)), lost)], foreign=False
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


@pytest.mark.parametrize("act", ["remember", "edit"])
async def test_what_was_put_too_long_ago_is_not_acknowledged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """A machine that sleeps between putting and committing may outlive the grace."""
    caller = await bench.caller(await bench.account())
    [stored] = await bench.remember(caller, "Anna prefers tea.")
    blobs, put_many = bench.storage.blobs, bench.storage.blobs.put_many

    async def put_and_sleep(account: AccountId, named: Mapping[str, bytes]) -> None:
        monkeypatch.undo()
        await put_many(account, named)
        bench.clock.advance(GRACE.total_seconds() + 1)
        await bench.storage.outbox.empty()

    async def acts() -> None:
        if act == "remember":
            await bench.remember(caller, "Anna prefers coffee.")
        else:
            edit = Edit(changes={"text": "Anna prefers coffee."})
            await bench.services.reviser.edit(caller, stored.id, edit)

    monkeypatch.setattr(blobs, "put_many", put_and_sleep)
    with pytest.raises(Unavailable) as refused:
        await acts()
    assert refused.value.code == "store.late"
    assert await bench.texts(caller, "Anna") == ["Anna prefers tea."]
    await acts()
    assert "Anna prefers coffee." in await bench.texts(caller, "Anna")
    assert (await check(bench.storage)).problems == []


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


class Hanging(FolderStore):
    """A store that never takes anything."""

    async def put_many(self, account: AccountId, blobs: Mapping[str, bytes]) -> None:
        """Nothing, ever."""
        await asyncio.Event().wait()


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


def outbox_on(bench: Bench, blobs: BlobStore, *, soon_s: float) -> Outbox:
    return Outbox(database=bench.storage.database, blobs=blobs, clock=bench.clock, soon_s=soon_s)


async def staged(bench: Bench) -> list[bytes]:
    """Journal objects that wait, put back as if nothing had been published yet."""
    await bench.sql(
        "INSERT INTO blobs (account_id, blob_id, bytes, created_at)"
        " SELECT account_id, $1, $2, now() FROM accounts",
        blob_hash(blob_id(b"{waits}")),
        b"{waits}",
    )
    return [r["bytes"] for r in await bench.sql("SELECT bytes FROM blobs")]


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
    assert await store.marked(caller.access.account) == newest


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
    await bench.services.forgetting.forget(caller.access, doomed.id)
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
