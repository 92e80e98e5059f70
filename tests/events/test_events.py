"""The stream of events: who is told what, where it goes on, and what ends it."""

import asyncio
import contextlib
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from memrelay import MemrelayError, SyncMemoryClient
from memrelay.events import Event
from relayer.app import build_app
from relayer.clock import to_ms
from relayer.errors import RateLimited
from relayer.events import streams as module
from relayer.events.event import EXTRACTED, WRITTEN, Position, events_of
from relayer.events.streams import Streams
from relayer.sealed.grants import issue_grant, sign_join
from relayer.sealed.keys import AccountId, Identity, Namespace, PublicKey, account_text
from relayer.sealed.receipts import OPERATIONS, Item, Receipt, open_receipt
from relayer.settings import Limits, Settings
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey
from tests.conftest import BenchMaker
from tests.processes import RunningRelayer, client, lasting_port, running_relayer
from tests.services import OTHER, TEAM, Bench, random_text
from tests.signing import client_of as client_of_app
from tests.signing import signed_headers, signer_of


def streams_of(bench: Bench, stopping: asyncio.Event | None = None) -> Streams:
    return Streams(
        database=bench.storage.database,
        accounts=bench.storage.accounts,
        relayers=bench.storage.relayers,
        embeds=bench.services.embedders.current is not None,
        stopping=stopping or asyncio.Event(),
        clock=bench.clock,
    )


START = Position(0)


async def told(bench: Bench, key: NewKey, after: Position = START) -> list[dict[str, Any]]:
    """What a key is told of all that happened so far."""
    access = (await bench.caller(key)).access
    parts = await streams_of(bench).open(access, after, follow=False)
    return events(b"".join([part async for part in parts]))


def events(stream: bytes) -> list[dict[str, Any]]:
    blocks = stream.decode().split("\n\n")
    fields = [dict(line.partition(": ")[::2] for line in b.splitlines()) for b in blocks]
    return [
        json.loads(f["data"]) | {"id_": f.get("id"), "place": f.get("place")}
        for f in fields
        if "data" in f
    ]


def receipt(op: str, *revisions: int) -> Receipt:
    items = tuple(Item(uuid.UUID(int=n + 1), r, "b") for n, r in enumerate(revisions))
    account, key = AccountId(bytes(32)), PublicKey(bytes(32))
    return Receipt(account, 3, bytes(32), 1, op, key, TEAM, 1, items, 1)


class TestEvents:
    @pytest.mark.parametrize("op", sorted(OPERATIONS - {"close"}))
    def test_every_operation_has_an_event(self, op: str) -> None:
        [event] = events_of(receipt(op, 1), b"1")
        assert event.type
        assert event == events_of(receipt(op, 1), b"1")[0]

    def test_a_closed_account_has_nobody_left_to_tell(self) -> None:
        assert events_of(receipt("close"), b"1") == []

    def test_a_turn_that_was_extracted_is_its_own_event(self) -> None:
        both = events_of(receipt("analyze", 1, 0), b"1")
        assert [e.type for e in both] == [WRITTEN, EXTRACTED]
        assert both[0].id != both[1].id
        assert [e.type for e in events_of(receipt("analyze", 0), b"1")] == [EXTRACTED]

    def test_revisions_of_one_memory_are_one_id(self) -> None:
        item = receipt("forget", 1).items[0]
        twice = Receipt(**{**receipt("forget").__dict__, "items": (item, item)})
        assert [len(e.ids) for e in events_of(twice, b"1")] == [1]


class TestWho:
    @pytest.mark.parametrize("custody", ["managed", "sealed"])
    async def test_a_key_is_told_of_what_it_may_read(self, bench: Bench, custody: str) -> None:
        """Of its namespaces, by ids; of keys only who sees the whole account."""
        owner = await bench.account(custody)
        reader = await bench.key(owner, TEAM, role="reader")
        caller = await bench.caller(owner)
        if custody == "sealed":
            caller = await bench.unlocked(owner, TEAM, OTHER)
        [mine] = await bench.remember(caller, "The owl Ottilie nests here.")
        [other] = await bench.remember(caller, "Another matter.", namespace=OTHER)
        await bench.services.memory.forget(caller.access, mine.id)
        assert [(e["type"], e["ids"]) for e in await told(bench, reader)] == [
            ("memory.written", [str(mine.id)]),
            ("memory.erased", [str(mine.id)]),
        ]
        whole = await told(bench, owner)
        assert {e["type"] for e in whole} == {"key.granted", "memory.written", "memory.erased"}
        assert str(other.id) in json.dumps(whole)
        assert "Ottilie" not in json.dumps(whole)

    async def test_it_goes_on_after_the_last_one_seen(self, bench: Bench) -> None:
        owner = await bench.account()
        caller = await bench.caller(owner)
        for n in range(module.PAGE + 5):
            await bench.remember(caller, f"Note {n}.")
        whole = await told(bench, owner)
        assert len(whole) > module.PAGE
        for seen in (0, 3, module.PAGE, len(whole) - 1):
            number, name = whole[seen]["place"].split("-")
            assert whole[seen]["id_"] == number
            for after in (Position(int(number)), Position(int(number), name)):
                assert await told(bench, owner, after) == whole[seen + 1 :]

    async def test_others_have_their_turn_while_it_catches_up(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        owner = await bench.account()
        caller = await bench.caller(owner)
        for n in range(3 * module.AT_ONCE):
            await bench.remember(caller, f"Note {n}.")
        turns, verified = 0, Counter[int]()

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        def counted(signed: bytes, *relayers: PublicKey) -> Receipt:
            verified[turns] += 1
            return open_receipt(signed, *relayers)

        monkeypatch.setattr(module, "open_receipt", counted)
        task = asyncio.create_task(others())
        try:
            assert len(await told(bench, owner)) > 3 * module.AT_ONCE
        finally:
            task.cancel()
        assert verified.total() > 3 * module.AT_ONCE
        assert max(verified.values()) <= module.AT_ONCE

    async def test_after_what_it_does_not_know_it_tells_everything(self, bench: Bench) -> None:
        """Other events have the numbers of those that a database which was set back has lost."""
        owner = await bench.account()
        caller = await bench.caller(owner)
        await bench.remember(caller, "One.")
        [before] = await bench.sql("SELECT receipt_seq, receipt_head FROM accounts")
        await bench.remember(caller, "Two.")
        lost = (await told(bench, owner))[-1]
        number, name = lost["place"].split("-")
        await bench.sql("DELETE FROM index_steps")
        await bench.sql("DELETE FROM receipts WHERE seq > $1", before["receipt_seq"])
        await bench.sql("UPDATE accounts SET receipt_seq = $1, receipt_head = $2", *before)
        assert await told(bench, owner, Position(int(number))) == await told(bench, owner)
        await bench.remember(caller, "Three.")
        whole = await told(bench, owner)
        assert whole[-1]["id_"] == number
        assert whole[-1]["id"] != lost["id"]
        assert whole[-1]["place"] != lost["place"]
        assert await told(bench, owner, Position(int(number), name)) == whole
        assert await told(bench, owner, Position(int(number))) == [], "a number alone does not tell"

    async def test_a_foreign_account_is_told_nothing(self, bench: Bench) -> None:
        owner, stranger = await bench.account(), await bench.account()
        await bench.remember(await bench.caller(owner), "One.")
        assert {e["account_id"] for e in await told(bench, stranger)} == {
            account_text(stranger.account)
        }


class Reading:
    """A stream that is being read."""

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self.parts = parts
        self.got = b""
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for part in self.parts:
            self.got += part

    async def until(self, kind: str) -> dict[str, Any]:
        async with asyncio.timeout(20):
            while not (found := [e for e in events(self.got) if e["type"] == kind]):
                await asyncio.sleep(0.01)
        return found[0]


async def give(bench: Bench, owner: NewKey, key: NewKey, namespace: Namespace) -> None:
    """Grant a key of the account one more namespace."""
    chain = await bench.storage.accounts.chain(owner.account)
    signed = issue_grant(
        owner.identity,
        account=owner.account,
        serial=chain.serial + 1,
        recipient=key.identity.public_key,
        role="writer",
        keys=[bench.namespace_key(owner.account, namespace)],
        created_ms=to_ms(bench.clock()),
    )
    join = sign_join(
        key.identity,
        account=owner.account,
        issuer=owner.identity.public_key,
        relayer=bench.storage.identity.public_key,
    )
    await bench.storage.granting.grant(
        account=owner.account,
        actor=owner.identity.public_key,
        signed=signed,
        join=join,
        label="agent",
    )


class TestOpen:
    async def test_vectors_are_told_of_when_they_are_there(self, hybrid: Bench) -> None:
        owner = await hybrid.account()
        caller = await hybrid.caller(owner)
        reading = Reading(await streams_of(hybrid).open(caller.access, None))
        items = await hybrid.remember(caller, random_text())
        written = await reading.until("memory.written")
        await hybrid.embed(caller, items)
        indexed = await reading.until("memory.indexed")
        assert indexed["ids"] == written["ids"] == [str(items[0].id)]
        assert (written["id_"], indexed["id_"]) == (str(written["receipt_seq"]), None)
        reading.task.cancel()

    async def test_a_revoked_key_hears_the_end(self, bench: Bench) -> None:
        owner = await bench.account()
        agent = await bench.key(owner, TEAM)
        access = (await bench.caller(agent)).access
        reading = Reading(await streams_of(bench).open(access, None))
        await bench.remember(await bench.caller(owner), "One.")
        await reading.until("memory.written")
        await bench.revoke(owner, agent.identity.public_key)
        async with asyncio.timeout(20):
            await reading.task
        await bench.remember(await bench.caller(owner), "Two.")
        assert len(events(reading.got)) == 1

    async def test_a_key_that_was_given_less_hears_less(self, bench: Bench) -> None:
        """A stream goes by what the key may read now, not by what it could when it began."""
        owner = await bench.account()
        ends = bench.clock() + timedelta(seconds=60)
        agent = await bench.key(owner, OTHER, expires_at=ends)
        await give(bench, owner, agent, TEAM)
        reading = Reading(await streams_of(bench).open((await bench.caller(agent)).access, None))
        caller = await bench.caller(owner)
        await bench.remember(caller, "One.", namespace=OTHER)
        await reading.until("memory.written")
        bench.clock.advance(61)
        await bench.remember(caller, "Two.", namespace=OTHER)
        await bench.remember(caller, "Three.")
        async with asyncio.timeout(20):
            while len(heard := events(reading.got)) < 2:
                assert not reading.task.done()
                await asyncio.sleep(0.01)
        assert [e["namespace"] for e in heard] == [OTHER, TEAM]
        reading.task.cancel()

    async def test_a_relayer_that_stops_ends_it(self, bench: Bench) -> None:
        owner = await bench.account()
        stopping = asyncio.Event()
        access = (await bench.caller(owner)).access
        reading = Reading(await streams_of(bench, stopping).open(access, None))
        stopping.set()
        async with asyncio.timeout(20):
            await reading.task

    async def test_only_what_was_told_in_full_says_that_it_is_all(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "PAGE", 1)
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "One.")
        whole = [
            part async for part in await streams_of(bench).open(caller.access, START, follow=False)
        ]
        assert whole[-1].startswith(b": end\nid: ")
        assert b": end" not in b"".join(whole[:-1])
        stopping, cut = asyncio.Event(), b""
        async for part in await streams_of(bench, stopping).open(
            caller.access, START, follow=False
        ):
            cut += part
            if events(cut):
                stopping.set()
        assert len(events(cut)) == 1 < len(events(b"".join(whole)))
        assert b": end" not in cut

    async def test_so_many_at_once_and_no_more(self, bench: Bench) -> None:
        owner, other = await bench.account(), await bench.account()
        access = (await bench.caller(owner)).access
        streams = streams_of(bench)
        opened = [await streams.open(access, None) for _ in range(Limits.streams_of_account_max)]
        with pytest.raises(RateLimited):
            await streams.open(access, None)
        assert await anext(await streams.open((await bench.caller(other)).access, None))
        for stream in opened:
            await stream.aclose()
        assert await anext(await streams.open(access, None))

    async def test_what_is_opened_at_the_same_time_counts(self, bench: Bench) -> None:
        access = (await bench.caller(await bench.account())).access
        streams, most = streams_of(bench), Limits.streams_of_account_max
        opening = [streams.open(access, None) for _ in range(most + 5)]
        opened = await asyncio.gather(*opening, return_exceptions=True)
        assert sum(isinstance(one, RateLimited) for one in opened) == 5

    async def test_a_stream_that_nobody_reads_gives_its_place_back(self, bench: Bench) -> None:
        access = (await bench.caller(await bench.account())).access
        streams = streams_of(bench)
        opened = [await streams.open(access, None) for _ in range(Limits.streams_of_account_max)]
        opened.clear()
        async with asyncio.timeout(20):
            while True:
                try:
                    await streams.open(access, None)
                    return
                except RateLimited:
                    await asyncio.sleep(0.01)

    async def test_an_open_stream_holds_no_connection(self, make_bench: BenchMaker) -> None:
        bench = make_bench()
        owner = await bench.account()
        access = (await bench.caller(owner)).access
        streams = streams_of(bench)
        opened = [await streams.open(access, None) for _ in range(Limits.streams_of_account_max)]
        for stream in opened:  # more of them than the pool has connections
            await anext(stream)
        assert await bench.value("SELECT 1") == 1
        for stream in opened:
            await stream.aclose()


async def test_a_stream_outlives_what_a_request_may_take(
    storage: Storage, settings: Settings, managed: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends by itself, whole: what a deadline ends is cut."""
    monkeypatch.setattr(Limits, "stream_life_s", 12)
    monkeypatch.setattr(module, "BEAT_S", 0.5)
    short = replace(settings, embedder="none", request_timeout_s=5.0)
    async with client_of_app(build_app(storage, short), signer_of(managed)) as client:
        answer = await client.get("/v1/events")
    assert answer.status_code == 200
    assert answer.text.count(": beat") >= 2


# From outside


@contextlib.contextmanager
def following(client: SyncMemoryClient, **options: Any) -> Iterator[list[Event]]:
    """The events that a client in a thread of its own has heard so far."""
    heard: list[Event] = []

    def listen() -> None:
        with contextlib.suppress(MemrelayError, RuntimeError):  # the client is closed at the end
            for event in client.events(**options):
                heard.append(event)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    yield heard


def wait(heard: list[Event], kind: str) -> Event:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if found := [e for e in heard if e.type == kind]:
            return found[0]
        time.sleep(0.05)
    raise AssertionError(f"nobody told of {kind}, but of {[e.type for e in heard]}")


def test_a_client_follows_past_a_restart(
    relayer: RunningRelayer, tmp_path: Any, model_dir: Any
) -> None:
    """A real server tells as it happens, stops while it is being read, and is found again."""
    account = relayer.command("account", "create", "--label", "t", "--custody", "sealed")
    database_url = relayer.environment["RELAYER_DATABASE_URL"]
    relayer.kill()
    port = str(lasting_port())
    relayer.url = f"http://127.0.0.1:{port}"
    with client(account, relayer.url) as listener, client(account, relayer.url) as writer:
        with running_relayer(
            tmp_path / "data", model_dir, "--port", port, database_url=database_url
        ) as server, following(listener, after=0) as heard:  # fmt: skip
            wait(heard, "key.granted")
            first = writer.remember("The owl Ottilie nests here.")
            assert wait(heard, "memory.written").ids == (first.id,)
            assert wait(heard, "memory.indexed").ids == (first.id,)
            server.process.terminate()
            assert server.process.wait(timeout=60) == 0
        with running_relayer(
            tmp_path / "data", model_dir, "--port", port, database_url=database_url
        ):
            writer.forget(first.id)
            assert wait(heard, "memory.erased").ids == (first.id,)
    assert len({e.id for e in heard}) == len(heard), "none twice"


def test_the_stream_is_guarded_like_every_route(relayer: RunningRelayer) -> None:
    account = relayer.command("account", "create", "--label", "t", "--custody", "managed")
    identity = Identity(bytes.fromhex(account["private_key"]))
    assert httpx.get(f"{relayer.url}/v1/events").status_code == 401
    for target, extra, status in (
        ("/v1/events?after=-1", {}, 400),
        ("/v1/events?after=x", {}, 400),
        ("/v1/events?after=1-", {}, 400),
        ("/v1/events?after=1-00000000000000AA", {}, 400),
        ("/v1/events?follow=false", {"last-event-id": "x"}, 400),
        ("/v1/events?follow=false&after=0", {}, 200),
        ("/v1/events?follow=false", {"last-event-id": "0"}, 200),
        ("/v1/events?follow=false", {"last-event-id": f"1-{'0' * 16}"}, 200),
    ):
        headers = signed_headers(identity, "GET", target, account=account["account_id"])
        answer = httpx.get(relayer.url + target, headers=headers | extra)
        assert (answer.status_code, target) == (status, target)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    assert [e["type"] for e in events(answer.content)] == ["key.granted"] * 2, "from the beginning"
