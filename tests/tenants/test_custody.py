"""Namespace keys: from the custodian's grant, lent by unlock headers, kept for background work."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from relayer.clock import to_ms
from relayer.errors import Corrupted, Misdirected, NotAllowed
from relayer.record import Draft
from relayer.sealed.keys import Identity, Namespace, NamespaceKey, account_text
from relayer.sealed.objects import open_object, strict_json
from relayer.sealed.primitives import from_base64url, random_key, to_base64, to_base64url
from relayer.settings import Limits
from relayer.tenants.accounts import Access
from relayer.tenants.custody import Custody, LentKeys
from relayer.upkeep import provision
from tests.services import OTHER, TEAM, Bench, access_of, box_unlock, new_identity


async def access(bench: Bench, key: provision.NewKey) -> Access:
    held = await access_of(bench, key)
    assert held is not None
    return held


def wrong(namespace: Namespace, epoch: int = 1) -> NamespaceKey:
    return NamespaceKey(namespace, epoch, random_key())


class TestManaged:
    async def test_needs_no_header_and_ignores_one(self, bench: Bench) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        right = bench.namespace_key(founder.account, TEAM)
        assert [k.key for k in caller.keys.of(TEAM)] == [right.key]
        planted = await bench.caller(founder, bench.unlock(founder, [wrong(TEAM)]))
        assert [k.key for k in planted.keys.of(TEAM)] == [right.key]

    async def test_jobs_use_the_same(self, bench: Bench) -> None:
        founder = await bench.account()
        keys = await bench.storage.custody.job_keys(founder.account)
        assert keys is not None
        assert keys.of(OTHER)[0].key == bench.namespace_key(founder.account, OTHER).key

    async def test_are_the_same_whatever_was_derived_of_them(self, bench: Bench) -> None:
        """What goes by equal keys goes together; they are opened anew where there are many."""
        account = (await bench.account()).account
        keys = await bench.storage.custody.job_keys(account)
        again = await bench.another().storage.custody.job_keys(account)
        assert keys is not None
        assert again is not keys
        assert again == keys
        keys.of(OTHER)
        assert again == keys

    async def test_ends_with_the_custodians_revocation(self, bench: Bench) -> None:
        founder = await bench.account()
        await bench.remember(await bench.caller(founder), "Anna prefers tea.")
        await bench.revoke(founder, bench.storage.identity.public_key)
        caller = await bench.caller(founder)
        with pytest.raises(NotAllowed) as caught:
            await bench.texts(caller, "tea")
        assert caught.value.code == "unlock_required"
        assert await bench.storage.custody.job_keys(founder.account) is None
        assert await bench.texts(await bench.unlocked(founder, TEAM), "tea") == [
            "Anna prefers tea."
        ]

    async def test_a_box_that_does_not_open_is_said_so(self, bench: Bench) -> None:
        """A relayer whose key file was exchanged together with its public half in a grant."""
        founder = await bench.account()
        custody = Custody(
            accounts=bench.storage.accounts,
            namespaces=bench.storage.namespaces,
            identity=Impostor(bench.storage.identity.seed),
            clock=bench.clock,
        )
        with pytest.raises(Corrupted):
            await custody.job_keys(founder.account)


class Impostor(Identity):
    """An identity with another's exchange key, so that no box opens."""

    exchange_private_key = bytes(range(32))


class TestUnlock:
    async def test_sealed_account_works_with_its_own_keys_only(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        caller = await bench.caller(founder)
        for use in (bench.remember(caller, "Anna prefers tea."), bench.texts(caller, "tea")):
            with pytest.raises(NotAllowed) as caught:
                await use
            assert caught.value.code == "unlock_required"
        assert await bench.value("SELECT count(*) FROM namespaces") == 0
        caller = await bench.unlocked(founder, TEAM)
        await bench.remember(caller, "Anna prefers tea.")
        assert await bench.texts(caller, "tea") == ["Anna prefers tea."]

    async def refused(self, bench: Bench, key: provision.NewKey, header: str) -> None:
        with pytest.raises(NotAllowed) as caught:
            await bench.storage.custody.keys(await access(bench, key), header)
        assert caught.value.code == "unlock_rejected"

    async def test_only_namespaces_of_the_senders_grant(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        agent = await bench.key(founder, TEAM)
        right = bench.namespace_key(founder.account, TEAM)
        outside = bench.namespace_key(founder.account, OTHER)
        await bench.caller(agent, bench.unlock(agent, [right]))
        await self.refused(bench, agent, bench.unlock(agent, [outside]))
        await self.refused(bench, agent, bench.unlock(agent, [right, outside]))
        later = NamespaceKey(TEAM, 2, right.key)
        await self.refused(bench, agent, bench.unlock(agent, [later]))

    async def test_key_must_be_the_one_the_grant_names(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        agent = await bench.key(founder, TEAM)
        await self.refused(bench, agent, bench.unlock(agent, [wrong(TEAM)]))

    async def test_first_write_of_a_root_holder_defines_the_key(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        await self.refused(bench, founder, bench.unlock(founder, [wrong(TEAM, epoch=2)]))
        caller = await bench.caller(founder, bench.unlock(founder, [wrong(TEAM)]))
        assert await bench.texts(caller, "tea") == []  # reading defines nothing
        caller = await bench.unlocked(founder, TEAM)
        await bench.remember(caller, "Anna prefers tea.")
        await self.refused(bench, founder, bench.unlock(founder, [wrong(TEAM)]))
        replica = bench.another()
        await self.refused(replica, founder, replica.unlock(founder, [wrong(TEAM)]))

    async def test_of_two_first_writers_with_other_keys_one_wins(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        right = await bench.unlocked(founder, TEAM)
        planted = await bench.caller(founder, bench.unlock(founder, [wrong(TEAM)]))
        await bench.remember(right, "Anna prefers tea.")
        with pytest.raises(NotAllowed) as caught:
            await bench.remember(planted, "Anna prefers coffee.")
        assert caught.value.code == "unlock_rejected"
        with pytest.raises(NotAllowed):
            await bench.texts(planted, "Anna")

    async def test_a_key_that_any_grant_names_wins(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        await bench.key(founder, TEAM)
        await self.refused(bench, founder, bench.unlock(founder, [wrong(TEAM)]))
        await bench.unlocked(founder, TEAM)

    async def test_header_counts_for_its_sender_account_relayer_and_time(
        self, bench: Bench
    ) -> None:
        founder = await bench.account("sealed")
        other = await bench.account("sealed")
        colleague = await bench.key(founder, role="owner")
        named = strict_json(bench.storage.custody.statement()[:-64])["unlock_keys"]
        right = bench.namespace_key(founder.account, TEAM)

        def header(sender: Identity = founder.identity, **members: Any) -> str:
            payload = {
                "v": 1,
                "relayer": bench.storage.identity.public_key.hex(),
                "account": account_text(founder.account),
                "sender": founder.identity.public_key.hex(),
                "iat": round(bench.clock().timestamp() * 1000),
                "hold": 0,
                "keys": [{"ns": "team", "epoch": 1, "key": to_base64(right.key)}],
            }
            return box_unlock(sender, named, {**payload, **members})

        await bench.caller(founder, header())
        now_ms = round(bench.clock().timestamp() * 1000)
        for spoiled in (
            header(relayer=new_identity().public_key.hex()),
            header(account=account_text(other.account)),
            header(sender=new_identity()),
            header(iat=now_ms - 300_001),
            header(iat=now_ms + 300_001),
            header(hold=301),
            header(hold=-1),
            header(keys=[]),
            header(keys=[{"ns": " team", "epoch": 1, "key": to_base64(right.key)}]),
            header(keys=[{"ns": "team", "epoch": 1, "key": to_base64(right.key[:-1])}]),
            header(more=1),
            header()[:-4],
            "AQ",
            "",
            "!",
            "A" * 6145,
        ):
            await self.refused(bench, founder, spoiled)
        await self.refused(bench, colleague, header())
        opened = header()
        await bench.caller(founder, opened)
        await self.refused(bench, colleague, opened)

    async def test_an_opened_header_is_forgotten_when_it_counts_no_longer(
        self, bench: Bench
    ) -> None:
        founder = await bench.account("sealed")
        header = bench.unlock(founder, [bench.namespace_key(founder.account, TEAM)])
        await bench.caller(founder, header)
        custody = bench.storage.custody
        for after_s, kept in ((300, 1), (1, 0)):
            bench.clock.advance(after_s)
            custody.forget_expired()
            assert len(vars(vars(custody)["_opened"])["_opened"]) == kept

    async def test_a_header_is_kept_only_if_its_sender_may_lend_it_all(self, bench: Bench) -> None:
        """Else anybody's made-up keys would take the room of those that are sent again."""
        founder = await bench.account("sealed")
        agent = await bench.key(founder, TEAM)
        await self.refused(bench, agent, bench.unlock(agent, [wrong(OTHER)]))
        assert not vars(vars(bench.storage.custody)["_opened"])["_opened"]

    async def test_a_header_is_good_for_its_time_and_no_longer(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        header = bench.unlock(founder, [bench.namespace_key(founder.account, TEAM)])
        for _ in range(3):
            await bench.caller(founder, header)
        bench.clock.advance(300)
        await bench.caller(founder, header)
        bench.clock.advance(0.001)
        await self.refused(bench, founder, header)

    async def test_grants_are_asked_again_for_an_opened_header(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        agent = await bench.key(founder, TEAM, OTHER)
        header = bench.unlock(agent, [bench.namespace_key(founder.account, TEAM)])
        held = await access(bench, agent)
        await bench.storage.custody.keys(held, header)
        narrower = replace(held, grants=())
        with pytest.raises(NotAllowed):
            await bench.storage.custody.keys(narrower, header)

    async def test_another_process_does_not_know_the_key(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        header = bench.unlock(founder, [bench.namespace_key(founder.account, TEAM)])
        restarted = bench.another()
        with pytest.raises(Misdirected) as caught:
            await restarted.caller(founder, header)
        assert caught.value.code == "unlock_key_unknown"
        await restarted.unlocked(founder, TEAM)

    async def test_statement_is_signed_and_keys_overlap(self, bench: Bench) -> None:
        relayer = bench.storage.identity.public_key
        founder = await bench.account("sealed")
        key = [bench.namespace_key(founder.account, TEAM)]
        members = frozenset(["relayer", "issued", "unlock_keys"])

        def kids(statement: bytes) -> list[str]:
            opened = open_object(statement, "relayer", relayer, members)
            return [k["kid"] for k in opened["unlock_keys"]]

        first = bench.storage.custody.statement()
        assert kids(first) == kids(bench.storage.custody.statement())
        bench.clock.advance(Limits.unlock_key_life_s - Limits.unlock_key_overlap_s)
        second = bench.storage.custody.statement()
        assert (len(kids(second)), kids(second)[:1]) == (2, kids(first))
        await bench.caller(founder, bench.unlock(founder, key, statement=first))
        bench.clock.advance(Limits.unlock_key_overlap_s)
        assert kids(bench.storage.custody.statement()) == kids(second)[1:]
        with pytest.raises(Misdirected):
            await bench.caller(founder, bench.unlock(founder, key, statement=first))

    async def test_first_and_second_box_open(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        bench.storage.custody.statement()
        bench.clock.advance(Limits.unlock_key_life_s - 1)
        statement = bench.storage.custody.statement()
        header = bench.unlock(
            founder, [bench.namespace_key(founder.account, TEAM)], statement=statement
        )
        assert from_base64url(header)[1] == 2
        bench.clock.advance(2)
        caller = await bench.caller(founder, header)
        await bench.remember(caller, "Anna prefers tea.")

    async def test_every_flipped_byte_is_refused(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        raw = from_base64url(bench.unlock(founder, [bench.namespace_key(founder.account, TEAM)]))
        held = await access(bench, founder)
        for at in range(0, len(raw), 7):
            spoiled = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
            with pytest.raises((NotAllowed, Misdirected)):
                await bench.storage.custody.keys(held, to_base64url(spoiled))


class TestRing:
    async def test_holds_as_long_as_the_sender_allows(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        custody = bench.storage.custody
        await bench.unlocked(founder, TEAM, hold_s=0)
        assert await custody.job_keys(founder.account) is None
        await bench.unlocked(founder, TEAM, hold_s=60)
        await bench.unlocked(founder, OTHER, hold_s=30)
        assert await custody.held_namespaces(founder.account) == [OTHER, TEAM]
        bench.clock.advance(30)
        keys = await custody.job_keys(founder.account)
        assert keys is not None
        assert keys.of(TEAM)
        with pytest.raises(NotAllowed):
            keys.of(OTHER)
        bench.clock.advance(30)
        assert await custody.job_keys(founder.account) is None

    async def test_a_shorter_hold_does_not_take_away(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        await bench.unlocked(founder, TEAM, hold_s=60)
        await bench.unlocked(founder, TEAM, hold_s=1)
        bench.clock.advance(59)
        assert await bench.storage.custody.job_keys(founder.account) is not None

    async def test_hold_counts_from_when_the_header_was_made(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        header = bench.unlock(founder, [bench.namespace_key(founder.account, TEAM)], hold_s=60)
        bench.clock.advance(50)
        await bench.caller(founder, header)
        bench.clock.advance(10)
        assert await bench.storage.custody.job_keys(founder.account) is None

    async def test_a_key_is_kept_no_longer_than_its_lenders_right(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        custody, ends = bench.storage.custody, bench.clock() + timedelta(seconds=60)
        brief = await bench.key(founder, TEAM, OTHER, expires_at=ends)
        await bench.unlocked(brief, TEAM, OTHER, hold_s=300)
        await bench.unlocked(await bench.key(founder, OTHER, role="reader"), OTHER, hold_s=300)
        bench.clock.advance(59)
        assert await custody.held_namespaces(founder.account) == [OTHER, TEAM]
        bench.clock.advance(1)
        assert await access_of(bench, brief) is None
        assert await custody.held_namespaces(founder.account) == [OTHER], (
            "whoever else lends it may go on"
        )

    async def test_the_stronger_right_of_two_says_how_long(self, bench: Bench) -> None:
        """What an owner lends seals anew, and an owner's time may be over before a reader's."""
        founder = await bench.account("sealed")
        held = await access(bench, founder)
        [own] = held.grants
        now_ms = to_ms(bench.clock())
        ended = replace(own, expires_ms=now_ms + 5_000)
        reader = replace(own, role="reader", expires_ms=None)
        both = replace(held, grants=(reader, ended))
        assert both.ends_ms(TEAM, now_ms + 60_000) == now_ms + 5_000
        assert both.ends_ms(TEAM, now_ms + 1_000) == now_ms + 1_000

    async def test_each_key_is_forgotten_on_time_also_while_nobody_asks(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        await bench.unlocked(founder, TEAM, hold_s=300)
        await bench.unlocked(founder, OTHER, hold_s=60)
        custody = bench.storage.custody
        bench.clock.advance(60)
        custody.forget_expired()
        lent = vars(vars(custody)["_ring"])["_accounts"][founder.account]
        assert [namespace for namespace, _ in lent.keys] == [TEAM]

    async def test_does_not_serve_requests(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        agent = await bench.key(founder, TEAM)
        await bench.remember(await bench.unlocked(founder, TEAM, hold_s=300), "Anna prefers tea.")
        assert await bench.storage.custody.job_keys(founder.account) is not None
        for key in (agent, founder):
            with pytest.raises(NotAllowed) as caught:
                await bench.texts(await bench.caller(key), "tea")
            assert caught.value.code == "unlock_required"

    async def test_a_revocation_empties_one_accounts_ring(self, bench: Bench) -> None:
        """Wherever it was accepted: the ring follows the chain, not a call of this process."""
        one, two = await bench.account("sealed"), await bench.account("sealed")
        agent = await bench.key(one, TEAM)
        for founder in (one, two):
            await bench.unlocked(founder, TEAM, hold_s=300)
        await bench.revoke(one, agent.identity.public_key)
        assert await bench.storage.custody.job_keys(one.account) is None
        assert await bench.storage.custody.job_keys(two.account) is not None

    async def test_learns_once(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        held = await access(bench, founder)
        header = bench.unlock(founder, [bench.namespace_key(founder.account, TEAM)], hold_s=60)
        learned = [(await bench.storage.custody.keys(held, header))[1] for _ in range(2)]
        assert learned == [True, False]

    async def test_nothing_of_it_is_printed(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        caller = await bench.unlocked(founder, TEAM, hold_s=60)
        right = bench.namespace_key(founder.account, TEAM)
        assert isinstance(caller.keys, LentKeys)
        shown: Callable[[object], str] = lambda value: repr(value) + json.dumps(str(value))  # noqa: E731
        for value in (caller, caller.keys, right, founder, Draft(text="Anna", namespace=TEAM)):
            assert right.key.hex() not in shown(value)
            assert repr(right.key) not in shown(value)
            assert "Anna" not in shown(value)
