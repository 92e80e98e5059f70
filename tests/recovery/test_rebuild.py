"""Everything that recall needs, rebuilt from a folder of blobs after the database is gone.

Not here: turns and what was made of them (`test_rebuild_turns.py`), objects that count for nothing
(`test_rebuild_refused.py`).
"""

import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from relayer.app import build_app
from relayer.blobs.store import FolderStore
from relayer.errors import NotFound, Unavailable
from relayer.journal.states import Change
from relayer.memories.opener import Caller
from relayer.memories.revisions import Edit
from relayer.query.query import Query
from relayer.recovery.restore import REST
from relayer.sealed.keys import AccountId, account_text
from relayer.sealed.receipts import REBUILD, open_receipt
from relayer.storage import Storage
from relayer.upkeep.check import check
from relayer.upkeep.rebuild import REBUILT, rebuild_lost
from tests.chains import assert_chain_holds
from tests.rebuilding import ROWS, Lose, bench, completed, embed_all, every, lose, rebuilt
from tests.services import OTHER, TEAM, Bench
from tests.signing import client_of, signed_headers

__all__ = ["bench", "lose"]  # fixtures

RECEIPT = "SELECT object FROM receipts ORDER BY seq LIMIT 1"


async def eventful(bench: Bench, caller: Caller) -> dict[str, Any]:
    """Memories with all that can become of one, a minute apart."""
    stored = await bench.remember(caller, "One apple.", "Two pears.", "Three plums.", "Four figs.")
    edited, pinned, old, doomed = stored
    bench.clock.advance(60)
    await bench.services.reviser.edit(caller, edited.id, Edit(changes={"text": "Five dates."}))
    await bench.services.state_changer.set_state(caller.access, pinned.id, Change(pinned=True))
    [new] = await bench.remember(caller, "Six limes.")
    await bench.services.state_changer.set_state(
        caller.access, old.id, Change(superseded_by=new.id)
    )
    await bench.remember(caller, "Elsewhere.", namespace=OTHER)
    bench.clock.advance(60)
    await bench.services.deletion.forget(caller.access, doomed.id)
    return {"edited": edited.id, "doomed": doomed.id}


@pytest.mark.parametrize("custody", ["managed", "sealed"])
async def test_everything_comes_back(bench: Bench, lose: Lose, custody: str) -> None:
    founder = await bench.account(custody)
    caller = await bench.unlocked(founder, TEAM, OTHER)
    await eventful(bench, caller)
    before = await bench.sql(ROWS)
    as_of = bench.clock() - timedelta(seconds=90)
    lost = await lose(bench)
    assert await rebuilt(lost, bench) == [REBUILT]
    again = await lost.unlocked(founder, TEAM, OTHER, hold_s=300)
    await completed(lost, founder)
    assert await lost.sql(ROWS) == before
    assert await lost.texts(again, "apple", mode="keyword") == []
    assert await lost.texts(again, "apple", mode="keyword", as_of=as_of) == ["One apple."]
    assert await lost.texts(again, "dates", mode="keyword") == ["Five dates."]
    assert await lost.texts(again, "plums figs", mode="keyword") == []
    assert not await lost.value("SELECT incomplete FROM accounts")
    await embed_all(bench, caller)
    await embed_all(lost, again)
    asked = "Which fruits are there?"
    assert await lost.texts(again, asked) == await bench.texts(caller, asked)
    assert (await check(lost.storage)).problems == []


async def test_the_chain_begins_anew_and_says_so(bench: Bench, lose: Lose) -> None:
    founder = await bench.account()
    await eventful(bench, await bench.caller(founder))
    newest = await bench.value("SELECT max(seq) FROM receipts")
    lost = await lose(bench)
    await rebuilt(lost, bench)
    receipt = open_receipt(await lost.value(RECEIPT), lost.storage.identity.public_key)
    assert (receipt.op, receipt.seq, receipt.items) == (REBUILD, newest + 1, ())
    # The newest object of the journal is the erasure's receipt, which is known.
    head = await bench.value("SELECT receipt_head FROM accounts")
    assert receipt.previous == head


async def test_what_was_erased_stays_erased(bench: Bench, lose: Lose, tmp_path: Path) -> None:
    """Even when a backup of the folder still has its blob."""
    founder = await bench.account()
    caller = await bench.caller(founder)
    [doomed] = await bench.remember(caller, "Anna prefers tea.")
    saved = await bench.storage.blobs.get_many(
        founder.account, [name async for name in bench.storage.blobs.names(founder.account)]
    )
    await bench.services.deletion.forget(caller.access, doomed.id)
    await bench.storage.outbox.empty()
    await bench.storage.outbox.publish()
    lost = await lose(bench)
    kept = {name: data for name, data in saved.items() if isinstance(data, bytes)}
    await lost.storage.blobs.put_many(founder.account, kept)
    await rebuilt(lost, bench)
    await completed(lost, founder)
    assert await lost.sql("SELECT memory_id FROM memories") == []
    assert await lost.value("SELECT memory_id FROM tombstones") == doomed.id
    await lost.storage.outbox.empty()
    left = [data for data in (await every(lost, founder)) if data.startswith(b"\x01")]
    assert left == []


async def test_a_sealed_account_waits_for_each_key(bench: Bench, lose: Lose) -> None:
    founder = await bench.account("sealed")
    caller = await bench.unlocked(founder, TEAM, OTHER)
    await bench.remember(caller, "Anna prefers tea.")
    await bench.remember(caller, "Elsewhere.", namespace=OTHER)
    lost = await lose(bench)
    await rebuilt(lost, bench)
    assert await lost.storage.custody.job_keys(founder.account) is None
    await lost.unlocked(founder, TEAM, hold_s=300)
    await completed(lost, founder)
    assert await lost.value("SELECT count(*) FROM memories") == 1
    # What nobody has opened since is no orphan to be collected, however long it takes.
    assert await lost.value("SELECT incomplete FROM accounts")
    lost.clock.advance(3600 * 24 * 30)
    await lost.services.collector.collect()
    await lost.storage.outbox.empty()
    await lost.unlocked(founder, OTHER, hold_s=300)
    await completed(lost, founder)
    assert await lost.value("SELECT count(*) FROM memories") == 2
    assert not await lost.value("SELECT incomplete FROM accounts")


async def test_what_is_not_back_is_said(bench: Bench, lose: Lose) -> None:
    """Nobody takes what is missing for what never was."""
    founder = await bench.account("sealed")
    caller = await bench.unlocked(founder, TEAM, OTHER)
    await bench.remember(caller, "Anna prefers tea.")
    [elsewhere] = await bench.remember(caller, "Elsewhere.", namespace=OTHER)
    lost = await lose(bench)
    await rebuilt(lost, bench)
    query = Query(text="tea", namespaces=[TEAM], mode="keyword")
    for namespaces, is_whole in (((TEAM,), False), ((TEAM, OTHER), True)):
        await lost.unlocked(founder, *namespaces, hold_s=300)
        await completed(lost, founder)
        again = await lost.unlocked(founder, *namespaces)
        assert (await lost.services.recaller.recall(again, query)).degraded is not is_whole
        assert again.access.unrestored is not is_whole
        refusal = NotFound if is_whole else Unavailable
        with pytest.raises(refusal) as refused:
            await lost.services.memory.get(again, uuid.uuid4())
        assert refused.value.code == ("not_found" if is_whole else "memory.unrestored")
    assert (await lost.services.memory.get(again, elsewhere.id)).text == "Elsewhere."


async def test_the_store_is_not_read_each_minute_while_keys_are_missing(
    bench: Bench, lose: Lose, monkeypatch: pytest.MonkeyPatch
) -> None:
    founder = await bench.account("sealed")
    caller = await bench.unlocked(founder, TEAM, OTHER)
    await bench.remember(caller, "Anna prefers tea.")
    await bench.remember(caller, "Elsewhere.", namespace=OTHER)
    lost = await lose(bench)
    await rebuilt(lost, bench)
    await lost.unlocked(founder, TEAM, hold_s=300)
    await completed(lost, founder)  # gives a row back
    await completed(lost, founder)  # finds that there is nothing more to do
    read, get_many = list[str](), FolderStore.get_many

    async def counted(store: FolderStore, account: AccountId, names: Sequence[str]) -> Any:
        read.extend(names)
        return await get_many(store, account, names)

    monkeypatch.setattr(FolderStore, "get_many", counted)
    for _ in range(3):
        lost.clock.advance(60)
        await completed(lost, founder)
    assert read == []
    lost.clock.advance(REST.total_seconds())
    await lost.unlocked(founder, TEAM, hold_s=300)
    await completed(lost, founder)
    assert read != []
    await lost.unlocked(founder, OTHER, hold_s=300)
    await completed(lost, founder)
    assert await lost.value("SELECT count(*) FROM memories") == 2
    assert not await lost.value("SELECT incomplete FROM accounts")


async def test_other_keys_and_revocations_count(bench: Bench, lose: Lose) -> None:
    founder = await bench.account("sealed")
    writer = await bench.key(founder, TEAM)
    gone = await bench.key(founder, TEAM)
    await bench.revoke(founder, gone.identity.public_key)
    lost = await lose(bench)
    await rebuilt(lost, bench)
    accounts = lost.storage.accounts
    assert await accounts.claim(founder.account, writer.identity.public_key)
    assert (await lost.unlocked(writer, TEAM)).access.namespaces == [TEAM]
    assert not await accounts.claim(founder.account, gone.identity.public_key)


async def test_again_does_nothing(bench: Bench, lose: Lose) -> None:
    founder = await bench.account()
    await bench.remember(await bench.caller(founder), "Anna prefers tea.")
    lost = await lose(bench)
    assert await rebuilt(lost, bench) == [REBUILT]
    await completed(lost, founder)
    assert await rebuilt(lost, bench) == []
    await completed(lost, founder)
    assert await lost.value("SELECT count(*) FROM memories") == 1


async def test_only_an_empty_database_is_rebuilt_by_itself(bench: Bench, lose: Lose) -> None:
    await bench.account()
    assert await rebuild_lost(bench.storage, bench.clock, only_if_empty=True) == []
    lost = await lose(bench)
    await lost.account()
    assert await rebuild_lost(lost.storage, lost.clock, only_if_empty=True) == []
    assert len(await rebuild_lost(lost.storage, lost.clock)) == 1


class Awaited(FolderStore):
    """A store in which something happens before the second account is read."""

    happens: Callable[[], Awaitable[object]]
    read = 0

    async def read_mark(self, account: AccountId) -> int:
        """What a folder does."""
        self.read += 1
        if self.read == 2:
            await self.happens()
        return await super().read_mark(account)


async def away() -> None:
    raise Unavailable("away")


async def accounts(bench: Bench) -> int:
    return int(await bench.value("SELECT count(*) FROM accounts"))


def awaited(lost: Bench, folder: Path, happens: Callable[[], Awaitable[object]]) -> Storage:
    store = Awaited(folder=folder)
    store.happens = happens
    return replace(lost.storage, blobs=store)


async def by_itself(lost: Bench, storage: Storage | None = None) -> list[str]:
    """What a start does."""
    done = await rebuild_lost(storage or lost.storage, lost.clock, only_if_empty=True)
    return [one.outcome for one in done]


async def test_a_rebuild_that_was_interrupted_goes_on(
    bench: Bench, lose: Lose, tmp_path: Path
) -> None:
    for _ in range(3):
        await bench.account()
    lost = await lose(bench)
    with pytest.raises(Unavailable):
        await by_itself(lost, awaited(lost, tmp_path / "blobs", away))
    assert await accounts(lost) == 1
    assert await by_itself(lost) == [REBUILT, REBUILT]
    assert await by_itself(lost) == []


async def test_another_replica_does_not_begin_before_all_are_there(
    bench: Bench, lose: Lose, tmp_path: Path
) -> None:
    for _ in range(3):
        await bench.account()
    lost = await lose(bench)
    done: list[str] = []

    async def other() -> None:
        done.extend(await by_itself(lost.another()))
        assert await accounts(lost) == 3

    await by_itself(lost, awaited(lost, tmp_path / "blobs", other))
    assert done == [REBUILT, REBUILT]


async def test_what_was_rebuilt_is_not_behind_its_store(bench: Bench, lose: Lose) -> None:
    """Memories alone were written last."""
    founder = await bench.account()
    caller = await bench.caller(founder)
    for number in range(5):
        await bench.remember(caller, f"Crate {number} is here.")
    lost = await lose(bench)
    await rebuilt(lost, bench)
    seq = await lost.value("SELECT receipt_seq FROM accounts")
    assert seq > await bench.value("SELECT receipt_seq FROM accounts")
    assert seq == await lost.storage.blobs.read_mark(founder.account)
    await assert_chain_holds(lost, founder.account)


async def test_no_request_passes_again_afterwards(bench: Bench, lose: Lose) -> None:
    founder, path = await bench.account(), "/v1/usage"
    account, now_s = account_text(founder.account), int(time.time())
    headers = signed_headers(founder.identity, "GET", path, b"", account=account, timestamp_s=now_s)
    settings = replace(bench.settings, embedder="none")

    async def answered(storage: Storage) -> int:
        async with client_of(build_app(storage, settings)) as client:
            return (await client.get(path, headers=headers)).status_code

    assert [await answered(bench.storage) for _ in range(2)] == [200, 401]
    after = await lose(bench)
    assert [r.outcome for r in await rebuild_lost(after.storage, bench.clock)] == [REBUILT]
    assert await answered(after.storage) == 503
