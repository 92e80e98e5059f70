"""Changes of an account have their times in the order in which they are made, not asked for.

Whoever polls what changed since the last change that was seen would miss one that has an earlier
time, because it waited for another.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from relayer.database.accounts import lock_account
from relayer.journal.states import Change
from relayer.memories.opener import Caller
from relayer.memories.reseal import OLD_BYTES_LIVE
from relayer.sealed.receipts import open_receipt
from tests.chains import chain_of
from tests.consolidating import consolidated
from tests.editing import TEA, edit, writer
from tests.racing import WAITING
from tests.rotator import rotator
from tests.services import Bench

CHANGED = "SELECT updated_at FROM namespaces"
OLD_BYTES_DUE = "SELECT due_at FROM blob_outbox"
Work = Callable[[Bench, Caller, uuid.UUID], Awaitable[Awaitable[Any]]]


async def delayed(bench: Bench, caller: Caller, work: Awaitable[Any]) -> None:
    """Something that waits for another change of its account, 10 s long."""
    async with bench.storage.database.transaction() as connection:
        await lock_account(connection, caller.access.account)
        waits = asyncio.ensure_future(work)
        await bench.until(WAITING, 1)
        bench.clock.advance(10)
    await waits


async def assert_receipt_is_of_now(bench: Bench, caller: Caller) -> None:
    last = (await chain_of(bench, caller.access.account))[-1]
    receipt = open_receipt(last, bench.storage.identity.public_key)
    assert receipt.time_ms == round(bench.clock().timestamp() * 1000)


async def remember(bench: Bench, caller: Caller, _: uuid.UUID) -> Awaitable[Any]:
    return bench.remember(caller, "Ben sells cups.")


async def reword(bench: Bench, caller: Caller, memory: uuid.UUID) -> Awaitable[Any]:
    return edit(bench, caller, memory, text="Anna prefers coffee.")


async def pin(bench: Bench, caller: Caller, memory: uuid.UUID) -> Awaitable[Any]:
    return bench.services.state_changer.set_state(caller.access, memory, Change(pinned=True))


async def forget(bench: Bench, caller: Caller, memory: uuid.UUID) -> Awaitable[Any]:
    return bench.services.deletion.forget(caller.access, memory)


async def undo(bench: Bench, caller: Caller, memory: uuid.UUID) -> Awaitable[Any]:
    await bench.remember(caller, TEA.replace("Anna", "Anna really"))
    run, [_] = await consolidated(bench, caller)
    return bench.services.runs.undo(caller.access, run["run_id"])


@pytest.mark.parametrize("work", [remember, reword, pin, forget, undo])
async def test_what_waits_for_another_change_has_its_time_behind_it(
    bench: Bench, work: Work
) -> None:
    caller = await writer(bench)
    [stored] = await bench.remember(caller, TEA)
    await delayed(bench, caller, await work(bench, caller, stored.id))
    assert await bench.value(CHANGED) == bench.clock()
    await assert_receipt_is_of_now(bench, caller)


@pytest.mark.parametrize("work", [remember, reword, pin, forget, undo])
async def test_a_change_of_a_host_whose_clock_is_behind_has_its_time_behind_the_last(
    bench: Bench, work: Work
) -> None:
    caller = await writer(bench)
    [stored] = await bench.remember(caller, TEA)
    change = await work(bench, caller, stored.id)
    last = await bench.value(CHANGED)
    bench.clock.advance(-5)
    await change
    assert await bench.value(CHANGED) == last + timedelta(microseconds=1)


async def test_a_clock_by_which_no_request_could_be_signed_is_followed_by_nobody(
    bench: Bench,
) -> None:
    caller = await writer(bench)
    bench.clock.advance(3600)
    await bench.remember(caller, TEA)
    bench.clock.advance(-3600)
    await bench.remember(caller, "Ben sells cups.")
    assert await bench.value(CHANGED) == bench.clock()


async def test_what_is_replaced_is_read_as_long_after_however_long_it_waited(
    bench: Bench,
) -> None:
    owner = await rotator(bench, "sealed")
    caller = await owner.caller()
    await bench.remember(caller, TEA)
    await owner.rotate(reseal="all")
    await bench.remember(await owner.caller(), "Ben sells cups.")  # the namespace has its key
    await delayed(bench, caller, owner.reseal())
    assert await bench.value(OLD_BYTES_DUE) == bench.clock() + OLD_BYTES_LIVE
    await assert_receipt_is_of_now(bench, caller)
