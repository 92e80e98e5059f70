"""Every request that changes something leaves a receipt, and what is stored stays proven.

The routes are those of the application: a new one fails here until it is called below, or stands
in one of the two tables with its reason.
"""

import base64
import dataclasses
import re
import socket
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from litestar.types import ASGIApp

from memrelay import MemoryClient, SyncMemoryClient
from relayer.app import build_app
from relayer.clock import utc_now
from relayer.routes import memwal_mcp
from relayer.sealed.keys import AccountId, Identity, parse_account
from relayer.sealed.receipts import OPERATIONS, REBUILD, open_receipt
from tests.conftest import BenchMaker
from tests.consolidating import MEETINGS, TEA, TEA_AGAIN, always
from tests.framework import handlers, transport_to
from tests.processes import RunningRelayer
from tests.services import Bench
from tests.signing import BASE_URL, Signer

T = TypeVar("T")
SPEC = Path(__file__).parents[2] / "SPEC.md"
CHANGING = {"POST", "PUT", "PATCH", "DELETE"}
READING = {
    "POST /v1/recall", "POST /v1/ask", "POST /v1/memories/status", "POST /v1/blobs",
    "POST /v1/counts",
    "POST /api/embed", "POST /api/recall", "POST /api/recall/manual", "POST /api/ask",
    "POST /api/stats", "POST /api/remember/bulk/status", "POST /sui",
    "POST /sui/sui.rpc.v2.LedgerService/BatchGetObjects",
    *(f"{method} {path}" for method in ("POST", "DELETE") for path in memwal_mcp.PATHS),
}  # fmt: skip
# What changes nothing that a receipt tells of, and why.
UNTOLD: Mapping[str, str] = {
    "PATCH /v1/settings": "says how later requests are served; what is stored stays",
    "PUT /v1/namespaces/{name:path}": "a life span; what ends by it has its own receipt",
    "PUT /v1/webhooks/{webhook_id:str}": "who else is told what receipts say",
    "DELETE /v1/webhooks/{webhook_id:str}": "who else is told what receipts say",
    "POST /v1/webhooks/{webhook_id:str}/test": "tells of nothing that happened",
}


def changing_routes(app: ASGIApp) -> set[str]:
    """`METHOD path` of all that do not only read."""
    found = {f"{method} {path}" for method, path, _ in handlers(app) if method in CHANGING}
    assert found >= READING
    return found - READING


class Noting(httpx.AsyncBaseTransport):
    """Carries requests to an application in this process, and notes them."""

    def __init__(self, app: ASGIApp) -> None:
        self._inner = transport_to(app)
        self.requests: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(f"{request.method} {request.url.path}")
        return await self._inner.handle_async_request(request)


@dataclass
class Day:
    """An account's requests, and which of them left receipts."""

    bench: Bench
    transport: Noting
    routes: set[str]
    account: AccountId
    client: MemoryClient
    raw: httpx.AsyncClient
    asked: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    ops: set[str] = field(default_factory=set)

    async def leaves(self, ops: str, change: Awaitable[T]) -> T:
        """What came of a change, which left receipts of these operations and nothing unproven."""
        before = await self.bench.value("SELECT receipt_seq FROM accounts")
        self.transport.requests.clear()
        result = await change
        left = await self._ops(before)
        assert left == ops.split(), self.transport.requests
        routes = self._requested()
        assert len(routes) < 2, routes
        self.note(routes, left)
        if "close" not in left:
            assert (await self.client.verify()).findings == (), routes
        return result

    def note(self, routes: set[str], ops: list[str]) -> None:
        self.asked |= routes
        self.told |= routes if ops else set()
        self.ops |= set(ops)

    def _requested(self) -> set[str]:
        return {name for one in self.transport.requests for name in self._named(one)}

    def _named(self, request: str) -> Iterator[str]:
        for name in self.routes:
            pattern = re.sub(r"\\{\w+:str\\}", "[^/]+", re.escape(name))
            if re.fullmatch(re.sub(r"\\{\w+:path\\}", ".+", pattern), request):
                yield name

    async def _ops(self, after: int) -> list[str]:
        rows = await self.bench.sql(
            "SELECT object FROM receipts WHERE account_id = $1 AND seq > $2 ORDER BY seq",
            self.account,
            after,
        )
        relayer = self.bench.storage.identity.public_key
        return [open_receipt(row["object"], relayer).op for row in rows]

    async def post(self, path: str, **body: Any) -> Any:
        """The answer of a MemWal route."""
        answer = await self.raw.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    async def lose(self, memory_id: str) -> None:
        """Take a memory's row away, as a database that was repaired by hand may lack it."""
        for table in ("memories", "postings"):
            await self.bench.sql(f"DELETE FROM {table} WHERE memory_id = $1", uuid.UUID(memory_id))


def clocks_apart() -> Callable[[], datetime]:
    """The clocks of two hosts in turn: this machine's, and one that is 250 s slow."""
    slow = cycle((timedelta(0), timedelta(seconds=250)))
    return lambda: utc_now() - next(slow)


@pytest.fixture(params=[False, True], ids=["one clock", "two clocks"])
def bench(make_bench: BenchMaker, request: pytest.FixtureRequest) -> Bench:
    """On the time of this machine, as clients are, or on that of two hosts that share a database.

    Clients verify the chain after each change, and with it that its times go forward.
    """
    clock = clocks_apart() if request.param else utc_now
    return make_bench(clock=clock, webhook_reach="private")


@pytest.fixture
def app(bench: Bench) -> ASGIApp:
    return build_app(bench.storage, dataclasses.replace(bench.settings, embedder="none"))


async def begun(bench: Bench, app: ASGIApp) -> Day:
    """A managed account, founded by the route for it."""
    transport = Noting(app)
    account = await MemoryClient.create_account(BASE_URL, custody="managed", transport=transport)
    client = MemoryClient(
        url=BASE_URL,
        account_id=account.account_id,
        private_key=account.private_key,
        relayer_key=account.relayer_key,
        transport=transport,
    )
    signer = Signer(
        identity=Identity(bytes.fromhex(account.private_key)), account=account.account_id
    )
    raw = httpx.AsyncClient(transport=transport, base_url=BASE_URL, auth=signer)
    name = parse_account(account.account_id)
    day = Day(bench, transport, changing_routes(app), name, client, raw)
    ops = await day._ops(0)
    assert ops == ["grant", "grant"]
    day.note(day._requested(), ops)
    return day


async def test_every_route_that_changes_something_leaves_receipts(
    bench: Bench, app: ASGIApp
) -> None:
    day = await begun(bench, app)
    for part in (
        remembering, correcting, turns, keys, lost_rows, consolidating, expiring, untold,
        memwal, rotating, forgetting, closing,
    ):  # fmt: skip
        await part(day)
    assert day.routes - day.told == UNTOLD.keys()
    assert day.asked - day.told == UNTOLD.keys()
    assert day.ops == OPERATIONS - {REBUILD}  # which no request makes


def test_the_specification_marks_the_same_routes(app: ASGIApp) -> None:
    """**R**: what changes something names its relayer."""
    marked = re.findall(
        r"^\| (POST|PUT|PATCH|DELETE) `(/v1/[^`]+)` [^|]*\bR\b", SPEC.read_text(), re.M
    )
    wanted = {f"{method} {re.sub(r'{[^}]*}', '{}', path)}" for method, path in marked}
    routes = {re.sub(r"{[^}]*}", "{}", name) for name in changing_routes(app) if "/v1/" in name}
    assert routes == wanted


async def remembering(day: Day) -> None:
    client = day.client
    await day.leaves("remember", client.remember("Anna prefers tea."))
    await day.leaves("", client.remember("Anna prefers tea."))
    items = [{"text": "One."}, {"text": "Two.", "namespace": "shop"}]
    await day.leaves("remember remember", client.remember_many(items))
    await day.leaves("", client.remember_many(items))
    await day.leaves("analyze", client.analyze("Carol paints. She lives in Ghent."))


async def correcting(day: Day) -> None:
    client = day.client
    one = await day.leaves("remember", client.remember("The shop sells cups.", namespace="shop"))
    two = await day.leaves("remember", client.remember("The shop sells plates.", namespace="shop"))
    await day.leaves("edit", client.edit(one.id, text="The shop sells mugs."))
    await day.leaves("", client.edit(one.id, text="The shop sells mugs."))
    await day.leaves("state", client.pin(one.id))
    await day.leaves("", client.pin(one.id))
    await day.leaves("state", client.unpin(one.id))
    await day.leaves("state", client.reject(one.id))
    await day.leaves("state", client.approve(one.id))
    await day.leaves("state", client.supersede(one.id, by=two.id))
    await day.leaves("state", client.reinstate(one.id))


async def turns(day: Day) -> None:
    """What was edited away is said by the kept turn still, and stored anew."""
    client = day.client
    await day.leaves("", client.change_settings(keep_turns=True))
    analyzed = await day.leaves("analyze", client.analyze("Dora plays chess on Sundays."))
    assert analyzed.turn_id is not None
    await day.leaves("", client.analyze_episode(analyzed.turn_id))
    await day.leaves("edit", client.edit(analyzed.facts[0].id, text="Dora plays go."))
    await day.leaves("analyze", client.analyze_episode(analyzed.turn_id))


async def keys(day: Day) -> None:
    key = await day.leaves("grant", day.client.add_key(namespaces=["shop"]))
    await day.leaves("revoke", day.client.revoke_key(key.public_key))


async def lost_rows(day: Day) -> None:
    """What a restore and an import bring back."""
    client = day.client
    kept = await day.leaves("remember", client.remember("The roof leaks."))
    records, _ = await client.export_page("memories", ids=[kept.id])
    await day.leaves("", client.import_page({"memories": records}))
    await day.lose(kept.id)
    await day.leaves("import", client.import_page({"memories": records}))
    await day.lose(kept.id)
    await day.leaves("restore", client.restore())
    await day.leaves("", client.restore())


async def consolidating(day: Day) -> None:
    client, when = day.client, datetime.now(UTC) - timedelta(weeks=9)
    monday = when - timedelta(days=when.weekday())
    for n, text in enumerate(MEETINGS):
        moment = monday + timedelta(days=n)
        told = client.remember(text, kind="episodic", event_time=moment, namespace="diary")
        await day.leaves("remember", told)
    for text in (TEA, TEA_AGAIN):
        await day.leaves("remember", client.remember(text, namespace="diary"))
    run = await day.leaves("state consolidate", consolidated(day))
    await day.leaves("forget state", client.undo_consolidation(run))


async def consolidated(day: Day) -> str:
    """A run, asked for by the request and done by what it queued."""
    run = await day.client.consolidate(namespace="diary")
    work = day.bench.services.consolidator.work
    keys = await day.bench.storage.custody.job_keys(day.account)
    assert keys is not None
    assert await work(day.account, keys, uuid.UUID(run.id), always)
    return run.id


async def expiring(day: Day) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    brief = await day.leaves("remember", day.client.remember("For now.", expires_at=soon))
    await day.bench.sql(
        "UPDATE memories SET expires_at = now() - interval '1 h' WHERE memory_id = $1",
        uuid.UUID(brief.id),
    )
    await day.leaves("expire", day.bench.services.expiry.expire())


async def untold(day: Day) -> None:
    """These have been read by somebody who had to say why; nothing of the chain moves."""
    client = day.client
    await day.leaves("", client.set_ttl("shop", 3600))
    await day.leaves("", client.set_ttl("shop", None))
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody_listens.getsockname()[1]}/"
        hook = await day.leaves("", client.put_webhook(url))
        tried = await day.leaves("", client.try_webhook(hook.id))
    assert not tried.delivered
    assert (await day.leaves("", client.remove_webhook(hook.id))).removed


async def memwal(day: Day) -> None:
    await day.leaves("remember", day.post("/api/remember", text="Emil has a boat."))
    items = [{"text": "Fay has a car."}, {"text": "Gus has a bike."}]
    await day.leaves("remember", day.post("/api/remember/bulk", items=items))
    await day.leaves("analyze", day.post("/api/analyze", text="I decided to move to Lisbon."))
    data = base64.b64encode(b"a client's own ciphertext").decode()
    upload = {"encrypted_data": data, "vector": [1.0, 2.0, 3.0]}
    await day.leaves("remember", day.post("/api/remember/manual", **upload, namespace="uploads"))
    await day.leaves("forget", day.post("/api/forget", namespace="uploads"))
    lost = await day.leaves("remember", day.client.remember("Hal has a kite."))
    await day.lose(lost.id)
    await day.leaves("restore", day.post("/api/restore", namespace="default"))


async def rotating(day: Day) -> None:
    account, client = day.account, day.client
    await day.leaves("grant grant", client.rotate(reseal="all"))
    keys = await day.bench.storage.custody.reseal_keys(account)
    assert keys is not None
    sealing = day.bench.services.resealer.work(account, keys, always)
    # Memories of three namespaces, and the turn that is kept.
    await day.leaves("reseal reseal reseal reseal", sealing)
    await day.leaves("", client.reseal("all"))
    await day.leaves("grant grant", client.retire_epochs())


async def forgetting(day: Day) -> None:
    client = day.client
    one, two = await client.remember_many([{"text": "Three."}, {"text": "Four."}])
    await day.leaves("forget", client.forget(one.id))
    await day.leaves("", client.forget(one.id))
    await day.leaves("forget", client.forget_many([two.id, one.id, str(uuid.uuid4())]))
    await day.leaves("forget", client.forget_matching(namespace="shop", kind="fact"))
    await day.leaves("", client.forget_matching(namespace="shop", kind="fact"))
    await day.leaves("forget", client.forget_namespace("diary"))
    assert (await client.verify(open_all=True)).findings == ()


async def closing(day: Day) -> None:
    await day.leaves("close", day.client.close_account())


def test_what_is_sealed_anew_is_proven_at_every_moment(relayer: RunningRelayer) -> None:
    """A rotation's pages come between the parts of a verification, which looks again."""
    account = relayer.command("account", "create", "--custody", "managed")
    options = {name: account[name] for name in ("account_id", "private_key", "relayer_key")}
    with SyncMemoryClient(url=relayer.url, **options) as client:
        stored = client.remember_many([f"Note {n}." for n in range(30)])
        client.edit(stored[0].id, text="Note zero, corrected.")
        client.pin(stored[1].id)
        client.rotate(reseal="all")
        while client.rotation().remaining:
            assert client.verify().findings == ()
        found = client.verify(open_all=True)
        assert found.findings == ()
        assert found.opened == 31
