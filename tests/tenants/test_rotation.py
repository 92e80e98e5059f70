"""A new epoch of an account: accepted as a whole, and written under at once.

Not here: what is sealed anew (`test_rotation_resealing.py`), what happens to it meanwhile
(`test_rotation_meanwhile.py`), whose keys do it and when old ones go (`test_rotation_keys.py`),
what stands in its way (`test_rotation_blocked.py`).
"""

import asyncio
from datetime import timedelta

import pytest

from relayer.clock import MOMENT_MS_MAX, to_ms
from relayer.database.accounts import lock_account
from relayer.errors import BadRequest, QuotaExceeded
from relayer.memories.revisions import Edit
from relayer.sealed.grants import issue_grant, open_grant
from relayer.sealed.keys import Root
from relayer.sealed.primitives import random_key
from relayer.sealed.receipts import open_receipt
from relayer.upkeep.check import check
from tests.chains import assert_chain_holds, chain_of
from tests.conftest import BenchMaker
from tests.racing import WAITING
from tests.rotator import (
    CUSTODIES,
    NOT_NOW,
    admitted,
    epochs,
    keep_turn,
    refused,
    rotator,
)
from tests.services import OTHER, TEAM, Bench, access_of, new_identity


@pytest.mark.parametrize("custody", CUSTODIES)
class TestAcceptance:
    async def test_everybody_goes_on_in_the_new_epoch(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        ends = bench.clock() + timedelta(days=3)
        agent = await bench.key(owner.owner, TEAM, OTHER, role="reader", expires_at=ends)
        deputy = await bench.key(owner.owner, role="owner", label="deputy")
        before = await bench.storage.accounts.list_keys(await admitted(bench, owner.owner))
        rotated = await owner.rotate()
        chain = await bench.storage.accounts.chain(owner.owner.account)
        assert (rotated.epoch, rotated.serial, chain.epoch) == (2, chain.serial, 2)
        for key in (owner.owner, agent, deputy):
            [_, again] = chain.grants[key.identity.public_key]
            opened = open_grant(again, key.identity)
            assert [k.epoch for k in opened] == ([1, 2, 1, 2] if key is agent else [1, 2])
        assert chain.grants[agent.identity.public_key][1].expires_ms == to_ms(ends)
        assert await bench.storage.accounts.list_keys(await admitted(bench, owner.owner)) == before
        receipts = [open_receipt(r, bench.storage.identity.public_key) for r in rotated.receipts]
        assert {r.op for r in receipts} == {"grant"}
        assert len(receipts) == 3 + (custody == "managed")
        assert [r.serial for r in receipts][-1] == rotated.serial
        await assert_chain_holds(bench, owner.owner.account)
        assert (await check(bench.storage)).problems == []

    async def test_with_a_revocation_before_it(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        lost = await bench.key(owner.owner, TEAM)
        kept = await bench.key(owner.owner, TEAM)
        rotated = await owner.rotate(revoke=[lost.identity.public_key])
        assert await access_of(bench, lost) is None
        assert await access_of(bench, kept) is not None
        ops = [open_receipt(r, bench.storage.identity.public_key).op for r in rotated.receipts]
        assert ops == ["revoke"] + ["grant"] * (len(ops) - 1)
        chain = await bench.storage.accounts.chain(owner.owner.account)
        assert [g.scope[-1].epoch for g in chain.grants[lost.identity.public_key]] == [1]

    async def test_what_is_chosen_waits_for_a_write_and_stops_none(
        self, bench: Bench, custody: str
    ) -> None:
        """Writers hold the account and then its namespaces, whatever order a request names."""
        owner = await rotator(bench, custody)
        caller = await owner.caller(None, TEAM, OTHER)
        for name in (TEAM, OTHER):
            await bench.remember(caller, "Anna prefers tea.", namespace=name)
        write = "UPDATE namespaces SET updated_at = now() WHERE name = $1"
        async with bench.storage.database.transaction() as connection:
            await lock_account(connection, owner.owner.account)
            await connection.execute(write, TEAM)
            chosen = asyncio.ensure_future(owner.send([], [], [OTHER, TEAM]))
            await bench.until(WAITING, 1)
            await connection.execute(write, OTHER)
        await chosen

    async def test_all_or_nothing(self, bench: Bench, custody: str) -> None:
        """What any rule refuses leaves grants, receipts and the epoch as they were."""
        owner = await rotator(bench, custody)
        agent = await bench.key(owner.owner, TEAM)
        founder, stranger = owner.owner.identity.public_key, new_identity().public_key
        second, third = Root(2, random_key()), Root(3, random_key())
        both = [*owner.roots, second]
        receipts = await chain_of(bench, owner.owner.account)

        async def attempt(code: str, objects: tuple[list[bytes], list[bytes]]) -> None:
            await refused(code, owner.send(*objects))

        of = owner.objects
        await attempt("grant.invalid", await of([*owner.roots, third]))
        await attempt("grant.invalid", await of(both, without=[agent.identity.public_key]))
        await attempt("grant.invalid", await of(both, more=[stranger]))
        revocations, _ = await of(both, revoke=[agent.identity.public_key])
        _, grants = await of(both, more=[founder])
        await attempt("grant.invalid", (revocations, grants[1:]))
        await attempt("grant.invalid", (revocations, grants))
        await attempt("grant.serial", ([], grants[1:]))
        await attempt("grant.invalid", ([], [*grants, b"no grant"]))
        _, other = await of([*owner.roots, Root(2, random_key())])
        await attempt("grant.invalid", ([], [*grants[:-2], *other[-2:]]))
        await attempt("grant.invalid", ([], grants[:1]))
        assert await chain_of(bench, owner.owner.account) == receipts
        assert await bench.value("SELECT epoch FROM accounts") == 1
        await owner.rotate()

    async def test_a_time_that_no_clock_shows(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        late = issue_grant(
            owner.owner.identity,
            account=owner.owner.account,
            serial=(await bench.storage.accounts.chain(owner.owner.account)).serial + 1,
            recipient=owner.owner.identity.public_key,
            role="owner",
            keys=[*owner.roots, Root(2, random_key())],
            created_ms=MOMENT_MS_MAX + 1,
        )
        with pytest.raises(BadRequest, match="a time is out of range"):
            await owner.send([], [late])

    async def test_a_full_chain(self, make_bench: BenchMaker, custody: str) -> None:
        """It has room for the first of two grants."""
        bench = make_bench(account_grants_max={"managed": 4, "sealed": 3}[custody])
        owner = await rotator(bench, custody)
        await bench.key(owner.owner, TEAM)
        before = await bench.storage.accounts.chain(owner.owner.account)
        with pytest.raises(QuotaExceeded):
            await owner.rotate()
        after = await bench.another().storage.accounts.chain(owner.owner.account)
        assert after.items == before.items

    async def test_only_owners_rotate(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        agent = await bench.key(owner.owner)  # the whole account, as a writer
        _, grants = await owner.objects([*owner.roots, Root(2, random_key())])
        owner.owner = agent
        await refused("auth.not_allowed", owner.send([], grants))
        await refused("auth.not_allowed", owner.send([], [], "all"))

    async def test_a_single_grant_begins_no_epoch(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        bench_root = bench.root[owner.owner.account]
        bench.root[owner.owner.account] = Root(2, random_key())
        _, [grant, *_] = await owner.objects([bench_root, bench.root[owner.owner.account]])
        await refused(
            "grant.invalid",
            bench.storage.granting.grant(
                account=owner.owner.account,
                actor=owner.owner.identity.public_key,
                signed=grant,
                join=b"",
                label="",
            ),
        )

    async def test_of_two_at_once_one_counts(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        both = [await owner.objects([*owner.roots, Root(2, random_key())]) for _ in range(2)]
        done = await asyncio.gather(*(owner.send(*o) for o in both), return_exceptions=True)
        assert sorted(type(d).__name__ for d in done) == ["Conflict", "Rotated"]
        assert (await bench.storage.accounts.chain(owner.owner.account)).epoch == 2
        await assert_chain_holds(bench, owner.owner.account)


class TestWriting:
    """While both epochs are alive."""

    @pytest.mark.parametrize("custody", CUSTODIES)
    async def test_reads_and_writes_go_on(self, hybrid: Bench, custody: str) -> None:
        """What was said before is recalled, known and forgotten beside what is new."""
        owner = await rotator(hybrid, custody)
        caller = await owner.caller()
        old = await hybrid.remember(caller, "Anna prefers tea.", tags=("drinks",))
        await hybrid.embed(caller, old)
        await owner.rotate(reseal="none")
        caller = await owner.caller()
        new = await hybrid.remember(caller, "Ben prefers coffee.", tags=("drinks",))
        await hybrid.embed(caller, new)
        assert await epochs(hybrid) == {1: 1, 2: 1}
        both = {"Anna prefers tea.", "Ben prefers coffee."}
        for mode in ("keyword", "vector", "hybrid"):
            assert set(await hybrid.texts(caller, "who prefers", mode=mode)) == both
        assert set(await hybrid.texts(caller, "prefers", tags=("drinks",))) == both
        [again] = await hybrid.remember(caller, "Anna  prefers tea.")
        assert (again.duplicate, again.id) == (True, old[0].id)
        assert (await hybrid.services.memory.get(caller, old[0].id)).text == "Anna prefers tea."
        await hybrid.services.memory.forget(caller.access, old[0].id)
        assert await hybrid.texts(caller, "prefers") == ["Ben prefers coffee."]
        [anew] = await hybrid.remember(caller, "Anna prefers tea.")
        assert not anew.duplicate
        assert await epochs(hybrid) == {2: 2}

    @pytest.mark.parametrize("custody", CUSTODIES)
    async def test_both_legs_search_both_epochs_while_it_is_half_sealed_anew(
        self, hybrid: Bench, custody: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What moved, what has not yet, and what was written or forgotten meanwhile."""
        monkeypatch.setattr("relayer.memories.reseal.PAGE", 3)
        owner = await rotator(hybrid, custody)
        caller = await owner.caller()
        texts = [f"{name} drinks tea with milk." for name in ("Anna", "Ben", "Cleo", "Dan", "Eva")]
        stored = await hybrid.remember(caller, *texts)
        await hybrid.embed(caller, stored)
        await owner.rotate(reseal="all")
        assert not await owner.reseal(go_on=NOT_NOW)
        caller = await owner.caller()
        await hybrid.embed(caller, await hybrid.remember(caller, "Finn drinks tea with milk."))
        await hybrid.services.memory.forget(caller.access, stored[0].id)
        await hybrid.services.memory.forget(caller.access, stored[4].id)
        assert await epochs(hybrid) == {1: 1, 2: 3}
        left = {*texts[1:4], "Finn drinks tea with milk."}
        for _ in range(2):
            for mode in ("keyword", "vector", "hybrid"):
                found = await hybrid.texts(caller, "Who drinks tea?", mode=mode)
                assert (len(found), {*found}) == (4, left)
                for text in left:
                    assert (await hybrid.texts(caller, text, mode=mode))[0] == text
            assert await owner.reseal()
            caller = await owner.caller()
        assert await epochs(hybrid) == {2: 4}

    async def test_an_idempotency_key_of_before_is_known(self, bench: Bench) -> None:
        owner = await rotator(bench, "sealed")
        caller = await owner.caller()
        [first] = await bench.remember(caller, "Anna prefers tea.", idempotency_key="k")
        await owner.rotate()
        [again] = await bench.remember(
            await owner.caller(), "Anna prefers tea.", idempotency_key="k"
        )
        assert (again.id, again.duplicate) == (first.id, True)

    async def test_old_keys_alone_are_refused(self, bench: Bench) -> None:
        """Neither written nor read: a client that knows no better would miss what is new."""
        owner = await rotator(bench, "sealed")
        agent = await bench.key(owner.owner, TEAM)
        header = bench.unlock(agent, owner.keys(TEAM))
        await owner.rotate()
        await refused("epoch.outdated", bench.caller(agent, header))
        partly = [*owner.keys(TEAM), owner.keys(OTHER)[0]]
        await refused(
            "epoch.outdated", bench.caller(owner.owner, bench.unlock(owner.owner, partly))
        )
        await owner.caller(agent)

    @pytest.mark.parametrize("custody", CUSTODIES)
    async def test_a_write_that_began_before_is_refused(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        caller = await owner.caller()
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        receipts = len(await chain_of(bench, owner.owner.account))
        rotated = await owner.rotate()
        await refused("epoch.outdated", bench.remember(caller, "Ben prefers coffee."))
        edit = Edit(changes={"text": "Anna prefers coffee."})
        await refused("epoch.outdated", bench.services.reviser.edit(caller, stored.id, edit))
        assert await epochs(bench) == {1: 1}
        grown = len(await chain_of(bench, owner.owner.account)) - receipts
        assert grown == len(rotated.receipts)

    @pytest.mark.parametrize("custody", CUSTODIES)
    async def test_a_read_meets_what_was_sealed_anew_meanwhile(
        self, bench: Bench, custody: str
    ) -> None:
        """The client hears that there are newer keys, not that it lacks an old one."""
        owner = await rotator(bench, custody)
        caller = await owner.caller()
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        await owner.rotate(reseal="all")
        assert await owner.reseal()
        await refused("epoch.outdated", bench.services.memory.get(caller, stored.id))

    async def test_a_waiting_turn_is_extracted_under_the_new_keys(
        self, make_bench: BenchMaker
    ) -> None:
        bench = make_bench()
        owner = await rotator(bench, "managed")
        caller = await owner.caller()
        episode = await keep_turn(bench, caller)
        await owner.rotate()
        keys = await bench.storage.custody.job_keys(owner.owner.account)
        assert keys is not None
        await bench.services.analysis.extract_episode(owner.owner.account, keys, episode)
        assert set(await epochs(bench)) == {2}


class TestRevocation:
    """It counts at once, everywhere."""

    async def test_on_every_replica_with_warm_caches(self, bench: Bench) -> None:
        owner = await rotator(bench, "sealed")
        agent = await bench.key(owner.owner, TEAM)
        replica = bench.another()
        for one in (bench, replica):
            header = one.unlock(agent, owner.keys(TEAM), hold_s=300)
            await bench.remember(await one.caller(agent, header), f"tea {one is bench}")
            assert await one.storage.custody.job_keys(owner.owner.account) is not None
        await bench.revoke(owner.owner, agent.identity.public_key)
        for one in (replica, bench):
            assert await access_of(one, agent) is None
            assert await one.storage.custody.job_keys(owner.owner.account) is None
            assert await one.storage.custody.held_namespaces(owner.owner.account) == []

    async def test_what_it_had_queued_does_not_run_with_its_keys(self, hybrid: Bench) -> None:
        owner = await rotator(hybrid, "sealed")
        agent = await hybrid.key(owner.owner, TEAM)
        replica = hybrid.another()
        header = replica.unlock(agent, owner.keys(TEAM), hold_s=300)
        await replica.remember(await replica.caller(agent, header), "Anna prefers tea.")
        await hybrid.revoke(owner.owner, agent.identity.public_key)
        async with replica.working():
            waits = "SELECT count(*)::int FROM pgqueuer WHERE entrypoint = 'embed' AND attempts > 0"
            await hybrid.until(waits, 1)  # picked up, and put back for want of keys
            assert await hybrid.value("SELECT count(*) FROM vectors") == 0
            await owner.caller(hold_s=300, bench=replica)
            await hybrid.until("SELECT count(*)::int FROM vectors", 1)

    async def test_another_keys_lending_ends_with_it_too(self, bench: Bench) -> None:
        owner = await rotator(bench, "sealed")
        agents = [await bench.key(owner.owner, TEAM) for _ in range(2)]
        await owner.caller(agents[0], hold_s=300)
        await bench.revoke(owner.owner, agents[1].identity.public_key)
        assert await bench.storage.custody.job_keys(owner.owner.account) is None
