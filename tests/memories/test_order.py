"""Changes of an account have their times in the order in which they are made, not asked for.

Whoever polls what changed since the last change that was seen would miss one that has an earlier
time, because it waited for another.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from relayer.database.accounts import lock_account
from relayer.journal.states import Change
from relayer.memories.opening import Caller
from relayer.sealed.receipts import open_receipt
from tests.chains import chain_of
from tests.editing import TEA, edit, writer
from tests.racing import WAITING
from tests.services import Bench

CHANGED = "SELECT updated_at FROM namespaces"
Work = Callable[[Bench, Caller, Any], Awaitable[Any]]


async def remember(bench: Bench, caller: Caller, _: Any) -> None:
    await bench.remember(caller, "Ben sells cups.")


async def reword(bench: Bench, caller: Caller, memory: Any) -> None:
    await edit(bench, caller, memory.id, text="Anna prefers coffee.")


async def pin(bench: Bench, caller: Caller, memory: Any) -> None:
    await bench.services.reviser.set_state(caller.access, memory.id, Change(pinned=True))


async def forget(bench: Bench, caller: Caller, memory: Any) -> None:
    await bench.services.forgetting.forget(caller.access, memory.id)


@pytest.mark.parametrize("work", [remember, reword, pin, forget])
async def test_what_waits_for_another_change_has_its_time_behind_it(
    bench: Bench, work: Work
) -> None:
    caller = await writer(bench)
    [stored] = await bench.remember(caller, TEA)
    async with bench.storage.database.transaction() as connection:
        await lock_account(connection, caller.access.account)
        waits = asyncio.ensure_future(work(bench, caller, stored))
        await bench.until(WAITING, 1)
        bench.clock.advance(10)
    await waits
    assert await bench.value(CHANGED) == bench.clock()
    last = (await chain_of(bench, caller.access.account))[-1]
    receipt = open_receipt(last, bench.storage.identity.public_key)
    assert receipt.time_ms == round(bench.clock().timestamp() * 1000)
