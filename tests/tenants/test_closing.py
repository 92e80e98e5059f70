"""An account that was erased is closed at once, emptied, and never founded again."""

import asyncio
import re
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from relayer.blobs.store import FolderStore
from relayer.database import closing
from relayer.database import outbox as outbox_rows
from relayer.errors import Conflict, NotAllowed, NotFound, Unavailable
from relayer.journal.outbox import GRACE
from relayer.sealed.envelope import blob_hash, blob_id
from relayer.sealed.grants import Chain, issue_grant
from relayer.sealed.keys import AccountId
from relayer.sealed.receipts import open_receipt
from relayer.upkeep import check, provision
from tests.conftest import BenchMaker
from tests.racing import WAITING
from tests.services import TEAM, Bench
from tests.staging import outbox_on, staged
from tests.statements import tenant_tables
from tests.tenants.filled import filled, left_of

LOCK_BLOBS = "SELECT FROM blobs WHERE account_id = $1 FOR UPDATE"
LEFT_BEHIND = """
INSERT INTO blobs (account_id, blob_id, bytes, created_at)
SELECT $1, sha256(n::text::bytea), '\\x00', now() FROM generate_series(1, $2::int) AS n
"""
CLOSED = "SELECT closed_at IS NOT NULL, purged_at IS NOT NULL FROM accounts WHERE account_id = $1"


class Late(FolderStore):
    """A store that takes its time for what it is given, and may lose the connection by then."""

    def __init__(self, *, folder: Path, confirms: bool) -> None:
        super().__init__(folder=folder)
        self._confirms = confirms
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def put_many(self, account: AccountId, blobs: Mapping[str, bytes]) -> None:
        """What a folder does, when it is told to go on."""
        self.begun.set()
        await self.go_on.wait()
        await super().put_many(account, blobs)
        if not self._confirms:
            raise Unavailable("The blob store is away.", code="blobs.unavailable")


async def test_every_table_is_emptied(bench: Bench) -> None:
    """Whoever adds a table has to say what becomes of it."""
    statements = [text for text in vars(closing).values() if isinstance(text, str)]
    emptied = set(re.findall(r"DELETE FROM (\w+)", " ".join(statements)))
    with_others = {  # by their foreign keys
        *("vectors", "links", "memory_recalls", "namespace_keys"),
        *("webhook_events", "consolidations", "consolidation_actions"),
    }
    tables = set((await tenant_tables(bench.storage.database)).values())
    assert emptied | with_others == tables - {"accounts"} | {"key_owner"}


class TestClosing:
    async def test_nothing_is_left_but_the_last_receipt(self, hybrid: Bench) -> None:
        founder, other = await hybrid.account(), await hybrid.account()
        neighbour = await filled(hybrid, other)
        caller = await filled(hybrid, founder)
        before = await left_of(hybrid, other.account)
        closed = await hybrid.services.closing.close(caller.access)
        assert (closed.memories, closed.pending) == (30, True)
        await hybrid.services.closing.purge()
        assert await left_of(hybrid, founder.account) == {"accounts": 1, "receipts": 1, "blobs": 1}
        assert await left_of(hybrid, other.account) == before
        receipt = open_receipt(closed.receipt, hybrid.storage.identity.public_key)
        assert (receipt.op, receipt.actor, receipt.items) == ("close", caller.access.key, ())

        assert await hybrid.value("SELECT object FROM receipts r JOIN accounts a USING (account_id)"
                                  " WHERE closed_at IS NOT NULL") == closed.receipt  # fmt: skip
        assert (await check.check(hybrid.storage)).problems == []
        assert await hybrid.texts(neighbour, "note")

    async def test_no_key_is_known_on_any_replica(self, bench: Bench) -> None:
        founder = await bench.account()
        agent = await bench.key(founder, TEAM)
        replica = bench.another()
        warm = await replica.caller(agent)
        await replica.remember(warm, "Anna prefers tea.")
        caller = await bench.caller(founder)
        await bench.services.closing.close(caller.access)
        for where in (bench, replica):
            for key in (founder, agent):
                with pytest.raises(NotFound):
                    await where.storage.accounts.access(key.account, key.identity.public_key)
        # A request that was let in before writes nothing any more.
        with pytest.raises(NotFound):
            await replica.remember(warm, "Ben sells cups.")
        assert await bench.value("SELECT count(*) FROM key_owner") == 0
        assert await bench.value("SELECT count(*) FROM memories") == 0

    async def test_writes_at_the_same_time_are_erased_or_refused(self, bench: Bench) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        await bench.remember(caller, "Anna prefers tea.")

        async def write() -> None:
            for n in count():
                await bench.remember(caller, f"Late note {n}.")

        writing = asyncio.create_task(write())
        await bench.until("SELECT count(*) > 2 FROM memories", True)
        await bench.services.closing.close(caller.access)
        with pytest.raises(NotFound):
            await writing
        await bench.services.closing.purge()
        assert await left_of(bench, founder.account) == {"accounts": 1, "receipts": 1, "blobs": 1}

    async def test_can_never_be_founded_again(self, bench: Bench) -> None:
        founder = await bench.account()
        await bench.services.closing.close((await bench.caller(founder)).access)
        root = bench.root[founder.account]
        grant = issue_grant(
            founder.identity, account=founder.account, serial=1,
            recipient=founder.identity.public_key, role="owner", keys=[root], created_ms=1,
            expires_ms=None,
        )  # fmt: skip
        granting, key = bench.storage.granting, founder.identity.public_key
        with pytest.raises(Conflict) as caught:
            await granting.create(founder=key, grants=[grant], label="")
        assert caught.value.code == "account.closed"
        assert Chain(founder.account).serial == 0

    async def test_its_keys_may_belong_to_another(self, bench: Bench) -> None:
        founder, other = await bench.account(), await bench.account()
        agent = await bench.key(founder, TEAM)
        await bench.services.closing.close((await bench.caller(founder)).access)
        assert await bench.value("SELECT count(*) FROM key_owner") == 1
        again = await bench.key(other, TEAM)
        assert again.identity.public_key != agent.identity.public_key

    async def test_is_for_owners(self, bench: Bench) -> None:
        founder = await bench.account()
        for key in (await bench.key(founder, TEAM), await bench.key(founder, role="writer")):
            with pytest.raises(NotAllowed):
                await bench.services.closing.close((await bench.caller(key)).access)
        assert [tuple(r) for r in await bench.sql(CLOSED, founder.account)] == [(False, False)]

    async def test_twice_closes_once(self, bench: Bench) -> None:
        access = (await bench.caller(await bench.account())).access
        await bench.services.closing.close(access)
        with pytest.raises(NotFound):
            await bench.services.closing.close(access)

    async def test_emptying_goes_on_where_it_stopped(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("relayer.tenants.closing.PAGE", 4)
        monkeypatch.setattr("relayer.tenants.closing.ROUNDS_AT_ONCE", 1)
        monkeypatch.setattr("relayer.tenants.closing.ROUNDS_MAX", 3)
        founder = await bench.account()
        caller = await bench.caller(founder)
        await bench.remember(caller, *(f"Note {n}." for n in range(20)))
        closed = await bench.services.closing.close(caller.access)
        assert closed.pending
        left = [await bench.value("SELECT count(*) FROM memories")]
        for _ in range(40):
            await bench.another().services.closing.purge()
            left.append(await bench.value("SELECT count(*) FROM memories"))
        assert left[:3] == [16, 4, 0]
        assert await left_of(bench, founder.account) == {"accounts": 1, "receipts": 1, "blobs": 1}
        assert [tuple(r) for r in await bench.sql(CLOSED, founder.account)] == [(True, True)]

    async def test_two_that_empty_it_at_once_leave_nothing(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("relayer.tenants.closing.PAGE", 4)
        monkeypatch.setattr("relayer.tenants.closing.ROUNDS_MAX", 2)
        founder = await bench.account()
        await bench.services.closing.close((await bench.caller(founder)).access)
        await closing.set_unpurged(bench.storage.database, founder.account)
        await bench.sql(LEFT_BEHIND, founder.account, 30)
        async with bench.storage.database.transaction() as connection:
            await connection.execute(LOCK_BLOBS, founder.account)
            both = [
                asyncio.create_task(one.services.closing.purge())
                for one in (bench, bench.another())
            ]
            await bench.until(WAITING, 2)
        await asyncio.gather(*both)
        assert [tuple(r) for r in await bench.sql(CLOSED, founder.account)] == [(True, False)]
        for _ in range(10):
            await bench.services.closing.purge()
        assert await left_of(bench, founder.account) == {"accounts": 1, "receipts": 1, "blobs": 1}

    async def test_empties_an_outside_store(self, make_bench: BenchMaker, tmp_path: Path) -> None:
        bench = make_bench(blob_store=f"file:{tmp_path / 'blobs'}")
        founder = await bench.account()
        caller = await bench.caller(founder)
        await bench.remember(caller, "Anna prefers tea.", "Ben sells cups.")
        closed = await bench.services.closing.close(caller.access)
        await bench.services.closing.purge()
        files = {p.name for p in (tmp_path / "blobs").rglob("*") if p.is_file()}
        assert files == {blob_id(closed.receipt), "newest"}
        assert (await check.check(bench.storage)).problems == []

    async def test_a_blob_on_its_way_goes_when_it_has_come(
        self, make_bench: BenchMaker, tmp_path: Path
    ) -> None:
        """A write had noted it and not put it yet when the account was closed."""
        bench = make_bench(blob_store=f"file:{tmp_path / 'blobs'}")
        founder = await bench.account()
        caller = await bench.caller(founder)
        late = b"sealed bytes"
        await outbox_rows.intend(
            bench.storage.database,
            account=founder.account,
            blob_ids=[blob_hash(blob_id(late))],
            due_at=bench.clock() + GRACE,
        )
        closed = await bench.services.closing.close(caller.access)
        await bench.services.closing.purge()
        assert closed.pending
        assert [tuple(r) for r in await bench.sql(CLOSED, founder.account)] == [(True, False)]
        await bench.storage.blobs.put_many(founder.account, {blob_id(late): late})
        bench.clock.advance(GRACE.total_seconds())
        await bench.storage.outbox.empty()
        await bench.services.closing.purge()
        left = {name async for name in bench.storage.blobs.names(founder.account)}
        assert left == {blob_id(closed.receipt)}
        assert [tuple(r) for r in await bench.sql(CLOSED, founder.account)] == [(True, True)]
        assert (await check.check(bench.storage)).problems == []
        # Whatever lies there besides, nobody can say what for.
        await bench.storage.blobs.put_many(founder.account, {blob_id(late): late})
        found = [(p["problem"], p["id"]) for p in (await check.check(bench.storage)).problems]
        assert found == [("something is left of an erased account", blob_id(late))]

    @pytest.mark.parametrize("confirmed", [True, False])
    async def test_an_object_that_comes_after_it_was_emptied_goes(
        self, make_bench: BenchMaker, tmp_path: Path, confirmed: bool
    ) -> None:
        """Another process was publishing it when the account was closed."""
        folder = tmp_path / "blobs"
        bench = make_bench(blob_store=f"file:{folder}")
        founder = await bench.account()
        access = (await bench.caller(founder)).access
        await staged(bench)
        store = Late(folder=folder, confirms=confirmed)
        publishing = asyncio.create_task(outbox_on(bench, store, soon_s=60).publish())
        await store.begun.wait()
        closed = await bench.services.closing.close(access)
        bench.clock.advance(GRACE.total_seconds())
        await bench.storage.outbox.empty()
        await bench.services.closing.purge()
        assert [tuple(r) for r in await bench.sql(CLOSED, founder.account)] == [(True, True)]
        store.go_on.set()
        await asyncio.gather(publishing, return_exceptions=True)
        assert blob_id(b"{waits}") in {n async for n in store.names(founder.account)}
        assert (await check.check(bench.storage)).problems == []
        bench.clock.advance(GRACE.total_seconds())
        await bench.storage.outbox.empty()
        assert {n async for n in store.names(founder.account)} == {blob_id(closed.receipt)}
        assert (await check.check(bench.storage)).problems == []

    async def test_a_key_does_not_join_it_any_more(self, bench: Bench) -> None:
        """On a replica that looked at its grants before."""
        founder = await bench.account()
        agent = await bench.key(founder, TEAM)
        replica = bench.another()
        await replica.caller(agent)
        await bench.sql("DELETE FROM key_owner WHERE public_key = $1", agent.identity.public_key)
        await bench.services.closing.close((await bench.caller(founder)).access)
        claimed = await replica.storage.accounts.claim(agent.account, agent.identity.public_key)
        assert not claimed
        assert await bench.value("SELECT count(*) FROM key_owner") == 0

    async def test_what_is_left_behind_is_reported(self, bench: Bench) -> None:
        founder = await bench.account()
        await bench.services.closing.close((await bench.caller(founder)).access)
        await bench.services.closing.purge()
        assert (await check.check(bench.storage)).problems == []
        await bench.sql(
            "INSERT INTO namespaces (account_id, namespace_id, name, updated_at)"
            " VALUES ($1, 1, 'team', now())",
            founder.account,
        )
        key = founder.identity.public_key
        await bench.sql("INSERT INTO key_owner VALUES ($1, $2)", key, founder.account)
        found = [(p["problem"], p["id"]) for p in (await check.check(bench.storage)).problems]
        assert found == [
            ("something is left of an erased account", table)
            for table in ("namespaces", "key_owner")
        ]

    async def test_is_not_listed_for_the_operator(self, bench: Bench) -> None:
        founder = await bench.account()
        await bench.services.closing.close((await bench.caller(founder)).access)
        listed: list[dict[str, Any]] = await provision.list_accounts(bench.storage)
        assert listed == []
