"""What was said and decided of memories since yesterday, whose database this is."""

import uuid
from typing import Any

import pytest

from relayer.clock import from_ms
from relayer.database.pool import Database
from relayer.errors import Corrupted
from relayer.journal.states import Change
from relayer.memories.revisions import Edit
from relayer.recovery.account_replay import _change
from relayer.recovery.collection import REST, STRAY_GRACE
from relayer.sealed.envelope import MEMORY, Address, blob_id, seal
from relayer.sealed.keys import AccountId, account_text
from relayer.sealed.named import NamedKey, sign_namespace
from relayer.sealed.primitives import random_key, to_base64url
from relayer.sealed.states import SignedState
from tests.chains import assert_chain_holds
from tests.collecting import LATER, problems, put
from tests.consolidating import TEA, TEA_AGAIN, consolidated
from tests.erasing import living
from tests.rotator import CUSTODIES, epochs, rotator
from tests.services import TEAM, Bench
from tests.setting_back import backup, bench, catch_up, folder, put_back, restarted
from tests.talking import analyze, choose

__all__ = ["bench", "folder"]  # fixtures
PINNED = "SELECT pinned FROM memories WHERE account_id = $1"
BLOB_ID = "SELECT blob_id FROM memories WHERE memory_id = $1"


async def test_an_edit_comes_forward(bench: Bench, database: Database) -> None:
    founder = await bench.account()
    caller = await bench.caller(founder)
    edited, doomed = await bench.remember(caller, "Anna prefers tea.", "Ben sells cups.")
    saved = await backup(database)
    bench.clock.advance(60)
    change = Edit(changes={"text": "Anna prefers coffee."})
    await bench.services.reviser.edit(caller, edited.id, change)
    await bench.services.deletion.forget(caller.access, doomed.id)
    await put_back(database, saved)
    started = await restarted(bench, founder)
    again = await started.caller(founder)
    assert await started.texts(again, "Anna", mode="keyword") == ["Anna prefers coffee."]
    history = await started.services.histories.history(again, edited.id)
    assert [memory.revision for memory in history.revisions] == [2, 1]
    await assert_chain_holds(started, founder.account)
    await started.storage.outbox.empty()
    assert await problems(started) == []


@pytest.mark.parametrize("custody", CUSTODIES)
async def test_what_was_sealed_anew_is_found_by_its_new_bytes(
    bench: Bench, database: Database, custody: str
) -> None:
    """The old ones, which the rows of the backup name, are gone."""
    owner = await rotator(bench, custody)
    caller = await owner.caller()
    [edited, _] = await bench.remember(caller, "Anna prefers tea.", "Ben sells cups.")
    bench.clock.advance(60)
    change = Edit(changes={"text": "Anna prefers coffee."})
    await bench.services.reviser.edit(caller, edited.id, change)
    saved = await backup(database)
    await owner.rotate(reseal="all")
    await owner.reseal()
    await owner.drop_old_bytes()
    await put_back(database, saved)
    started = bench.another()
    await catch_up(started)
    again = await owner.caller(bench=started, hold_s=300)
    keys = await started.storage.custody.job_keys(owner.owner.account)
    assert keys is not None
    await started.services.restore.complete(owner.owner.account, keys)
    assert await epochs(started) == {2: 3}
    assert {*await started.texts(again, "prefers sells", mode="keyword")} == {
        "Anna prefers coffee.", "Ben sells cups.",
    }  # fmt: skip
    history = await started.services.histories.history(again, edited.id)
    assert [m.text for m in history.revisions] == ["Anna prefers coffee.", "Anna prefers tea."]
    [known] = await started.remember(again, "Ben sells cups.")
    assert known.duplicate
    await assert_chain_holds(started, owner.owner.account)
    await started.storage.outbox.empty()
    assert await problems(started) == []


async def test_only_rows_that_are_made_anew_go(bench: Bench, database: Database) -> None:
    """A restore makes so many, and of a record of a later release none."""
    owner = await rotator(bench, "managed")
    caller = await owner.caller()
    stored = await bench.remember(caller, "One tea.", "Two teas.", "Three teas.")
    saved = await backup(database)
    await owner.rotate(reseal="all")
    await owner.reseal()
    await owner.drop_old_bytes()
    last = await bench.value(BLOB_ID, stored[2].id)
    await put_back(database, saved)
    account, key = owner.owner.account, owner.keys(TEAM)[1]
    await bench.storage.blobs.delete(account, to_base64url(last))
    address = Address(MEMORY, account, stored[2].id, 1)
    await put(bench, caller, seal(key, address, LATER, created_ms=4_000_000_000_000))
    started = bench.another()
    await catch_up(started)
    again = await owner.caller(bench=started)
    done = await started.services.restore.restore(again, TEAM, 1)
    assert (done.restored, done.truncated) == (1, True)
    assert await epochs(started) == {1: 2, 2: 1}
    await started.services.restore.complete(account, again.keys)
    assert await epochs(started) == {1: 1, 2: 2}
    assert await living(started) == {memory.id for memory in stored}


async def test_a_rejection_holds_until_somebody_decides_otherwise(
    bench: Bench, database: Database
) -> None:
    founder = await bench.account()
    caller = await bench.caller(founder)
    rejected, *doomed = await bench.remember(caller, "Anna prefers tea.", "Ben.", "Carl.")
    saved = await backup(database)
    state_changer = bench.services.state_changer
    await state_changer.set_state(caller.access, rejected.id, Change(pinned=True))
    await state_changer.set_state(caller.access, rejected.id, Change(review="rejected"))
    for memory in doomed:
        await bench.services.deletion.forget(caller.access, memory.id)
    await put_back(database, saved)
    started = bench.another()
    await catch_up(started)
    again = await started.caller(founder)
    assert await started.texts(again, "Anna", mode="keyword") == []
    assert await bench.value("SELECT pinned FROM memories")
    await started.services.state_changer.set_state(again.access, rejected.id, Change(review=None))
    started = await restarted(bench, founder)
    assert await started.texts(again, "Anna", mode="keyword") == ["Anna prefers tea."]
    await assert_chain_holds(started, founder.account)
    await started.storage.outbox.empty()
    assert await problems(started) == []


async def test_what_came_back_beside_one_that_was_edited(bench: Bench, database: Database) -> None:
    """In the backup, the other one still says the same words."""
    founder = await bench.account()
    caller = await bench.caller(founder)
    state_changer = bench.services.state_changer
    first, kept = await bench.remember(caller, "Anna prefers tea.", "Anna drinks coffee.")
    await state_changer.set_state(caller.access, first.id, Change(superseded_by=kept.id))
    [second] = await bench.remember(caller, "Anna prefers tea.")
    saved = await backup(database)
    bench.clock.advance(60)
    await bench.services.reviser.edit(
        caller, second.id, Edit(changes={"text": "Anna prefers cocoa."})
    )
    await state_changer.set_state(caller.access, first.id, Change(superseded_by=None))
    await state_changer.set_state(caller.access, second.id, Change(pinned=True))
    await put_back(database, saved)
    started = await restarted(bench, founder)
    again = await started.caller(founder)
    assert {*await started.texts(again, "Anna prefers", mode="keyword")} == {
        "Anna prefers tea.", "Anna drinks coffee.", "Anna prefers cocoa.",
    }  # fmt: skip
    assert [m.id for m in await started.remember(again, "Anna prefers tea.")] == [first.id]
    assert [m.id for m in await started.remember(again, "Anna prefers cocoa.")] == [second.id]
    pinned = await bench.sql("SELECT memory_id FROM memories WHERE pinned")
    assert second.id in {row["memory_id"] for row in pinned}
    await assert_chain_holds(started, founder.account)
    await started.storage.outbox.empty()
    assert await problems(started) == []


async def test_what_came_back_after_another_went(bench: Bench, database: Database) -> None:
    """Whichever of them was changed once more since."""
    founder = await bench.account()
    caller = await bench.caller(founder)
    state_changer = bench.services.state_changer
    first, kept = await bench.remember(caller, "Anna prefers tea.", "Anna drinks coffee.")
    await state_changer.set_state(caller.access, first.id, Change(superseded_by=kept.id))
    [second] = await bench.remember(caller, "Anna prefers tea.")
    saved = await backup(database)
    await state_changer.set_state(caller.access, first.id, Change(pinned=True))
    await state_changer.set_state(caller.access, second.id, Change(superseded_by=kept.id))
    await state_changer.set_state(caller.access, first.id, Change(superseded_by=None))
    await state_changer.set_state(caller.access, second.id, Change(pinned=True))
    await put_back(database, saved)
    started = await restarted(bench, founder)
    living = await bench.sql("SELECT memory_id FROM memories WHERE superseded_at IS NULL")
    assert {row["memory_id"] for row in living} == {first.id, kept.id}
    again = await started.caller(founder)
    assert [m.id for m in await started.remember(again, "Anna prefers tea.")] == [first.id]


async def test_an_account_that_fails_answers_nobody_and_keeps_no_other_one_from_it(
    bench: Bench, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """Here it has, by its journal, a namespace's key of an epoch that no column holds."""
    failing, other = await bench.account(), await bench.account()
    callers = [await bench.caller(founder) for founder in (failing, other)]
    stored = [await bench.remember(caller, "Anna prefers tea.") for caller in callers]
    saved = await backup(database)
    for caller, [memory] in zip(callers, stored, strict=True):
        await bench.services.state_changer.set_state(caller.access, memory.id, Change(pinned=True))
    named = NamedKey(failing.account, TEAM, 2**32 - 1, random_key())
    signed = sign_namespace(bench.storage.identity, named)
    await bench.storage.blobs.put_many(failing.account, {blob_id(signed): signed})
    await put_back(database, saved)
    for _ in range(2):
        started = bench.another()
        await catch_up(started)
        assert (await started.caller(other)).access.is_owner
        assert await bench.value(PINNED, other.account)
        with pytest.raises(Corrupted):
            await started.caller(failing)
    lines = [r for r in caplog.records if getattr(r, "event", "") == "replay.failed"]
    kinds = [(r.exc_info, r.__dict__["exception"]["type"]) for r in lines]
    assert kinds == [(None, "DataError")] * 2
    await started.services.collector.collect()
    with pytest.raises(Corrupted):
        await started.caller(failing)
    await bench.storage.blobs.delete(failing.account, blob_id(signed))
    started.clock.advance(2 * REST.total_seconds())
    await started.services.collector.collect()
    assert (await started.caller(failing)).access.is_owner
    assert await bench.value(PINNED, failing.account)


async def test_what_only_was_written_is_found_by_the_collector(
    bench: Bench, database: Database
) -> None:
    """Nothing was published meanwhile: the store was not told how far the account has come."""
    founder = await bench.account("sealed")
    caller = await bench.unlocked(founder, TEAM)
    await bench.remember(caller, "Anna prefers tea.")
    saved = await backup(database)
    [later] = await bench.remember(caller, "Ben sells cups.")
    await put_back(database, saved)
    started = bench.another()
    await catch_up(started)
    await started.services.collector.collect()
    bench.clock.advance(2 * STRAY_GRACE.total_seconds())
    await started.services.collector.collect()
    await started.storage.outbox.empty()
    lent = await started.unlocked(founder, TEAM)
    await started.services.restore.complete(founder.account, lent.keys)
    assert later.id in await living(bench)
    await started.storage.outbox.empty()
    assert await problems(started) == []


async def test_a_turn_that_only_was_written_comes_back(bench: Bench, database: Database) -> None:
    """Nothing that was published tells of it, and no memory of its time is found with it."""
    founder = await bench.account()
    caller = await choose(bench, await bench.caller(founder), keep_turns=True)
    await bench.remember(caller, "Anna prefers tea.")
    saved = await backup(database)
    kept = (await analyze(bench, caller, "1. user: I prefer window seats on trains.")).kept
    await put_back(database, saved)
    started = bench.another()
    await catch_up(started)
    await started.services.collector.collect()
    await started.storage.outbox.empty()
    keys = await started.storage.custody.job_keys(founder.account)
    assert keys is not None
    await started.services.restore.complete(founder.account, keys)
    assert await bench.sql("SELECT episode_id, state FROM episodes") == [(kept, "kept")]


async def test_an_account_of_since_is_named(bench: Bench, database: Database) -> None:
    await bench.account()
    saved = await backup(database)
    later = await bench.account()
    await put_back(database, saved)
    await catch_up(bench.another())
    found = ("the database does not know this account", account_text(later.account))
    assert await problems(bench) == [found]


@pytest.mark.parametrize("is_older", [True, False])
async def test_a_forgotten_memory_takes_along_what_was_merged_into_it_since(
    bench: Bench, database: Database, is_older: bool
) -> None:
    """Whether or not the one that was kept is older than the backup."""
    founder = await bench.account()
    caller = await bench.caller(founder)
    [shorter] = await bench.remember(caller, TEA)
    if not is_older:
        saved = await backup(database)
    [longer] = await bench.remember(caller, TEA_AGAIN)
    if is_older:
        saved = await backup(database)
    bench.clock.advance(60)
    _, [action] = await consolidated(bench, caller)
    assert (action["memory_id"], action["other_ids"]) == (longer.id, [shorter.id])
    await put_back(database, saved)
    started = await restarted(bench, founder)
    again = await started.caller(founder)
    await started.services.deletion.forget(again.access, longer.id)
    assert await living(started) == set()


@pytest.mark.parametrize(("said_of", "lives_until"), [(1, {}), (2, {"expires_at": from_ms(5)})])
def test_how_long_a_revision_lives_is_said_of_that_one_alone(
    said_of: int, lives_until: dict[str, Any]
) -> None:
    """An object of before an edit does not end what the edit keeps."""
    said = SignedState(
        account=AccountId(bytes(32)), memory=uuid.UUID(int=7), revision=said_of, seq=2, time_ms=3,
        pinned=True, review=None, stale=False, superseded_ms=None, superseded_by=None,
        merged=False, expires_ms=5,
    )  # fmt: skip
    change = _change(said, 2)
    assert change["pinned"]
    assert {name: value for name, value in change.items() if name == "expires_at"} == lives_until
