"""A bucket that is not as it should be, what is kept of one in memory, and a relayer on a real one.

Not here: what every store does (`test_blobs.py`).
"""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import obstore
import pytest

from relayer.blobs.buckets import AT_ONCE, BucketStore
from relayer.blobs.cache import LIFE_S, CachedStore, beneath
from relayer.blobs.store import BlobStore, FolderStore
from relayer.errors import Corrupted, Unavailable
from relayer.recovery.collection import STRAY_GRACE
from relayer.sealed.envelope import blob_id
from relayer.sealed.keys import AccountId
from relayer.settings import Settings, SettingsError
from relayer.upkeep.check import check
from relayer.upkeep.rebuild import REBUILT
from tests.blobs.buckets import DATA, GIVEN, NAMES, ONE, store_at
from tests.chains import assert_chain_holds
from tests.collecting import collect
from tests.conftest import BenchMaker
from tests.hooks import Hook, certificate, listening
from tests.rebuilding import Lose, completed, lose, rebuilt
from tests.services import Bench
from tests.swift import KEY, Swift, bucket_store

__all__ = ["lose"]  # a fixture

USES: dict[str, Callable[[BucketStore], Awaitable[object]]] = {
    "put": lambda store: store.put_many(ONE, {NAMES[0]: DATA[0]}),
    "get": lambda store: store.get_many(ONE, NAMES),
    "delete": lambda store: store.delete(ONE, NAMES[0]),
    "names": lambda store: anext(aiter(store.names(ONE)), None),
    "accounts": lambda store: store.accounts(),
    "mark": lambda store: store.mark(ONE, 1),
    "read_mark": lambda store: store.read_mark(ONE),
}


@asynccontextmanager
async def answering(*answers: str, headers: str = "") -> AsyncIterator[tuple[Hook, BucketStore]]:
    """A server that gives these answers, the last one from then on, and a store on it."""
    async with listening() as hook:
        hook.answers, hook.headers = list(answers), headers
        yield hook, store_at(f"http://127.0.0.1:{hook.port}")


class TestSettings:
    @pytest.mark.parametrize(
        ("changes", "endpoint", "prefix"),
        [
            ({}, "http://127.0.0.1:9", "relayer"),
            ({"blob_store": "s3://blobs"}, "http://127.0.0.1:9", ""),
            ({"blob_store": "s3://blobs/"}, "http://127.0.0.1:9", ""),
            ({"blob_store": "s3://blobs/a/b-c/d_e.f/"}, "http://127.0.0.1:9", "a/b-c/d_e.f"),
            ({"s3_endpoint": "http://localhost:9/"}, "http://localhost:9", "relayer"),
            ({"s3_endpoint": "http://[::1]:9"}, "http://[::1]:9", "relayer"),
            ({"s3_endpoint": "https://store.example"}, "https://store.example", "relayer"),
            (
                {"s3_endpoint": "http://store.example", "s3_plain_http": "anywhere"},
                "http://store.example",
                "relayer",
            ),
            (
                {"s3_endpoint": "", "s3_region": "eu-west-1"},
                "https://s3.eu-west-1.amazonaws.com",
                "relayer",
            ),
        ],
    )
    def test_a_bucket_is_found(self, changes: dict[str, str], endpoint: str, prefix: str) -> None:
        bucket = Settings(**(GIVEN | changes)).bucket
        assert (bucket.name, bucket.endpoint, bucket.prefix) == ("blobs", endpoint, prefix)

    @pytest.mark.parametrize(
        "changes",
        [
            {"blob_store": "s3:"},
            {"blob_store": "s3://"},
            {"blob_store": "s3:blobs"},
            {"blob_store": "s3://b"},
            {"blob_store": "s3://Blobs"},
            {"blob_store": "s3://blobs_"},
            {"blob_store": "s3://blobs?versions"},
            {"blob_store": "s3://key:secret@blobs"},
            {"blob_store": "s3://blobs/../other"},
            {"blob_store": "s3://blobs/./other"},
            {"blob_store": "s3://blobs//other"},
            {"blob_store": "s3://blobs/a b"},
            {"blob_store": "s3://blobs/a%2fb"},
            {"blob_store": "s3://blobs/ä"},
            {"blob_store": "s3://blobs/a\n"},
            {"blob_store": "gs://blobs"},
            {"s3_endpoint": "http://store.example"},
            {"s3_endpoint": "http://10.0.0.1:9000"},
            {"s3_endpoint": "http://127.0.0.1.example"},
            {"s3_endpoint": "http://localhost.example"},
            {"s3_endpoint": "https://key:secret@store.example"},
            {"s3_endpoint": "https://store.example/?a=b"},
            {"s3_endpoint": "https://store.example/#a"},
            {"s3_endpoint": "https://"},
            {"s3_endpoint": "https://store.example:port"},
            {"s3_endpoint": "store.example"},
            {"s3_endpoint": "ftp://127.0.0.1"},
            {"s3_endpoint": "file:///blobs"},
            {"s3_region": ""},
            {"s3_region": "eu/west"},
            {"s3_region": "evil.example/"},
            {"s3_access_key_id": ""},
            {"s3_secret_access_key": ""},
            {"blob_cache_bytes": -1},
        ],
    )
    def test_what_is_none_is_refused_and_not_repeated(self, changes: dict[str, str]) -> None:
        with pytest.raises(SettingsError) as caught:
            Settings(**(GIVEN | changes))
        assert GIVEN["s3_secret_access_key"] not in str(caught.value)
        assert "key:secret" not in str(caught.value)

    def test_the_key_is_shown_nowhere(self) -> None:
        settings = Settings(**GIVEN)
        store = BucketStore(bucket=settings.bucket, deadline_s=1)
        shown = f"{settings!r} {settings.bucket!r} {store!r} {vars(store)} {store._objects.config}"
        assert GIVEN["s3_secret_access_key"] not in shown


class TestRefusals:
    """Whatever is not plainly an answer about an object is a store that is away."""

    @pytest.mark.parametrize("use", USES)
    async def test_no_bucket_is_no_empty_bucket(self, swift: Swift, use: str) -> None:
        with pytest.raises(Unavailable, match="no such bucket"):
            await USES[use](bucket_store(swift, bucket="nowhere"))

    @pytest.mark.parametrize("use", USES)
    async def test_a_wrong_key(
        self, swift: Swift, use: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        wrong = KEY + "-not"
        store = bucket_store(swift, bucket="nowhere", s3_secret_access_key=wrong)
        with pytest.raises(Unavailable, match="refuses this relayer's key") as caught:
            await USES[use](store)
        assert caught.value.code == "blobs.unavailable"
        assert wrong not in caplog.text

    @pytest.mark.parametrize("use", USES)
    @pytest.mark.parametrize("answer", ["404 Not Found", "403 Forbidden", "400 Bad Request"])
    async def test_answers_that_say_nothing_of_an_object(self, use: str, answer: str) -> None:
        async with answering(answer) as (_, store):
            with pytest.raises(Unavailable) as caught:
                await USES[use](store)
        assert "127.0.0.1" not in str(caught.value)
        assert caught.value.headers["retry-after"]

    @pytest.mark.parametrize("use", USES)
    async def test_nobody_is_there(self, use: str) -> None:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))  # so that nobody else listens there
            store = store_at(f"http://127.0.0.1:{silent.getsockname()[1]}")
            with pytest.raises(Unavailable):
                await USES[use](store)

    @pytest.mark.parametrize("use", USES)
    async def test_a_store_that_hangs(self, use: str) -> None:
        async with listening() as hook:
            hook.hangs = True
            store = store_at(f"http://127.0.0.1:{hook.port}", deadline_s=0.4)
            with pytest.raises(Unavailable):
                await USES[use](store)

    async def test_a_certificate_that_nobody_vouches_for(self, tmp_path: Path) -> None:
        tls, _ = certificate(tmp_path, "localhost")
        async with listening(tls) as hook:
            with pytest.raises(Unavailable):
                await USES["get"](store_at(f"https://localhost:{hook.port}"))
            assert hook.posts == []


class TestPuts:
    async def test_a_store_that_does_not_know_the_condition(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "relayer.buckets")
        refusals = ["501 Not Implemented"] * 4
        async with answering(*refusals, "200 OK", headers='etag: "x"\r\n') as (hook, store):
            for data, name in zip(DATA, NAMES, strict=True):
                await store.put_many(ONE, {name: data})
        conditions = [post.headers.get("if-none-match") for post in hook.posts]
        assert conditions == ["*", "*", "*", "*", None, None]
        assert [post.body for post in hook.posts[-2:]] == DATA
        assert [r.message for r in caplog.records] == ["puts are unconditional"]

    async def test_a_conflict_is_put_again(self) -> None:
        async with answering("409 Conflict", "200 OK", headers='etag: "x"\r\n') as (hook, store):
            await store.put_many(ONE, {NAMES[0]: DATA[0]})
        assert len(hook.posts) > 1
        assert hook.posts[-1].body == DATA[0]

    async def test_a_moment_of_absence_is_not_told(self) -> None:
        answers = ["503 Service Unavailable", "500 Internal Server Error", "200 OK"]
        async with answering(*answers, headers='etag: "x"\r\n') as (hook, store):
            await store.put_many(ONE, {NAMES[0]: DATA[0]})
        assert [post.body for post in hook.posts] == [DATA[0]] * 3

    async def test_attempts_come_to_an_end(self) -> None:
        async with answering("503 Service Unavailable") as (hook, store):
            with pytest.raises(Unavailable):
                await store.put_many(ONE, {NAMES[0]: DATA[0]})
        assert len(hook.posts) == 4

    async def test_an_altered_object_is_not_replaced(self, swift: Swift) -> None:
        store = bucket_store(swift)
        await obstore.put_async(store._objects, f"{ONE.hex()}/{NAMES[0][:2]}/{NAMES[0]}", b"x")
        await store.put_many(ONE, {NAMES[0]: DATA[0]})
        assert isinstance((await store.get_many(ONE, NAMES))[NAMES[0]], Corrupted)


async def test_others_variables_lead_nowhere(swift: Swift, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = swift.bucket()
    for name, value in {
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
        "AWS_ENDPOINT": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "other",
        "AWS_SECRET_ACCESS_KEY": "other",
        "AWS_SESSION_TOKEN": "other",
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
    }.items():
        monkeypatch.setenv(name, value)
    store = bucket_store(swift, bucket=bucket)
    await store.put_many(ONE, {NAMES[0]: DATA[0]})
    assert await store.get_many(ONE, NAMES) == {NAMES[0]: DATA[0]}


PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
GETS = """
import asyncio, sys
from tests.blobs.buckets import NAMES, ONE, store_at
from relayer.errors import Unavailable
for endpoint in sys.argv[1:]:
    try:
        asyncio.run(store_at(endpoint).get_many(ONE, NAMES))
    except Unavailable:
        print("away")
"""


async def test_no_proxy_is_asked() -> None:
    hosts = ("127.0.0.1", "localhost", "[::1]")
    async with listening() as proxy:
        named = dict.fromkeys(PROXIES, f"http://127.0.0.1:{proxy.port}")
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))  # so that nobody listens there
            port = silent.getsockname()[1]
            process = await asyncio.create_subprocess_exec(  # a library may look at them once
                *(sys.executable, "-c", GETS),
                *(f"{scheme}://{host}:{port}" for scheme in ("http", "https") for host in hosts),
                env={**os.environ, **named, "NO_PROXY": "", "no_proxy": ""},
                stdout=subprocess.PIPE,
            )
            told, _ = await process.communicate()
    assert (told, proxy.posts) == (6 * b"away\n", [])


async def test_few_requests_at_once() -> None:
    under_way, most, enough = 0, 0, asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal under_way, most
        await reader.readuntil(b"\r\n\r\n")
        under_way += 1
        most = max(most, under_way)
        if under_way == AT_ONCE:
            enough.set()
        await enough.wait()
        await asyncio.sleep(0)
        under_way -= 1
        body = b"<Error><Code>NoSuchKey</Code></Error>"
        head = f"HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        names = [blob_id(b"%d" % n) for n in range(5 * AT_ONCE)]
        assert await store_at(f"http://127.0.0.1:{port}").get_many(ONE, names) == {}
    assert most == AT_ONCE


class Interrupted(FolderStore):
    """A folder where something happens once between a use of it and its end."""

    happens: Callable[[], Awaitable[object]] | None = None

    async def get_many(
        self, account: AccountId, names: Sequence[str]
    ) -> dict[str, bytes | Corrupted]:
        found = await super().get_many(account, names)
        await self._now()
        return found

    async def delete(self, account: AccountId, name: str) -> None:
        await self._now()
        await super().delete(account, name)

    async def _now(self) -> None:
        if (happens := self.happens) is not None:
            self.happens = None
            await happens()


class TestCache:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Interrupted:
        return Interrupted(folder=tmp_path / "blobs")

    async def cached(self, folder: BlobStore, **options: Any) -> CachedStore:
        store = CachedStore(store=folder, **({"bytes_max": 1 << 20} | options))
        await store.put_many(ONE, dict(zip(NAMES, DATA, strict=True)))
        return store

    async def test_what_was_read_is_read_no_more(self, folder: Interrupted) -> None:
        store = await self.cached(folder)
        reader = CachedStore(store=folder, bytes_max=1 << 20)
        for one in (store, reader):
            assert len(await one.get_many(ONE, NAMES)) == 2
        await folder.delete(ONE, NAMES[0])  # by another process
        for one in (store, reader):
            assert await one.get_many(ONE, NAMES[:1]) == {NAMES[0]: DATA[0]}
        assert await store.get_many(AccountId(bytes([1]) * 32), NAMES) == {}

    async def test_what_is_erased_is_gone(self, folder: Interrupted) -> None:
        store = await self.cached(folder)
        await store.get_many(ONE, NAMES)
        await store.delete(ONE, NAMES[0])
        assert await store.get_many(ONE, NAMES) == {NAMES[1]: DATA[1]}
        assert [name for _, name in store._kept] == [NAMES[1]]

    async def test_what_is_erased_while_it_is_read_is_not_kept(self, folder: Interrupted) -> None:
        store = CachedStore(store=folder, bytes_max=1 << 20)
        await folder.put_many(ONE, {NAMES[0]: DATA[0]})
        folder.happens = lambda: store.delete(ONE, NAMES[0])
        await store.get_many(ONE, NAMES)
        assert await store.get_many(ONE, NAMES) == {}

    async def test_what_is_read_while_it_is_erased_is_not_kept(self, folder: Interrupted) -> None:
        store = CachedStore(store=folder, bytes_max=1 << 20)
        await folder.put_many(ONE, {NAMES[0]: DATA[0]})
        folder.happens = lambda: store.get_many(ONE, NAMES)
        await store.delete(ONE, NAMES[0])
        assert await store.get_many(ONE, NAMES) == {}

    async def test_a_deletion_that_fails_keeps_nothing(
        self, folder: Interrupted, tmp_path: Path
    ) -> None:
        store = await self.cached(folder)
        own = tmp_path / "blobs" / ONE.hex()
        own.rename(tmp_path / "aside")
        own.write_text("in the way")
        with pytest.raises(Unavailable):
            await store.delete(ONE, NAMES[0])
        with pytest.raises(Unavailable):
            await store.get_many(ONE, NAMES)

    async def test_it_ends_with_its_time(self, folder: Interrupted) -> None:
        times = [0.0]
        store = await self.cached(folder, now=lambda: times[0])
        await folder.delete(ONE, NAMES[0])
        times[0] = LIFE_S - 1
        assert len(await store.get_many(ONE, NAMES)) == 2  # and reading does not lengthen it
        times[0] = LIFE_S
        assert await store.get_many(ONE, NAMES) == {NAMES[1]: DATA[1]}

    async def test_it_ends_though_nobody_asks(self, folder: Interrupted) -> None:
        store = await self.cached(folder, life_s=0.01)
        async with asyncio.timeout(60):
            while store._kept:
                await asyncio.sleep(0.01)
        assert store._bytes == 0

    async def test_beneath_it_nothing_is_kept(self, folder: Interrupted) -> None:
        store = await self.cached(folder)
        await folder.delete(ONE, NAMES[0])  # by another process
        assert await beneath(store).get_many(ONE, NAMES) == {NAMES[1]: DATA[1]}
        assert beneath(folder) is folder

    @pytest.mark.parametrize(
        ("bytes_max", "kept"), [(0, 0), (495, 0), (496, 1), (951, 1), (952, 2)]
    )
    async def test_it_holds_so_many_bytes(
        self, folder: Interrupted, bytes_max: int, kept: int
    ) -> None:
        store = await self.cached(folder, bytes_max=bytes_max)
        assert [name for _, name in store._kept] == NAMES[2 - kept :]
        assert len(await store.get_many(ONE, NAMES)) == 2
        assert store._bytes <= bytes_max

    async def test_what_is_altered_is_not_kept(self, folder: Interrupted, tmp_path: Path) -> None:
        await folder.put_many(ONE, {NAMES[0]: DATA[0]})
        [path] = (tmp_path / "blobs").rglob(NAMES[0])
        path.write_bytes(b"other")
        store = CachedStore(store=folder, bytes_max=1 << 20)
        assert isinstance((await store.get_many(ONE, NAMES))[NAMES[0]], Corrupted)
        path.write_bytes(DATA[0])
        assert await store.get_many(ONE, NAMES) == {NAMES[0]: DATA[0]}


class TestRelayer:
    @pytest.fixture
    def bench(self, make_bench: BenchMaker, swift: Swift) -> Bench:
        return make_bench(request_timeout_s=500.0, **swift.settings(f"{swift.bucket()}/relayer"))

    async def test_a_life(self, bench: Bench, lose: Lose) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        [doomed, _] = await bench.remember(caller, "Anna prefers tea.", "Ben sells cups.")
        assert await bench.value("SELECT count(*) FROM blobs") == 0
        await bench.services.memory.forget(caller.access, doomed.id)
        await bench.storage.outbox.empty()
        assert await bench.value("SELECT count(*) FROM blob_outbox") == 0
        assert await bench.texts(caller, "tea") == []
        assert await bench.another().texts(caller, "cups") == ["Ben sells cups."]
        await assert_chain_holds(bench, founder.account)
        stray = b"\x02 nobody knows what for"
        await bench.storage.blobs.put_many(founder.account, {blob_id(stray): stray})
        await collect(bench)
        bench.clock.advance(STRAY_GRACE.total_seconds())
        await collect(bench)
        assert (await check(bench.storage)).problems == []
        lost = await lose(bench)
        assert await rebuilt(lost, bench) == [REBUILT]
        await completed(lost, founder)
        assert await lost.texts(await lost.caller(founder), "cups") == ["Ben sells cups."]

    async def test_altered_and_missing_objects_are_told(self, bench: Bench, swift: Swift) -> None:
        caller = await bench.caller(await bench.account())
        stored = await bench.remember(caller, "Anna prefers tea.", "Ben sells cups.")
        objects = swift.objects(swift.buckets[-1])
        own = f"relayer/{caller.access.account.hex()}"
        paths = {
            p["path"][-43:]: p["path"] for p in await obstore.list(objects, own).collect_async()
        }
        blobs = [await bench.value(BLOB, one.id) for one in stored]
        await obstore.put_async(objects, paths[blobs[0]], b"other")
        await obstore.delete_async(objects, paths[blobs[1]])
        told = {p["problem"] for p in (await check(bench.another().storage)).problems}
        assert told == {"its blob does not match its name", "its blob is missing"}


BLOB = """
SELECT translate(rtrim(encode(blob_id, 'base64'), '='), '+/', '-_') FROM memories
WHERE memory_id = $1
"""
