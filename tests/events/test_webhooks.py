"""Webhooks: who may have them, what they are told, in which order, and when they fail.

Not here: where they may be (`test_egress.py`).
"""

import asyncio
import base64
import hashlib
import hmac
import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from relayer.database import webhooks as rows
from relayer.errors import BadRequest, NotAllowed, NotFound
from relayer.events import delivery
from relayer.events.delivery import Delivery, sign_headers
from relayer.events.egress import Poster
from relayer.events.event import TYPES
from relayer.events.webhooks import Wanted, Webhook, hand_over
from relayer.sealed.at_rest import open_at_rest, seal_at_rest
from relayer.sealed.primitives import CryptoError
from relayer.settings import Limits
from relayer.upkeep.provision import NewKey
from tests.conftest import BenchMaker
from tests.hooks import Hook, Post, listening
from tests.services import OTHER, TEAM, Bench, new_identity

HOOK = uuid.UUID(int=7)
POSITION = "SELECT delivered_seq FROM webhooks"


@pytest.fixture
def open_bench(make_bench: BenchMaker) -> Bench:
    """A relayer that may call the machine it runs on."""
    return make_bench(webhook_reach="private")


async def put(
    bench: Bench, owner: NewKey, hook: Hook, *, webhook_id: uuid.UUID = HOOK, **members: Any
) -> Webhook:
    wanted: dict[str, Any] = {
        "url": f"http://127.0.0.1:{hook.port}/in?token=abc",
        "events": sorted(TYPES),
        "namespaces": None,
        "active": True,
        "new_secret": False,
    }
    access = (await bench.caller(owner)).access
    return await bench.services.webhooks.put(access, webhook_id, Wanted(**(wanted | members)))


def bodies(hook: Hook) -> list[dict[str, Any]]:
    return [json.loads(post.body) for post in hook.posts]


def types(hook: Hook) -> list[str]:
    return [body["type"] for body in bodies(hook)]


class TestTold:
    @pytest.mark.parametrize("custody", ["managed", "sealed"])
    async def test_what_happens_is_told_in_order_without_a_word_of_it(
        self, open_bench: Bench, custody: str
    ) -> None:
        """Ids only, signed, in order, whoever holds the keys."""
        bench = open_bench
        owner = await bench.account(custody)
        caller = (
            await bench.unlocked(owner, TEAM) if custody == "sealed" else await bench.caller(owner)
        )
        await bench.remember(caller, "Nobody is told of what was before.")
        async with listening() as hook:
            made = await put(bench, owner, hook)
            [stored] = await bench.remember(caller, "The owl Ottilie nests here.", tags=["owls"])
            await bench.services.memory.forget(caller.access, stored.id)
            await bench.services.delivery.deliver()
            await bench.services.delivery.deliver()
        assert types(hook) == ["memory.written", "memory.erased"]
        assert [b["ids"] for b in bodies(hook)] == [[str(stored.id)]] * 2
        assert {b["namespace"] for b in bodies(hook)} == {TEAM}
        seqs = [b["receipt_seq"] for b in bodies(hook)]
        assert seqs == sorted(seqs)
        assert b"Ottilie" not in b"".join(p.body for p in hook.posts)
        assert b"owls" not in b"".join(p.body for p in hook.posts)
        for post in hook.posts:
            assert post.line == "POST /in?token=abc HTTP/1.1"
            check_signature(post, made.secret or "")

    async def test_of_a_namespace_and_of_types_that_were_asked_for(self, open_bench: Bench) -> None:
        bench = open_bench
        owner = await bench.account()
        caller = await bench.caller(owner)
        async with listening() as hook:
            await put(
                bench, owner, hook, namespaces=[OTHER], events=["memory.written", "key.granted"]
            )
            await bench.remember(caller, "One.")
            await bench.remember(caller, "Two.", namespace=OTHER)
            key = await bench.key(owner, TEAM)
            await bench.revoke(owner, key.identity.public_key)
            await bench.services.delivery.deliver()
        assert [(b["type"], b["namespace"]) for b in bodies(hook)] == [
            ("memory.written", OTHER),
            ("key.granted", None),
        ]
        seq = await bench.value("SELECT receipt_seq FROM accounts")
        assert await bench.value(POSITION) == seq, "what was not wanted is behind it"

    async def test_nothing_waits_without_a_webhook_that_wants_it(self, hybrid: Bench) -> None:
        owner = await hybrid.account()
        caller = await hybrid.caller(owner)
        await hybrid.embed(caller, await hybrid.remember(caller, "Anna drinks tea."))
        assert await hybrid.value("SELECT count(*) FROM webhook_events") == 0

    async def test_vectors_are_told_once_they_are_there(
        self, make_bench: BenchMaker, hybrid: Bench
    ) -> None:
        bench = make_bench(embedder=hybrid.services.embedders.current, webhook_reach="private")
        owner = await bench.account()
        caller = await bench.caller(owner)
        async with listening() as hook:
            await put(bench, owner, hook)
            items = await bench.remember(caller, "Anna drinks tea.", "Bob drinks coffee.")
            await bench.embed(caller, items)
            await bench.embed(caller, items)  # a job that runs again finds nothing to do
            await bench.services.delivery.deliver()
            await bench.services.delivery.deliver()
        assert types(hook) == ["memory.written", "memory.indexed"]
        assert set(bodies(hook)[1]["ids"]) == {str(i.id) for i in items}
        assert await bench.value("SELECT count(*) FROM webhook_events") == 0

    async def test_a_webhook_that_moves_meanwhile_is_told_at_its_new_address(
        self, make_bench: BenchMaker, hybrid: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = make_bench(embedder=hybrid.services.embedders.current, webhook_reach="private")
        owner, delivery = await bench.account(), bench.services.delivery
        caller, post = await bench.caller(owner), delivery._post
        async with listening() as old, listening() as new:

            async def moving(address: Any, event: Any) -> int:
                status = await post(address, event)
                if event.type == "memory.indexed" and not types(new):
                    await put(bench, owner, new)
                return status

            monkeypatch.setattr(delivery, "_post", moving)
            await put(bench, owner, old)
            await bench.embed(caller, await bench.remember(caller, "Anna drinks tea."))
            await delivery.deliver()
            await delivery.deliver()
        assert types(old) == ["memory.written", "memory.indexed"]
        assert types(new) == ["memory.indexed"]

    async def test_an_altered_receipt_tells_nothing(self, open_bench: Bench) -> None:
        bench = open_bench
        owner = await bench.account()
        caller = await bench.caller(owner)
        async with listening() as hook:
            await put(bench, owner, hook)
            await bench.remember(caller, "One.")
            await bench.sql(
                "UPDATE receipts SET object = set_byte(object, 40, get_byte(object, 40) # 1)"
                " WHERE seq = (SELECT receipt_seq FROM accounts)"
            )
            await bench.remember(caller, "Two.")
            await bench.services.delivery.deliver()
        assert types(hook) == ["memory.written"]

    async def test_two_relayers_tell_once(self, open_bench: Bench) -> None:
        bench = open_bench
        owner = await bench.account()
        caller = await bench.caller(owner)
        async with listening() as hook:
            await put(bench, owner, hook)
            for n in range(5):
                await bench.remember(caller, f"Note {n}.")
            both = [bench, bench.another()]
            await asyncio.gather(*(b.services.delivery.deliver() for b in both))
        assert len(hook.posts) == 5


def check_signature(post: Post, secret: str) -> None:
    """As Standard Webhooks has it, computed here anew."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    assert len(key) == 32
    signed = (
        f"{post.headers['webhook-id']}.{post.headers['webhook-timestamp']}.".encode() + post.body
    )
    wanted = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert post.headers["webhook-signature"] == f"v1,{wanted}"
    assert post.headers["webhook-id"] == json.loads(post.body)["id"]


def test_the_published_example_of_standard_webhooks() -> None:
    """The vector of the Standard Webhooks libraries."""
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    name = "msg_p5jXN8AQM9LWM0D4loKWxJek"
    signed = f"{name}.1614265330.".encode() + b'{"test": 2432232314}'
    wanted = base64.b64encode(hmac.digest(secret, signed, "sha256")).decode()
    assert wanted == "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    moment = datetime.fromtimestamp(1614265330, UTC)
    headers = sign_headers(secret, name, moment, b'{"test": 2432232314}')  # type: ignore[arg-type]
    assert headers["webhook-signature"] == f"v1,{wanted}"


class TestFailing:
    async def test_it_is_tried_again_and_nothing_overtakes(self, open_bench: Bench) -> None:
        """At least once, in order, under the same id, ever less often."""
        bench = open_bench
        owner = await bench.account()
        caller = await bench.caller(owner)
        async with listening() as hook:
            hook.answers = ["500 Oh", "503 No", "204 No Content"]
            await put(bench, owner, hook)
            await bench.remember(caller, "One.")
            await bench.remember(caller, "Two.")
            await bench.services.delivery.deliver()
            await bench.services.delivery.deliver()
            assert len(hook.posts) == 1, "not before its time"
            [shown] = await bench.services.webhooks.all(caller.access)
            assert (shown.row["attempts"], shown.row["problem"]) == (1, "status 500")
            bench.clock.advance(6)
            await bench.services.delivery.deliver()
            bench.clock.advance(6)
            await bench.services.delivery.deliver()
            assert len(hook.posts) == 2, "twice as long"
            bench.clock.advance(5)
            await bench.services.delivery.deliver()
        ids = [b["id"] for b in bodies(hook)]
        assert ids[0] == ids[1] == ids[2] != ids[3]
        [shown] = await bench.services.webhooks.all(caller.access)
        assert (shown.row["attempts"], shown.row["problem"]) == (0, None)

    async def test_after_a_day_it_is_paused_and_goes_on_where_it_stopped(
        self, open_bench: Bench
    ) -> None:
        bench = open_bench
        owner = await bench.account()
        caller = await bench.caller(owner)
        async with listening() as hook:
            hook.answers = ["500 Oh"]
            await put(bench, owner, hook)
            await bench.remember(caller, "One.")
            for _ in range(40):
                await bench.services.delivery.deliver()
                bench.clock.advance(3_600)
            tried = len(hook.posts)
            assert 10 < tried < 40
            [shown] = await bench.services.webhooks.all(caller.access)
            assert (shown.row["active"], shown.row["problem"]) == (False, "status 500")
            hook.answers = ["204 No Content"]
            await put(bench, owner, hook)
            await bench.services.delivery.deliver()
        assert len(hook.posts) == tried + 1
        assert len({b["id"] for b in bodies(hook)}) == 1

    async def test_slow_ones_of_one_account_delay_no_other(
        self, open_bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(delivery, "AT_ONCE_MAX", 3)
        monkeypatch.setattr(delivery, "ACCOUNT_MAX", 2)
        bench = open_bench
        slow, other = await bench.account(), await bench.account()
        async with listening() as stuck, listening() as hook:
            stuck.hangs = True
            for number in range(4):
                await put(bench, slow, stuck, webhook_id=uuid.UUID(int=number))
            await bench.remember(await bench.caller(slow), "One.")
            await put(bench, other, hook)
            await bench.remember(await bench.caller(other), "Two.")
            begun = asyncio.create_task(bench.services.delivery.deliver())
            await hook.came.wait()
            # One that is free again is nobody's of the account that has its share already.
            await asyncio.wait_for(bench.services.delivery._begin(), 10)
            telling = bench.services.delivery._telling
            assert list(telling.values()).count(slow.account) == 2
            begun.cancel()
            for one in list(telling):
                one.cancel()
            await asyncio.gather(begun, *telling, return_exceptions=True)

    async def test_gone_is_gone(self, open_bench: Bench) -> None:
        bench = open_bench
        owner = await bench.account()
        async with listening() as hook:
            hook.answers = ["410 Gone"]
            await put(bench, owner, hook)
            await bench.remember(await bench.caller(owner), "One.")
            await bench.services.delivery.deliver()
        assert await bench.value("SELECT active FROM webhooks") is False

    async def test_one_that_hangs_keeps_no_connection(
        self, make_bench: BenchMaker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = make_bench(webhook_reach="private")
        owner = await bench.account()
        async with listening() as hook:
            hook.hangs = True
            await put(bench, owner, hook)
            await bench.remember(await bench.caller(owner), "One.")
            task = asyncio.create_task(bench.services.delivery.deliver())
            await hook.came.wait()
            busy = await bench.value(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND state LIKE 'idle in transaction%'"
            )
            assert busy == 0
            assert len(await bench.services.webhooks.all((await bench.caller(owner)).access)) == 1
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for one in list(bench.services.delivery._telling):
                one.cancel()
                await asyncio.gather(one, return_exceptions=True)

    async def test_a_relayer_that_died_while_telling_is_followed_by_another(
        self, open_bench: Bench
    ) -> None:
        bench = open_bench
        owner = await bench.account()
        async with listening() as hook:
            await put(bench, owner, hook)
            await bench.remember(await bench.caller(owner), "One.")
            now = bench.clock()
            until = now.replace(hour=now.hour + 1)
            lease = rows.Lease(owner.account, HOOK, until)
            assert await rows.lease(bench.storage.database, lease, now) is not None
            await bench.services.delivery.deliver()
            assert not hook.posts
            bench.clock.advance(3_601)
            await bench.services.delivery.deliver()
            assert not await rows.get_on(bench.storage.database, lease, 99, None)
        assert len(hook.posts) == 1


class TestKept:
    async def test_neither_url_nor_secret_is_readable_at_rest(self, open_bench: Bench) -> None:
        bench = open_bench
        owner = await bench.account()
        async with listening() as hook:
            made = await put(bench, owner, hook)
            assert made.secret is not None
            again = await put(bench, owner, hook)
            assert again.secret is None, "shown once"
            anew = await put(bench, owner, hook, new_secret=True)
            assert anew.secret not in (None, made.secret)
        row = (await bench.sql("SELECT * FROM webhooks"))[0]
        kept = repr(dict(row))
        assert "token=abc" not in kept
        assert "127.0.0.1" not in kept
        assert base64.b64decode((anew.secret or "")[6:]) not in row["sealed"]
        assert "token" not in repr(anew)
        assert (anew.secret or "") not in repr(anew)

    def test_what_is_at_rest_opens_for_this_relayer_and_webhook_only(self) -> None:
        relayer, other = new_identity(), new_identity()
        sealed = seal_at_rest(relayer, b"content", b"webhook", b"a")
        assert open_at_rest(relayer, sealed, b"webhook", b"a") == b"content"
        for identity, content, context in (
            (other, sealed, (b"webhook", b"a")),
            (relayer, sealed, (b"webhook", b"b")),
            (relayer, sealed, (b"webhooka", b"")),
            (relayer, sealed[:-1] + bytes([sealed[-1] ^ 1]), (b"webhook", b"a")),
            (relayer, sealed[:20], (b"webhook", b"a")),
        ):
            with pytest.raises(CryptoError):
                open_at_rest(identity, content, *context)

    async def test_a_new_relayer_key_takes_them_over(self, open_bench: Bench) -> None:
        bench = open_bench
        owner, successor = await bench.account(), new_identity()
        async with listening() as hook:
            made = await put(bench, owner, hook)
            before = bench.storage.identity
            for _ in range(2):  # interrupted, it is begun again
                await hand_over(bench.storage.database, before, successor)
            storage = replace(bench.storage, identity=successor)
            moved = Delivery(
                database=storage.database,
                identity=successor,
                relayers=(before.public_key, successor.public_key),
                poster=Poster(reach="private"),
                clock=bench.clock,
            )
            await bench.remember(await bench.caller(owner), "One.")
            await moved.deliver()
        [post] = hook.posts
        check_signature(post, made.secret or "")

    async def test_only_owners_and_only_their_own(self, open_bench: Bench) -> None:
        bench = open_bench
        owner, stranger = await bench.account(), await bench.account()
        writer = await bench.key(owner, TEAM)
        service = bench.services.webhooks
        async with listening() as hook:
            await put(bench, owner, hook)
            with pytest.raises(NotAllowed):
                await put(bench, writer, hook)
            access = (await bench.caller(writer)).access
            for refused in (
                service.all(access),
                service.remove(access, HOOK),
                service.get(access, HOOK),
            ):
                with pytest.raises(NotAllowed):
                    await refused
            foreign = (await bench.caller(stranger)).access
            with pytest.raises(NotFound):
                await service.address(foreign, HOOK)
            assert not await service.remove(foreign, HOOK)
            assert await service.all(foreign) == []
            own = (await bench.caller(owner)).access
            assert [await service.remove(own, HOOK) for _ in range(2)] == [True, False]

    async def test_so_many_and_no_more(self, open_bench: Bench) -> None:
        owner = await open_bench.account()
        access = (await open_bench.caller(owner)).access
        wanted = Wanted("https://hook.example/", ["memory.written"], None, True, False)
        ids = [uuid.UUID(int=n) for n in range(Limits.webhooks_max)]
        for one in [*ids, *ids]:
            await open_bench.services.webhooks.put(access, one, wanted)
        with pytest.raises(BadRequest, match="at most"):
            await open_bench.services.webhooks.put(access, uuid.uuid4(), wanted)

    async def test_closing_the_account_takes_them_along(self, open_bench: Bench) -> None:
        bench = open_bench
        owner = await bench.account()
        async with listening() as hook:
            await put(bench, owner, hook)
            await bench.remember(await bench.caller(owner), "One.")
            await bench.services.closing.close((await bench.caller(owner)).access)
            await bench.services.delivery.deliver()
        assert not hook.posts
        assert await bench.value("SELECT count(*) FROM webhooks") == 0

    async def test_a_relayer_without_webhooks_tells_nobody(
        self, open_bench: Bench, make_bench: BenchMaker
    ) -> None:
        owner = await open_bench.account()
        async with listening() as hook:
            await put(open_bench, owner, hook)
            await open_bench.remember(await open_bench.caller(owner), "One.")
            for reach in ("none", "public"):
                closed = make_bench(webhook_reach=reach, identity=open_bench.storage.identity)
                await closed.services.delivery.deliver()
                with pytest.raises(BadRequest):
                    await put(closed, owner, hook)
        assert not hook.posts
