"""Index rows rebuilt from sealed blobs."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from relayer.errors import Corrupted, NotAllowed
from relayer.journal.states import Change
from relayer.recovery.restore import Restored
from relayer.sealed.envelope import blob_hash, blob_id
from relayer.sealed.keys import AccountId
from tests.chains import assert_chain_holds
from tests.collecting import put
from tests.conftest import BenchMaker
from tests.consolidating import TEA, TEA_AGAIN, consolidated, said
from tests.services import COUNT, OTHER, TEAM, Bench

ROWS = """
SELECT memory_id, writer, created_at, kind, expires_at, blob_id, tokens FROM memories
ORDER BY memory_id
"""
SPOIL = """
UPDATE blobs SET bytes = set_byte(bytes, 300, get_byte(bytes, 300) # 1) WHERE blob_id = $1
"""
LOSE = "DELETE FROM memories WHERE namespace_id = 1"


async def test_lost_rows_come_back_as_they_were(hybrid: Bench) -> None:
    caller = await hybrid.caller(await hybrid.account())
    later = hybrid.clock() + timedelta(days=3)
    stored = await hybrid.remember(caller, "Anna prefers tea.", kind="preference", expires_at=later)
    stored += await hybrid.remember(caller, "Ben sells cups.", tags=("trade",))
    await hybrid.remember(caller, "Elsewhere.", namespace=OTHER)
    await hybrid.embed(caller, stored)
    before = await hybrid.sql(ROWS)
    totals = "SELECT memory_count, storage_bytes FROM accounts"
    counts = "SELECT memory_count, word_count, storage_bytes FROM namespaces ORDER BY namespace_id"
    counted = (await hybrid.sql(totals), await hybrid.sql(counts))
    hybrid.clock.advance(60)
    for lose in (LOSE, f"{LOSE}; DELETE FROM postings WHERE namespace_id = 1"):
        for statement in lose.split(";"):
            await hybrid.sql(statement)
        assert await hybrid.texts(caller, "tea cups") == []
        done = await hybrid.services.restore.restore(caller, TEAM, 100)
        assert done == Restored(restored=2, skipped=0, failed=0, total=2, truncated=False)
        assert await hybrid.sql(ROWS) == before
        assert (await hybrid.sql(totals), await hybrid.sql(counts)) == counted
        assert await hybrid.texts(caller, "tea", mode="keyword") == ["Anna prefers tea."]
        assert await hybrid.texts(caller, "cups", tags=("trade",)) == ["Ben sells cups."]
        await hybrid.embed(caller, stored)
        assert (await hybrid.texts(caller, "Anna's tea", mode="vector"))[0] == "Anna prefers tea."
    await assert_chain_holds(hybrid, caller.access.account)


async def test_nothing_lost_nothing_done(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "one apple", "two pears")
    await bench.services.manual.remember(caller, TEAM, b"{foreign bytes", np.ones(6, np.float32))
    done = await bench.services.restore.restore(caller, TEAM, 100)
    assert done == Restored(restored=0, skipped=2, failed=0, total=2, truncated=False)


async def test_nothing_lost_no_state_of_a_row_is_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await bench.caller(await bench.account())
    stored = await bench.remember(caller, *(f"note {n}" for n in range(20)))
    for one in stored:
        await bench.services.state_changer.set_state(caller.access, one.id, {"pinned": True})
    read: list[str] = []
    get_many = bench.storage.blobs.get_many

    async def counted(account: AccountId, names: Sequence[str]) -> dict[str, bytes | Corrupted]:
        read.extend(names)
        return await get_many(account, names)

    monkeypatch.setattr(bench.storage.blobs, "get_many", counted)
    done = await bench.services.restore.restore(caller, TEAM, 100)
    assert done == Restored(restored=0, skipped=20, failed=0, total=20, truncated=False)
    states = {row["state_blob"] for row in await bench.sql("SELECT state_blob FROM memories")}
    assert len(states) == 20
    assert not states & {blob_hash(name) for name in read}


async def test_what_a_memory_was_merged_with_is_told_by_the_state_of_a_row(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    links = "SELECT memory_id, relation, other_id FROM links"
    await said(bench, caller, TEA, TEA_AGAIN)
    await consolidated(bench, caller)
    [merged] = await bench.sql(links)
    for statement in (
        "DELETE FROM memories WHERE superseded_at IS NULL",
        "DELETE FROM postings WHERE memory_id NOT IN (SELECT memory_id FROM memories)",
        "DELETE FROM links",
    ):
        await bench.sql(statement)
    done = await bench.services.restore.restore(caller, TEAM, 100)
    assert done.restored == 1
    assert await bench.sql(links) == [merged]


async def test_of_a_memory_that_was_brought_back_the_state_of_its_row_counts(bench: Bench) -> None:
    """Not an older one that lies there again, such as from a copy of the store."""
    caller = await bench.caller(await bench.account())
    await said(bench, caller, TEA, TEA_AGAIN)
    _, [action] = await consolidated(bench, caller)
    kept, [other] = action["memory_id"], action["other_ids"]
    [older] = await bench.sql(
        "SELECT b.bytes FROM blobs b JOIN memories m ON m.state_blob = b.blob_id"
        " WHERE m.memory_id = $1",
        other,
    )
    back = Change(superseded_by=None)
    await bench.services.state_changer.set_state(caller.access, other, back)
    await put(bench, caller, older["bytes"])
    await bench.sql("DELETE FROM memories WHERE memory_id = $1", kept)
    await bench.sql("DELETE FROM postings WHERE memory_id = $1", kept)
    await bench.sql("DELETE FROM links")
    assert (await bench.services.restore.restore(caller, TEAM, 100)).restored == 1
    assert await bench.sql("SELECT memory_id, relation, other_id FROM links") == []


async def test_limit_and_again(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, *(f"note {n}" for n in range(5)))
    await bench.sql(LOSE)
    first = await bench.services.restore.restore(caller, TEAM, 3)
    assert first == Restored(restored=3, skipped=0, failed=0, total=5, truncated=True)
    second = await bench.services.restore.restore(caller, TEAM, 3)
    assert second == Restored(restored=2, skipped=3, failed=0, total=5, truncated=False)
    assert await bench.value(COUNT) == 5


async def test_erased_stays_erased(bench: Bench, tmp_path: Path) -> None:
    caller = await bench.caller(await bench.account())
    [doomed, kept] = await bench.remember(caller, "Anna prefers tea.", "Ben sells cups.")
    [saved] = await bench.sql(
        "SELECT b.* FROM blobs b JOIN memories m USING (account_id, blob_id) WHERE m.seq = 1"
    )
    await bench.services.memory.forget(caller.access, doomed.id)
    await bench.sql("INSERT INTO blobs VALUES ($1, $2, $3, $4)", *saved)  # from a backup
    await bench.sql(LOSE)
    done = await bench.services.restore.restore(caller, TEAM, 100)
    assert done == Restored(restored=1, skipped=1, failed=0, total=2, truncated=False)
    assert [r["memory_id"] for r in await bench.sql(ROWS)] == [kept.id]


async def test_a_fact_said_again_since_is_not_doubled(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "Anna prefers tea.")
    await bench.sql(LOSE)
    await bench.remember(caller, "Anna prefers tea.")
    done = await bench.services.restore.restore(caller, TEAM, 100)
    assert done == Restored(restored=0, skipped=2, failed=0, total=2, truncated=False)
    assert await bench.value(COUNT) == 1


async def test_altered_blobs_are_counted(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "one apple", "two pears", "three plums")
    doomed = await bench.value("SELECT blob_id FROM memories WHERE seq = 2")
    await bench.sql(LOSE)
    await bench.sql(SPOIL, doomed)
    done = await bench.services.restore.restore(caller, TEAM, 100)
    assert done == Restored(restored=2, skipped=0, failed=1, total=3, truncated=False)


async def test_a_blob_that_does_not_open_is_counted(bench: Bench) -> None:
    """Its name is right and its header too: only the key can tell."""
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "one apple")
    blob = bytearray(await bench.value("SELECT bytes FROM blobs b JOIN memories USING (blob_id)"))
    blob[200] ^= 1
    await bench.storage.blobs.put_many(caller.access.account, {blob_id(bytes(blob)): bytes(blob)})
    done = await bench.services.restore.restore(caller, TEAM, 100)
    assert done == Restored(restored=0, skipped=1, failed=1, total=2, truncated=False)


async def test_accounts_and_namespaces_are_apart(bench: Bench) -> None:
    one, two = await bench.account(), await bench.account()
    first, second = await bench.caller(one), await bench.caller(two)
    for caller in (first, second):
        await bench.remember(caller, "Anna prefers tea.")
        await bench.remember(caller, "Ben sells cups.", namespace=OTHER)
    foreign = await bench.sql(
        "SELECT bytes FROM blobs b JOIN memories m USING (account_id, blob_id)"
        " WHERE m.account_id = $1",
        two.account,
    )
    copied = {blob_id(r["bytes"]): r["bytes"] for r in foreign}
    await bench.storage.blobs.put_many(one.account, copied)
    await bench.sql("DELETE FROM memories")
    done = await bench.services.restore.restore(first, TEAM, 100)
    assert (done.restored, done.total) == (1, 1)
    owners = await bench.sql("SELECT whole_id FROM memories JOIN accounts USING (account_id)")
    assert [r["whole_id"] for r in owners] == [one.account]


async def test_needs_a_writer_and_the_key(bench: Bench) -> None:
    founder = await bench.account("sealed")
    await bench.remember(await bench.unlocked(founder, TEAM), "Anna prefers tea.")
    await bench.sql(LOSE)
    reader = await bench.key(founder, TEAM, role="reader")
    with pytest.raises(NotAllowed):
        await bench.services.restore.restore(await bench.unlocked(reader, TEAM), TEAM, 9)
    with pytest.raises(NotAllowed) as caught:
        await bench.services.restore.restore(await bench.caller(founder), TEAM, 9)
    assert caught.value.code == "unlock_required"
    done = await bench.services.restore.restore(await bench.unlocked(founder, TEAM), TEAM, 9)
    assert done.restored == 1


async def test_from_a_folder_after_everything_else_is_lost(
    make_bench: BenchMaker, tmp_path: Path
) -> None:
    bench = make_bench(blob_store=f"file:{tmp_path / 'blobs'}")
    founder = await bench.account()
    await bench.remember(await bench.caller(founder), "Anna prefers tea.")
    before = await bench.sql(ROWS)
    for table in ("memories", "postings", "namespaces"):
        await bench.sql(f"DELETE FROM {table}")
    restarted = bench.another()
    caller = await restarted.caller(founder)
    done = await restarted.services.restore.restore(caller, TEAM, 9)
    assert done.restored == 1
    assert await restarted.sql(ROWS) == before
    assert await restarted.texts(caller, "tea") == ["Anna prefers tea."]
