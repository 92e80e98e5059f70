"""Objects that nothing refers to: each is dealt with as what it is, and what is needed stays."""

import uuid
from pathlib import Path

import numpy as np
import pytest

from relayer.errors import NotFound
from relayer.memories.opener import Caller
from relayer.record import new_id
from relayer.recovery.collection import REST, STRAY_GRACE
from relayer.sealed import envelope
from relayer.sealed.primitives import to_base64url
from relayer.sealed.states import SignedState, sign_state
from tests.collecting import FORMER, LATER, STRAY, collect, problems, put
from tests.erasing import keep_turn
from tests.rotator import rotator
from tests.services import TEAM, Bench

BLOB_ID = "SELECT blob_id FROM memories WHERE memory_id = $1"
USELESS = "this blob was erased or replaced and is still there"


@pytest.fixture
def bench(bench_on_either_store: Bench) -> Bench:
    return bench_on_either_store


async def names(bench: Bench, caller: Caller) -> set[str]:
    return {name async for name in bench.storage.blobs.names(caller.access.account)}


def sealed(bench: Bench, caller: Caller, memory: uuid.UUID, type_: int, revision: int = 1) -> bytes:
    address = envelope.Address(type_, caller.access.account, memory, revision)
    return envelope.seal(caller.keys.of(TEAM)[0], address, b"{}", created_ms=1)


async def alter(bench: Bench, folder: Path, name: str) -> None:
    """Put other bytes under a name, as a broken disk would."""
    if bench.storage.outbox.outside:
        [path] = folder.rglob(name)
        path.write_bytes(b"other bytes")
    else:
        await bench.sql("UPDATE blobs SET bytes = 'x' WHERE blob_id = $1", envelope.blob_hash(name))


async def busy(bench: Bench) -> Caller:
    """An account with something of everything that has to stay."""
    founder = await bench.account()
    agent = await bench.key(founder, TEAM)
    await bench.revoke(founder, agent.identity.public_key)
    caller = await bench.caller(founder)
    doomed, *_ = await bench.remember(caller, "Anna prefers tea.", "Ben sells cups.")
    await bench.services.deletion.forget(caller.access, doomed.id)
    await bench.services.manual.remember(caller, TEAM, b"{foreign", np.ones(6, np.float32))
    for state in ("pending", "kept", "failed"):
        await keep_turn(bench, caller, f"Anna: {state}.", state)
    await bench.storage.outbox.publish()
    await bench.storage.outbox.empty()
    return caller


async def test_what_is_needed_stays(bench: Bench) -> None:
    caller = await busy(bench)
    before = await names(bench, caller)
    assert len(before) == 11  # 4 of the chain of grants, a name, an erasure, 2 memories, 3 turns
    bench.clock.advance(2 * STRAY_GRACE.total_seconds())
    for _ in range(2):
        await collect(bench)
    assert await names(bench, caller) == before
    assert await problems(bench) == []
    assert await bench.value("SELECT count(*) FROM blob_outbox") == 0


async def test_a_stray_goes_after_its_grace(bench: Bench) -> None:
    caller = await busy(bench)
    before = await names(bench, caller)
    stray = await put(bench, caller, sealed(bench, caller, uuid.uuid4(), envelope.MEMORY))
    foreign = await put(bench, caller, b"somebody's bytes")
    assert sorted(await problems(bench)) == sorted([(STRAY, stray), (STRAY, foreign)])
    await collect(bench)
    bench.clock.advance(STRAY_GRACE.total_seconds() - 1)
    await collect(bench)
    assert await names(bench, caller) == {*before, stray, foreign}
    bench.clock.advance(1)
    await collect(bench)
    # It could be a memory that lost its row: it waits until its key was there and did not help.
    assert await names(bench, caller) == {*before, stray, foreign}
    await bench.services.restore.complete(caller.access.account, caller.keys)
    await collect(bench)
    assert await names(bench, caller) == before
    assert await problems(bench) == []


async def test_until_then_it_can_be_restored(bench: Bench) -> None:
    """The rows were lost, not the memory."""
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "Anna prefers tea.")
    await bench.sql("DELETE FROM memories")
    await collect(bench)
    assert await bench.value("SELECT count(*) FROM blob_outbox WHERE stray") == 1
    assert (await bench.services.restore.restore(caller, TEAM, 9)).restored == 1
    bench.clock.advance(2 * STRAY_GRACE.total_seconds())
    await collect(bench)
    assert await bench.texts(caller, "tea") == ["Anna prefers tea."]
    assert await problems(bench) == []


async def test_what_was_erased_goes_at_once(bench: Bench) -> None:
    """Somebody copied a backup of the blobs back."""
    caller = await bench.caller(await bench.account())
    [doomed] = await bench.remember(caller, "Anna prefers tea.")
    await bench.services.manual.remember(caller, TEAM, b"{foreign", np.ones(6, np.float32))
    blobs = await bench.storage.blobs.get_many(
        caller.access.account, sorted(await names(bench, caller))
    )
    await bench.services.deletion.forget_namespace(caller.access, TEAM)
    await bench.storage.outbox.publish()
    await bench.storage.outbox.empty()
    left = await names(bench, caller)
    gone = {n: b for n, b in blobs.items() if n not in left and isinstance(b, bytes)}
    assert len(gone) == 2
    await bench.storage.blobs.put_many(caller.access.account, gone)
    assert sorted(await problems(bench)) == sorted((USELESS, name) for name in gone)
    assert (await bench.services.restore.restore(caller, TEAM, 9)).restored == 0
    await collect(bench)
    assert await names(bench, caller) == left
    assert await problems(bench) == []
    with pytest.raises(NotFound):
        await bench.services.memory.get(caller, doomed.id)


@pytest.mark.parametrize("forgotten", [None, "ids", "namespace"])
async def test_turns_that_are_done_with_go_at_once(bench: Bench, forgotten: str | None) -> None:
    """Somebody copied a backup of the blobs back; also when no row says any more that it is."""
    caller = await busy(bench)
    before = await names(bench, caller)
    turn = await keep_turn(bench, caller, "Cy: I read.", "done")
    [extracted] = await names(bench, caller) - before
    [other] = await bench.remember(caller, "Cy reads.")
    if forgotten == "ids":
        await bench.services.deletion.forget_ids(caller.access, [other.id, turn])
    elif forgotten == "namespace":
        await bench.services.deletion.forget_namespace(caller.access, TEAM)
    assert (USELESS, extracted) in await problems(bench)
    await collect(bench)
    assert extracted not in await names(bench, caller)
    assert (await bench.services.restore.restore(caller, TEAM, 9)).restored == 0


@pytest.mark.parametrize("held", ["its row", "its tombstone"])
async def test_a_former_name_is_known_by_what_lies_beside_it(bench: Bench, held: str) -> None:
    caller = await busy(bench)
    before = await names(bench, caller)
    turn = await keep_turn(bench, caller, "Cy: I read.", "kept", FORMER)
    [name] = await names(bench, caller) - before
    blob = (await bench.storage.blobs.get_many(caller.access.account, [name]))[name]
    assert isinstance(blob, bytes)
    if held == "its tombstone":
        await bench.services.deletion.forget(caller.access, turn)
        await bench.storage.outbox.publish()
        await bench.storage.outbox.empty()
        assert name not in await names(bench, caller)
        await put(bench, caller, blob)
    await collect(bench)
    assert (name in await names(bench, caller)) == (held == "its row")


@pytest.mark.parametrize("lost", ["missing", "altered"])
async def test_old_bytes_stay_while_the_new_ones_cannot_be_read(
    bench: Bench, blobs_folder: Path, lost: str
) -> None:
    """The blobs' disk was lost, and last night's copy was put back beside today's database."""
    owner = await rotator(bench, "managed")
    caller = await owner.caller()
    [stored] = await bench.remember(caller, "Anna prefers tea.")
    store, account = bench.storage.blobs, owner.owner.account
    old = to_base64url(await bench.value(BLOB_ID, stored.id))
    saved = (await store.get_many(account, [old]))[old]
    await owner.rotate(reseal="all")
    await owner.reseal()
    await owner.drop_old_bytes()
    new = to_base64url(await bench.value(BLOB_ID, stored.id))
    sealed_anew = (await store.get_many(account, [new]))[new]
    assert isinstance(saved, bytes)
    assert isinstance(sealed_anew, bytes)
    if lost == "missing":
        await store.delete(account, new)
    else:
        await alter(bench, blobs_folder, new)
    assert await put(bench, caller, saved) == old
    await collect(bench)
    assert old in await names(bench, caller)
    bench.clock.advance(STRAY_GRACE.total_seconds() - 1)
    await collect(bench)
    assert old in await names(bench, caller)
    await store.delete(account, new)
    await put(bench, caller, sealed_anew)
    await bench.services.restore.complete(account, (await owner.caller()).keys)
    await bench.sql("DELETE FROM blob_outbox")
    await collect(bench)
    assert old not in await names(bench, caller)


async def test_a_turn_that_nobody_erased_waits_like_a_memory(bench: Bench) -> None:
    caller = await busy(bench)
    turn = await put(bench, caller, sealed(bench, caller, new_id(), envelope.EPISODE))
    assert await problems(bench) == [(STRAY, turn)]
    bench.clock.advance(2 * STRAY_GRACE.total_seconds())
    await collect(bench)
    await collect(bench)
    assert turn in await names(bench, caller)
    assert await bench.value("SELECT incomplete FROM accounts")


class TestStates:
    def state(self, bench: Bench, caller: Caller, memory: uuid.UUID, seq: int) -> bytes:
        said = SignedState(
            account=caller.access.account, memory=memory, revision=1, seq=seq, time_ms=seq,
            pinned=True, review=None, stale=False, superseded_ms=None, superseded_by=None,
            merged=False, expires_ms=None,
        )  # fmt: skip
        return sign_state(bench.storage.identity, said)

    async def test_the_newest_stays_and_older_ones_go(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        one, two = await bench.remember(caller, "Anna prefers tea.", "Ben sells cups.")
        await bench.storage.outbox.publish()
        before = await names(bench, caller)
        older = await put(bench, caller, self.state(bench, caller, one.id, 1))
        newest = await put(bench, caller, self.state(bench, caller, one.id, 2))
        await bench.sql(
            "UPDATE memories SET state_blob = $1 WHERE memory_id = $2",
            envelope.blob_hash(newest), one.id,
        )  # fmt: skip
        ahead = await put(bench, caller, self.state(bench, caller, two.id, 99))
        found = await problems(bench)
        assert (USELESS, older) in found
        assert ("the database does not know this journal object", ahead) in found
        assert len(found) == 2
        await collect(bench)
        assert await names(bench, caller) == {*before, newest, ahead}

    async def test_an_erased_memorys_goes_with_it(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        [one] = await bench.remember(caller, "Anna prefers tea.")
        newest = await put(bench, caller, self.state(bench, caller, one.id, 1))
        await bench.sql("UPDATE memories SET state_blob = $1", envelope.blob_hash(newest))
        await bench.services.deletion.forget(caller.access, one.id)
        await bench.storage.outbox.empty()
        assert newest not in await names(bench, caller)
        assert await problems(bench) == []


@pytest.mark.parametrize(
    ("type_", "record"),
    [(envelope.MEMORY, LATER), (envelope.EPISODE, LATER), (9, b"{}")],
    ids=["memory", "turn", "a new type"],
)
async def test_what_only_a_later_release_reads_is_kept(
    bench: Bench, type_: int, record: bytes
) -> None:
    """Its row was lost, and this release cannot make it; one that can finds it."""
    caller = await busy(bench)
    before = await names(bench, caller)
    key, account = caller.keys.of(TEAM)[0], caller.access.account
    address = envelope.Address(type_, account, new_id(), 1)
    later = await put(bench, caller, envelope.seal(key, address, record, created_ms=1))
    useless = await put(bench, caller, sealed(bench, caller, new_id(), envelope.MEMORY))
    for _ in range(3):
        await collect(bench)
        assert await bench.value("SELECT incomplete FROM accounts"), "it is looked at again"
        await bench.services.restore.complete(account, caller.keys)
        assert not await bench.value("SELECT incomplete FROM accounts"), "and not each minute"
        bench.clock.advance(2 * STRAY_GRACE.total_seconds())
        await bench.storage.outbox.empty()
    assert await names(bench, caller) == {*before, later}
    assert useless not in await names(bench, caller)
    assert await problems(bench) == [(STRAY, later)]


async def test_an_altered_object_is_reported_and_kept(bench: Bench, blobs_folder: Path) -> None:
    caller = await bench.caller(await bench.account())
    name = await put(bench, caller, b"somebody's bytes")
    await alter(bench, blobs_folder, name)
    found = [("an object that nothing refers to does not match its name", name)]
    assert await problems(bench) == found
    bench.clock.advance(2 * STRAY_GRACE.total_seconds())
    await collect(bench)
    assert await problems(bench) == found


async def test_a_walk_is_done_in_pieces_and_then_rests(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relayer.recovery.examiner.PAGE", 3)
    monkeypatch.setattr("relayer.recovery.collection.PAGES_AT_ONCE", 1)
    callers = [await bench.caller(await bench.account()) for _ in range(2)]
    strays = [await put(bench, c, b"bytes %d" % n) for c in callers for n in range(7)]
    collector = bench.services.collector
    noted = []
    for _ in range(12):
        await collector.collect()
        noted.append(await bench.value("SELECT count(*) FROM blob_outbox"))
    assert noted[0] <= 3
    assert noted[-1] == len(strays)
    await bench.sql("DELETE FROM blob_outbox")
    await collector.collect()
    assert await bench.value("SELECT count(*) FROM blob_outbox") == 0
    bench.clock.advance(REST.total_seconds())
    for _ in range(12):
        await collector.collect()
    assert await bench.value("SELECT count(*) FROM blob_outbox") == len(strays)
