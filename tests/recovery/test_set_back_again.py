"""A database that is set back once more, and a store that was not whole when it had caught up."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from relayer.database.pool import Database
from relayer.errors import Corrupted, Unavailable
from relayer.journal.states import Change
from relayer.sealed.envelope import blob_id
from relayer.sealed.keys import PublicKey
from relayer.tenants.granting import Granting
from relayer.upkeep.provision import NewKey
from tests.erasing import living
from tests.services import OTHER, TEAM, Bench
from tests.setting_back import (
    backup,
    bench,
    catch_up,
    folder,
    put_back,
    serve_for_a_while,
    set_back,
    take_within_a_put,
)
from tests.unreadable import make_unreadable

__all__ = ["bench", "folder"]  # fixtures

FLOOR = "SELECT floor_s FROM nonce_floor"


async def set_back_once(bench: Bench, database: Database, founder: NewKey) -> Bench:
    """A relayer that has caught up with what its store was told of much that is lost."""
    saved = await backup(database)
    caller = await bench.caller(founder)
    for n in range(9):
        await bench.remember(caller, f"Cup number {n} is blue.")
    return await set_back(bench, database, saved)


async def account_with_an_agent(bench: Bench) -> tuple[NewKey, PublicKey, uuid.UUID]:
    """Its founder, the key that an agent has, and a memory."""
    founder = await bench.account()
    agent = (await bench.key(founder, TEAM)).identity.public_key
    [memory] = await bench.remember(await bench.caller(founder), "Anna prefers tea.")
    return founder, agent, memory.id


async def may(bench: Bench, founder: NewKey, key: PublicKey) -> bool:
    return await bench.storage.accounts.access(founder.account, key) is not None


async def test_what_is_decided_after_that_holds_again(bench: Bench, database: Database) -> None:
    """Its numbers were given before, to receipts that are lost."""
    founder, agent, doomed = await account_with_an_agent(bench)
    once = await set_back_once(bench, database, founder)
    saved = await backup(database)
    caller = await once.caller(founder)
    await once.revoke(founder, agent)
    await once.services.deletion.forget(caller.access, doomed)
    started = await set_back(once, database, saved)
    assert not await may(started, founder, agent)
    assert doomed not in await living(started)


async def test_what_is_being_put_after_that_comes_back(
    bench: Bench, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    founder = await bench.account()
    once = await set_back_once(bench, database, founder)
    caller = await once.caller(founder)
    saved = take_within_a_put(once, database, monkeypatch)
    [put] = await once.remember(caller, "Ben sells cups.")
    started = await set_back(once, database, saved)
    await serve_for_a_while(started, founder)
    assert put.id in await living(started)


async def revoked_in_the_store(
    bench: Bench, database: Database, folder: Path
) -> tuple[NewKey, PublicKey, Path]:
    """An account set back to before a revocation; the key it takes everything from, its object."""
    founder = await bench.account()
    agent = (await bench.key(founder, TEAM)).identity.public_key
    saved = await backup(database)
    await bench.revoke(founder, agent)
    revocation = await bench.value("SELECT object FROM grants ORDER BY serial DESC LIMIT 1")
    await put_back(database, saved)
    [path] = folder.rglob(blob_id(revocation))
    return founder, agent, path


async def test_an_account_with_an_altered_object_answers_nobody(
    bench: Bench, database: Database, folder: Path
) -> None:
    """It may be what revokes a key."""
    founder, agent, path = await revoked_in_the_store(bench, database, folder)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    started = bench.another()
    await catch_up(started)
    with pytest.raises(Corrupted):
        await started.caller(founder)
    path.write_bytes(whole)
    await started.services.collector.collect()
    assert not await may(started, founder, agent)
    await started.caller(founder)


async def test_what_comes_into_the_store_late_holds_from_then_on(
    bench: Bench, database: Database, folder: Path
) -> None:
    """The store is still being copied when the relayer starts."""
    founder, agent, path = await revoked_in_the_store(bench, database, folder)
    aside = path.rename(folder.parent / "aside")
    started = bench.another()
    await catch_up(started)
    assert await may(started, founder, agent)
    aside.rename(path)
    await started.services.collector.collect()
    assert not await may(started, founder, agent)


@pytest.mark.parametrize("text", ["9" * 16, "9" * 19, "-1", "1e3", ""])
async def test_a_damaged_mark_is_none(
    bench: Bench, database: Database, folder: Path, text: str
) -> None:
    """It keeps nobody from the account, and hides no later loss."""
    founder = await bench.account()
    caller = await bench.caller(founder)
    saved = await backup(database)
    newest = folder / founder.account.hex() / "newest"
    newest.write_text(text)
    for _ in range(2):
        await catch_up(bench.another())
    [later] = await bench.remember(caller, "Anna prefers tea.")
    started = await set_back(bench, database, saved)
    await serve_for_a_while(started, founder)
    assert later.id in await living(started)


async def test_one_that_cannot_catch_up_keeps_no_other_account_from_answering(
    bench: Bench, database: Database, folder: Path
) -> None:
    """Whoever's clock is behind would be refused after each start, and each command."""
    founder = await bench.account()
    [doomed] = await bench.remember(await bench.caller(founder), "Anna prefers tea.")
    saved = await backup(database)
    receipt, _ = await bench.services.memory.forget((await bench.caller(founder)).access, doomed.id)
    await put_back(database, saved)
    make_unreadable(folder, blob_id(receipt))
    await catch_up(bench.another())
    assert await bench.value(FLOOR) > 0
    await bench.sql("UPDATE nonce_floor SET floor_s = 0")
    await catch_up(bench.another())
    assert await bench.value(FLOOR) == 0


async def test_an_interrupted_catching_up_forgets_no_decision(
    bench: Bench, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Receipts of its own have the numbers by then that the decision had."""
    founder = await bench.account()
    caller = await bench.caller(founder)
    [memory] = await bench.remember(caller, "Anna prefers tea.")
    saved = await backup(database)
    await bench.services.state_changer.set_state(caller.access, memory.id, Change(pinned=True))
    for namespace in (TEAM, OTHER):
        await bench.key(founder, namespace)
    await put_back(database, saved)
    accept_moved = Granting.accept_moved

    async def and_stop(self: Granting, *arguments: Any, **named: Any) -> list[bytes]:
        await accept_moved(self, *arguments, **named)
        raise Unavailable("The database went away.")

    with monkeypatch.context() as while_starting:
        while_starting.setattr(Granting, "accept_moved", and_stop)
        with pytest.raises(Unavailable):
            await catch_up(bench.another())
    await catch_up(bench.another())
    assert await bench.value("SELECT pinned FROM memories")


async def test_what_comes_back_is_told_to_the_store(bench: Bench, database: Database) -> None:
    """Of two backups the older one is put back, and after some decisions the newer one."""
    founder, agent, doomed = await account_with_an_agent(bench)
    older = await backup(database)
    once = await set_back_once(bench, database, founder)
    await serve_for_a_while(once, founder)
    await once.storage.outbox.publish()
    newer = await backup(database)
    again = await set_back(once, database, older)
    await again.revoke(founder, agent)
    await again.services.deletion.forget((await again.caller(founder)).access, doomed)
    started = await set_back(again, database, newer)
    assert not await may(started, founder, agent)
    assert doomed not in await living(started)


async def test_a_decision_of_another_history_is_newer_by_its_time(
    bench: Bench, database: Database
) -> None:
    """Its number is below those of the newer copy that is put back in the end."""
    founder = await bench.account()
    caller = await bench.caller(founder)
    [memory] = await bench.remember(caller, "Anna prefers tea.")
    older = await backup(database)
    for n in range(6):
        await bench.remember(caller, f"Cup number {n} is blue.")
    newer = await backup(database)
    bench.clock.advance(60)
    await bench.remember(caller, "Ben sells cups.")
    once = await set_back(bench, database, older)
    bench.clock.advance(60)
    access = (await once.caller(founder)).access
    await once.services.state_changer.set_state(access, memory.id, Change(pinned=True))
    await put_back(database, newer)
    await catch_up(once.another())
    assert await bench.value("SELECT pinned FROM memories WHERE memory_id = $1", memory.id)


async def test_the_last_decision_counts_whatever_its_number(
    bench: Bench, database: Database
) -> None:
    """The one before it, of a history that was lost, is not deleted yet."""
    founder = await bench.account()
    caller = await bench.caller(founder)
    [memory] = await bench.remember(caller, "Anna prefers tea.")
    saved = await backup(database)
    for n in range(6):
        await bench.remember(caller, f"Cup number {n} is blue.")
    await bench.services.state_changer.set_state(caller.access, memory.id, Change(pinned=True))
    once = await set_back(bench, database, saved)
    bench.clock.advance(60)
    access = (await once.caller(founder)).access
    await once.services.state_changer.set_state(access, memory.id, Change(pinned=False))
    await put_back(database, saved)
    await catch_up(once.another())
    assert not await bench.value("SELECT pinned FROM memories WHERE memory_id = $1", memory.id)


async def test_a_lost_revocation_refuses_slow_clocks_once(
    bench: Bench, database: Database, folder: Path
) -> None:
    """Its account answers nobody; the others do."""
    founder, agent, doomed = await account_with_an_agent(bench)
    saved = await backup(database)
    await bench.revoke(founder, agent)
    revocation = await bench.value("SELECT object FROM grants ORDER BY serial DESC LIMIT 1")
    await bench.services.deletion.forget((await bench.caller(founder)).access, doomed)
    await put_back(database, saved)
    [path] = folder.rglob(blob_id(revocation))
    path.unlink()
    await catch_up(bench.another())
    assert await bench.value(FLOOR) > 0
    await bench.sql("UPDATE nonce_floor SET floor_s = 0")
    await catch_up(bench.another())
    assert await bench.value(FLOOR) == 0


async def test_requests_accepted_after_a_backup_of_a_held_account_count_once(
    bench: Bench, database: Database, folder: Path
) -> None:
    founder = await bench.account()
    [doomed] = await bench.remember(await bench.caller(founder), "Anna prefers tea.")
    saved = await backup(database)
    receipt, _ = await bench.services.memory.forget((await bench.caller(founder)).access, doomed.id)
    await put_back(database, saved)
    back = make_unreadable(folder, blob_id(receipt))
    await catch_up(bench.another())
    held = await backup(database)
    back()
    once = bench.another()
    await catch_up(once)
    await once.remember(await once.caller(founder), "Ben sells cups.")
    await put_back(database, held)
    await bench.sql("UPDATE nonce_floor SET floor_s = 0")
    await catch_up(once.another())
    assert await bench.value(FLOOR) > 0


async def test_a_mark_that_cannot_be_read_keeps_nobody_from_answering(
    bench: Bench, folder: Path
) -> None:
    founder, other = await bench.account(), await bench.account()
    newest = folder / founder.account.hex() / "newest"
    newest.unlink()
    newest.mkdir()
    started = bench.another()
    await catch_up(started)
    await started.caller(founder)
    await started.caller(other)
