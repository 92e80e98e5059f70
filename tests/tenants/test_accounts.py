"""Accounts and grants through the database: who may do what, now and on every replica."""

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import pytest

from relayer.clock import MOMENT_MS_MAX
from relayer.commands.options import table
from relayer.errors import BadRequest, Conflict, Corrupted, NotAllowed, NotFound, QuotaExceeded
from relayer.sealed.grants import issue_grant, issue_revocation, parse_grant
from relayer.sealed.keys import (
    AccountId,
    Identity,
    Namespace,
    PublicKey,
    Root,
    account_id,
)
from relayer.sealed.primitives import random_key
from relayer.sealed.receipts import open_receipt
from relayer.settings import Limits
from relayer.upkeep import provision
from tests.conftest import BenchMaker
from tests.granting import entrust, issue, post, resigned
from tests.services import OTHER, TEAM, Bench, access_of, new_identity


async def strength(bench: Bench, key: provision.NewKey, namespace: Namespace | None) -> int:
    held = await access_of(bench, key)
    return 0 if held is None else held.strength(namespace)


class TestCreate:
    async def test_custody_is_computed_from_grants(self, bench: Bench) -> None:
        managed, sealed = await bench.account("managed"), await bench.account("sealed")
        accounts = bench.storage.accounts
        for key, custody in ((managed, "managed"), (sealed, "sealed")):
            held = await access_of(bench, key)
            assert held is not None
            assert (held.custody, held.is_owner, held.namespaces) == (custody, True, None)
        chain = await accounts.chain(managed.account)
        await bench.revoke(managed, bench.storage.identity.public_key)
        assert accounts.custody(await accounts.chain(managed.account)) == "sealed"
        assert chain.serial == 2

    async def test_custodian_can_come_later(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        await entrust(bench, founder, [bench.root[founder.account]])
        caller = await bench.caller(founder)
        assert caller.access.custody == "managed"
        await bench.remember(caller, "Anna prefers tea.")

    async def test_an_account_is_founded_once(self, bench: Bench) -> None:
        founder, root = new_identity(), Root(1, random_key())
        account = account_id(founder.public_key)
        grant = founding(founder, account, root)
        results = await asyncio.gather(
            *(
                bench.storage.granting.create(founder=founder.public_key, grants=[grant], label="")
                for _ in range(4)
            ),
            return_exceptions=True,
        )
        refused = [r for r in results if isinstance(r, BaseException)]
        assert [type(r) for r in refused] == [Conflict] * 3
        with pytest.raises(Conflict):
            await bench.storage.granting.create(
                founder=founder.public_key, grants=[grant], label=""
            )

    async def test_wrong_beginnings_are_refused(self, bench: Bench) -> None:
        founder, other, root = new_identity(), new_identity(), Root(1, random_key())
        account = account_id(founder.public_key)
        own, relayer = founding(founder, account, root), bench.storage.identity.public_key
        wrong: list[list[bytes]] = [
            [],
            [own[:-1] + bytes([own[-1] ^ 1])],
            [founding(founder, account, root, role="writer")],
            [founding(founder, account, root, serial=2)],
            [founding(other, account, root)],
            [own, founding(founder, account, root, serial=2, recipient=other.public_key)],
            [
                own,
                founding(
                    founder, account, root, serial=2, recipient=other.public_key, role="custodian"
                ),
            ],
            [own, own],
        ]
        for grants in wrong:
            with pytest.raises(BadRequest):
                await bench.storage.granting.create(
                    founder=founder.public_key, grants=grants, label=""
                )
        with pytest.raises(BadRequest):
            await bench.storage.granting.create(founder=relayer, grants=[own], label="")
        assert await bench.value("SELECT count(*) FROM accounts") == 0

    async def test_a_custodian_grant_must_open(self, bench: Bench) -> None:
        """Else one tenant's nonsense would stop every job that needs the custodian's keys."""
        founder, root = new_identity(), Root(1, random_key())
        account = account_id(founder.public_key)
        relayer = bench.storage.identity.public_key
        good = founding(founder, account, root, serial=2, recipient=relayer, role="custodian")
        other = founding(founder, account, root, serial=2, recipient=relayer, role="custodian")
        moved = resigned(founder, good, box=parse_grant(other).box)
        with pytest.raises(BadRequest):
            await bench.storage.granting.create(
                founder=founder.public_key,
                grants=[founding(founder, account, root), moved],
                label="",
            )


def founding(founder: Identity, account: AccountId, root: Root, **members: Any) -> bytes:
    """The founder's grant to itself, unless `members` say otherwise."""
    return issue_grant(
        founder,
        **{
            "account": account,
            "serial": 1,
            "recipient": founder.public_key,
            "role": "owner",
            "keys": [root],
            "created_ms": 1,
            **members,
        },
    )


class TestRoles:
    async def test_role_counts_in_its_namespaces(self, bench: Bench) -> None:
        founder = await bench.account()
        writer = await bench.key(founder, TEAM)
        reader = await bench.key(founder, TEAM, role="reader")
        whole = await bench.key(founder, role="writer")
        owner = await bench.key(founder, role="owner")
        expected = {
            writer: (2, 0, 0), reader: (1, 0, 0), whole: (2, 2, 2), owner: (3, 3, 3),
            founder: (3, 3, 3),
        }  # fmt: skip
        for key, strengths in expected.items():
            found = tuple([await strength(bench, key, n) for n in (TEAM, OTHER, None)])
            assert found == strengths
        held = await access_of(bench, reader)
        assert held is not None
        assert held.namespaces == [TEAM]
        held.require(TEAM, "reader")
        for role in ("writer", "owner"):
            with pytest.raises(NotAllowed):
                held.require(TEAM, role)
        with pytest.raises(NotAllowed):
            held.require_owner()

    async def test_several_grants_add_up(self, bench: Bench) -> None:
        founder = await bench.account()
        agent = await bench.key(founder, TEAM, role="reader")
        key = bench.namespace_key(founder.account, OTHER)
        await post(
            bench, founder, agent.identity, await issue(bench, founder, agent.identity, [key])
        )
        assert await strength(bench, agent, TEAM) == 1
        assert await strength(bench, agent, OTHER) == 2
        held = await access_of(bench, agent)
        assert held is not None
        assert held.namespaces == [OTHER, TEAM]

    async def test_expiry_counts_at_its_moment(self, bench: Bench) -> None:
        founder = await bench.account()
        agent = await bench.key(founder, TEAM, expires_at=bench.clock() + timedelta(hours=1))
        bench.clock.advance(3599.999)
        assert await strength(bench, agent, TEAM) == 2
        bench.clock.advance(0.001)
        assert await access_of(bench, agent) is None

    async def test_custodian_issues_for_managed_accounts(self, bench: Bench) -> None:
        founder = await bench.account()
        agent = await provision.add_key(
            bench.storage,
            account=founder.account,
            namespaces=[TEAM],
            role="writer",
            label="robot",
            expires_at=None,
            owner=None,
            clock=bench.clock,
        )
        assert await strength(bench, agent, TEAM) == 2
        await provision.revoke_key(
            bench.storage,
            account=founder.account,
            key=agent.identity.public_key,
            owner=None,
            clock=bench.clock,
        )
        assert await access_of(bench, agent) is None

    async def test_sealed_account_needs_an_owner(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        agent = await bench.key(founder, TEAM)
        for owner in (None, agent.identity, new_identity()):
            with pytest.raises(NotAllowed) as caught:
                await provision.add_key(
                    bench.storage,
                    account=founder.account,
                    namespaces=[TEAM],
                    role="writer",
                    label="",
                    expires_at=None,
                    owner=owner,
                    clock=bench.clock,
                )
            assert caught.value.code == "owner_key_required"

    async def test_owner_of_one_namespace_is_refused(self, bench: Bench) -> None:
        founder = await bench.account()
        with pytest.raises(BadRequest):
            await bench.key(founder, TEAM, role="owner")

    async def test_keys_as_their_grants_say(self, bench: Bench) -> None:
        founder = await bench.account()
        later = bench.clock() + timedelta(days=1)
        agent = await bench.key(founder, OTHER, TEAM, expires_at=later, label="robot")
        gone = await bench.key(founder, TEAM, label="gone")
        await bench.revoke(founder, gone.identity.public_key)
        listed = {k["label"]: k for k in await bench.storage.accounts.all_keys(founder.account)}
        assert listed["robot"]["namespaces"] == ["other", "team"]
        assert (listed["robot"]["role"], listed["robot"]["revoked"]) == ("writer", False)
        assert listed["robot"]["expires_at"] == "2031-05-05T09:30:00.000Z"
        assert listed["gone"]["revoked"]
        held = await access_of(bench, agent)
        assert held is not None
        own = await bench.storage.accounts.list_keys(held)
        assert [k["public_key"] for k in own] == [agent.identity.public_key.hex()]
        grants = await bench.storage.accounts.list_grants(held)
        assert [(g["kind"], g["serial"]) for g in grants] == [("grant", 1), ("grant", 3)]
        owner = await access_of(bench, founder)
        assert owner is not None
        kinds = [g["kind"] for g in await bench.storage.accounts.list_grants(owner)]
        assert kinds == ["grant", "grant", "grant", "grant", "revoke"]
        assert len(await bench.storage.accounts.list_keys(owner)) == 4

    async def test_a_grant_that_is_over_makes_a_key_no_stronger(self, bench: Bench) -> None:
        founder = await bench.account()
        soon = bench.clock() + timedelta(days=1)
        agent = await bench.key(founder, TEAM, OTHER, expires_at=soon)
        key = bench.namespace_key(founder.account, TEAM)
        reading = await issue(bench, founder, agent.identity, [key], role="reader")
        await post(bench, founder, agent.identity, reading)

        async def listed() -> tuple[Any, ...]:
            every = await bench.storage.accounts.all_keys(founder.account)
            [entry] = [e for e in every if e["public_key"] == agent.identity.public_key.hex()]
            return entry["role"], entry["namespaces"], entry["expires_at"]

        assert await listed() == ("writer", ["other", "team"], None)
        bench.clock.advance(2 * 86400)
        assert await listed() == ("reader", ["team"], None)

    async def test_what_a_key_could_do_that_can_nothing_any_more(self, bench: Bench) -> None:
        founder = await bench.account()
        soon = bench.clock() + timedelta(days=1)
        await bench.key(founder, TEAM, expires_at=soon, label="robot")
        bench.clock.advance(2 * 86400)
        [entry] = [
            each
            for each in await bench.storage.accounts.all_keys(founder.account)
            if each["label"] == "robot"
        ]
        assert (entry["role"], entry["namespaces"]) == ("writer", ["team"])
        assert entry["expires_at"] == "2031-05-05T09:30:00.000Z"

    async def test_no_more_grants_are_read_than_are_asked_for(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        founder = await bench.account(label="")
        agents = [await bench.key(founder, TEAM, label=f"agent {n}") for n in range(9)]
        keys = [agent.identity.public_key for agent in agents]
        await bench.revoke(founder, keys[1])
        owner, held = await access_of(bench, founder), await access_of(bench, agents[0])
        assert owner is not None
        assert held is not None
        accounts, database, read = bench.storage.accounts, bench.storage.database, list[Any]()
        fetch = database.fetch

        async def counted(statement: str, *arguments: Any) -> list[Any]:
            found = await fetch(statement, *arguments)
            read.extend(row for row in found if "serial" in row.keys())  # noqa: SIM118 - no mapping
            return found

        monkeypatch.setattr(database, "fetch", counted)
        writers = [keys[1], keys[2], PublicKey(bytes(32))]
        shown = {keys[1].hex(): "agent 1", keys[2].hex(): "agent 2"}
        assert (await accounts.labels(owner.account, writers), len(read)) == (shown, 2)
        assert await accounts.labels(owner.account, [founder.identity.public_key]) == {}
        read.clear()
        assert (await accounts.labels(held.account, []), len(read)) == ({}, 0)
        assert [k["label"] for k in await accounts.list_keys(held)] == ["agent 0"]
        assert len(read) == 1
        assert len(await accounts.list_grants(held)) == 2
        assert len(read) == 3

    async def test_accounts_are_listed(self, bench: Bench) -> None:
        founder = await bench.account(label="first")
        await bench.remember(await bench.caller(founder), "Anna prefers tea.")
        await bench.account("sealed", label="second")
        listed = await provision.list_accounts(bench.storage)
        by_label = {a["label"]: a for a in listed}
        assert (by_label["first"]["custody"], by_label["first"]["memory_count"]) == ("managed", 1)
        assert (by_label["second"]["custody"], by_label["second"]["storage_bytes"]) == ("sealed", 0)

    @pytest.mark.parametrize("odd", ["\x9b2J", "\u202e", "\u2066", "\u200f", "\u2028", "\u0085"])
    async def test_a_label_is_shown_without_what_moves_a_terminal(
        self, bench: Bench, odd: str
    ) -> None:
        """A label may be anything but the control characters of ASCII."""
        await bench.account(label=f"an{odd}na é")
        shown = table(await provision.list_accounts(bench.storage))
        assert f"an\ufffd{odd[1:]}na é" in shown
        assert odd[0] not in shown


class TestGrant:
    @pytest.mark.parametrize(
        "change",
        [
            "not an issuer", "a reader issues", "custodian to another key", "other account",
            "join for another relayer", "join by another key", "join through another issuer",
            "flipped",
        ],
    )  # fmt: skip
    async def test_is_refused(self, bench: Bench, change: str) -> None:
        founder = await bench.account()
        agent, joiner = await bench.key(founder, TEAM, role="reader"), new_identity()
        stranger = await bench.account()
        keys: Any = [bench.namespace_key(founder.account, TEAM)]
        issuer = founder
        join: dict[str, Any] = {}
        members: dict[str, Any] = {}
        if change == "not an issuer":
            issuer = provision.NewKey(founder.account, new_identity(), "managed")
        elif change == "a reader issues":
            issuer = agent
        elif change == "custodian to another key":
            members, keys = {"role": "custodian"}, [bench.root[founder.account]]
        elif change == "other account":
            members = {"account": stranger.account}
        elif change == "join for another relayer":
            join = {"relayer": new_identity().public_key}
        elif change == "join through another issuer":
            join = {"issuer": agent.identity.public_key}
        signed = await issue(bench, issuer, joiner, keys, **members)
        if change == "flipped":
            signed = signed[:40] + bytes([signed[40] ^ 1]) + signed[41:]
        if change == "join by another key":
            joiner = new_identity()
        with pytest.raises(BadRequest):
            await post(bench, issuer, joiner, signed, join)
        chain = await bench.storage.accounts.chain(founder.account)
        assert chain.serial == 3
        assert joiner.public_key not in chain.grants

    async def test_serial_must_be_the_next(self, bench: Bench) -> None:
        founder, joiner = await bench.account(), new_identity()
        keys = [bench.namespace_key(founder.account, TEAM)]
        for serial in (1, 2, 4):
            signed = await issue(bench, founder, joiner, keys, serial=serial)
            with pytest.raises(Conflict) as caught:
                await post(bench, founder, joiner, signed)
            assert caught.value.code == "grant.serial"

    async def test_of_parallel_grants_one_wins(self, bench: Bench) -> None:
        founder = await bench.account()
        joiners = [new_identity() for _ in range(5)]
        keys = [bench.namespace_key(founder.account, TEAM)]
        signed = [await issue(bench, founder, joiner, keys) for joiner in joiners]
        replicas = [bench.another() for _ in joiners]
        results = await asyncio.gather(
            *(post(b, founder, j, s) for b, j, s in zip(replicas, joiners, signed, strict=True)),
            return_exceptions=True,
        )
        assert sum(isinstance(r, Conflict) for r in results) == 4
        assert await bench.value("SELECT grant_serial FROM accounts") == 3

    async def test_a_key_has_one_account(self, bench: Bench) -> None:
        founder, other = await bench.account(), await bench.account()
        agent = await bench.key(founder, TEAM)
        keys = [bench.namespace_key(other.account, TEAM)]
        for taken in (agent.identity, founder.identity):
            signed = await issue(bench, other, taken, keys)
            with pytest.raises(Conflict) as caught:
                await post(bench, other, taken, signed)
            assert caught.value.code == "key.taken"
        account = account_id(agent.identity.public_key)
        grant = founding(agent.identity, account, Root(1, random_key()))
        with pytest.raises(Conflict):
            await bench.storage.granting.create(
                founder=agent.identity.public_key, grants=[grant], label=""
            )
        assert await bench.value("SELECT count(*) FROM accounts") == 2

    async def test_receipt_names_the_grant(self, bench: Bench) -> None:
        founder, joiner = await bench.account(), new_identity()
        keys = [bench.namespace_key(founder.account, TEAM)]
        signed = await issue(bench, founder, joiner, keys)
        grant, receipt = await post(bench, founder, joiner, signed)
        opened = open_receipt(receipt, bench.storage.identity.public_key)
        assert (opened.op, opened.serial, opened.seq) == ("grant", 3, 3)
        assert opened.items[0].memory == grant.grant


class TestRevocation:
    async def test_counts_on_the_next_request_of_every_replica(self, bench: Bench) -> None:
        founder = await bench.account()
        agent = await bench.key(founder, TEAM)
        replica = bench.another()
        caller = await replica.caller(agent)
        await replica.remember(caller, "Anna prefers tea.")
        await bench.revoke(founder, agent.identity.public_key)
        assert await access_of(bench, agent) is None
        assert await access_of(replica, agent) is None

    async def test_a_new_grant_after_it_counts(self, bench: Bench) -> None:
        founder = await bench.account()
        agent = await bench.key(founder, TEAM)
        await bench.revoke(founder, agent.identity.public_key)
        key = bench.namespace_key(founder.account, OTHER)
        await post(
            bench, founder, agent.identity, await issue(bench, founder, agent.identity, [key])
        )
        assert (await strength(bench, agent, TEAM), await strength(bench, agent, OTHER)) == (0, 2)

    async def test_is_refused(self, bench: Bench) -> None:
        founder = await bench.account()
        agent = await bench.key(founder, TEAM)
        owner = await bench.key(founder, role="owner")
        chain = await bench.storage.accounts.chain(founder.account)

        def signed(
            issuer: Identity, recipient: PublicKey, serial: int, created_ms: int = 1
        ) -> bytes:
            return issue_revocation(
                issuer,
                account=founder.account,
                serial=serial,
                recipient=recipient,
                created_ms=created_ms,
            )

        async def revoke(data: bytes) -> None:
            await bench.storage.granting.revoke(
                account=founder.account, actor=agent.identity.public_key, signed=data
            )

        founder_key, relayer = founder.identity.public_key, bench.storage.identity
        due = chain.serial + 1
        for data in (
            signed(agent.identity, founder_key, due),
            signed(owner.identity, founder_key, due),
            signed(relayer, owner.identity.public_key, due),
            signed(new_identity(), agent.identity.public_key, due),
            signed(founder.identity, agent.identity.public_key, due, MOMENT_MS_MAX + 1),
            b"{}" + bytes(64),
        ):
            with pytest.raises(BadRequest):
                await revoke(data)
        with pytest.raises(Conflict):
            await revoke(signed(founder.identity, agent.identity.public_key, due + 1))
        with pytest.raises(BadRequest):
            await bench.revoke(founder, new_identity().public_key)
        await revoke(signed(owner.identity, agent.identity.public_key, due))
        assert await access_of(bench, agent) is None

    async def test_what_a_revoked_owner_issued_stays(self, bench: Bench) -> None:
        founder = await bench.account()
        owner = await bench.key(founder, role="owner")
        deputy = provision.NewKey(founder.account, owner.identity, "managed")
        agent = await bench.key(deputy, TEAM)
        await bench.revoke(founder, owner.identity.public_key)
        assert await strength(bench, agent, TEAM) == 2
        with pytest.raises(NotAllowed):
            await bench.key(deputy, TEAM)


class TestTampering:
    """Whoever can write to the database gains nothing by it."""

    async def test_there_is_no_role_to_edit(self, bench: Bench) -> None:
        columns = await bench.sql(
            "SELECT column_name FROM information_schema.columns WHERE table_name = 'grants'"
        )
        assert {r[0] for r in columns} == {
            "account_id", "serial", "recipient", "label", "object", "created_at", "succession",
        }  # fmt: skip

    async def test_columns_beside_the_object_change_nothing(self, bench: Bench) -> None:
        founder = await bench.account()
        agent = await bench.key(founder, TEAM, role="reader")
        intruder = new_identity()
        await bench.sql("UPDATE grants SET recipient = $1", intruder.public_key)
        replica = bench.another()
        assert await strength(replica, agent, TEAM) == 1
        stranger = provision.NewKey(founder.account, intruder, "managed")
        assert await access_of(replica, stranger) is None

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE grants SET object = set_byte(object, 40, get_byte(object, 40) # 1)"
            " WHERE serial = 3",
            "UPDATE grants SET object = (SELECT object FROM grants WHERE serial = 1)"
            " WHERE serial = 3",
            "UPDATE grants SET object = '\\x00' WHERE serial = 3",
            "DELETE FROM grants WHERE serial = 2",
            "DELETE FROM grants WHERE serial = 3",
            "DELETE FROM grants",
        ],
    )
    async def test_an_altered_chain_opens_nothing(self, bench: Bench, statement: str) -> None:
        founder = await bench.account()
        await bench.key(founder, TEAM, role="reader")
        await bench.sql(statement)
        with pytest.raises(Corrupted):
            await access_of(bench.another(), founder)

    async def test_history_does_not_go_backwards(self, bench: Bench) -> None:
        founder = await bench.account()
        agent = await bench.key(founder, TEAM)
        await bench.revoke(founder, agent.identity.public_key)
        await bench.sql("UPDATE accounts SET grant_serial = 3")
        with pytest.raises(Corrupted):
            await access_of(bench, agent)
        assert await access_of(bench.another(), agent) is None  # the revocation is still read

    async def test_a_grant_forged_into_the_table(self, bench: Bench) -> None:
        founder, intruder = await bench.account(), new_identity()
        forged = issue_grant(
            intruder,
            account=founder.account,
            serial=3,
            recipient=intruder.public_key,
            role="owner",
            keys=[Root(1, random_key())],
            created_ms=1,
            grant=uuid.uuid4(),
        )
        await bench.sql(
            "INSERT INTO grants VALUES ($1, 3, $2, '', $3, now())",
            founder.account, intruder.public_key, forged,
        )  # fmt: skip
        await bench.sql("UPDATE accounts SET grant_serial = 3")
        with pytest.raises(Corrupted):
            await access_of(bench, founder)

    async def test_no_such_account(self, bench: Bench) -> None:
        with pytest.raises(NotFound):
            await bench.storage.accounts.chain(AccountId(bytes(32)))

    async def test_a_chain_is_read_once_for_all_who_wait(self, bench: Bench) -> None:
        founder = await bench.account()
        await bench.key(founder, TEAM)
        accounts = bench.another().storage.accounts
        found = await asyncio.gather(*(accounts.chain(founder.account) for _ in range(5)))
        assert len({id(chain) for chain in found}) == 1

    async def test_others_still_get_a_chain_that_one_gave_up(self, bench: Bench) -> None:
        founder = await bench.account()
        accounts = bench.another().storage.accounts
        first, second = [asyncio.create_task(accounts.chain(founder.account)) for _ in range(2)]
        while not accounts._continuing:
            await asyncio.sleep(0)
        first.cancel()
        assert (await second).serial == 2


class TestRoom:
    """A chain has so many objects and bytes at most; revocations have some places more."""

    async def test_a_full_chain(self, make_bench: BenchMaker) -> None:
        bench = make_bench(account_grants_max=3)
        founder, agent = await bench.account(), new_identity()
        await bench.key(founder, TEAM)
        signed = await issue(bench, founder, agent, [bench.root[founder.account]])
        with pytest.raises(QuotaExceeded) as refused:
            await post(bench, founder, agent, signed)
        assert (refused.value.status, refused.value.code) == (402, "grant.quota")
        # What was stored while there was more room is read as ever.
        smaller = make_bench(account_grants_max=1, identity=bench.storage.identity)
        assert await access_of(smaller, founder) is not None

    async def test_a_chain_of_many_bytes(
        self, make_bench: BenchMaker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = make_bench(account_grants_max=4)
        founder, agent = await bench.account(), new_identity()
        await bench.key(founder, TEAM)
        signed = await issue(bench, founder, agent, [bench.root[founder.account]])
        size = (await bench.storage.accounts.chain(founder.account)).bytes + len(signed)
        monkeypatch.setattr(Limits, "grant_bytes_mean", (size - 1) / 4)
        with pytest.raises(QuotaExceeded):
            await post(bench, founder, agent, signed)
        monkeypatch.setattr(Limits, "grant_bytes_mean", size / 4)
        await post(bench, founder, agent, signed)

    async def test_a_lost_key_is_taken_from_a_full_chain(
        self, make_bench: BenchMaker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = make_bench(account_grants_max=4)
        founder = await bench.account()
        lost, other = await bench.key(founder, TEAM), await bench.key(founder, OTHER)
        await bench.revoke(founder, lost.identity.public_key)
        assert await access_of(bench, lost) is None
        monkeypatch.setattr(Limits, "revocations_spare", 1)
        with pytest.raises(QuotaExceeded):
            await bench.revoke(founder, other.identity.public_key)
