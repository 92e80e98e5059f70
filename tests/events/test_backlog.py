"""Webhooks that are behind: what a failure means for what waits, and what waits for them."""

import asyncio
import json
import logging
import uuid
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from relayer.database import webhooks as rows
from relayer.events import delivery, egress
from relayer.events.delivery import Delivery
from relayer.events.egress import Poster
from relayer.events.webhooks import Wanted
from relayer.logs import JsonFormatter
from relayer.upkeep.provision import NewKey
from tests.conftest import BenchMaker
from tests.hooks import Hook, listening
from tests.services import Bench
from tests.telemetry.reading import counted, grown

HOOK = uuid.UUID(int=7)
STEPS_FULL = "ALTER TABLE index_steps ADD CONSTRAINT full_up CHECK (false) NOT VALID"


@pytest.fixture
def bench(make_bench: BenchMaker, hybrid: Bench) -> Bench:
    """A relayer with an embedder that may call the machine it runs on."""
    return make_bench(embedder=hybrid.services.embedders.current, webhook_reach="private")


async def put(bench: Bench, owner: NewKey, hook: Hook, *events: str, active: bool = True) -> None:
    access = (await bench.caller(owner)).access
    wanted = Wanted(f"http://127.0.0.1:{hook.port}/in", list(events), None, active, False)
    await bench.services.webhooks.put(access, HOOK, wanted)


def bodies(hook: Hook) -> list[dict[str, Any]]:
    return [json.loads(post.body) for post in hook.posts]


class TestFailing:
    async def test_what_nobody_wants_does_not_end_a_failure(self, bench: Bench) -> None:
        """Writes go on, and the webhook that is told of vectors alone fails ever less often."""
        owner = await bench.account()
        caller = await bench.caller(owner)
        began = bench.clock()
        async with listening() as hook:
            hook.answers = ["500 Oh"]
            await put(bench, owner, hook, "memory.indexed")
            await bench.embed(caller, await bench.remember(caller, "Anna drinks tea."))
            for n in range(30):
                await bench.remember(caller, f"Note {n}.")
                await bench.services.delivery.deliver()
                bench.clock.advance(60)
            assert len(hook.posts) < 10
            [shown] = await bench.services.webhooks.all(caller.access)
            assert shown.row["attempts"] == len(hook.posts)
            assert shown.row["failing_since"] == began
            assert shown.row["problem"] == "status 500"
            bench.clock.advance(timedelta(hours=25).total_seconds())
            await bench.services.delivery.deliver()
            [shown] = await bench.services.webhooks.all(caller.access)
            assert not shown.row["active"]

    async def test_the_log_names_it_and_why_but_not_where_it_is(
        self, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        owner = await bench.account()
        async with listening() as hook:
            hook.answers = ["500 Oh"]
            await put(bench, owner, hook, "memory.written")
            await bench.remember(await bench.caller(owner), "One.")
            with caplog.at_level(logging.INFO, "relayer.delivery"):
                await bench.services.delivery.deliver()
        [line] = [JsonFormatter().format(record) for record in caplog.records]
        said = json.loads(line)
        assert (said["webhook_id"], said["problem"]) == (str(HOOK), "status 500")
        assert str(hook.port) not in line.replace(said["time"], "")


class TestTwoRelayers:
    """The clocks of two machines differ by less than a lease lasts."""

    def beside(self, bench: Bench, ahead_s: float) -> Delivery:
        return Delivery(
            database=bench.storage.database,
            identity=bench.storage.identity,
            relayers=bench.storage.relayers,
            poster=Poster(reach="private"),
            clock=lambda: bench.clock() + timedelta(seconds=ahead_s),
        )

    async def test_who_hangs_is_overtaken_when_its_time_is_up_and_spoils_nothing(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(egress, "POST_S", 8.0)
        owner = await bench.account()
        caller = await bench.caller(owner)
        async with listening() as hook:
            hook.hangs = True
            await put(bench, owner, hook, "memory.written")
            for n in range(3):
                await bench.remember(caller, f"Note {n}.")
            first = asyncio.create_task(self.beside(bench, 0).deliver())
            await hook.came.wait()
            hook.hangs = False
            await self.beside(bench, delivery.LEASE_S - 1).deliver()
            assert len(hook.posts) == 1, "it is being told"
            await self.beside(bench, delivery.LEASE_S + 1).deliver()
            await first
        ids = [body["id"] for body in bodies(hook)]
        assert ids[0] == ids[1]
        assert len(ids) == 4
        assert len(set(ids)) == 3
        [shown] = await bench.services.webhooks.all(caller.access)
        assert (shown.row["attempts"], shown.row["problem"]) == (0, None)
        assert shown.row["delivered_seq"] == await bench.value("SELECT receipt_seq FROM accounts")

    @pytest.mark.parametrize("ahead_s", [0, 30])
    async def test_both_at_once_tell_once(self, bench: Bench, ahead_s: float) -> None:
        owner = await bench.account()
        caller = await bench.caller(owner)
        async with listening() as hook:
            await put(bench, owner, hook, "memory.written")
            for n in range(5):
                await bench.remember(caller, f"Note {n}.")
            both = (self.beside(bench, 0), self.beside(bench, ahead_s))
            await asyncio.gather(*(one.deliver() for one in both))
        assert [body["receipt_seq"] for body in bodies(hook)] == sorted(
            {body["receipt_seq"] for body in bodies(hook)}
        )
        assert len(hook.posts) == 5


class TestBehind:
    async def test_what_has_no_receipt_follows_its_own_and_not_all(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A webhook that is always behind is told of vectors, too."""
        monkeypatch.setattr(delivery, "SLICE_S", 0.0)
        owner = await bench.account()
        caller = await bench.caller(owner)
        async with listening() as hook:
            await put(bench, owner, hook, "memory.written", "memory.indexed")
            await bench.embed(caller, await bench.remember(caller, "Anna drinks tea."))
            await bench.remember(caller, "Two.")
            await bench.remember(caller, "Three.")
            for _ in range(4):
                await bench.services.delivery.deliver()
        told = [(body["type"], body["ids"]) for body in bodies(hook)]
        assert [kind for kind, _ in told] == [
            "memory.written", "memory.indexed", "memory.written", "memory.written"
        ]  # fmt: skip
        assert told[0][1] == told[1][1]

    async def test_of_vectors_made_in_a_pause_nobody_is_told(self, bench: Bench) -> None:
        """All else waits in the chain of receipts."""
        owner = await bench.account()
        caller = await bench.caller(owner)
        events = ("memory.written", "memory.indexed")
        async with listening() as hook:
            await put(bench, owner, hook, *events, active=False)
            await bench.embed(caller, await bench.remember(caller, "Anna drinks tea."))
            await put(bench, owner, hook, *events)
            await bench.services.delivery.deliver()
        assert [body["type"] for body in bodies(hook)] == ["memory.written"]

    async def test_only_so_much_waits(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whoever runs the relayer sees of what a webhook is not told."""
        monkeypatch.setattr(rows, "NOTED_MAX", 2)
        caplog.set_level(logging.INFO, "relayer.webhooks")
        before = counted()
        owner = await bench.account()
        caller = await bench.caller(owner)
        async with listening() as hook:
            await put(bench, owner, hook, "memory.indexed")
            for n in range(4):
                await bench.embed(caller, await bench.remember(caller, f"Note {n}."))
            assert await bench.value("SELECT count(*) FROM webhook_events") == 2
            assert grown(before, "memrelay_webhook_posts_total", outcome="dropped") == 2
            said = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
            assert [(s["event"], s["webhook_id"], s["count"]) for s in said] == [
                ("webhooks.dropped", str(HOOK), 1)
            ] * 2
            await bench.services.delivery.deliver()
            await bench.embed(caller, await bench.remember(caller, "The last."))
            await bench.services.delivery.deliver()
        assert len(bodies(hook)) == 3

    async def test_what_is_rolled_back_is_not_counted_as_dropped(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is done again, and would count twice."""
        monkeypatch.setattr(rows, "NOTED_MAX", 0)
        owner = await bench.account()
        caller = await bench.caller(owner)
        async with listening() as hook:
            await put(bench, owner, hook, "memory.indexed")
            stored = await bench.remember(caller, "Anna drinks tea.")
            before = counted()
            await bench.sql(STEPS_FULL)
            with pytest.raises(asyncpg.CheckViolationError):
                await bench.embed(caller, stored)
            assert grown(before, "memrelay_webhook_posts_total", outcome="dropped") == 0
            await bench.sql("ALTER TABLE index_steps DROP CONSTRAINT full_up")
            await bench.embed(caller, stored)
            assert grown(before, "memrelay_webhook_posts_total", outcome="dropped") == 1


async def test_what_has_the_number_of_a_lost_receipt_is_another_event(bench: Bench) -> None:
    """A receiver drops what it was told already, by its id: not what came after a set-back."""
    owner = await bench.account()
    caller = await bench.caller(owner)
    async with listening() as hook:
        await put(bench, owner, hook, "memory.written")
        [before] = await bench.sql("SELECT receipt_seq, receipt_head FROM accounts")
        for text in ("One.", "Two."):
            await bench.remember(caller, text)
            await bench.services.delivery.deliver()
            await bench.sql("DELETE FROM index_steps")
            await bench.sql("DELETE FROM receipts WHERE seq > $1", before["receipt_seq"])
            await bench.sql("UPDATE accounts SET receipt_seq = $1, receipt_head = $2", *before)
            await bench.sql("UPDATE webhooks SET delivered_seq = $1", before["receipt_seq"])
    one, two = bodies(hook)
    assert one["receipt_seq"] == two["receipt_seq"]
    assert one["id"] != two["id"]
