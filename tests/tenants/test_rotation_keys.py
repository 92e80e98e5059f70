"""Whose keys seal an account anew, and when an old epoch leaves everybody's grants."""

import pytest

from relayer.clock import to_ms
from relayer.sealed.grants import Role, issue_grant, sign_join
from relayer.sealed.keys import NamespaceKey
from relayer.tenants.custody import RootKeys
from relayer.upkeep import provision
from tests.rotator import CUSTODIES, Rotator, admitted, keep_turn, opened_by, refused, rotator
from tests.services import OTHER, TEAM, Bench, new_identity

JOBS = "SELECT count(*)::int FROM pgqueuer WHERE entrypoint = 'reseal'"


class TestKeys:
    """Whose keys a sealed account's memories are sealed anew with."""

    async def begun(self, bench: Bench) -> tuple[Rotator, provision.NewKey]:
        owner = await rotator(bench, "sealed")
        agent = await bench.key(owner.owner, TEAM)
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        await owner.rotate(reseal="all")
        return owner, agent

    async def test_only_those_that_an_owner_lends(self, bench: Bench) -> None:
        owner, agent = await self.begun(bench)
        custody, account = bench.storage.custody, owner.owner.account
        assert await custody.reseal_keys(account) is None
        await owner.caller(agent, hold_s=300)
        assert await custody.reseal_keys(account) is None
        assert await custody.job_keys(account) is not None
        await owner.caller(hold_s=0)
        assert await custody.reseal_keys(account) is None
        await owner.caller(hold_s=60)
        assert await custody.reseal_keys(account) is not None
        await owner.caller(agent, hold_s=300)
        bench.clock.advance(61)
        assert await custody.reseal_keys(account) is None, "the agent's lending extends no owner's"

    @pytest.mark.parametrize("role", ["reader", "writer"])
    @pytest.mark.parametrize("first", [True, False])
    async def test_an_invented_key_takes_the_place_of_none(
        self, bench: Bench, role: Role, first: bool
    ) -> None:
        """Whoever has the root can invent the key that a new epoch does not know yet."""
        owner = await rotator(bench, "sealed")
        other, account = await bench.key(owner.owner, role=role), owner.owner.account
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        await owner.rotate(reseal="all")
        invented = [owner.roots[0].namespace_key(account, TEAM), NamespaceKey(TEAM, 2, bytes(32))]
        header = bench.unlock(other, invented, hold_s=300)
        if first:
            await bench.caller(other, header)
        await owner.caller(hold_s=300)
        await bench.caller(other, header)
        keys = await bench.storage.custody.reseal_keys(account)
        assert keys is not None
        assert await bench.services.resealer.work(account, keys, lambda: True)
        await owner.drop_old_bytes()
        assert len(await opened_by(bench, account, owner.keys(TEAM))) == 1
        assert len(await opened_by(bench, account, invented)) == 0

    async def test_no_reader_names_a_key_by_work_that_waits(self, bench: Bench) -> None:
        owner = await rotator(bench, "sealed")
        reader, account = await bench.key(owner.owner, role="reader"), owner.owner.account
        await keep_turn(bench, await owner.caller())
        await owner.rotate(reseal="none")
        old, new = owner.keys(TEAM)
        for key in (NamespaceKey(TEAM, 2, bytes(32)), new):
            await bench.caller(reader, bench.unlock(reader, [old, key], hold_s=300))
            assert await bench.storage.custody.job_keys(account) is None
        async with bench.working():
            await owner.caller(hold_s=300)
            await bench.until("SELECT count(*)::int FROM episodes WHERE state = 'pending'", 0)
        assert await bench.value("SELECT key_id FROM namespace_keys WHERE epoch = 2") == new.key_id
        await bench.caller(reader, bench.unlock(reader, [old, new], hold_s=300))
        assert await bench.storage.custody.job_keys(account) is not None

    async def test_progress_says_what_waits(self, bench: Bench) -> None:
        owner, agent = await self.begun(bench)
        await bench.remember(await owner.caller(None, OTHER), "elsewhere", namespace=OTHER)

        async def waiting(key: provision.NewKey) -> list[tuple[str, int, int]]:
            progress = await bench.services.rotations.progress(await admitted(bench, key))
            return [(n.name, n.remaining, n.waiting_for_keys) for n in progress.namespaces]

        assert await waiting(owner.owner) == [(TEAM, 1, 1)]
        assert await waiting(agent) == [(TEAM, 1, 1)]
        await owner.caller(hold_s=300)
        assert await waiting(owner.owner) == [(TEAM, 1, 0)]
        await owner.reseal()
        assert await waiting(owner.owner) == [(TEAM, 0, 0)]

    async def test_lending_begins_it_and_it_ends_by_itself(self, bench: Bench) -> None:
        owner, _ = await self.begun(bench)
        async with bench.working():
            await owner.caller(hold_s=300)
            await bench.until("SELECT count(*)::int FROM memories WHERE epoch = 2", 1)

    async def test_what_is_chosen_later_begins_with_keys_that_are_here(self, bench: Bench) -> None:
        """Nothing would begin it for up to a minute: keys that are lent again are nothing new."""
        owner = await rotator(bench, "sealed")
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        await owner.rotate(reseal="none")
        await owner.caller(hold_s=300)
        assert await bench.value(JOBS) == 0
        await owner.send([], [], "all")
        assert await bench.value(JOBS) == 1

    async def test_what_is_chosen_later_waits_for_keys_of_an_owner(self, bench: Bench) -> None:
        owner = await rotator(bench, "sealed")
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        await owner.rotate(reseal="none")
        await owner.send([], [], "all")
        assert await bench.value(JOBS) == 0

    async def test_a_managed_account_needs_nobody(self, bench: Bench) -> None:
        owner = await rotator(bench, "managed")
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        async with bench.working():
            await owner.rotate(reseal="all")
            await bench.until("SELECT count(*)::int FROM memories WHERE epoch = 2", 1)

    async def test_the_sweeper_finds_what_its_job_lost(self, bench: Bench) -> None:
        owner = await rotator(bench, "managed")
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        await owner.rotate(reseal="all")
        await bench.sql("DELETE FROM pgqueuer")
        await bench.services.sweeper.sweep()
        assert await bench.value(JOBS) == 1

    async def test_ending_custody_with_new_keys_locks_the_relayer_out(self, bench: Bench) -> None:
        """Managed to sealed: what the relayer holds as custodian opens nothing that is new."""
        owner = await rotator(bench, "managed")
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        before = await bench.storage.custody.job_keys(owner.owner.account)
        assert isinstance(before, RootKeys)
        await owner.rotate(revoke=[bench.storage.identity.public_key], reseal="all")
        assert await bench.storage.custody.job_keys(owner.owner.account) is None
        await owner.reseal()
        await owner.drop_old_bytes()
        account = owner.owner.account
        assert await opened_by(bench, account, [before.of(TEAM)[0]]) == set()
        assert await bench.texts(await owner.caller(), "tea") == ["Anna prefers tea."]


class TestRetiring:
    """Leaving an old epoch out of everybody's grants."""

    @pytest.mark.parametrize("custody", CUSTODIES)
    async def test_once_nothing_is_under_it(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        agent = await bench.key(owner.owner, TEAM)
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        await owner.rotate(reseal="all")
        await refused("epoch.in_use", owner.send(*await owner.objects(owner.roots[1:])))
        assert (await bench.storage.accounts.chain(owner.owner.account)).serial < 9
        await owner.reseal()
        await owner.send(*await owner.objects(owner.roots[1:]))
        del owner.roots[0]
        caller = await owner.caller(agent)
        assert [k.epoch for k in caller.keys.of(TEAM)] == [2]
        assert await bench.texts(caller, "tea") == ["Anna prefers tea."]
        fresh = await provision.add_key(
            bench.storage,
            account=owner.owner.account,
            namespaces=[TEAM],
            role="writer",
            label="later",
            expires_at=None,
            owner=owner.owner.identity,
            clock=bench.clock,
        )
        chain = await bench.storage.accounts.chain(owner.owner.account)
        [grant] = chain.grants[fresh.identity.public_key]
        assert [e.epoch for e in grant.scope] == [2]

    async def test_not_by_an_owner_who_never_had_it(self, bench: Bench) -> None:
        """One that was given the newest epoch alone drops no older one that others still need."""
        owner = await rotator(bench, "sealed")
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        await owner.rotate(reseal="none")
        founder, deputy = owner.owner, new_identity()
        chain = await bench.storage.accounts.chain(founder.account)
        signed = issue_grant(
            founder.identity,
            account=founder.account,
            serial=chain.serial + 1,
            recipient=deputy.public_key,
            role="owner",
            keys=owner.roots[1:],
            created_ms=to_ms(bench.clock()),
        )
        join = sign_join(
            deputy,
            account=founder.account,
            issuer=founder.identity.public_key,
            relayer=bench.storage.identity.public_key,
        )
        await bench.storage.granting.grant(
            account=founder.account,
            actor=founder.identity.public_key,
            signed=signed,
            join=join,
            label="deputy",
        )
        owner.owner = provision.NewKey(founder.account, deputy, "sealed")
        await refused("epoch.in_use", owner.send(*await owner.objects(owner.roots[1:])))

    async def test_a_turn_that_waits_keeps_it_alive(self, bench: Bench) -> None:
        owner = await rotator(bench, "managed")
        await keep_turn(bench, await owner.caller())
        await owner.rotate(reseal="none")
        await refused("epoch.in_use", owner.send(*await owner.objects(owner.roots[1:])))
