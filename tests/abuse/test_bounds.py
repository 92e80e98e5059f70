"""Queues, lines and caches: each has an end, and no account's fill keeps another one out."""

import ast
import asyncio
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pgqueuer import AsyncpgDriver, Queries
from pgqueuer.ports.repository import EntrypointExecutionParameter
from pgqueuer.types import QueueEntrypoint, QueueManagerId

from relayer.clock import to_ms
from relayer.concurrency import ConcurrencyLimit, pause_slot
from relayer.database import queue
from relayer.embedding.building import for_storing
from relayer.embedding.cache import CachedEmbedder, CoalescingEmbedder
from relayer.embedding.runs import Runs
from relayer.errors import RateLimited, Unavailable
from relayer.events.streams import Streams
from relayer.sealed.keys import Namespace
from relayer.settings import Limits
from relayer.tenants import accounts, custody, namespaces, ring
from relayer.tenants import unlock_cache as headers
from tests.services import Bench

ROOT = Path(__file__).parents[2]
ONE, OTHER = b"one account", b"another one"
COLLECTIONS = {"dict", "OrderedDict", "deque", "set", "list", "Counter", "defaultdict", "Queue"}


# Slots of one account


class Desk:
    """Requests that begin when they have a slot and end when they are told to."""

    def __init__(self, at_once: int = 2, waiting_max: int = 4) -> None:
        self.limit = ConcurrencyLimit(at_once=at_once, waiting_max=waiting_max)
        self.begun: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def ask(self, name: str, account: bytes = ONE, *, abroad: bool = False) -> None:
        """A request comes in."""
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._work(name, account, abroad=abroad))
        await settled()

    async def _work(self, name: str, account: bytes, *, abroad: bool) -> None:
        slot = await self.limit.acquire(account)
        try:
            self.begun.append(name)
            if abroad:
                async with pause_slot():
                    await self._ends[name].wait()
                self.begun.append(f"{name} again")
            else:
                await self._ends[name].wait()
        finally:
            slot.release()
            slot.release()

    async def end(self, name: str) -> None:
        """It is done."""
        self._ends[name].set()
        await settled()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_account_waits_for_itself_only() -> None:
    desk = Desk()
    for name in ("a", "b", "c", "d"):
        await desk.ask(name)
    await desk.ask("quiet", OTHER)
    assert desk.begun == ["a", "b", "quiet"]
    await desk.end("b")
    assert desk.begun == ["a", "b", "quiet", "c"]
    for name in ("a", "c", "d", "quiet"):
        await desk.end(name)
    assert desk.begun == ["a", "b", "quiet", "c", "d"]
    assert vars(desk.limit)["_queues"] == {}, "nothing is kept of accounts without requests"


async def test_a_line_has_an_end() -> None:
    desk = Desk()
    for number in range(2 + 4):
        await desk.ask(str(number))
    with pytest.raises(RateLimited) as refused:
        await desk.limit.acquire(ONE)
    assert (refused.value.code, refused.value.headers) == ("rate.at_once", {"retry-after": "1"})
    await desk.ask("quiet", OTHER)
    assert desk.begun[-1] == "quiet"
    for number in range(2 + 4):
        await desk.end(str(number))
    await desk.end("quiet")


async def test_who_gives_up_waiting_takes_nobodys_place() -> None:
    desk = Desk(at_once=1)
    for name in ("a", "b", "c"):
        await desk.ask(name)
    desk.tasks["b"].cancel()
    await settled()
    await desk.end("a")
    assert desk.begun == ["a", "c"]
    await desk.end("c")
    assert vars(desk.limit)["_queues"] == {}


async def test_who_gives_up_at_its_turn_passes_it_on() -> None:
    desk = Desk(at_once=1)
    first = await desk.limit.acquire(ONE)
    for name in ("b", "c"):
        await desk.ask(name)
    first.release()
    desk.tasks["b"].cancel()  # the slot is its own by now, and it has not noticed
    await settled()
    assert desk.begun == ["c"]
    await desk.end("c")
    assert vars(desk.limit)["_queues"] == {}


async def test_who_waits_for_a_model_holds_no_place() -> None:
    desk = Desk(at_once=1)
    await desk.ask("asks a model", abroad=True)
    await desk.ask("b")
    assert desk.begun == ["asks a model", "b"]
    await desk.end("asks a model")
    assert desk.begun == ["asks a model", "b"], "it waits for its slot"
    await desk.end("b")
    assert desk.begun[2:] == ["asks a model again"]
    assert vars(desk.limit)["_queues"] == {}


async def test_one_that_is_stopped_outside_gives_nothing_twice() -> None:
    desk = Desk(at_once=1)
    await desk.ask("asks a model", abroad=True)
    await desk.ask("b")
    desk.tasks["asks a model"].cancel()
    await settled()
    await desk.ask("c")
    assert desk.begun == ["asks a model", "b"], "b alone has the slot"
    for name in ("b", "c"):
        await desk.end(name)
    assert vars(desk.limit)["_queues"] == {}


async def test_one_that_is_stopped_outside_waits_no_more() -> None:
    desk = Desk(at_once=1)
    await desk.ask("asks a model", abroad=True)
    await desk.ask("b")
    desk.tasks["asks a model"].cancel()
    await settled()
    assert desk.tasks["asks a model"].cancelled()
    await desk.end("b")
    assert vars(desk.limit)["_queues"] == {}


async def test_a_failure_outside_comes_back_to_its_slot() -> None:
    limit = ConcurrencyLimit(at_once=1, waiting_max=1)
    slot = await limit.acquire(ONE)
    with pytest.raises(ValueError, match="away"):
        async with pause_slot():
            raise ValueError("away")
    waiting = asyncio.create_task(limit.acquire(ONE))
    await settled()
    assert not waiting.done(), "the first has its slot again"
    slot.release()
    (await waiting).release()
    assert vars(limit)["_queues"] == {}


# Runs of the model


async def test_a_question_goes_before_batches_that_came_earlier() -> None:
    runs, done, first = Runs(), [], threading.Event()

    async def run(name: str, cost: int) -> None:
        done.append(await runs.run(cost, lambda: (first.wait(), name)[1]))

    tasks = [asyncio.create_task(run("batch 1", 120)), asyncio.create_task(run("batch 2", 120))]
    await settled()
    tasks += [asyncio.create_task(run("gives up", 2)), asyncio.create_task(run("question", 9))]
    await settled()
    tasks[2].cancel()
    first.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    runs.close()
    assert done == ["batch 1", "question", "batch 2"]


async def test_a_run_that_fails_or_is_given_up_stops_no_other() -> None:
    runs, first = Runs(), threading.Event()
    given_up = asyncio.create_task(runs.run(1, first.wait))
    await settled()
    fails = asyncio.create_task(runs.run(1, int, "no number"))
    works = asyncio.create_task(runs.run(1, int, "7"))
    given_up.cancel()  # the thread goes on with it
    await settled()
    first.set()
    with pytest.raises(ValueError, match="no number"):
        await fails
    assert await works == 7
    runs.close()


@pytest.mark.parametrize("late_first", [False, True])
async def test_runs_that_wait_at_the_end_are_given_up(late_first: bool) -> None:
    runs, first = Runs(), threading.Event()
    under_way = asyncio.create_task(runs.run(1, first.wait))
    waits = asyncio.create_task(runs.run(1, int))
    await settled()

    async def closed() -> None:
        while True:
            vars(runs)["_workers"].submit(int)
            await settled()

    closing = asyncio.create_task(asyncio.to_thread(runs.close))
    with pytest.raises(RuntimeError, match="after shutdown"):
        await closed()
    if late_first:  # while a thread still works
        with pytest.raises(Unavailable, match="stops"):
            await runs.run(1, int)
    first.set()
    await closing
    assert await under_way
    async with asyncio.timeout(20):
        for late in (waits, runs.run(1, int)):
            with pytest.raises(Unavailable, match="stops"):
                await late
    assert not vars(runs)["_waiting"]


def test_what_is_stored_is_not_embedded_together_with_queries(embedder: Any) -> None:
    queries = CachedEmbedder(
        inner=CoalescingEmbedder(inner=embedder), entries_max=1, secret=bytes(32)
    )
    assert for_storing(queries) is embedder
    assert for_storing(None) is None


# The queue of jobs: what an account may have of it is in `test_fair_work.py`


async def taken(bench: Bench) -> str:
    """Whose job is taken next; its worker puts it back after a slice that was not enough."""
    async with bench.storage.database.connection() as connection:
        queries = Queries(AsyncpgDriver(connection))
        [job] = await queries.dequeue(
            1,
            {QueueEntrypoint(queue.RESEAL): EntrypointExecutionParameter(concurrency_limit=1)},
            QueueManagerId(uuid.uuid4()),
            None,
            timedelta(seconds=30),
        )
        await queue.step_behind(bench.storage.database, job.id)
        await queries.retry_job(job, timedelta(0), None)
    return queue.decode_payload(job.payload)[0].hex()


async def test_long_jobs_take_turns(bench: Bench) -> None:
    """By age alone, the two oldest would take turns for ever, and the others wait for them."""
    accounts = [(await bench.account()).account for _ in range(4)]
    async with bench.storage.database.connection() as connection:
        for account in accounts:
            await queue.enqueue(connection, queue.RESEAL, account)
    turns = [await taken(bench) for _ in range(3 * len(accounts))]
    assert turns == 3 * [account.hex() for account in accounts]


async def test_a_slice_is_not_an_attempt_that_failed(bench: Bench) -> None:
    """Else the first fault behind many slices would be waited for as the last of many in a row."""
    account = (await bench.account()).account
    async with bench.storage.database.connection() as connection:
        await queue.enqueue(connection, queue.RESEAL, account)
    for _ in range(3):
        await taken(bench)
    assert await bench.value("SELECT attempts FROM pgqueuer") == 0


# Streams


async def test_streams_of_all_accounts_are_counted_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Limits, "streams_max", 3)
    streams = Streams(
        database=bench.storage.database,
        accounts=bench.storage.accounts,
        relayers=bench.storage.relayers,
        embeds=False,
        stopping=asyncio.Event(),
        clock=bench.clock,
    )
    accesses = [(await bench.caller(await bench.account())).access for _ in range(4)]
    opened = [await streams.open(access, None) for access in accesses[:3]]
    with pytest.raises(RateLimited):
        await streams.open(accesses[3], None)
    await opened[0].aclose()
    assert await anext(await streams.open(accesses[3], None))


# Caches


async def many_accounts(bench: Bench) -> None:
    for number in range(6):
        founder = await bench.account("sealed")
        caller = await bench.unlocked(founder, Namespace(f"n{number}"), hold_s=60)
        await bench.remember(caller, "Anna prefers tea.", namespace=Namespace(f"n{number}"))
        await bench.caller(await bench.account("managed"))


CACHES: list[tuple[Any, str, Callable[[Bench], Any]]] = [
    (accounts, "CHAINS_MAX", lambda b: vars(b.storage.accounts)["_chains"]),
    (namespaces, "CACHED_MAX", lambda b: vars(b.storage.namespaces)["_known"]),
    (headers, "KEYS_MAX", lambda b: vars(vars(b.storage.custody)["_opened"])["_opened"]),
    (custody, "ROOTS_MAX", lambda b: vars(b.storage.custody)["_roots"]),
    (ring, "ACCOUNTS_MAX", lambda b: vars(vars(b.storage.custody)["_ring"])["_accounts"]),
]


@pytest.mark.parametrize(("module", "name", "cache"), CACHES, ids=[c[1] for c in CACHES])
async def test_a_cache_keeps_no_more_than_its_maximum(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    cache: Callable[[Bench], Any],
) -> None:
    monkeypatch.setattr(module, name, 2)
    await many_accounts(bench)
    assert len(cache(bench)) == 2


async def test_opened_headers_have_so_many_keys_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few headers bring them."""
    kept = vars(bench.storage.custody)["_opened"]
    monkeypatch.setattr(headers, "KEYS_MAX", 7)
    founder = await bench.account("sealed")
    for _ in range(3):
        await bench.unlocked(founder, Namespace("a"), Namespace("b"), Namespace("c"))
    assert len(vars(kept)["_opened"]) == 2
    kept.forget_expired(to_ms(bench.clock()) + 1000 * Limits.clock_skew_s_max + 60_000)
    assert (vars(kept)["_opened"], vars(kept)["_shares"], vars(kept)["_keys"]) == ({}, {}, 0)


async def test_an_account_of_many_headers_pushes_out_its_own(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others do not pay for them by opening theirs anew."""
    kept = vars(bench.storage.custody)["_opened"]
    monkeypatch.setattr(headers, "KEYS_MAX", 9)
    quiet, busy, third = [await bench.account("sealed") for _ in range(3)]
    for founder in (quiet, *[busy] * 20, third, *[busy] * 20):
        await bench.unlocked(founder, Namespace("a"), Namespace("b"))
    shares = {account: share.keys for account, share in vars(kept)["_shares"].items()}
    assert shares == {quiet.account: 2, busy.account: 4, third.account: 2}


async def test_an_accounts_derived_keys_are_so_many(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of names that nobody has: whoever asks makes them up."""
    monkeypatch.setattr(custody, "DERIVED_MAX", 3)
    keys = (await bench.caller(await bench.account())).keys
    for number in range(10):
        assert keys.of(Namespace(f"n{number}"))
    assert isinstance(keys, custody.RootKeys)
    assert 0 < len(vars(keys)["_derived"]) <= 3


async def test_chains_that_are_kept_have_so_many_bytes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    chains = vars(bench.storage.accounts)["_chains"]
    for _ in range(3):
        await bench.caller(await bench.account())
    one = max(chain.bytes for chain in chains.values())
    monkeypatch.setattr(accounts, "CHAINS_BYTES_MAX", 2 * one)
    await many_accounts(bench)
    assert 0 < sum(chain.bytes for chain in chains.values()) <= 2 * one


# What grows in an object that lives as long as the process → what ends it. Objects of one request,
# answer, file or chain have its size.
GROWS = {
    "relayer/journal/outbox.py Outbox._unmarked": "accounts written to while the store is away",
    "relayer/recovery/restore.py Restore._resting": "accounts that were rebuilt or set back",
    "relayer/http/rate_limits.py FullKeys._used": "keys whose windows are filled in one minute",
    "relayer/affinity.py Affinity._entering": "connections that were handed over a moment ago",
    "relayer/http/acceptor.py Acceptor._entering": "connections that were accepted a moment ago",
    "relayer/tenants/key_uses.py KeyUses._due": "KEYS_MAX",
    "relayer/tenants/key_uses.py KeyUses._stored": "KEYS_MAX",
    "relayer/tenants/recall_counts.py RecallCounts._due": "MEMORIES_MAX",
    "relayer/tenants/accounts.py Accounts._chains": "CHAINS_MAX",
    "relayer/tenants/accounts.py Accounts._continuing": "requests under way",
    "relayer/tenants/unlock_directory.py UnlockDirectory._believed": "READ_MAX",
    "relayer/blobs/cache.py CachedStore._kept": "_bytes_max",
    "relayer/tenants/unlock_cache.py UnlockCache._opened": "KEYS_MAX",
    "relayer/tenants/unlock_cache.py UnlockCache._shares": "KEYS_MAX",
    "relayer/tenants/custody.py Custody._roots": "ROOTS_MAX",
    "relayer/database/pool.py Batches._tasks": "UNDER_WAY_MAX",
    "relayer/database/pool.py Batches._waiting": "requests under way",
    "relayer/database/pool.py Database._returning": "one, and one more a second while one lasts",
    "relayer/database/pool.py Database._warm": "connections of the pool",
    "relayer/embedding/graph.py Graph._nodes": "one model",
    "relayer/embedding/graph.py Graph._tensors": "one model",
    "relayer/embedding/cache.py CachedEmbedder._entries": "_entries_max",
    "relayer/embedding/cache.py CoalescingEmbedder._waiting": "_waiting_max",
    "relayer/embedding/cache.py CoalescingEmbedder._flights": "_flights_max",
    "relayer/embedding/models.py Embedders._away_until": "SLOW_MAX",
    "relayer/embedding/older.py OlderEmbedders._closing": "dropped ones, each closed at once",
    "relayer/embedding/older.py OlderEmbedders._held": "OTHERS_MAX",
    "relayer/embedding/runs.py Runs._waiting": "calls under way, one run of each",
    "relayer/jobs.py Worker._leaving": "one besides the present connection's",
    "relayer/memories/index_batches.py BatchedIndexer._waiting": "jobs at once",
    "relayer/memories/partial.py Partials._kept": "BYTES_MAX",
    "relayer/events/delivery.py Delivery._telling": "AT_ONCE_MAX",
    "relayer/events/egress.py Poster._asking": "LOOKUPS_MAX",
    "relayer/events/streams.py Streams._open": "open streams",
    "relayer/events/streams.py _Watch.waiting": "WATCHED_MAX",
    "relayer/sweeper.py Sweeper._resting": "swept when their hour is over",
    "relayer/sweeper.py Sweeper._resuming": "RESUMING_MAX",
    "relayer/tenants/namespaces.py Namespaces._known": "CACHED_MAX",
    "relayer/tenants/namespaces.py Namespaces._settling": "SETTLING_MAX",
    "relayer/postgres/embedded.py EmbeddedPostgres._passwords": "two roles",
    "relayer/query/vectors.py QueryEmbedder._used": "KEPT_MAX",
    "relayer/memory_index/ahead.py AheadLoader._known": "KNOWN_MAX",
    "relayer/memory_index/ahead.py AheadLoader._waiting": "WAITING_MAX",
    "relayer/memory_index/index.py MemoryIndex._asked": "ASKED_MAX",
    "relayer/memory_index/index.py MemoryIndex._entries": "_bytes_max",
    "relayer/memory_index/rows.py RecentRows._rows": "_bytes_max",
    "relayer/memory_index/sealed.py SealedNamespaces._entries": "_bytes_max",
    "relayer/memory_index/index.py MemoryIndex._reading": "READING_MAX",
    "relayer/tenants/ring.py KeyRing._accounts": "ACCOUNTS_MAX",
    "relayer/serve.py _Server._acceptors": "addresses of the host",
    "relayer/concurrency.py ConcurrencyLimit._queues": "accounts with requests under way",
    "relayer/concurrency.py _Queue.waiting": "_waiting_max",
    "relayer/http/requests.py RequestCounts._series": "SERIES_MAX",
    "relayer/http/requests.py RequestCounts._under_way": "methods and routes",
    "relayer/tenants/unlock_key_pairs.py MadeKeys._keys": "forgotten after their life of a day",
    "relayer/workers/supervisor.py Crew._alive": "places, those that begin and those that leave",
    "relayer/workers/supervisor.py Crew._uncounted": "workers that ended while counts were read",
    "relayer/workers/supervisor.py Crew._workers": "places",
    "client/memrelay/gateway/capture.py Captures._lines": "agents with keys",
    "client/memrelay/gateway/debounce.py Debounce._turns": "_SESSIONS_MAX",
    "client/memrelay/gateway/hooks.py Gateway._tasks": "each ends at its deadline",
    "client/memrelay/gateway/outage.py Outages._failures": "_PLACES_MAX",
    "client/memrelay/gateway/roster.py Roster._own": "files of keys",
    "client/memrelay/gateway/roster.py Roster._replaced": "files of keys that were replaced",
    "client/memrelay/gateway/roster.py Roster._told": "warnings, one of a kind and agent",
    "client/memrelay/gateway/serve.py Server._connections": "CONNECTIONS_MAX",
    "client/memrelay/gateway/sessions.py Sessions._began": "_sessions_max",
    "client/memrelay/gateway/skipped.py SkippedRuns._sessions": "_names_max",
    "client/memrelay/gateway/skipped.py SkippedRuns._hashes": "_HASHES_MAX",
    "client/memrelay/gateway/spool.py Spool._memory": "_bytes_max",
    "client/memrelay/hermes/session_tracker.py Conversation._window": "a deque of fixed length",
    "client/memrelay/hermes/session_tracker.py Conversation._captured": "one session's messages",
    "client/memrelay/hermes/session_tracker.py Conversation._begun": "_TURNS_BEGUN",
    "client/memrelay/hermes/mirror.py Mirror._changes": "each ends at its deadline",
    "client/memrelay/gateway/erasures.py Erasures._sessions": "_names_max",
    "client/memrelay/openai/responses.py ResponsesTurn._output": "items of one answer",
    "client/memrelay/openai/turns.py BoundedMap._entries": "ENTRIES_MAX",
    "client/memrelay/sealed/receipts.py Heads._taken": "HEADS_MAX",
    "client/memrelay/session.py Session._headers": "_HEADERS_MAX",
}
SHORT_LIVED = (
    "relayer/extraction/support.py Evidence.",
    "relayer/query/rank.py Copies.",
    "relayer/sealed/grants.py Chain.",
    "client/memrelay/commands/imports.py _Import.",
    "client/memrelay/commands/trial.py _Failures.",
    "client/memrelay/events.py EventReader.",
    "client/memrelay/evidence.py PromisedObjects.",
    "client/memrelay/importing/",
    "client/memrelay/installing/json_text.py _Parser.",
    "client/memrelay/sealed/ledger.py ",
)


def growing() -> set[str]:
    """Every attribute that a constructor makes an empty collection."""
    found = set()
    for package in ("relayer", "client/memrelay"):
        for path in (ROOT / package).rglob("*.py"):
            for owner in ast.walk(ast.parse(path.read_text())):
                if isinstance(owner, ast.ClassDef):
                    place = f"{path.relative_to(ROOT)} {owner.name}."
                    found |= {place + name for name in collections_of(owner)}
    return {name for name in found if not name.startswith(SHORT_LIVED)}


def collections_of(owner: ast.ClassDef) -> set[str]:
    found = set()
    for function in owner.body:
        if isinstance(function, ast.FunctionDef) and function.name == "__init__":
            for node in ast.walk(function):
                if not isinstance(node, ast.Assign | ast.AnnAssign):
                    continue
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                if isinstance(target, ast.Attribute) and is_empty(node.value):
                    found.add(target.attr)
    return found


def is_empty(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, ast.List):
        return not value.elts
    if not isinstance(value, ast.Call) or value.args:
        return False
    return ast.unparse(value.func).rpartition(".")[2] in COLLECTIONS


def test_whatever_grows_is_known_to_end() -> None:
    """A new cache or queue says here what bounds it."""
    assert growing() == GROWS.keys()


@pytest.mark.parametrize(
    "place", [p for p, bound in GROWS.items() if bound.strip("_").isidentifier()]
)
def test_the_bound_is_looked_at_where_it_grows(place: str) -> None:
    source = (ROOT / place.partition(" ")[0]).read_text()
    assert source.count(GROWS[place]) >= 2, "defined or taken, and compared with"
