"""A writer of the whole account who names a namespace's key wrongly, and the owner's word on it."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from relayer.clock import to_ms
from relayer.database.accounts import lock_account
from relayer.errors import NotAllowed
from relayer.memories.opener import Caller
from relayer.sealed.envelope import blob_id
from relayer.sealed.grants import issue_grant, sign_join
from relayer.sealed.keys import NamespaceKey
from relayer.sealed.primitives import random_key
from relayer.upkeep import check, provision
from tests.conftest import BenchMaker
from tests.rotator import Rotator, all_bytes, rotator
from tests.services import OTHER, TEAM, Bench, new_identity

KEY_IDS = "SELECT key_id FROM namespace_keys ORDER BY epoch"


@pytest.fixture(params=["inside", "outside"])
def bench(request: pytest.FixtureRequest, make_bench: BenchMaker, tmp_path: Path) -> Bench:
    """A relayer whose blobs are in its database, and one whose blobs are in a folder."""
    if request.param == "inside":
        return make_bench()
    return make_bench(blob_store=f"file:{tmp_path / 'blobs'}")


async def squatted(bench: Bench) -> tuple[Rotator, provision.NewKey, list[NamespaceKey]]:
    """An owner who began a new epoch, and a writer who named its key; those that it lends."""
    owner = await rotator(bench, "sealed")
    writer = await bench.key(owner.owner)
    await bench.remember(await owner.caller(), "Anna prefers tea.")
    await owner.rotate(reseal="all")
    invented = [owner.keys(TEAM)[0], NamespaceKey(TEAM, 2, random_key())]
    planted = await bench.caller(writer, bench.unlock(writer, invented))
    await bench.remember(planted, "Anna prefers coffee.")
    return owner, writer, invented


async def held_by_name(owner: Rotator) -> provision.NewKey:
    """A key of the namespace in each epoch."""
    bench, identity = owner.bench, new_identity()
    account, founder = owner.owner.account, owner.owner.identity
    chain = await bench.storage.accounts.chain(account)
    relayer = bench.storage.identity.public_key
    signed = issue_grant(
        founder,
        account=account,
        serial=chain.serial + 1,
        recipient=identity.public_key,
        role="writer",
        keys=owner.keys(TEAM),
        created_ms=to_ms(bench.clock()),
    )
    join = sign_join(identity, account=account, issuer=founder.public_key, relayer=relayer)
    await bench.storage.granting.grant(
        account=account, actor=founder.public_key, signed=signed, join=join, label=""
    )
    return replace(owner.owner, identity=identity)


async def refused(bench: Bench, key: provision.NewKey, keys: list[NamespaceKey]) -> str:
    """What a key hears that lends these."""
    with pytest.raises(NotAllowed) as caught:
        await bench.caller(key, bench.unlock(key, keys))
    assert caught.value.code == "unlock_rejected"
    return caught.value.message


async def test_an_owner_is_never_locked_out_of_a_new_epoch(bench: Bench) -> None:
    owner, writer, invented = await squatted(bench)
    caller = await owner.caller()
    assert await bench.texts(caller, "Anna") == ["Anna prefers tea."]
    await bench.remember(caller, "Anna prefers water.")
    assert set(await bench.texts(caller, "Anna")) == {"Anna prefers tea.", "Anna prefers water."}
    assert [r["key_id"] for r in await bench.sql(KEY_IDS)] == [k.key_id for k in owner.keys(TEAM)]
    assert "'team' has another key in epoch 2" in await refused(bench, writer, invented)


async def test_what_the_writer_stored_is_listed_as_lost_and_may_be_forgotten(bench: Bench) -> None:
    owner, writer, _ = await squatted(bench)
    caller = await owner.caller()
    assert await owner.reseal()
    found = await bench.sql("SELECT * FROM memories WHERE writer = $1", writer.identity.public_key)
    [row] = found
    problems = (await check.check(bench.storage)).problems
    assert [p for p in problems if "another key" in str(p)]
    progress = await bench.services.rotations.progress(caller.access)
    assert [(n.remaining, n.waiting_for_keys) for n in progress.namespaces] == [(0, 0)]
    await bench.services.memory.forget(caller.access, row["memory_id"])
    assert (await check.check(bench.storage)).problems == []


async def test_a_new_name_is_the_owners_too(bench: Bench) -> None:
    """Agents of the whole account are kept out until an owner comes, and told of what."""
    founder = await bench.account("sealed")
    writer, agent = await bench.key(founder), await bench.key(founder)
    wrong = NamespaceKey(TEAM, 1, random_key())
    await bench.remember(await bench.caller(writer, bench.unlock(writer, [wrong])), "mine")
    right = bench.namespace_key(founder.account, TEAM)
    assert "'team' has another key in epoch 1" in await refused(bench, agent, [right])
    assert await bench.texts(await bench.unlocked(founder, TEAM), "mine") == []
    await bench.remember(await bench.unlocked(agent, TEAM), "Anna prefers tea.")
    assert await bench.texts(await bench.unlocked(founder, TEAM), "tea") == ["Anna prefers tea."]


async def test_one_owners_key_stands_before_anothers_while_it_is_one(bench: Bench) -> None:
    founder = await bench.account("sealed")
    other = await bench.key(founder, role="owner")
    wrong = NamespaceKey(TEAM, 1, random_key())
    await bench.remember(await bench.caller(other, bench.unlock(other, [wrong])), "mine")
    await refused(bench, founder, [bench.namespace_key(founder.account, TEAM)])
    await bench.revoke(founder, other.identity.public_key)
    await bench.remember(await bench.unlocked(founder, TEAM), "Anna prefers tea.")


async def test_an_owner_who_writes_vouches_for_the_key_that_is_there(bench: Bench) -> None:
    founder = await bench.account("sealed")
    agent, other = await bench.key(founder), await bench.key(founder, role="owner")
    await bench.remember(await bench.unlocked(agent, TEAM), "Anna prefers tea.")
    await bench.remember(await bench.unlocked(founder, TEAM), "Anna prefers water.")
    await refused(bench, other, [NamespaceKey(TEAM, 1, random_key())])


async def test_what_a_grant_names_no_owner_replaces(bench: Bench) -> None:
    founder = await bench.account("sealed")
    agent = await bench.key(founder, TEAM)
    await bench.remember(await bench.unlocked(agent, TEAM), "Anna prefers tea.")
    await refused(bench, founder, [NamespaceKey(TEAM, 1, random_key())])


async def test_a_key_of_one_namespace_hears_of_it_too(bench: Bench) -> None:
    """Its own grant names the right key, which an earlier release stored beside the wrong one."""
    owner, _, invented = await squatted(bench)
    agent = await held_by_name(owner)
    await bench.sql(
        "UPDATE namespace_keys SET key_id = $1, named_by = NULL WHERE epoch = 2",
        invented[1].key_id,
    )
    bench = owner.bench = bench.another()
    caller = await owner.caller(agent)
    for use in (bench.texts(caller, "Anna"), bench.remember(caller, "Anna prefers water.")):
        with pytest.raises(NotAllowed, match="'team' has another key in epoch 2"):
            await use
    await owner.caller()
    assert await bench.texts(await owner.caller(agent), "Anna") == ["Anna prefers tea."]


async def test_other_processes_know_the_right_key(bench: Bench) -> None:
    owner, writer, invented = await squatted(bench)
    other = bench.another()
    await other.caller(writer, other.unlock(writer, invented))
    await owner.caller()
    assert await other.texts(await owner.caller(bench=other), "tea") == ["Anna prefers tea."]
    await refused(other, writer, invented)


async def test_the_custodians_word_counts_like_an_owners(bench: Bench) -> None:
    owner, _, _ = await squatted(bench)
    chain = await bench.storage.accounts.chain(owner.owner.account)
    signed = issue_grant(
        owner.owner.identity,
        account=owner.owner.account,
        serial=chain.serial + 1,
        recipient=bench.storage.identity.public_key,
        role="custodian",
        keys=owner.roots,
        created_ms=to_ms(bench.clock()),
    )
    await bench.storage.granting.grant(
        account=owner.owner.account,
        actor=owner.owner.identity.public_key,
        signed=signed,
        join=b"",
        label="",
    )
    managed = await bench.caller(owner.owner)
    assert await bench.texts(managed, "Anna") == ["Anna prefers tea."]
    await bench.remember(managed, "Anna prefers water.")


async def test_keys_named_before_give_way_like_a_writers(bench: Bench) -> None:
    """A database of an earlier release does not say who named them."""
    owner, _, _ = await squatted(bench)
    await bench.sql("UPDATE namespace_keys SET named_by = NULL")
    assert await bench.texts(await owner.caller(), "Anna") == ["Anna prefers tea."]


async def test_the_journal_keeps_one_name_of_each_key(bench: Bench) -> None:
    """A name that comes back may be waiting to be deleted."""
    owner, _, invented = await squatted(bench)
    right = owner.keys(TEAM)
    await owner.caller()
    for keys in (invented, right):
        await bench.sql("UPDATE namespace_keys SET named_by = NULL")
        await bench.caller(owner.owner, bench.unlock(owner.owner, keys))
    bench.clock.advance(3_600)
    await bench.storage.outbox.publish()
    await bench.storage.outbox.empty()
    stored = await all_bytes(bench, owner.owner.account)
    named = [r["object"] for r in await bench.sql("SELECT object FROM namespace_keys")]
    assert {blob_id(o) for o in named} == {
        name for name, data in stored.items() if b'"key_id":' in data and b'"namespace":' in data
    }
    assert [r["key_id"] for r in await bench.sql(KEY_IDS)] == [k.key_id for k in right]


async def test_a_grant_in_between_has_it_judged_anew(bench: Bench) -> None:
    """Whoever lends the key may have been an owner until then."""
    owner, _, invented = await squatted(bench)
    account, right = owner.owner.account, owner.keys(TEAM)[1]
    named = owner.owner.identity.public_key
    namespaces, accounts = bench.storage.namespaces, bench.storage.accounts
    before = await accounts.chain(account)
    await bench.key(owner.owner, OTHER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accounts, "chain", AsyncMock(return_value=before))
        with pytest.raises(NotAllowed):
            await namespaces.settle(account, right, named)
    assert (await bench.sql(KEY_IDS))[1]["key_id"] == invented[1].key_id
    entry = await namespaces.settle(account, right, named)
    assert entry.key_ids[2] == right.key_id == (await bench.sql(KEY_IDS))[1]["key_id"]


async def test_a_read_does_not_write(bench: Bench) -> None:
    """What an owner's read has to settle is settled behind it, once for all who ask meanwhile."""
    owner, _, invented = await squatted(bench)
    founder, storage = owner.owner, bench.storage
    access = await storage.accounts.access(founder.account, founder.identity.public_key)
    assert access is not None
    async with storage.database.transaction() as held:
        await lock_account(held, founder.account)
        header = bench.unlock(founder, owner.keys(TEAM))
        callers = [
            Caller(
                replace(access, index_mark=None), (await storage.custody.keys(access, header))[0]
            )
            for _ in range(3)
        ]
        assert [await bench.texts(c, "Anna") for c in callers] == 3 * [["Anna prefers tea."]]
        assert (await bench.sql(KEY_IDS))[1]["key_id"] == invented[1].key_id
    await storage.namespaces.wait_settled()
    assert [r["key_id"] for r in await bench.sql(KEY_IDS)] == [k.key_id for k in owner.keys(TEAM)]
