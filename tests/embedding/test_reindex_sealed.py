"""Embedding a sealed account again: with the keys that are lent, each for its own namespace."""

import pytest

from relayer.database import vectors as vector_rows
from tests.embeddings_server import EmbeddingsServer
from tests.reindex_scene import (
    BY_MODEL,
    JOBS,
    NEW,
    OLD,
    TEXTS,
    assert_holds,
    changed,
    finish,
    models_of,
    old,
    progress,
    recalled,
    server,
    written,
)
from tests.services import OTHER, TEAM, Bench

__all__ = ["old", "server"]  # fixtures


class TestSealedAccounts:
    async def test_each_namespace_is_turned_by_its_own_key(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        """Though both are in one page: each is found by vector where it is."""
        caller, stored = await written(old)
        stored += await old.remember(caller, *TEXTS, namespace=OTHER)
        new = changed(old, server)
        await new.embed(caller, stored)
        for namespace in (TEAM, OTHER):
            answer = await recalled(new, caller, TEXTS[3], namespaces=[namespace])
            assert answer.found[0].memory.text == TEXTS[3]
            assert answer.found[0].hit.cosine == pytest.approx(1, abs=0.01)

    async def test_keys_lent_during_a_pass_have_their_work_done(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        founder = await old.account("sealed")
        both = await old.unlocked(founder, TEAM, OTHER)
        stored = await old.remember(both, *TEXTS)
        stored += await old.remember(both, *TEXTS, namespace=OTHER)
        await old.embed(both, stored)
        await old.sql("DELETE FROM pgqueuer")
        new = changed(old, server)
        server.hold.clear()
        server.asked.clear()
        async with new.working():
            await new.unlocked(founder, TEAM, hold_s=60)
            await server.asked.wait()
            await new.unlocked(founder, OTHER, hold_s=60)
            assert await new.value(JOBS) == 1
            server.hold.set()
            await new.until(JOBS, 0)
        assert await models_of(new) == {f"{NEW}/6": 20}

    async def test_what_becomes_due_behind_a_pass_is_done(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        """As `relayer reindex --force` makes it, which finds the job running already."""
        caller, _ = await written(old, *(f"note number {n}" for n in range(100)))
        new = changed(old, server)
        await new.services.sweeper.sweep()
        server.hold.clear()
        server.asked.clear()
        async with new.working():
            await server.asked.wait()
            server.asked.clear()
            server.hold.set()
            await server.asked.wait()
            await vector_rows.forget_versions(new.storage.database, account=caller.access.account)
            await new.until(JOBS, 0)
        assert (await progress(new, caller)).waiting == 0

    async def test_wait_for_their_keys_and_follow_namespace_by_namespace(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        founder = await old.account("sealed")
        both = await old.unlocked(founder, TEAM, OTHER)
        stored = await old.remember(both, *TEXTS)
        stored += await old.remember(both, *TEXTS, namespace=OTHER)
        await old.embed(both, stored)
        await old.sql("DELETE FROM pgqueuer")
        new = changed(old, server)
        await finish(new.another())
        assert await models_of(new) == {f"{OLD}/6": 20}
        async with new.working():
            await new.unlocked(founder, TEAM, hold_s=60)
            await new.until(BY_MODEL, 10, f"{NEW}/6")
            await new.until(JOBS, 0)
            assert (await progress(new, both)).waiting == 10
            await new.unlocked(founder, TEAM, OTHER, hold_s=60)
            await new.until(BY_MODEL, 20, f"{NEW}/6")
        await assert_holds(new)

    async def test_keys_that_are_held_already_are_used_by_the_sweep(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        founder = await old.account("sealed")
        caller = await old.unlocked(founder, TEAM)
        await old.embed(caller, await old.remember(caller, *TEXTS))
        await old.sql("DELETE FROM pgqueuer")
        new = changed(old, server)
        await new.unlocked(founder, TEAM, hold_s=300)
        await new.sql("DELETE FROM pgqueuer")  # lost with a process
        await finish(new)
        assert await models_of(new) == {f"{NEW}/6": 10}

    async def test_their_work_comes_before_that_of_managed_accounts(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        founder = await old.account("sealed")
        caller = await old.unlocked(founder, TEAM)
        await old.embed(caller, await old.remember(caller, *TEXTS))
        await written(old)
        new = changed(old, server)
        await new.services.sweeper.sweep()
        await new.unlocked(founder, TEAM, hold_s=60)
        rows = await new.sql("SELECT priority FROM pgqueuer WHERE entrypoint = 'reindex'")
        assert [r["priority"] for r in rows] == [0, 1]
