"""Manual uploads: a client's own ciphertext under its own vector, whoever turns it."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from relayer.errors import BadRequest, NotAllowed
from relayer.journal.states import Change
from relayer.query.query import Query
from relayer.query.rank import Weights
from relayer.sealed import envelope
from relayer.sealed.grants import issue_revocation
from tests.conftest import BenchMaker
from tests.granting import entrust
from tests.rotator import Rotator, rotator
from tests.services import OTHER, TEAM, Bench, new_identity

VECTORS = np.random.default_rng(2).normal(size=(3, 8))


class Uploads:
    """Uploads of an account, each looked for by its own vector."""

    def __init__(self, bench: Bench, owner: Rotator) -> None:
        self.bench, self.owner = bench, owner
        self.names: list[str] = []

    async def keep(self) -> None:
        place, caller = len(self.names), await self.owner.caller()
        data = b"{upload %d}" % place * 9
        kept = await self.bench.services.manual.remember(caller, TEAM, data, VECTORS[place])
        self.names.append(kept[1])

    async def are_found(self) -> None:
        """By statement first, and then in memory."""
        for _ in range(3):
            for name, vector in zip(self.names, VECTORS, strict=False):
                caller = await self.owner.caller()
                found = await self.bench.services.manual.recall(caller, TEAM, vector, 3)
                assert len(found) == len(self.names)
                assert (found[0][0], abs(found[0][1]) < 1e-3) == (name, True)
            await asyncio.gather(*self.bench.services.memory_index.reading)

    async def entrust(self) -> None:
        """Let the relayer hold the keys."""
        await entrust(self.bench, self.owner.owner, self.owner.roots)

    async def withdraw(self) -> None:
        """Let it hold them no longer."""
        await self.bench.revoke(self.owner.owner, self.bench.storage.identity.public_key)


async def test_uploads_outlive_every_change_of_custody(bench: Bench) -> None:
    """A managed account's vectors are turned, a sealed one's as sent: each is compared as it is."""
    uploads = Uploads(bench, await rotator(bench, "sealed"))
    await uploads.keep()
    await uploads.entrust()
    await uploads.keep()
    await uploads.are_found()
    await uploads.withdraw()
    await uploads.keep()
    await uploads.are_found()
    models = await bench.sql(
        "SELECT model, count(*)::int FROM vectors GROUP BY model ORDER BY model"
    )
    assert [tuple(row) for row in models] == [("manual/8", 1), ("sent/8", 2)]


async def test_either_kind_follows_a_rotation(bench: Bench) -> None:
    uploads = Uploads(bench, await rotator(bench, "managed"))
    await uploads.keep()
    await uploads.withdraw()
    await uploads.keep()
    await uploads.owner.rotate(reseal="all")
    await uploads.are_found()
    assert await uploads.owner.reseal()
    assert {r["epoch"] for r in await bench.sql("SELECT epoch FROM vectors")} == {2}
    await uploads.are_found()


@pytest.mark.parametrize("custody", ["managed", "sealed"])
async def test_a_vector_of_the_relayers_model_finds_a_managed_accounts_memories(
    make_bench: BenchMaker, embedder: Any, custody: str
) -> None:
    """Of those that hold and are in the namespace; a sealed account's client turns its vectors."""
    bench = make_bench(embedder=embedder)
    founder = await bench.account(custody)
    caller = await bench.unlocked(founder, TEAM, OTHER)
    texts = ["Anna prefers tea.", "The train to Oslo is late.", "Anna preferred coffee."]
    items = await bench.remember(caller, *texts)
    items += await bench.remember(caller, "Anna sells tea.", namespace=OTHER)
    await bench.embed(caller, items)
    change: Change = {"review": "rejected"}
    await bench.services.state_changer.set_state(caller.access, items[2].id, change)
    tea = (await embedder.embed(["tea"]))[0].astype(np.float64)
    _, upload = await bench.services.manual.remember(caller, TEAM, b"far away" * 9, -tea)
    kept = [(await bench.services.memory.get(caller, item.id)).blob_id for item in items[:2]]
    expected = [*kept, upload] if custody == "managed" else [upload]
    for limit in (10, 1):
        found = await bench.services.manual.recall(caller, TEAM, tea, limit)
        assert [name for name, _ in found] == expected[:limit]
    other = await bench.services.manual.recall(caller, TEAM, np.ones(len(tea) - 1), 10)
    assert other == []


async def test_weights_order_what_is_nearest(bench: Bench) -> None:
    """As in every other recall; without them, nearness alone counts."""
    caller = await bench.caller(await bench.account())
    near, far = np.array([1.0, 0.2]), np.array([1.0, 0.9])
    manual = bench.services.manual
    _, old = await manual.remember(caller, TEAM, b"old" * 9, near)
    bench.clock.advance(30 * 86400)
    _, new = await manual.remember(caller, TEAM, b"new" * 9, far)
    asked = np.array([1.0, 0.0])
    plain = await manual.recall(caller, TEAM, asked, 5)
    recent = await manual.recall(caller, TEAM, asked, 5, Weights(recency=1.0))
    assert [name for name, _ in plain] == [old, new]
    assert [name for name, _ in recent] == [new, old]
    assert dict(plain) == dict(recent)


class TestManual:
    CIPHERTEXT = b"\x01\x01\x01\x00 foreign bytes that look like an envelope " * 12

    async def test_is_found_by_its_vector_alone(self, bench: Bench) -> None:
        for custody in ("managed", "sealed"):
            founder = await bench.account(custody)
            caller = await bench.unlocked(founder, TEAM)
            near, far = np.eye(6, dtype=np.float32)[:2]
            manual = bench.services.manual
            _, name = await manual.remember(caller, TEAM, self.CIPHERTEXT, near)
            _, other = await manual.remember(caller, TEAM, b"something else", far)
            hits = await manual.recall(caller, TEAM, near * 7, 5)
            assert [h[0] for h in hits] == [name, other]
            assert [h[1] for h in hits] == [pytest.approx(0, abs=1e-3), pytest.approx(1, abs=1e-3)]
            assert (
                await manual.recall(caller, OTHER, near, 5) == [] if custody == "managed" else True
            )
            recalled = await bench.services.recaller.recall(
                caller, Query(text="foreign", namespaces=[TEAM])
            )
            assert recalled.found == []
            stored = await bench.value(
                "SELECT v.embedding::text FROM vectors v"
                " JOIN memories m USING (account_id, memory_id)"
                " WHERE v.account_id = $1 AND m.seq = 1",
                caller.access.account,
            )
            assert (stored == "[1,0,0,0,0,0]") == (custody == "sealed")

    async def test_an_object_of_ours_is_no_upload(self, bench: Bench) -> None:
        """It would have the name of one in the journal, or stop the account's rebuilding."""
        founder = await bench.account()
        writer, gone = await bench.key(founder, TEAM), await bench.key(founder, TEAM)
        await bench.revoke(founder, gone.identity.public_key)
        caller = await bench.caller(writer)
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        done = await bench.services.deletion.forget(caller.access, stored.id)
        revoked = await bench.value("SELECT object FROM grants ORDER BY serial DESC LIMIT 1")
        forged = issue_revocation(
            new_identity(),
            account=founder.account,
            serial=1_000_000,
            recipient=founder.identity.public_key,
            created_ms=1,
        )
        key = replace(caller.keys.of(TEAM)[0], key=bytes(32))
        address = envelope.Address(envelope.MEMORY, founder.account, stored.id, 1)
        sealed = envelope.seal(key, address, b"{}", created_ms=1)
        vector = np.ones(6, np.float32)
        for ours in (revoked, forged, done.receipts[0], sealed):
            with pytest.raises(BadRequest) as caught:
                await bench.services.manual.remember(caller, TEAM, ours, vector)
            assert caught.value.code == "upload.reserved"
        assert await bench.value("SELECT count(*) FROM memories") == 0

    async def test_equal_uploads_share_bytes_until_the_last_is_erased(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        vector = np.ones(6, np.float32)
        one, name = await bench.services.manual.remember(caller, TEAM, self.CIPHERTEXT, vector)
        two, same = await bench.services.manual.remember(caller, TEAM, self.CIPHERTEXT, vector)
        assert (name, one != two) == (same, True)
        await bench.services.memory.forget(caller.access, one)
        assert (await bench.services.memory.get(caller, two)).text is None
        found = await bench.storage.blobs.get_many(caller.access.account, [name])
        assert found == {name: self.CIPHERTEXT}
        await bench.services.memory.forget(caller.access, two)
        assert await bench.storage.blobs.get_many(caller.access.account, [name]) == {}

    async def test_roles_count(self, bench: Bench) -> None:
        founder = await bench.account()
        reader = await bench.caller(await bench.key(founder, TEAM, role="reader"))
        with pytest.raises(NotAllowed):
            await bench.services.manual.remember(reader, TEAM, b"bytes", np.ones(6, np.float32))
        with pytest.raises(NotAllowed):
            await bench.services.manual.recall(reader, OTHER, np.ones(6, np.float32), 5)

    @pytest.mark.parametrize("component", [0.0, np.inf, -np.inf, np.nan])
    async def test_a_vector_without_direction_leaves_nothing(
        self, bench: Bench, component: float
    ) -> None:
        caller, manual = await bench.caller(await bench.account()), bench.services.manual
        vector = np.array([0.0, component, 0.0])
        with pytest.raises(BadRequest):
            await manual.remember(caller, TEAM, b"bytes", vector)
        with pytest.raises(BadRequest):
            await manual.recall(caller, TEAM, vector, 5)
        assert await bench.value("SELECT count(*) FROM namespaces") == 0
