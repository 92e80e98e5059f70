"""Manual uploads: a client's own ciphertext under its own vector, whoever turns it."""

import asyncio

import numpy as np

from tests.granting import entrust
from tests.rotator import Rotator, rotator
from tests.services import TEAM, Bench

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
            await asyncio.gather(*self.bench.services.resident.reading)

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
