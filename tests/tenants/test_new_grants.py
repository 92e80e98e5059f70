"""Grants that contradict what is known, or are of no use: refused when new, kept where stored."""

import os
import uuid
from typing import Any

import pytest

from memrelay.sealed.ledger import Ledger
from relayer.clock import to_ms
from relayer.errors import BadRequest, Conflict
from relayer.sealed.grants import issue_grant, parse_grant
from relayer.sealed.keys import NamespaceKey, Root
from relayer.sealed.primitives import random_key
from relayer.upkeep import provision
from tests.granting import issue, post, resigned
from tests.rotator import admitted, rotator
from tests.services import OTHER, TEAM, Bench, new_identity

FIRST = uuid.UUID(int=7)


async def offered(bench: Bench, owner: provision.NewKey, keys: Any, **members: Any) -> Any:
    """What becomes of a grant to somebody new."""
    agent = new_identity()
    return await post(bench, owner, agent, await issue(bench, owner, agent, keys, **members))


async def refused(bench: Bench, owner: provision.NewKey, keys: Any, **members: Any) -> str:
    before = (await bench.storage.accounts.chain(owner.account)).serial
    with pytest.raises(BadRequest) as caught:
        await offered(bench, owner, keys, **members)
    assert caught.value.code == "grant.invalid"
    assert (await bench.storage.accounts.chain(owner.account)).serial == before
    return caught.value.message


async def test_another_root_of_an_epoch(bench: Bench) -> None:
    owner = await bench.account("sealed")
    assert "another root was granted in epoch 1" in await refused(
        bench, owner, [Root(1, random_key())]
    )
    await offered(bench, owner, [bench.root[owner.account]])


async def test_another_key_than_a_live_grant_names(bench: Bench) -> None:
    """Of grants that were taken away nobody uses the keys: so a wrong one is put right."""
    owner = await bench.account("sealed")
    wrong = NamespaceKey(TEAM, 1, random_key())
    agent = new_identity()
    await post(bench, owner, agent, await issue(bench, owner, agent, [wrong]))
    right = bench.namespace_key(owner.account, TEAM)
    assert "another key of 'team' was granted in epoch 1" in await refused(bench, owner, [right])
    await bench.revoke(owner, agent.public_key)
    await offered(bench, owner, [right])


async def test_another_key_than_an_owner_has_used(bench: Bench) -> None:
    owner = await bench.account("sealed")
    await bench.remember(await bench.unlocked(owner, TEAM), "Anna prefers tea.")
    wrong = NamespaceKey(TEAM, 1, random_key())
    assert "'team' has another key in epoch 1" in await refused(bench, owner, [wrong])
    await offered(bench, owner, [bench.namespace_key(owner.account, TEAM)])


async def test_a_writers_key_gives_way_to_what_an_owner_grants(bench: Bench) -> None:
    owner = await bench.account("sealed")
    writer = await bench.key(owner)
    wrong = NamespaceKey(TEAM, 1, random_key())
    await bench.remember(await bench.caller(writer, bench.unlock(writer, [wrong])), "mine")
    agent = await bench.key(owner, TEAM)
    await bench.remember(await bench.unlocked(agent, TEAM), "Anna prefers tea.")
    assert await bench.texts(await bench.unlocked(agent, TEAM), "tea") == ["Anna prefers tea."]


async def test_a_refused_grant_replaces_no_key(bench: Bench) -> None:
    owner = await bench.account("sealed")
    writer = await bench.key(owner)
    right = [bench.namespace_key(owner.account, TEAM)]
    wrong = NamespaceKey(TEAM, 1, random_key())
    await bench.remember(await bench.caller(writer, bench.unlock(writer, [wrong])), "mine")
    for code, signed in (
        ("grant.serial", await issue(bench, owner, (late := new_identity()), right, serial=9)),
        ("grant.invalid", await issue(bench, writer, late, right)),
    ):
        with pytest.raises((BadRequest, Conflict)) as caught:
            await post(bench, owner if code == "grant.serial" else writer, late, signed)
        assert caught.value.code == code
    assert await bench.value("SELECT key_id FROM namespace_keys") == wrong.key_id


async def test_a_grant_twice(bench: Bench) -> None:
    """Sent again after its answer was lost, it hears of its serial, by which clients know it."""
    owner = await bench.account("sealed")
    key, agent = [bench.namespace_key(owner.account, TEAM)], new_identity()
    signed = await issue(bench, owner, agent, key, grant=FIRST)
    await post(bench, owner, agent, signed)
    with pytest.raises(Conflict) as caught:
        await post(bench, owner, agent, signed)
    assert caught.value.code == "grant.serial"
    assert "UUID" in await refused(bench, owner, key, grant=FIRST)


async def test_one_whose_time_is_over(bench: Bench) -> None:
    owner = await bench.account("sealed")
    key, now_ms = [bench.namespace_key(owner.account, TEAM)], to_ms(bench.clock())
    assert "its time is over" in await refused(bench, owner, key, expires_ms=now_ms)
    await offered(bench, owner, key, expires_ms=now_ms + 1)


@pytest.mark.parametrize("size", [0, 48, 200, 2_000])
async def test_a_box_that_cannot_hold_its_keys(bench: Bench, size: int) -> None:
    owner, agent = await bench.account("sealed"), new_identity()
    key = [bench.namespace_key(owner.account, TEAM)]
    signed = resigned(owner.identity, await issue(bench, owner, agent, key), box=os.urandom(size))
    with pytest.raises(BadRequest, match="length of its keys"):
        await post(bench, owner, agent, signed)


async def test_as_many_keys_as_a_grant_may_have(bench: Bench) -> None:
    owner = await bench.account("sealed")
    names = [type(TEAM)(f"namespace number {n}") for n in range(256)]
    await offered(bench, owner, [bench.namespace_key(owner.account, name) for name in names])


async def test_a_rotation_is_held_to_the_same(bench: Bench) -> None:
    owner = await rotator(bench, "sealed")
    root, other = Root(2, random_key()), Root(1, random_key())
    _, good = await owner.objects([*owner.roots, root])
    _, mixed = await owner.objects([other, root])
    own = parse_grant(good[0])
    again = issue_grant(
        owner.owner.identity,
        account=own.account,
        serial=own.serial + 1,
        recipient=own.recipient,
        role="owner",
        keys=[*owner.roots, root],
        created_ms=own.created_ms,
        grant=own.grant,
    )
    emptied = resigned(owner.owner.identity, good[0], box=b"")
    for grants in (mixed, [good[0], again], [emptied]):
        with pytest.raises(BadRequest) as caught:
            await owner.send([], grants)
        assert caught.value.code == "grant.invalid"
    assert (await owner.send([], good)).epoch == 2


async def test_what_was_stored_before_is_read_by_both(bench: Bench) -> None:
    """Each of them, as an earlier release took it; and the account goes on."""
    owner = await rotator(bench, "sealed")
    founder, account = owner.owner, owner.owner.account
    own, now_ms = bench.root[account], to_ms(bench.clock())
    wrong, wrong_root = NamespaceKey(TEAM, 1, random_key()), Root(1, random_key())
    spoiled: list[tuple[Any, dict[str, Any]]] = [
        ([wrong], {"grant": FIRST}),
        ([bench.namespace_key(account, TEAM)], {"grant": FIRST}),
        ([wrong_root], {}),
        ([bench.namespace_key(account, OTHER)], {"expires_ms": now_ms - 1}),
    ]
    for keys, members in spoiled:
        signed = await issue(bench, founder, new_identity(), keys, **members)
        await _stored(bench, founder, signed)
    empty = resigned(founder.identity, await issue(bench, founder, new_identity(), [own]), box=b"")
    await _stored(bench, founder, empty)
    again = bench.another()
    chain = await again.storage.accounts.chain(account)
    assert chain.serial == 6
    items = [("grant", item.signed) for item in chain.items]
    assert Ledger.of(account, items, ()).serial == 6
    owner.bench = again
    await again.remember(await again.unlocked(founder, OTHER), "Anna prefers tea.", namespace=OTHER)
    await again.key(founder, OTHER)
    assert (await owner.rotate()).epoch == 2
    assert (await admitted(again, founder)).is_owner


async def _stored(bench: Bench, owner: provision.NewKey, signed: bytes) -> None:
    """Have a grant stored that the door would refuse."""
    accept = vars(type(bench.storage.granting))["_accept"]
    grant = parse_grant(signed)
    actor = owner.identity.public_key
    await accept(bench.storage.granting, owner.account, grant, actor=actor, label="")


@pytest.mark.parametrize("role", ["reader", "writer"])
async def test_a_founder_stays_an_owner(bench: Bench, role: str) -> None:
    """Epochs below those that its newest grant names would be dead for it."""
    owner = await bench.account("sealed")
    chain = await bench.storage.accounts.chain(owner.account)
    signed = await issue(bench, owner, owner.identity, [bench.root[owner.account]], role=role)
    with pytest.raises(BadRequest, match="the founder is an owner"):
        await post(bench, owner, owner.identity, signed)
    assert (await bench.storage.accounts.chain(owner.account)).serial == chain.serial
