"""A database set back to the moment in which a memory was noted and put, and not yet written.

That is what a dump or a recovery to a point in time makes of it.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from relayer.blobs.store import FolderStore
from relayer.database.pool import Database
from relayer.errors import Unavailable
from relayer.journal.outbox import Outbox
from relayer.sealed.envelope import blob_hash, blob_id
from relayer.sealed.keys import AccountId
from relayer.storage import replay_on
from tests.erasing import living
from tests.services import Bench, new_identity
from tests.setting_back import bench, folder, put_back, serve_for_a_while, take_within_a_put
from tests.staging import outbox_on

__all__ = ["bench", "folder"]  # fixtures
NOTED = "SELECT count(*) FROM blob_outbox WHERE NOT stray"
WRITE = "UPDATE accounts SET receipt_seq = receipt_seq + 1 WHERE account_id = $1"


async def test_a_memory_that_a_snapshot_saw_being_put_comes_back(
    bench: Bench,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing but memories was written since; it is noticed once, and not at each start."""
    founder = await bench.account()
    caller = await bench.caller(founder)
    [first] = await bench.remember(caller, "Anna prefers tea.")
    saved = take_within_a_put(bench, database, monkeypatch)
    [put] = await bench.remember(caller, "Ben sells cups.")
    await put_back(database, saved)
    started = bench.another()
    for _ in range(3):
        await replay_on(started.storage, bench.clock).catch_up()
    events = [record.event for record in caplog.records if hasattr(record, "event")]
    assert events.count("replay.older") == 1
    await serve_for_a_while(started, founder)
    assert await living(bench) == {first.id, put.id}


async def test_the_notes_of_puts_end_under_another_key_too(
    bench: Bench, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account's receipts are of the key that is lost."""
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "Anna prefers tea.")
    saved = take_within_a_put(bench, database, monkeypatch)
    await bench.remember(caller, "Ben sells cups.")
    await put_back(database, saved)
    assert await bench.value(NOTED) == 1
    storage = replace(bench.storage, identity=new_identity())
    await replay_on(storage, bench.clock).catch_up()
    assert await bench.value(NOTED) == 0


async def test_a_copy_believes_no_note_whatever_its_store_was_told(
    bench: Bench, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that an earlier release has filled."""
    founder = await bench.account()
    caller = await bench.caller(founder)
    [first] = await bench.remember(caller, "Anna prefers tea.")
    saved = take_within_a_put(bench, database, monkeypatch)
    [put] = await bench.remember(caller, "Ben sells cups.")
    folder = Path(bench.settings.blob_store.removeprefix("file:"))
    await put_back(database, saved)
    newest = await bench.value("SELECT receipt_seq FROM accounts")
    (folder / founder.account.hex() / "newest").write_text(str(newest))
    started = bench.another()
    await replay_on(started.storage, bench.clock).catch_up()
    assert await bench.value(NOTED) == 1
    await replay_on(started.storage, bench.clock).end_puts()
    await serve_for_a_while(started, founder)
    assert await living(bench) == {first.id, put.id}


class Unmarked(FolderStore):
    """A store that takes no mark as long as it is said so."""

    away: Exception | None = None
    marks = 0

    async def mark(self, account: AccountId, seq: int) -> None:
        """What a folder does, unless it is away."""
        await asyncio.sleep(0)  # others may ask meanwhile
        if self.away is not None:
            raise self.away
        self.marks += 1
        await super().mark(account, seq)


async def put_through(bench: Bench, outbox: Outbox, account: AccountId, data: bytes) -> None:
    async with outbox.transaction(account, [(blob_hash(blob_id(data)), data)]) as connection:
        await connection.execute(WRITE, account)


async def test_a_mark_that_waits_is_made_up_for(bench: Bench, folder: Path) -> None:
    account = (await bench.account()).account
    store = Unmarked(folder=folder)
    store.away = Unavailable("away")
    outbox = outbox_on(bench, store, soon_s=60)
    await put_through(bench, outbox, account, b"one")
    with pytest.raises(Unavailable):
        await outbox.publish()
    store.away = None
    await outbox.publish()
    newest = await bench.value("SELECT receipt_seq FROM accounts")
    assert (await store.read_mark(account), store.marks) == (newest, 1)
    await outbox.publish()
    assert store.marks == 1


async def test_writes_at_once_share_their_marks(bench: Bench, folder: Path) -> None:
    account = (await bench.account()).account
    store = Unmarked(folder=folder)
    outbox = outbox_on(bench, store, soon_s=60)
    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(put_through(bench, outbox, account, b"%d" % number))
    newest = await bench.value("SELECT receipt_seq FROM accounts")
    assert await store.read_mark(account) == newest
    assert store.marks <= 4
