"""What a rebuild refuses or mends of stored objects: forged, missing, unreadable, of no time."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from relayer.clock import MOMENT_MS_MAX, rfc3339_ms
from relayer.errors import Conflict
from relayer.record import Draft, encode, new_id
from relayer.sealed.envelope import MEMORY, Address, blob_id, seal
from relayer.sealed.grants import issue_grant
from relayer.sealed.keys import Root, account_id
from relayer.sealed.named import NamedKey, sign_namespace
from relayer.sealed.primitives import random_key
from relayer.sealed.receipts import open_receipt, sign_receipt
from relayer.upkeep import provision
from relayer.upkeep.rebuild import CLOSED, REBUILT, rebuild_lost
from tests.rebuilding import Lose, bench, completed, lose, rebuilt
from tests.services import TEAM, Bench, bench_on, new_identity
from tests.unreadable import make_unreadable

__all__ = ["bench", "lose"]  # fixtures


async def test_an_account_with_an_unreadable_object_is_not_rebuilt(
    bench: Bench, lose: Lose, tmp_path: Path
) -> None:
    """It may be an erasure; other accounts do not wait for it."""
    founder, _ = await bench.account(), await bench.account()
    caller = await bench.caller(founder)
    [doomed] = await bench.remember(caller, "Anna prefers tea.")
    receipt, _ = await bench.services.memory.forget(caller.access, doomed.id)
    await bench.storage.outbox.publish()
    lost = await lose(bench)
    back = make_unreadable(tmp_path, blob_id(receipt))
    outcomes = await rebuilt(lost, bench)
    assert sorted(outcomes) == ["not rebuilt: Corrupted, see the log", REBUILT]
    back()
    assert await rebuilt(lost, bench) == [REBUILT]
    assert await lost.value("SELECT memory_id FROM tombstones") == doomed.id


async def moved_back(bench: Bench, founder: provision.NewKey) -> None:
    """Found the account once more, with the founder's own key."""
    grant = issue_grant(
        founder.identity,
        account=founder.account,
        serial=1,
        recipient=founder.identity.public_key,
        role="owner",
        keys=[bench.root[founder.account]],
        created_ms=1,
    )
    await bench.storage.granting.create(
        founder=founder.identity.public_key, grants=[grant], label=""
    )


class TestAbsurdTimes:
    """An earlier release took them in; no clock shows them."""

    @pytest.mark.parametrize("created_ms", [MOMENT_MS_MAX + 1, 2**53 - 1])
    async def test_of_a_grant(self, bench: Bench, lose: Lose, created_ms: int) -> None:
        founder, innocent = new_identity(), await bench.account()
        account = account_id(founder.public_key)
        signed = issue_grant(
            founder,
            account=account,
            serial=1,
            recipient=founder.public_key,
            role="owner",
            keys=[Root(1, random_key())],
            created_ms=created_ms,
            expires_ms=created_ms,
        )
        await bench.storage.blobs.put_many(account, {blob_id(signed): signed})
        lost = await lose(bench)
        assert await rebuilt(lost, bench) == [REBUILT, REBUILT]
        [key] = await lost.storage.accounts.all_keys(account)
        assert key["created_at"] == key["expires_at"] == rfc3339_ms(MOMENT_MS_MAX)
        assert (await lost.caller(innocent)).access.is_owner

    async def test_of_an_envelope(self, bench: Bench, lose: Lose) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        await bench.remember(caller, "Anna prefers tea.")
        record = encode(Draft(text="Ben sells cups.", namespace=TEAM), caller.access.key)
        for created_ms in (2**62, 2**64 - 1):
            place = Address(MEMORY, founder.account, new_id(), 1)
            key = bench.namespace_key(founder.account, TEAM)
            blob = seal(key, place, record, created_ms=created_ms)
            await bench.storage.blobs.put_many(founder.account, {blob_id(blob): blob})
        lost = await lose(bench)
        assert await rebuilt(lost, bench) == [REBUILT]
        await completed(lost, founder)
        stored = await lost.sql("SELECT stored_at FROM memories")
        # None later than the change that brings it back.
        assert [row["stored_at"].year for row in stored] == [bench.clock().year] * 3
        assert not await lost.value("SELECT incomplete FROM accounts")


class TestRefused:
    async def test_one_account_keeps_no_other_one_from_it(
        self, bench: Bench, lose: Lose, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whatever is wrong with it: here an epoch that no column holds."""
        poisoned, innocent = await bench.account(), await bench.account()
        named = NamedKey(poisoned.account, TEAM, 2**32 - 1, random_key())
        signed = sign_namespace(bench.storage.identity, named)
        await bench.storage.blobs.put_many(poisoned.account, {blob_id(signed): signed})
        lost = await lose(bench)
        done = {one.account: one for one in await rebuild_lost(lost.storage, lost.clock)}
        assert done[innocent.account].outcome == REBUILT
        assert done[poisoned.account].outcome == "not rebuilt: DataError, see the log"
        assert not done[poisoned.account].as_json()["ok"]
        rows = await lost.sql("SELECT whole_id FROM accounts")
        assert [row["whole_id"] for row in rows] == [innocent.account]
        [line] = [r for r in caplog.records if getattr(r, "event", "") == "rebuild.failed"]
        assert (line.exc_info, line.__dict__["exception"]["type"]) == (None, "DataError")

    async def test_a_grant_is_missing(self, bench: Bench, lose: Lose, tmp_path: Path) -> None:
        """Without it, nobody knows whether a key was revoked."""
        founder = await bench.account("sealed")
        gone = await bench.key(founder, TEAM)
        await bench.revoke(founder, gone.identity.public_key)
        grant = await bench.value("SELECT object FROM grants WHERE serial = 2")
        await bench.storage.blobs.delete(founder.account, blob_id(grant))
        lost = await lose(bench)
        [outcome] = await rebuilt(lost, bench)
        assert outcome == "not rebuilt: the journal has none or several grants of serial 2"
        assert await lost.sql("SELECT whole_id FROM accounts") == []

    async def test_the_newest_grant_is_missing(self, bench: Bench, lose: Lose) -> None:
        """An erasure since then names its serial."""
        founder = await bench.account("sealed")
        gone = await bench.key(founder, TEAM)
        await bench.revoke(founder, gone.identity.public_key)
        caller = await bench.unlocked(founder, TEAM)
        [doomed] = await bench.remember(caller, "Anna prefers tea.")
        await bench.services.deletion.forget(caller.access, doomed.id)
        grant = await bench.value("SELECT object FROM grants WHERE serial = 3")
        await bench.storage.blobs.delete(founder.account, blob_id(grant))
        lost = await lose(bench)
        [outcome] = await rebuilt(lost, bench)
        assert outcome == "not rebuilt: the journal lacks its newest grants"

    async def test_two_grants_for_one_place(self, bench: Bench, lose: Lose) -> None:
        founder = await bench.account("sealed")
        await bench.key(founder, TEAM)
        signed = issue_grant(
            founder.identity,
            account=founder.account,
            serial=2,
            recipient=new_identity().public_key,
            role="owner",
            keys=[bench.root[founder.account]],
            created_ms=1,
        )
        await bench.storage.blobs.put_many(founder.account, {blob_id(signed): signed})
        lost = await lose(bench)
        [outcome] = await rebuilt(lost, bench)
        assert outcome == "not rebuilt: the journal has none or several grants of serial 2"

    async def test_what_could_not_be_granted_means_nothing(self, bench: Bench, lose: Lose) -> None:
        """A writer's own first grant, put into the folder."""
        founder = await bench.account()
        writer = await bench.key(founder, TEAM)
        forged = issue_grant(
            writer.identity,
            account=founder.account,
            serial=1,
            recipient=writer.identity.public_key,
            role="owner",
            keys=[bench.root[founder.account]],
            created_ms=1,
        )
        await bench.storage.blobs.put_many(founder.account, {blob_id(forged): forged})
        lost = await lose(bench)
        assert await rebuilt(lost, bench) == [REBUILT]
        assert (await lost.caller(founder)).access.is_owner
        accounts = lost.storage.accounts
        assert not await accounts.claim(founder.account, new_identity().public_key)

    async def test_two_receipts_of_one_number_both_count(self, bench: Bench, lose: Lose) -> None:
        """A database that was set back and went on leaves such ones in the journal."""
        founder = await bench.account()
        caller = await bench.caller(founder)
        [doomed] = await bench.remember(caller, "Anna prefers tea.")
        done = await bench.services.deletion.forget(caller.access, doomed.id)
        receipt = open_receipt(done.receipts[0], bench.storage.identity.public_key)
        others = [new_id() for _ in range(3)]
        for other in others:
            items = (replace(receipt.items[0], memory=other),)
            signed = sign_receipt(bench.storage.identity, replace(receipt, items=items))
            await bench.storage.blobs.put_many(founder.account, {blob_id(signed): signed})
        lost = await lose(bench)
        assert await rebuilt(lost, bench) == [REBUILT]
        stones = await lost.sql("SELECT memory_id FROM tombstones")
        assert {row["memory_id"] for row in stones} == {doomed.id, *others}

    async def test_what_strangers_signed_means_nothing(self, bench: Bench, lose: Lose) -> None:
        """Objects of another relayer, as an upload could bring them."""
        founder, stranger = await bench.account(), new_identity()
        caller = await bench.caller(founder)
        [kept] = await bench.remember(caller, "Anna prefers tea.")
        other = await lose(bench)
        other = bench_on(
            bench.settings,
            other.storage.connect_args,
            other.storage.database,
            identity=stranger,
            clock=bench.clock,
            blob_store="postgres",
        )
        from relayer.database.accounts import Heads
        from relayer.journal.changes import Operation, next_receipt
        from relayer.sealed.receipts import Item

        heads = Heads(9, 1, 99, bytes(32), 0, 0, 0, bench.clock())
        operation = Operation(founder.account, stranger.public_key, "forget", bench.clock())
        item = Item(kept.id, 1, "A" * 43)
        signed, _ = next_receipt(stranger, operation, heads, (item,), TEAM, 1)
        await bench.storage.blobs.put_many(founder.account, {blob_id(signed): signed})
        lost = await lose(bench)
        assert await rebuilt(lost, bench) == [REBUILT]
        await completed(lost, founder)
        assert await lost.value("SELECT memory_id FROM memories") == kept.id
        assert await lost.sql("SELECT memory_id FROM tombstones") == []

    async def test_a_closed_account_stays_closed(self, bench: Bench, lose: Lose) -> None:
        founder = await bench.account()
        await bench.services.closing.close_account(founder.account, founder.identity.public_key)
        await bench.storage.outbox.publish()
        lost = await lose(bench)
        assert await rebuilt(lost, bench) == [CLOSED]
        with pytest.raises(Conflict):
            await moved_back(lost, founder)

    async def test_no_folder_of_an_account(self, bench: Bench, lose: Lose, tmp_path: Path) -> None:
        folder = tmp_path / "blobs"
        (folder / "lost+found").mkdir(parents=True)
        (folder / ("AB" * 32)).mkdir()
        lost = await lose(bench)
        assert await rebuilt(lost, bench) == []
        shutil.rmtree(folder)
