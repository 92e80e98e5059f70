"""An account that was erased is brought back by nothing: no store, no archive, no late request."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from relayer.errors import Conflict, NotFound
from relayer.journal.outbox import GRACE
from relayer.journal.states import Change
from relayer.memories.revisions import Edit
from relayer.record import Draft
from relayer.sealed.envelope import blob_id
from relayer.sealed.receipts import open_receipt
from relayer.upkeep.check import check
from relayer.upkeep.provision import NewKey
from relayer.upkeep.rebuild import CLOSED
from tests.moving import EMPTY, founded, packed
from tests.rebuilding import Lose, bench, every, lose, rebuilt
from tests.rotator import ALWAYS
from tests.services import OTHER, TEAM, Bench
from tests.tenants.filled import filled, left_of

__all__ = ["bench", "lose"]  # fixtures

LEFT = {"accounts": 1, "receipts": 1}
CUSTODIES = ("managed", "sealed")
JOBS = "SELECT entrypoint FROM pgqueuer"


async def closed(bench: Bench, founder: NewKey) -> None:
    """Close an account and let everything of it go."""
    await bench.services.closing.close((await bench.caller(founder)).access)
    for _ in range(3):
        await bench.storage.outbox.publish()
        await bench.storage.outbox.empty()
        await bench.services.closing.purge()
    assert await left_of(bench, founder.account) == LEFT


async def is_gone(bench: Bench, *keys: NewKey) -> None:
    """Nobody is answered, nothing is stored, and nothing is about to be done."""
    [founder, *_] = keys
    bench.clock.advance(GRACE.total_seconds() + 1)  # bytes that came late go then
    await bench.storage.outbox.empty()
    for key in keys:
        with pytest.raises(NotFound):
            await bench.caller(key)
        assert not await bench.storage.accounts.claim(key.account, key.identity.public_key)
    assert await left_of(bench, founder.account) == LEFT
    [receipt] = await every(bench, founder)
    assert open_receipt(receipt, bench.storage.identity.public_key).op == "close"
    assert (await check(bench.storage)).problems == []


@pytest.mark.parametrize("backup", [False, True], ids=["store", "backup"])
async def test_a_rebuild_finds_it_closed(bench: Bench, lose: Lose, backup: bool) -> None:
    """Also where somebody put the blobs of a backup back beside its last receipt."""
    founder = await bench.account()
    agent = await bench.key(founder, TEAM)
    await filled(bench, founder)
    saved = {blob_id(data): data for data in await every(bench, founder)}
    await closed(bench, founder)
    if backup:
        await bench.storage.blobs.put_many(founder.account, saved)
    lost = await lose(bench)
    assert await rebuilt(lost, bench) == [CLOSED]
    assert await lost.sql(JOBS) == []
    for _ in range(3):
        await lost.services.collector.collect()
        await lost.services.closing.purge()
        await lost.storage.outbox.empty()
    await is_gone(lost, founder, agent)
    assert await rebuilt(lost, bench) == []
    again = await lose(lost)
    assert await rebuilt(again, lost) == [CLOSED]
    await is_gone(again, founder, agent)


class TestArchives:
    """One that was made while the account was there."""

    async def test_its_founder_cannot_found_it_again(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        caller = await bench.unlocked(founder, TEAM)
        await bench.remember(caller, "Anna prefers tea.")
        chain = await bench.storage.accounts.chain(founder.account)
        first = chain.grants[founder.identity.public_key][0].signed
        await closed(bench, founder)
        found_again = bench.storage.granting.create
        key = founder.identity.public_key
        for label in ("anna", "anna again"):
            with pytest.raises(Conflict) as caught:
                await found_again(founder=key, grants=[first], label=label)
            assert caught.value.code == "account.closed"
        await is_gone(bench, founder)

    async def test_what_was_let_in_before_brings_nothing(self, bench: Bench) -> None:
        """An import under way when the account was closed, each of its parts."""
        founder = await bench.account()
        caller = await filled(bench, founder)
        arrival = await packed(bench, caller)
        await closed(bench, founder)
        take_in = bench.services.importer.take_in
        for part in ("account", "grants", "namespaces", "tombstones", "memories", "episodes"):
            only = replace(EMPTY, **{part: getattr(arrival, part)})
            with suppress(NotFound):
                assert (await take_in(caller.access, only)).receipts == [], part
        await is_gone(bench, founder)

    async def test_at_another_relayer_it_is_another_matter(self, bench: Bench, lose: Lose) -> None:
        """An owner's own archive opens elsewhere: closing here erases what is here."""
        founder = await bench.account("sealed")
        await bench.remember(await bench.unlocked(founder, TEAM), "Anna prefers tea.")
        arrival = await packed(bench, await bench.caller(founder))
        there = await lose(bench)
        mine = await founded(bench, there, founder)
        await closed(bench, founder)
        await there.services.importer.take_in(mine.access, arrival)
        reader = await there.unlocked(founder, TEAM)
        assert await there.texts(reader, "tea", mode="keyword") == ["Anna prefers tea."]
        await closed(there, founder)
        await is_gone(there, founder)


class TestLate:
    """What was asked for before, and is done or asked once more after."""

    @pytest.mark.parametrize("custody", CUSTODIES)
    async def test_requests_that_are_repeated(self, bench: Bench, custody: str) -> None:
        founder = await bench.account(custody)
        caller = await bench.unlocked(founder, TEAM, OTHER)
        again = Draft(text="Anna prefers tea.", namespace=TEAM, idempotency_key="once")
        [stored] = (await bench.stored(caller, [again])).items
        await closed(bench, founder)
        services, access = bench.services, caller.access
        uses: list[Callable[[], Awaitable[Any]]] = [
            lambda: bench.stored(caller, [again]),
            lambda: services.reviser.edit(caller, stored.id, Edit(changes={"text": "Anew."})),
            lambda: services.state_changer.set_state(access, stored.id, Change(pinned=True)),
            lambda: services.deletion.forget(access, stored.id),
            lambda: services.expiry.keep(access, TEAM, 60),
            lambda: services.memory.get(caller, stored.id),
            lambda: services.closing.close(access),
            lambda: bench.key(founder, TEAM),
            lambda: bench.revoke(founder, founder.identity.public_key),
        ]
        for number, use in enumerate(uses):
            with pytest.raises(NotFound):
                pytest.fail(f"{number}: {await use()}")
        # These find nothing to do.
        assert (await services.restore.restore(caller, TEAM, 9)).restored == 0
        await is_gone(bench, founder)

    async def test_jobs_that_were_promised(self, bench: Bench) -> None:
        founder = await bench.account()
        caller = await filled(bench, founder)
        stored = await bench.remember(caller, "Anna prefers tea.")
        keys = await bench.storage.custody.job_keys(founder.account)
        assert keys is not None
        [turn] = await bench.sql("SELECT episode_id FROM episodes")
        await closed(bench, founder)
        services = bench.services
        for use in (
            services.indexer.embed(founder.account, keys, [stored[0].id]),
            services.restore.complete(founder.account, keys),
            services.resealer.work(founder.account, keys, ALWAYS),
            services.analysis.extract_episode(founder.account, keys, turn["episode_id"]),
        ):
            with suppress(NotFound):
                await use
        async with bench.working():
            await bench.until("SELECT count(*) FROM pgqueuer", 0)
        await is_gone(bench, founder)
