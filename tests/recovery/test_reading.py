"""What of a store a restore reads: what may be a memory, and nothing else twice."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from relayer.database.accounts import lock_account
from relayer.database.collection import note_lasting
from relayer.errors import Corrupted, Unavailable
from relayer.memories.opener import Caller
from relayer.memories.recognition import Stored
from relayer.sealed.keys import AccountId
from relayer.sealed.primitives import to_base64url
from relayer.upkeep.provision import NewKey
from tests.chains import assert_chain_holds
from tests.collecting import collect, put
from tests.conftest import BenchMaker
from tests.editing import edit
from tests.rebuilding import Lose, completed, lose, rebuilt
from tests.services import COUNT, OTHER, TEAM, Bench
from tests.unreadable import make_unreadable

__all__ = ["lose"]
LOSE = """
DELETE FROM memories m USING namespaces n WHERE n.namespace_id = m.namespace_id AND n.name = 'team'
"""
NOTED = "SELECT blob_id FROM lasting_objects"


class Reads:
    """Names that a bench's store is asked the bytes of."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self._names: list[str] = []
        self.away_after: int | None = None  # so many readings the store is there
        get_many = bench.storage.blobs.get_many

        async def noted(account: AccountId, names: Sequence[str]) -> dict[str, bytes | Corrupted]:
            if self.away_after is not None:
                if not self.away_after:
                    raise Unavailable("The blob store is away.", code="blobs.unavailable")
                self.away_after -= 1
            self._names.extend(names)
            return await get_many(account, names)

        monkeypatch.setattr(bench.storage.blobs, "get_many", noted)

    def since(self) -> set[str]:
        """Those of since this was asked last."""
        names = set(self._names)
        self._names.clear()
        return names


@pytest.fixture
def bench(bench_on_either_store: Bench) -> Bench:
    return bench_on_either_store


@pytest.fixture
def outside(make_bench: BenchMaker, blobs_folder: Path) -> Bench:
    """One whose blobs are in a folder."""
    return make_bench(blob_store=f"file:{blobs_folder}")


@pytest.fixture
def reads(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(bench, monkeypatch)


async def forgetful(bench: Bench) -> tuple[NewKey, Caller, Stored]:
    """An account's founder, a caller, the first memory of some; others were forgotten."""
    founder = await bench.account()
    await bench.revoke(founder, (await bench.key(founder, TEAM)).identity.public_key)
    caller = await bench.caller(founder)
    kept, *doomed = await bench.remember(caller, *(f"note {n}" for n in range(5)))
    await bench.remember(caller, "Elsewhere.", namespace=OTHER)
    for one in doomed:
        await bench.services.memory.forget(caller.access, one.id)
    await bench.storage.outbox.publish()
    await bench.storage.outbox.empty()
    return founder, caller, kept


async def blob_of(bench: Bench, one: Stored) -> str:
    return to_base64url(
        await bench.value("SELECT blob_id FROM memories WHERE memory_id = $1", one.id)
    )


async def journal(bench: Bench, account: AccountId) -> set[str]:
    names = [name async for name in bench.storage.blobs.names(account)]
    found = await bench.storage.blobs.get_many(account, names)
    return {n for n, data in found.items() if isinstance(data, bytes) and data.startswith(b"{")}


async def restored(bench: Bench, caller: Caller, limit: int = 10) -> tuple[int, int]:
    done = await bench.services.restore.restore(caller, TEAM, limit)
    return done.restored, done.failed


async def test_what_stays_of_the_journal_is_read_once(bench: Bench, reads: Reads) -> None:
    _, caller, kept = await forgetful(bench)
    name = await blob_of(bench, kept)
    every = await journal(bench, caller.access.account)
    assert len(every) >= 4 + 2, "receipts of erasures, and grants"
    reads.since()
    await bench.sql(LOSE)
    assert await restored(bench, caller) == (1, 0)
    assert reads.since() == every | {name}
    assert {to_base64url(row["blob_id"]) for row in await bench.sql(NOTED)} == every
    await bench.sql(LOSE)
    assert await restored(bench, caller) == (1, 0)
    assert reads.since() == {name}
    assert await restored(bench, caller) == (0, 0)
    assert reads.since() == set()
    await assert_chain_holds(bench, caller.access.account)


async def test_what_a_walk_through_the_store_saw_is_not_read_again(
    bench: Bench, reads: Reads
) -> None:
    _, caller, kept = await forgetful(bench)
    name = await blob_of(bench, kept)
    await collect(bench)
    await bench.sql(LOSE)
    reads.since()
    assert await restored(bench, caller) == (1, 0)
    assert reads.since() == {name}


async def test_a_look_that_is_broken_off_is_gone_on_with(
    bench: Bench, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, caller, kept = await forgetful(bench)
    every = await journal(bench, caller.access.account)
    name = await blob_of(bench, kept)
    await bench.sql(LOSE)
    monkeypatch.setattr("relayer.recovery.orphans.PAGE", 2)
    reads.since()
    reads.away_after = 3
    with pytest.raises(Unavailable):
        await restored(bench, caller)
    first = reads.since()
    assert len(first & every) >= 4
    reads.away_after = None
    assert await restored(bench, caller) == (1, 0)
    assert reads.since() == every - first | {name}


async def test_states_of_other_memories_are_not_read(bench: Bench, reads: Reads) -> None:
    caller = await bench.caller(await bench.account())
    stored = await bench.remember(caller, *(f"note {n}" for n in range(5)))
    for one in stored[1:]:
        await bench.services.state_changer.set_state(caller.access, one.id, {"pinned": True})
    name = await blob_of(bench, stored[0])
    await bench.storage.outbox.publish()
    await collect(bench)
    await bench.sql("DELETE FROM memories WHERE seq = 1")
    reads.since()
    assert await restored(bench, caller) == (1, 0)
    assert reads.since() == {name}


async def test_what_holds_of_a_memory_is_read_for_its_earlier_revision(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    [one] = await bench.remember(caller, "Anna prefers tea.")
    await bench.services.state_changer.set_state(caller.access, one.id, {"pinned": True})
    await edit(bench, caller, one.id, text="Anna prefers coffee.")
    rows = "SELECT memory_id, revision_of, pinned, review, superseded_at FROM memories ORDER BY 1"
    before = await bench.sql(rows)
    await bench.sql("DELETE FROM memories WHERE revision_of IS NOT NULL")
    assert await restored(bench, caller) == (1, 0)
    assert await bench.sql(rows) == before


async def test_after_a_lost_database_the_journal_of_before_is_read_once(
    outside: Bench, lose: Lose, monkeypatch: pytest.MonkeyPatch
) -> None:
    founder, _, _ = await forgetful(outside)
    account = founder.account
    lost = await lose(outside)
    assert await rebuilt(lost, outside) == ["rebuilt"]
    before = await journal(outside, account)
    await completed(lost, founder)
    assert await lost.value(COUNT) == 2
    reads = Reads(lost, monkeypatch)
    await lost.storage.outbox.publish()
    caller = await lost.caller(founder)
    assert await restored(lost, caller) == (0, 0)
    assert not reads.since() & before
    await lost.sql(LOSE)
    assert await restored(lost, caller) == (1, 0)


async def test_only_what_verifies_is_taken_for_the_journal(bench: Bench, reads: Reads) -> None:
    _, caller, _ = await forgetful(bench)
    _, other, _ = await forgetful(bench)
    theirs = await journal(bench, other.access.account)
    found = await bench.storage.blobs.get_many(other.access.account, sorted(theirs))
    of_others = set()
    for data in found.values():
        assert isinstance(data, bytes)
        of_others.add(await put(bench, caller, data))
    foreign = {await put(bench, caller, b"{foreign bytes"), await put(bench, caller, b"{}" * 99)}
    await restored(bench, caller)
    reads.since()
    await restored(bench, caller)
    assert reads.since() == of_others | foreign
    await collect(bench)
    await restored(bench, caller)
    assert reads.since() >= of_others | foreign


async def test_what_is_damaged_is_noted_when_it_is_whole_again(
    outside: Bench, blobs_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, caller, _ = await forgetful(outside)
    first, second, *_ = sorted(await journal(outside, caller.access.account))
    [path] = blobs_folder.rglob(first)
    whole = path.read_bytes()
    path.write_bytes(whole + b"x")
    back = make_unreadable(blobs_folder, second)
    assert await restored(outside, caller) == (0, 2)
    await collect(outside)
    path.write_bytes(whole)
    back()
    reads = Reads(outside, monkeypatch)
    assert await restored(outside, caller) == (0, 0)
    assert reads.since() == {first, second}
    assert await restored(outside, caller) == (0, 0)
    assert reads.since() == set()


async def test_nothing_is_noted_of_an_account_that_is_closed(bench: Bench) -> None:
    _, caller, kept = await forgetful(bench)
    account = caller.access.account
    await restored(bench, caller)
    assert await bench.sql(NOTED)
    name = await blob_of(bench, kept)
    await bench.services.closing.close(caller.access)
    await bench.services.closing.purge()
    assert await bench.sql(NOTED) == []
    await note_lasting(bench.storage.database, account, [name])
    assert await bench.sql(NOTED) == []


async def test_a_walk_that_knows_the_journal_waits_for_no_write(bench: Bench) -> None:
    _, caller, _ = await forgetful(bench)
    account = caller.access.account
    await collect(bench)
    noted = await bench.sql(NOTED)
    assert noted
    async with bench.storage.database.transaction() as connection:
        await lock_account(connection, account)
        await asyncio.wait_for(collect(bench), 20)
    assert await bench.sql(NOTED) == noted
