"""What changes between reading a page and sealing it anew: the change wins."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from relayer.blobs.store import PostgresStore
from relayer.database import reseal as reseal_rows
from relayer.database.pool import Database
from relayer.errors import Corrupted
from relayer.memories.recognition import Stored
from relayer.memories.reseal import Resealer
from relayer.memories.revisions import Edit
from relayer.sealed.keys import AccountId
from relayer.upkeep.check import check
from tests.chains import assert_chain_holds
from tests.rotator import ALWAYS, Rotator, admitted, epochs, keep_turn, opened_by, rotator
from tests.services import TEAM, Bench


class Meanwhile(PostgresStore):
    """A blob store during whose first read of several something else happens."""

    def __init__(self, database: Database, happens: Callable[[], Awaitable[Any]]) -> None:
        super().__init__(database=database)
        self._happens: Callable[[], Awaitable[Any]] | None = happens

    async def get_many(
        self, account: AccountId, names: Sequence[str]
    ) -> dict[str, bytes | Corrupted]:
        found = await super().get_many(account, names)
        happens, self._happens = self._happens, None
        if happens is not None:
            await happens()
        return found


def resealer_during(bench: Bench, happens: Callable[[], Awaitable[Any]]) -> Resealer:
    """A resealer between whose reading and writing something happens."""
    return Resealer(
        database=bench.storage.database,
        blobs=Meanwhile(bench.storage.database, happens),
        ledger=bench.storage.ledger,
        namespaces=bench.storage.namespaces,
    )


class TestMeanwhile:
    """What happens between reading a page and moving it wins; the next pass looks again."""

    async def begun(self, bench: Bench) -> tuple[Rotator, list[Stored]]:
        owner = await rotator(bench, "managed")
        stored = await bench.remember(await owner.caller(), "Anna prefers tea.", "Ben sells cups.")
        await owner.rotate(reseal="all")
        return owner, stored

    async def work(self, owner: Rotator, happens: Callable[[], Awaitable[Any]]) -> None:
        keys = await owner.bench.storage.custody.reseal_keys(owner.owner.account)
        assert keys is not None
        resealer = resealer_during(owner.bench, happens)
        assert await resealer.work(owner.owner.account, keys, ALWAYS)

    async def holds(self, owner: Rotator) -> None:
        assert (await check(owner.bench.storage)).problems == []
        await assert_chain_holds(owner.bench, owner.owner.account)

    async def test_erased(self, bench: Bench) -> None:
        owner, [anna, _] = await self.begun(bench)
        caller = await owner.caller()
        await self.work(owner, lambda: bench.services.memory.forget(caller.access, anna.id))
        assert await epochs(bench) == {2: 1}
        assert await bench.texts(caller, "Anna Ben") == ["Ben sells cups."]
        await self.holds(owner)
        await owner.drop_old_bytes()
        assert len(await opened_by(bench, owner.owner.account, owner.keys(TEAM))) == 1

    async def test_edited(self, bench: Bench) -> None:
        owner, [anna, _] = await self.begun(bench)
        caller = await owner.caller()
        edit = Edit(changes={"text": "Anna prefers coffee."})
        await self.work(owner, lambda: bench.services.reviser.edit(caller, anna.id, edit))
        assert await bench.texts(caller, "Anna") == ["Anna prefers coffee."]
        await self.holds(owner)
        await self.work(owner, lambda: asyncio.sleep(0))
        assert set(await epochs(bench)) == {2}
        assert await bench.texts(caller, "Anna") == ["Anna prefers coffee."]
        await self.holds(owner)

    async def test_embedded(self, hybrid: Bench) -> None:
        owner, stored = await self.begun(hybrid)
        caller = await owner.caller()
        await self.work(owner, lambda: hybrid.embed(caller, stored))
        assert await epochs(hybrid) == {1: 2}
        await self.work(owner, lambda: asyncio.sleep(0))
        assert await epochs(hybrid) == {2: 2}
        found = await hybrid.texts(caller, "Anna's tea", mode="vector")
        assert found[0] == "Anna prefers tea."
        await self.holds(owner)

    async def test_expired(self, bench: Bench) -> None:
        owner, [anna, _] = await self.begun(bench)
        soon = bench.clock() + timedelta(seconds=30)
        await bench.sql("UPDATE memories SET expires_at = $2 WHERE memory_id = $1", anna.id, soon)

        async def expire() -> None:
            bench.clock.advance(60)
            await bench.services.expiry.expire()
            assert await epochs(bench) == {1: 1}

        await self.work(owner, expire)
        assert await epochs(bench) == {2: 1}
        await self.holds(owner)

    async def test_said_again(self, bench: Bench) -> None:
        owner, [anna, _] = await self.begun(bench)
        caller = await owner.caller()
        await self.work(owner, lambda: bench.remember(caller, "Anna prefers tea."))
        assert (await bench.remember(caller, "Anna prefers tea."))[0].id == anna.id
        assert await epochs(bench) == {2: 2}

    async def test_sealed_anew_by_another_worker(self, bench: Bench) -> None:
        owner, _ = await self.begun(bench)
        await self.work(owner, owner.reseal)
        assert await epochs(bench) == {2: 2}
        await self.holds(owner)

    async def test_foreign_ciphertext_sealed_anew_by_another_worker(self, bench: Bench) -> None:
        """Its bytes tell nothing of it: only the epoch does."""
        owner = await rotator(bench, "managed")
        asked = np.random.default_rng(1).normal(size=8).astype(np.float32)
        stored = bench.services.manual.remember
        await stored(await owner.caller(), TEAM, b"{foreign bytes}" * 9, asked)
        await owner.rotate(reseal="all")
        await self.work(owner, owner.reseal)
        [(_, distance)] = await bench.services.manual.recall(await owner.caller(), TEAM, asked, 1)
        assert abs(distance) < 1e-3
        await self.holds(owner)

    async def test_an_altered_memory_is_passed_over(self, bench: Bench) -> None:
        owner, [anna, _] = await self.begun(bench)
        await bench.sql(
            "UPDATE blobs SET bytes = set_byte(bytes, 300, get_byte(bytes, 300) # 1) WHERE blob_id "
            "= (SELECT blob_id FROM memories WHERE memory_id = $1)",
            anna.id,
        )
        await owner.reseal()
        assert await epochs(bench) == {1: 1, 2: 1}
        progress = await bench.services.rotations.progress(await admitted(bench, owner.owner))
        assert (progress.older, [n.remaining for n in progress.namespaces]) == (0, [0])

    async def test_an_altered_turn_is_passed_over(self, bench: Bench) -> None:
        """It keeps neither the job nor the epochs before it alive."""
        owner = await rotator(bench, "managed")
        await keep_turn(bench, await owner.caller())
        await owner.rotate(reseal="all")
        await bench.sql("UPDATE blobs SET bytes = set_byte(bytes, 300, get_byte(bytes, 300) # 1)")
        await owner.reseal()
        assert await bench.value("SELECT state FROM episodes") == "failed"
        assert await reseal_rows.accounts_due(bench.storage.database) == []
        progress = await bench.services.rotations.progress(await admitted(bench, owner.owner))
        assert (progress.older, [n.remaining for n in progress.namespaces]) == (0, [])
        await owner.send(*await owner.objects(owner.roots[1:]))

    async def test_a_missing_blob_is_waited_for(self, bench: Bench) -> None:
        owner, [anna, _] = await self.begun(bench)
        of_anna = "(SELECT blob_id FROM memories WHERE memory_id = $1)"
        [saved] = await bench.sql(
            f"DELETE FROM blobs WHERE blob_id = {of_anna} RETURNING *", anna.id
        )
        await owner.reseal()
        assert await epochs(bench) == {1: 1, 2: 1}
        progress = await bench.services.rotations.progress(await admitted(bench, owner.owner))
        assert [n.remaining for n in progress.namespaces] == [1]
        await bench.sql("INSERT INTO blobs VALUES ($1, $2, $3, $4)", *saved)
        await owner.reseal()
        assert await epochs(bench) == {2: 2}

    async def test_foreign_ciphertext_of_the_newest_epoch_is_left_alone(self, bench: Bench) -> None:
        owner, _ = await self.begun(bench)
        await bench.sql("UPDATE namespaces SET reseal_below = 9")
        caller = await owner.caller()
        await bench.services.manual.remember(
            caller, TEAM, b"{foreign bytes", np.ones(6, np.float32)
        )
        await owner.reseal()
        assert await epochs(bench) == {2: 3}
