"""Forgetting while a rebuilt account waits for its rows: nothing said to be gone comes back.

Not here: forgetting otherwise (`tests/memories/test_erasure.py`), rebuilding (`test_rebuild.py`).
"""

import pytest

from relayer.errors import NotFound, Unavailable
from relayer.memories.deletion import Filter
from relayer.memories.opener import Caller
from tests.rebuilding import Lose, bench, completed, lose, rebuilt
from tests.services import OTHER, TEAM, Bench

__all__ = ["bench", "lose"]


@pytest.mark.parametrize("custody", ["managed", "sealed"])
@pytest.mark.parametrize("way", ["id", "filter", "namespace"])
async def test_what_has_no_row_yet_is_not_said_to_be_gone(
    bench: Bench, lose: Lose, custody: str, way: str
) -> None:
    founder = await bench.account(custody)
    stored = await bench.remember(await bench.unlocked(founder, TEAM), "One apple.", "Two pears.")
    lost = await lose(bench)
    await rebuilt(lost, bench)
    ids = [memory.id for memory in stored]

    async def forget(caller: Caller) -> int:
        deletion, access = lost.services.deletion, caller.access
        if way == "id":
            return (await deletion.forget_ids(access, ids)).erased
        if way == "filter":
            return (await deletion.forget_matching(caller, Filter(namespace=TEAM))).erased
        return (await deletion.forget_namespace(access, TEAM)).erased

    caller = await lost.unlocked(founder, TEAM, hold_s=60)
    with pytest.raises(Unavailable) as caught:
        await forget(caller)
    assert caught.value.code == "memory.unrestored"
    await completed(lost, founder)
    assert await forget(caller) == 2
    assert await lost.texts(caller, "apple pears") == []
    assert await lost.value("SELECT count(*) FROM tombstones") == 2


async def test_what_others_have_not_lent_their_keys_for_keeps_nobody_from_forgetting(
    bench: Bench, lose: Lose
) -> None:
    founder = await bench.account("sealed")
    agent = await bench.key(founder, TEAM)
    [kept] = await bench.remember(
        await bench.unlocked(founder, OTHER), "One pear.", namespace=OTHER
    )
    stored = await bench.remember(await bench.unlocked(founder, TEAM), "One apple.", "Two plums.")
    lost = await lose(bench)
    await rebuilt(lost, bench)
    caller = await lost.unlocked(agent, TEAM, hold_s=60)
    keys = await lost.storage.custody.job_keys(founder.account)
    assert keys is not None
    await lost.services.restore.complete(founder.account, keys)
    deletion, access = lost.services.deletion, caller.access
    with pytest.raises(NotFound):  # it is in a namespace that the agent knows nothing of
        await deletion.forget(access, kept.id)
    assert (await deletion.forget(access, stored[0].id)).erased == 1
    assert (await deletion.forget_namespace(access, TEAM)).erased == 1
    with pytest.raises(Unavailable):
        await deletion.forget((await lost.caller(founder)).access, kept.id)
