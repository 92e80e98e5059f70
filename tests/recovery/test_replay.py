"""A database of yesterday beside the blobs of today: what was decided since holds again."""

import asyncio
import shutil
import uuid
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asyncpg.exceptions import UndefinedTableError

from relayer.blobs.store import FolderStore
from relayer.database.outbox import intend
from relayer.database.pool import Database
from relayer.errors import Corrupted, NotFound, Unavailable
from relayer.journal.outbox import GRACE
from relayer.recovery.collection import STRAY_GRACE
from relayer.sealed.envelope import blob_id
from relayer.sealed.grants import issue_grant, issue_revocation
from relayer.sealed.keys import AccountId
from relayer.sealed.primitives import to_base64url
from relayer.sealed.receipts import Item, open_receipt, sign_receipt
from relayer.storage import replay_on
from tests.chains import assert_chain_holds, chain_of
from tests.collecting import STRAY, problems, put
from tests.conftest import BenchMaker
from tests.erasing import keep_turn, living
from tests.services import OTHER, TEAM, Bench, new_identity
from tests.setting_back import backup, bench, catch_up, folder, put_back
from tests.unreadable import make_unreadable, refuse_listing

__all__ = ["bench", "folder"]  # fixtures
PINNED = "SELECT pinned FROM memories WHERE account_id = $1"
BLOB_ID = "SELECT blob_id FROM memories WHERE memory_id = $1"


class Together(FolderStore):
    """A store that tells no mark before it is asked for three."""

    def __init__(self, *, folder: Path) -> None:
        super().__init__(folder=folder)
        self._asked = asyncio.Barrier(3)

    async def read_mark(self, account: AccountId) -> int:
        """The highest receipt number that was marked."""
        await self._asked.wait()
        return await super().read_mark(account)


async def test_marks_are_read_some_at_a_time(bench: Bench, folder: Path) -> None:
    for _ in range(3):
        await bench.account()
    storage = replace(bench.storage, blobs=Together(folder=folder))
    async with asyncio.timeout(60):
        await replay_on(storage, bench.clock).catch_up()


async def test_what_was_erased_since_is_erased_again(bench: Bench, database: Database) -> None:
    founder = await bench.account()
    caller = await bench.caller(founder)
    soon = bench.clock() + timedelta(minutes=5)
    doomed, kept = await bench.remember(caller, "Anna prefers tea.", "Ben sells cups.")
    [expiring] = await bench.remember(caller, "The build is red.", expires_at=soon)
    turn = await keep_turn(bench, caller, "Anna: tea, please.", "pending")
    saved = await backup(database)
    [later] = await bench.remember(caller, "Nobody needs this.")
    await bench.services.deletion.forget_ids(caller.access, [doomed.id, turn, later.id])
    bench.clock.advance(400)
    await bench.services.expiry.expire()
    await bench.storage.outbox.empty()
    await put_back(database, saved)
    assert await living(bench) == {doomed.id, kept.id, expiring.id}
    await assert_chain_holds(bench, founder.account)
    found = {problem for problem, _ in await problems(bench)}
    assert "the database does not know this erasure" in found

    started = bench.another()
    await catch_up(started)
    assert await living(bench) == {kept.id}
    assert await bench.value("SELECT count(*) FROM episodes") == 0
    stones = {r["memory_id"] for r in await bench.sql("SELECT memory_id FROM tombstones")}
    assert stones == {doomed.id, expiring.id, later.id, turn}
    relayer = bench.storage.identity.public_key
    await assert_chain_holds(bench, founder.account)
    repeated = [open_receipt(r, relayer) for r in await chain_of(bench, founder.account)][-2:]
    assert {r.op for r in repeated} == {"forget", "expire"}
    assert {r.actor for r in repeated} == {relayer}
    await bench.storage.outbox.empty()
    assert await problems(bench) == []
    seq = await bench.value("SELECT receipt_seq FROM accounts")
    await catch_up(bench.another())
    assert await bench.value("SELECT receipt_seq FROM accounts") == seq


async def test_it_is_erased_again_before_anything_of_it_is_noted(
    bench: Bench, database: Database
) -> None:
    """A note that fails keeps no erasure from holding until the next walk."""
    caller = await bench.caller(await bench.account())
    [doomed] = await bench.remember(caller, "Anna prefers tea.")
    saved = await backup(database)
    await bench.services.memory.forget(caller.access, doomed.id)
    await bench.storage.outbox.empty()
    await put_back(database, saved)
    assert await living(bench) == {doomed.id}
    await bench.sql("ALTER TABLE lasting_objects RENAME TO away")
    with pytest.raises(UndefinedTableError):
        await bench.another().services.collector.collect()
    assert await living(bench) == set()


async def test_an_account_whose_folder_cannot_be_listed_has_not_caught_up(
    bench: Bench, folder: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    founder = await bench.account()
    agent = await bench.key(founder, TEAM)
    caller = await bench.caller(founder)
    [doomed] = await bench.remember(caller, "Anna prefers tea.")
    saved = await backup(database)
    await bench.revoke(founder, agent.identity.public_key)
    await bench.services.deletion.forget(caller.access, doomed.id)
    await put_back(database, saved)
    started = bench.another()
    with monkeypatch.context() as while_starting:
        refuse_listing(while_starting, folder / founder.account.hex())
        with pytest.raises(Unavailable):
            await catch_up(started)
    await catch_up(started)
    assert await living(bench) == set()
    assert await started.storage.accounts.access(founder.account, agent.identity.public_key) is None


async def test_an_account_with_an_unreadable_object_answers_nobody(
    bench: Bench, folder: Path, database: Database
) -> None:
    """It may be what revokes a key, or erases something; other accounts do not wait for it."""
    founder, other = await bench.account(), await bench.account()
    caller = await bench.caller(founder)
    [doomed] = await bench.remember(caller, "Anna prefers tea.")
    saved = await backup(database)
    receipt, _ = await bench.services.memory.forget(caller.access, doomed.id)
    await put_back(database, saved)
    back = make_unreadable(folder, blob_id(receipt))
    started = bench.another()
    await catch_up(started)
    with pytest.raises(Corrupted):
        await started.caller(founder)
    await started.caller(other)
    back()
    await replay_on(started.storage, started.clock).try_again()
    await started.caller(founder)
    assert await living(bench) == set()


async def test_an_account_that_was_erased_since_is_closed_again(
    bench: Bench, database: Database
) -> None:
    founder, other = await bench.account(), await bench.account()
    caller = await bench.caller(founder)
    await bench.remember(caller, "Anna prefers tea.")
    saved = await backup(database)
    await bench.services.closing.close(caller.access)
    await bench.services.closing.purge()
    await put_back(database, saved)
    started = bench.another()
    await catch_up(started)
    with pytest.raises(NotFound):
        await started.caller(founder)
    assert await living(bench) == set()
    await started.caller(other)


async def test_a_turn_that_was_said_again_is_another_one(bench: Bench, database: Database) -> None:
    """The journal names the one that was erased."""
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "Ben sells cups.", namespace=TEAM)
    saved = await backup(database)
    turn = await keep_turn(bench, caller, "Anna: tea, please.", "pending")
    await bench.services.deletion.forget(caller.access, turn)
    await put_back(database, saved)
    again = await keep_turn(bench, caller, "Anna: tea, please.", "pending")
    await catch_up(bench.another())
    assert await bench.value("SELECT array_agg(episode_id) FROM episodes") == [again]


async def test_forged_erasures_are_not_believed(
    bench: Bench, make_bench: BenchMaker, folder: Path
) -> None:
    """Another relayer's receipt, and one of another account, in the folder of this."""
    founder, neighbour = await bench.account(), await bench.account()
    caller, other = await bench.caller(founder), await bench.caller(neighbour)
    [kept] = await bench.remember(caller, "Anna prefers tea.")
    [theirs] = await bench.remember(other, "Ben sells cups.", namespace=OTHER)
    done = await bench.services.deletion.forget(other.access, theirs.id)
    stranger = make_bench(blob_store=f"file:{folder.with_name('theirs')}")
    receipt = open_receipt(done.receipts[0], bench.storage.identity.public_key)
    forged = sign_receipt_as(stranger, receipt, founder.account, kept.id)
    for signed in (*done.receipts, forged):
        await put(bench, caller, signed)
    await bench.storage.blobs.mark(founder.account, 99)
    await catch_up(bench.another())
    assert await living(bench) == {kept.id}
    assert {p for p, _ in await problems(bench)} == {STRAY}


async def test_nothing_is_read_when_nothing_was_set_back(bench: Bench, folder: Path) -> None:
    caller = await bench.caller(await bench.account())
    [doomed] = await bench.remember(caller, "Anna prefers tea.")
    await bench.services.deletion.forget(caller.access, doomed.id)
    marked = await bench.storage.blobs.read_mark(caller.access.account)
    assert marked == await bench.value("SELECT receipt_seq FROM accounts")
    objects = folder / caller.access.account.hex()
    for part in [p for p in objects.iterdir() if p.is_dir()]:
        shutil.rmtree(part)
        part.write_text("not a folder")  # a walk would fail here
    await catch_up(bench.another())


def sign_receipt_as(bench: Bench, receipt: Any, account: Any, memory: uuid.UUID) -> bytes:
    """A receipt of another relayer that would erase a memory here."""
    items = (Item(memory, 1, receipt.items[0].blob_id),)
    return sign_receipt(
        bench.storage.identity, replace(receipt, account=account, items=items, seq=99)
    )


class TestGrants:
    """What was granted and revoked since counts before anybody is answered."""

    async def test_a_key_that_was_revoked_stays_revoked(
        self, bench: Bench, database: Database
    ) -> None:
        founder = await bench.account()
        gone, kept = await bench.key(founder, TEAM), await bench.key(founder, TEAM)
        saved = await backup(database)
        await bench.revoke(founder, gone.identity.public_key)
        new = await bench.key(founder, TEAM)
        await put_back(database, saved)
        started = bench.another()
        assert (await started.caller(gone)).access.may_write(TEAM)
        await catch_up(started)
        accounts = started.storage.accounts
        assert await accounts.access(founder.account, gone.identity.public_key) is None
        assert (await started.caller(kept)).access.may_write(TEAM)
        # A key of since belongs to the account once it signs a request for it.
        owner = "SELECT count(*) FROM key_owner WHERE public_key = $1"
        assert await bench.value(owner, new.identity.public_key) == 0
        assert await accounts.claim(founder.account, new.identity.public_key)
        assert (await started.caller(new)).access.may_write(TEAM)
        await assert_chain_holds(bench, founder.account)
        assert await problems(bench) == []
        assert (await bench.key(founder, TEAM)).account == founder.account

    async def test_with_a_revocation_alone_nothing_names_a_receipt(
        self, bench: Bench, database: Database, folder: Path
    ) -> None:
        """The store is told how far the history has come with whatever is published."""
        founder = await bench.account("sealed")
        gone = await bench.key(founder, TEAM)
        saved = await backup(database)
        await bench.revoke(founder, gone.identity.public_key)
        newest = await bench.value("SELECT receipt_seq FROM accounts")
        assert await bench.storage.blobs.read_mark(founder.account) == newest
        await put_back(database, saved)
        await catch_up(bench.another())
        assert (
            await bench.another().storage.accounts.access(founder.account, gone.identity.public_key)
            is None
        )

    async def test_without_a_grant_in_between_nobody_is_answered(
        self, bench: Bench, database: Database
    ) -> None:
        founder = await bench.account("sealed")
        gone = await bench.key(founder, TEAM)
        saved = await backup(database)
        await bench.key(founder, OTHER)
        await bench.revoke(founder, gone.identity.public_key)
        missing = await bench.value("SELECT object FROM grants WHERE serial = 3")
        await bench.storage.blobs.delete(founder.account, blob_id(missing))
        await put_back(database, saved)
        started = bench.another()
        await catch_up(started)
        for key in (gone, founder):
            with pytest.raises(Corrupted):
                await started.caller(key)
        # It is still so for the next one, until the object is found.
        await catch_up(bench.another())
        with pytest.raises(Corrupted):
            await bench.another().caller(gone)
        await bench.storage.blobs.put_many(founder.account, {blob_id(missing): missing})
        found = bench.another()
        await catch_up(found)
        accounts = found.storage.accounts
        assert await accounts.access(founder.account, gone.identity.public_key) is None
        assert (await found.caller(founder)).access.is_owner

    async def test_an_erasure_names_a_revocation_that_is_lost(
        self, bench: Bench, database: Database
    ) -> None:
        founder = await bench.account()
        gone = await bench.key(founder, TEAM)
        [doomed] = await bench.remember(await bench.caller(founder), "Anna prefers tea.")
        saved = await backup(database)
        await bench.revoke(founder, gone.identity.public_key)
        caller = await bench.caller(founder)
        await bench.services.deletion.forget(caller.access, doomed.id)
        lost = await bench.value("SELECT object FROM grants WHERE serial = 4")
        await bench.storage.blobs.delete(founder.account, blob_id(lost))
        await put_back(database, saved)
        # The erasure is repeated by then; what its receipt said of the grants still counts.
        for _ in range(2):
            await catch_up(bench.another())
            with pytest.raises(Corrupted):
                await bench.another().caller(gone)
            assert await living(bench) == set()

    async def test_another_grant_in_the_same_place_stops_the_account(
        self, bench: Bench, database: Database
    ) -> None:
        """Somebody went on with the older database beside another store."""
        founder = await bench.account("sealed")
        gone = await bench.key(founder, TEAM)
        saved = await backup(database)
        await bench.revoke(founder, gone.identity.public_key)
        revoked = await bench.value("SELECT object FROM grants WHERE serial = 3")
        await put_back(database, saved)
        await bench.storage.blobs.delete(founder.account, blob_id(revoked))
        await bench.another().key(founder, OTHER)
        await bench.storage.blobs.put_many(founder.account, {blob_id(revoked): revoked})
        await bench.storage.blobs.mark(founder.account, 99)
        await catch_up(bench.another())
        with pytest.raises(Corrupted):
            await bench.another().caller(gone)

    async def test_what_could_not_be_granted_means_nothing(
        self, bench: Bench, database: Database
    ) -> None:
        """A writer's own grant and a stranger's revocation, put into the folder."""
        founder = await bench.account("sealed")
        writer, stranger = await bench.key(founder, TEAM), new_identity()
        saved = await backup(database)
        forged = issue_grant(
            writer.identity,
            account=founder.account,
            serial=3,
            recipient=stranger.public_key,
            role="owner",
            keys=[bench.root[founder.account]],
            created_ms=1,
        )
        revoked = issue_revocation(
            stranger,
            account=founder.account,
            serial=3,
            recipient=founder.identity.public_key,
            created_ms=1,
        )
        for signed in (forged, revoked):
            await bench.storage.blobs.put_many(founder.account, {blob_id(signed): signed})
        await bench.storage.blobs.mark(founder.account, 99)
        await put_back(database, saved)
        started = bench.another()
        await catch_up(started)
        assert (await started.caller(founder)).access.is_owner
        assert await started.storage.accounts.access(founder.account, stranger.public_key) is None

    async def test_what_was_written_since_comes_back(
        self, bench: Bench, database: Database
    ) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        await bench.remember(caller, "Anna prefers tea.")
        saved = await backup(database)
        [later] = await bench.remember(caller, "Ben sells cups.", namespace=OTHER)
        agent = await bench.key(founder, TEAM)
        await bench.revoke(founder, agent.identity.public_key)
        await put_back(database, saved)
        started = bench.another()
        await catch_up(started)
        # Meanwhile it is no stray, however long it takes.
        bench.clock.advance(2 * STRAY_GRACE.total_seconds())
        await started.services.collector.collect()
        await started.storage.outbox.empty()
        keys = await started.storage.custody.job_keys(founder.account)
        assert keys is not None
        await started.services.restore.complete(founder.account, keys)
        assert later.id in await living(bench)
        assert await problems(bench) == []

    async def test_what_was_being_put_comes_back_and_what_was_erased_goes(
        self, bench: Bench, database: Database
    ) -> None:
        """The database of yesterday is of the moment between a note and the row it is for."""
        founder = await bench.account()
        caller = await bench.caller(founder)
        [erased] = await bench.remember(caller, "Anna prefers tea.")
        [[gone]] = await database.fetch(BLOB_ID, erased.id)
        name = to_base64url(gone)
        stored = (await bench.storage.blobs.get_many(founder.account, [name]))[name]
        assert isinstance(stored, bytes)
        await bench.services.memory.forget(caller.access, erased.id)
        saved = await backup(database)
        [later] = await bench.remember(caller, "Ben sells cups.")
        [[put_since]] = await database.fetch(BLOB_ID, later.id)
        await put_back(database, saved)
        await bench.storage.blobs.put_many(founder.account, {name: stored})  # its deletion was due
        now, account = bench.clock(), founder.account
        await intend(database, account=account, blob_ids=[put_since], due_at=now + GRACE)
        await intend(database, account=account, blob_ids=[gone], due_at=now)
        await bench.storage.blobs.mark(account, 99)
        started = bench.another()
        await catch_up(started)
        bench.clock.advance(2 * GRACE.total_seconds())
        await started.storage.outbox.empty()
        keys = await started.storage.custody.job_keys(founder.account)
        assert keys is not None
        await started.services.restore.complete(founder.account, keys)
        assert await living(bench) == {later.id}
        names = [name async for name in bench.storage.blobs.names(founder.account)]
        assert to_base64url(put_since) in names
        assert to_base64url(gone) not in names
