"""MemWal's unmodified clients against a real relayer process and a managed account.

Not here: the stand-in for the blockchain byte by byte (`test_sui.py`).
"""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
import pytest_asyncio
from memwal import MemWal, RecallParams
from memwal.types import (
    RecallManualOptions,
    RememberBulkItem,
    RememberBulkOptions,
    ScoringWeights,
)

from relayer.postgres.embedded import EmbeddedPostgres
from relayer.sealed.keys import Identity
from tests.conftest import TestDatabase, database_copy
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, openai_server
from tests.processes import RunningRelayer, running_relayer
from tests.signing import Signer

FLOW = Path(__file__).parent.with_name("memwal_flow.py")
FAST = RememberBulkOptions(poll_interval_ms=100)
# The newest release; its declared dependencies are newer than what it needs.
MEMWAL_NEXT = Path(__file__).parents[2] / "deploy/requirements/memwal-next.txt"


@dataclass(frozen=True)
class Desk:
    """A running relayer and a managed account on it."""

    relayer: RunningRelayer
    database: TestDatabase
    private_key: str
    account: str

    def client(self, namespace: str | None = None) -> MemWal:
        """The SDK as its users make it; a namespace of its own for each test."""
        return MemWal.create(
            self.private_key,
            self.account,
            server_url=self.relayer.url,
            namespace=namespace or str(uuid.uuid4()),
        )

    def signer(self) -> Signer:
        return Signer(identity=Identity(bytes.fromhex(self.private_key)), account=self.account)


def desk_of(relayer: RunningRelayer, database: TestDatabase) -> Desk:
    made = relayer.command("account", "create", "--custody", "managed")
    return Desk(relayer, database, made["private_key"], made["account_id"])


@pytest.fixture(scope="module")
def model() -> Iterator[OpenAIServer]:
    with openai_server() as server:
        yield server


@pytest_asyncio.fixture(scope="module")
async def databases(
    postgres: EmbeddedPostgres, template: str
) -> AsyncIterator[tuple[TestDatabase, TestDatabase]]:
    """One for each relayer: they have identities of their own, so they are no replicas."""
    async with database_copy(postgres, template) as one, database_copy(postgres, template) as two:
        yield one, two


@pytest.fixture(scope="module")
def desk(
    databases: tuple[TestDatabase, TestDatabase],
    model: OpenAIServer,
    model_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Desk]:
    """A relayer with the built-in embedder and a language model."""
    with running_relayer(
        tmp_path_factory.mktemp("memwal") / "data",
        model_dir,
        database_url=databases[0].url,
        RELAYER_LLM_MODEL=CHAT_MODEL,
        OPENAI_BASE_URL=model.base_url,
        OPENAI_API_KEY=API_KEY,
    ) as relayer:
        yield desk_of(relayer, databases[0])


@pytest.fixture(scope="module")
def plain_desk(
    databases: tuple[TestDatabase, TestDatabase],
    model_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Desk]:
    """A relayer with the built-in embedder only."""
    with running_relayer(
        tmp_path_factory.mktemp("plain") / "data", model_dir, database_url=databases[1].url
    ) as relayer:
        yield desk_of(relayer, databases[1])


# Each call


async def test_the_flags_of_memwals_own_relayer_are_named(desk: Desk) -> None:
    """Its tests look for `runtime.versionEndpoint`; all six hold here."""
    async with httpx.AsyncClient(base_url=desk.relayer.url) as raw:
        flags = (await raw.get("/version")).json()["featureFlags"]
    theirs = {
        "auth.accountBoundNonce", "auth.sealSessionHeader", "config.publicDeploymentMetadata",
        "remember.asyncJobs", "remember.bulk", "runtime.versionEndpoint",
    }  # fmt: skip
    assert {name for name, holds in flags.items() if holds is True} >= theirs


async def test_health_and_the_version_contract(desk: Desk) -> None:
    async with desk.client() as client:
        health = await client.health()
        metadata = await client.compatibility()
    assert (health.status, health.mode) == ("ok", "relayer")
    assert health.api_version == metadata["apiVersion"] == "1.0.0"
    assert metadata["minSupportedSdk"]["python"] == "0.1.0"


async def test_remember_wait_recall(desk: Desk) -> None:
    """capability 0.4: what a MemWal client remembers is sealed and found by meaning.
    capability 0.10: a recall in a namespace is ranked by vector distance.
    capability 0.32: a memory is accepted at once.
    """
    async with desk.client() as client:
        accepted = await client.remember("Anna prefers green tea in the morning.")
        stored = await client.wait_for_remember_job(accepted.job_id, poll_interval_ms=100)
        await client.remember_and_wait("The invoice is due on Friday.", poll_interval_ms=100)
        found = await client.recall(RecallParams(query="a hot drink Anna enjoys at breakfast"))
    assert accepted.status == "pending"
    assert (stored.id, stored.owner) == (accepted.job_id, desk.account)
    assert [m.text for m in found.results] == [
        "Anna prefers green tea in the morning.",
        "The invoice is due on Friday.",
    ]
    distances = [m.distance for m in found.results]
    assert distances == sorted(distances)
    assert found.results[0].blob_id == stored.blob_id
    assert found.results[0].created_at is not None
    assert found.dropped_count == 0


async def test_what_was_just_said_is_found_before_its_vector_is(desk: Desk) -> None:
    async with desk.client() as client:
        await client.remember("Bob's locker number is 4711.")
        found = await client.recall(RecallParams(query="locker 4711"))
    assert [m.text for m in found.results] == ["Bob's locker number is 4711."]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Ticket QX-7731 blocks the release.", "QX-7731"),
        ("Anna's sister is called Wilhelmina.", "Wilhelmina"),
        ("The deploy command is `make ship-eu`.", "ship-eu"),
    ],
)
async def test_a_keyword_hit_is_near_enough_to_be_injected(
    desk: Desk, text: str, query: str
) -> None:
    """capability 0.12: the plugin injects what has 1 - distance >= 0.3, keyword hits too."""
    async with desk.client() as client:
        await client.remember_bulk_and_wait(
            [RememberBulkItem(text)]
            + [RememberBulkItem(f"Note {n} speaks of something else.") for n in range(5)],
            FAST,
        )
        found = await client.recall(RecallParams(query=query, limit=1))
    assert [m.text for m in found.results] == [text]
    assert found.results[0].distance < 0.7


async def test_bulk(desk: Desk) -> None:
    items = [RememberBulkItem(f"Fact number {n} of twenty.") for n in range(20)]
    async with desk.client() as client:
        accepted = await client.remember_bulk(items)
        done = await client.wait_for_remember_jobs(accepted.job_ids, FAST)
        status = await client.get_remember_bulk_status([*accepted.job_ids[:1], str(uuid.uuid4())])
    assert (accepted.total, len(set(accepted.job_ids))) == (20, 20)
    assert (done.succeeded, done.failed, done.timed_out) == (20, 0, 0)
    assert all(r.blob_id for r in done.results)
    assert [r.status for r in status.results] == ["done", "not_found"]


async def test_analyze_stores_each_fact_as_its_own_blob(desk: Desk) -> None:
    """capability 0.29: a MemWal client's conversation is analyzed in its namespace.
    capability 0.30: a conversation becomes single facts, each sealed for itself.
    """
    text = "FACT: Anna is allergic to peanuts.\nFACT: Anna moved to Lisbon in May."
    async with desk.client() as client:
        done = await client.analyze_and_wait(
            text, opts=FAST, occurred_at="2026-05-04T09:30:00+02:00"
        )
        found = await client.recall(RecallParams(query="Anna", limit=10))
    assert [f.text for f in done.facts] == [
        "Anna is allergic to peanuts.",
        "Anna moved to Lisbon in May.",
    ]
    assert (done.succeeded, done.owner) == (2, desk.account)
    assert len({r.blob_id for r in done.results}) == 2
    assert {m.text for m in found.results} == {f.text for f in done.facts}


async def test_analyze_without_a_language_model(plain_desk: Desk) -> None:
    """capability 1.21: durable facts, preferences and decisions are kept, chatter is not."""
    async with plain_desk.client() as client:
        done = await client.analyze_and_wait(
            "Thanks! I prefer window seats on long flights. What is the time?", opts=FAST
        )
        silent = await client.analyze("ok, thanks, bye")
    assert [f.text for f in done.facts] == ["I prefer window seats on long flights."]
    assert (silent.fact_count, silent.job_ids) == (0, [])


async def test_ask(desk: Desk) -> None:
    async with desk.client() as client:
        await client.remember_and_wait("Anna prefers green tea.", poll_interval_ms=100)
        answer = await client.ask("Which tea does Anna prefer?")
    assert answer.answer == "[1] Anna prefers green tea."
    assert answer.memories_used == len(answer.memories) == 1
    assert answer.memories[0].text == "Anna prefers green tea."


async def test_ask_without_a_language_model_says_so(plain_desk: Desk) -> None:
    async with plain_desk.client() as client:
        with pytest.raises(Exception, match="no language model; recall works without one"):
            await client.ask("Which tea does Anna prefer?")


async def test_restore_rebuilds_lost_rows_from_blobs(desk: Desk) -> None:
    """capability 0.5: the blobs alone bring a namespace back."""
    namespace = str(uuid.uuid4())
    texts = {"Anna prefers green tea.", "The invoice is due on Friday.", "Bob lives in Oslo."}
    async with desk.client(namespace) as client:
        await client.remember_bulk_and_wait([RememberBulkItem(t) for t in texts], FAST)
        await lose_rows(desk.database, namespace)
        empty = await client.recall(RecallParams(query="tea"))
        partly = await client.restore(namespace, limit=2)
        rest = await client.restore(namespace)
        again = await client.restore(namespace)
    assert empty.results == []
    assert (partly.restored, partly.total, partly.truncated) == (2, 3, True)
    assert (rest.restored, rest.skipped, rest.total, rest.truncated) == (1, 2, 3, False)
    assert (again.restored, again.skipped, again.failed) == (0, 3, 0)
    assert set(await listed(desk, namespace)) == texts


async def listed(desk: Desk, namespace: str) -> list[str]:
    """The texts of a namespace, newest first."""
    async with httpx.AsyncClient(base_url=desk.relayer.url, auth=desk.signer()) as raw:
        page = (await raw.get("/v1/memories", params={"namespace": namespace})).json()
    return [m["text"] for m in page["memories"]]


async def lose_rows(database: TestDatabase, namespace: str) -> None:
    """Delete every index row of a namespace; its blobs stay."""
    connection = await asyncpg.connect(**database.connect_args)
    try:
        chosen = "SELECT account_id, namespace_id FROM namespaces WHERE name = $1"
        for table in ("postings", "vectors", "memories"):
            await connection.execute(
                f"DELETE FROM {table} WHERE (account_id, namespace_id) IN ({chosen})", namespace
            )
    finally:
        await connection.close()


async def test_a_vector_finds_what_was_remembered(desk: Desk) -> None:
    """As MemWal's own relayer does, whose manual recall searches all vectors of a namespace."""
    async with desk.client(str(uuid.uuid4())) as client:
        tea = await client.remember_and_wait("Anna prefers tea.", poll_interval_ms=100)
        train = await client.remember_and_wait("Trains are late.", poll_interval_ms=100)
        vector = (await client.embed("Which tea does Anna drink?")).vector
        found = await client.recall_manual(RecallManualOptions(vector=vector))
        late = ScoringWeights(semantic=0.0, recency=100.0, recency_half_life_days=1e-3)
        newest = await client.recall_manual(
            RecallManualOptions(vector=vector, scoring_weights=late)
        )
    assert [hit.blob_id for hit in found.results] == [tea.blob_id, train.blob_id]
    assert [hit.blob_id for hit in newest.results] == [train.blob_id, tea.blob_id]
    assert found.results[0].distance < 0.7


async def test_weights_bring_a_score(desk: Desk) -> None:
    async with desk.client() as client:
        await client.remember("Anna prefers green tea.")
        plain = await client.recall(RecallParams(query="tea"))
        weights = ScoringWeights(recency=0.5)
        weighted = await client.recall(RecallParams(query="tea", scoring_weights=weights))
        sorted_by_it = await client.recall(
            RecallParams(query="tea", scoring_weights=weights, sort="relevance")
        )
    assert plain.results[0].score is None
    assert weighted.results[0].score is not None
    assert sorted_by_it.results[0].score is None


async def test_the_newest_of_those_that_answer_best(desk: Desk) -> None:
    """Five times as many as are asked for are looked at, so that age does not beat relevance."""
    teas = [f"Anna's tea number {n} is green." for n in range(6)]
    async with desk.client() as client:
        for text in (teas[0], "The invoice is due on Friday.", *teas[1:]):
            await client.remember_and_wait(text, poll_interval_ms=100)
        for n in range(10):
            await client.remember_and_wait(f"Train {n} to Oslo is late.", poll_interval_ms=100)
        question = "Which green tea does Anna drink?"
        one = await client.recall(RecallParams(query=question, limit=1, sort="recent"))
        two = await client.recall(RecallParams(query=question, limit=2, sort="recent"))
        with pytest.raises(Exception, match="sort"):
            await client.recall(RecallParams(query=question, sort="newest"))
    assert one.results[0].text in teas
    first, second = (memory.created_at or "" for memory in two.results)
    assert two.total == 2
    assert first > second


async def test_stats_and_forget(desk: Desk) -> None:
    body = {"namespace": str(uuid.uuid4())}
    async with (
        desk.client(body["namespace"]) as client,
        httpx.AsyncClient(base_url=desk.relayer.url, auth=desk.signer()) as raw,
    ):
        await client.remember_bulk_and_wait(
            [RememberBulkItem("Anna prefers tea."), RememberBulkItem("Bob prefers coffee.")], FAST
        )
        before = (await raw.post("/api/stats", json=body)).json()
        forgotten = (await raw.post("/api/forget", json=body)).json()
        after = (await raw.post("/api/stats", json=body)).json()
        found = await client.recall(RecallParams(query="tea"))
    own = body | {"owner": desk.account}
    assert before.items() >= (own | {"memory_count": 2}).items()
    assert before["storage_bytes"] >= 2 * 396  # the shortest envelope
    assert forgotten == own | {"deleted": 2}
    assert after.items() >= (own | {"memory_count": 0, "storage_bytes": 0}).items()
    assert found.results == []


async def test_the_same_text_is_stored_once(desk: Desk) -> None:
    """capability 1.23: a text is stored once, with and without an idempotency key."""
    namespace = str(uuid.uuid4())
    ids = []
    for _ in range(3):
        async with desk.client(namespace) as client:
            ids.append((await client.remember("Anna prefers green tea.")).job_id)
            ids += (
                await client.remember_bulk([RememberBulkItem("Anna prefers green tea.")])
            ).job_ids
            found = await client.recall(RecallParams(query="tea"))
    assert len(set(ids)) == 1
    assert len(found.results) == 1


async def test_two_agents_under_one_account_do_not_see_each_other(desk: Desk) -> None:
    """capability 0.33: another agent's namespace is refused, not empty.
    capability 0.34: one key for each agent, and a filter on the server.
    """
    names = [f"agent-{uuid.uuid4()}" for _ in range(2)]
    keys = [
        desk.relayer.command(
            "key",
            "add",
            "--account",
            desk.account,
            "--namespaces",
            name,
            "--role",
            "writer",
            "--label",
            name,
        )["private_key"]
        for name in names
    ]
    clients = [
        MemWal.create(key, desk.account, server_url=desk.relayer.url, namespace=name)
        for key, name in zip(keys, names, strict=True)
    ]
    async with clients[0] as anna, clients[1] as bob:
        await anna.remember_and_wait("Anna prefers green tea.", poll_interval_ms=100)
        own = await anna.recall(RecallParams(query="tea"))
        others = await bob.recall(RecallParams(query="tea"))
        with pytest.raises(Exception, match="not a reader"):
            await bob.recall(RecallParams(query="tea", namespace=names[0]))
        with pytest.raises(Exception, match="not a writer"):
            await bob.remember("Anna prefers coffee.", namespace=names[0])
        visible = await bob.list_namespaces()
    assert (len(own.results), len(others.results)) == (1, 0)
    assert visible.namespaces == []


async def test_namespaces_in_pages(desk: Desk) -> None:
    names = [f"page-{uuid.uuid4()}" for _ in range(3)]
    async with desk.client() as client:
        start = (await client.list_namespaces(limit=1000)).next_cursor
        for name in names:
            await client.remember("Anna prefers green tea.", namespace=name)
        first = await client.list_namespaces(cursor=start, limit=2)
        second = await client.list_namespaces(cursor=first.next_cursor, limit=2)
        nothing = await client.list_namespaces(cursor=second.next_cursor, limit=2)
        await client.remember("Anna prefers black tea.", namespace=names[0])
        changed = await client.list_namespaces(cursor=nothing.next_cursor)
    assert [n.name for n in first.namespaces + second.namespaces] == names
    assert [p.has_more for p in (first, second, nothing)] == [True, False, False]
    assert nothing.namespaces == []
    assert [(n.name, n.memory_count) for n in changed.namespaces] == [(names[0], 2)]
    assert changed.snapshot_version > nothing.snapshot_version


# The whole of it, with both releases


@pytest.fixture(scope="module")
def memwal_next(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the newest release, pinned by hash."""
    folder = tmp_path_factory.mktemp("memwal-next")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile",
         "--disable-pip-version-check", "--require-hashes", "--target", str(folder / "site"),
         "-r", str(MEMWAL_NEXT)],
        check=True,
        capture_output=True,
        timeout=120,
    )  # fmt: skip
    return folder / "site"


def run_flow(desk: Desk, namespace: str, path: str = "") -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(FLOW), desk.relayer.url, desk.private_key,
         desk.account, namespace],
        env=os.environ | {"PYTHONPATH": path},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def check_flow(desk: Desk, namespace: str, came: dict[str, Any]) -> None:
    assert (came["status"], came["api"]) == ("ok", "1.0.0")
    assert came["remembered"][2:] == [desk.account, namespace]
    assert came["bulk"] == [["done", True]] * 2
    assert came["analyzed"] == [1, ["I decided to move to Lisbon next year."]]
    assert came["recalled"][0][0] == "Anna prefers green tea."
    assert came["recalled"][0][1] < 0.7
    assert came["vector"] == 384
    assert came["manual"][0] == came["manual"][1]
    assert abs(came["manual"][2]) < 0.01
    assert came["restored"] == [0, 4, 4]
    assert [namespace, 5] in came["namespaces"]
    assert came["more"] == [False, False, 0]


def test_every_call_of_the_sdk(desk: Desk) -> None:
    namespace = f"flow-{uuid.uuid4()}"
    came = run_flow(desk, namespace)
    assert came["version"] == "0.1.12"
    check_flow(desk, namespace, came)


def test_every_call_of_the_next_sdk(desk: Desk, memwal_next: Path) -> None:
    namespace = f"flow-{uuid.uuid4()}"
    came = run_flow(desk, namespace, str(memwal_next))
    assert came["version"] == "0.2.1"
    check_flow(desk, namespace, came)


# What MemWal's plugin for OpenClaw sends

TURNS = [
    "I prefer window seats on long flights.",
    "We decided to ship the beta in October.",
    "Remember that my sister Wilhelmina is allergic to peanuts.",
    "The deadline of the grant proposal is 2026-11-30.",
    "I use Fedora on my laptop.",
]


@pytest.mark.parametrize("kind", ["desk", "plain_desk"])
async def test_each_fact_of_overlapping_windows_is_stored_once(
    desk: Desk, plain_desk: Desk, kind: str
) -> None:
    """capability 1.23: the plugin sends the last ten messages after every turn, without a key."""
    chosen = {"desk": desk, "plain_desk": plain_desk}[kind]
    namespace = str(uuid.uuid4())
    async with chosen.client(namespace) as client:
        for turn in range(1, len(TURNS) + 1):
            window = "\n\n".join(f"{n}. {text}" for n, text in enumerate(TURNS[:turn], start=1))
            await client.analyze(window)
        for _ in range(5):
            await client.analyze(window)
    assert await listed(chosen, namespace) == TURNS[::-1]


async def test_a_turn_of_the_plugin_with_its_retry(plain_desk: Desk) -> None:
    """It recalls, analyzes, and repeats the analyze with a new nonce and no idempotency key."""
    namespace = str(uuid.uuid4())
    window = {
        "text": "1. I prefer window seats on long flights.\n\n2. Window seats it is, then.",
        "namespace": namespace,
        "occurred_at": "2026-11-21T09:30:00.000Z",
    }
    asked = {"query": "Which seats do I prefer on long flights?", "limit": 5}
    async with httpx.AsyncClient(base_url=plain_desk.relayer.url, auth=plain_desk.signer()) as raw:
        before = (await raw.post("/api/recall", json=asked | {"namespace": namespace})).json()
        sent = [await raw.post("/api/analyze", json=window) for _ in range(2)]
        after = (await raw.post("/api/recall", json=asked | {"namespace": namespace})).json()
    nonces = {answer.request.headers["x-nonce"] for answer in sent}
    assert (before["results"], len(nonces)) == ([], 2)
    assert [answer.status_code for answer in sent] == [202, 202]
    assert [answer.json()["fact_count"] for answer in sent] == [1, 0]
    assert len(after["results"]) == 1
    assert 1 - after["results"][0]["distance"] >= 0.3  # what the plugin injects


# What raw clients may also send


@pytest.mark.parametrize(("method", "path"), [("POST", ""), ("GET", "/sse"), ("POST", "/messages")])
async def test_an_mcp_bridge_is_told_where_the_server_is(
    desk: Desk, method: str, path: str
) -> None:
    """It shows people the first 200 characters; its private key is in no log."""
    sent = {
        "authorization": f"Bearer {desk.private_key}",
        "x-memwal-account-id": desk.account,
        "accept": "application/json, text/event-stream",
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    async with httpx.AsyncClient(base_url=desk.relayer.url, headers=sent) as raw:
        answer = await raw.request(method, f"/api/mcp{path}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (501, "mcp.not_offered")
    assert "`memrelay mcp`" in answer.text[:200]
    assert desk.private_key not in desk.relayer.log.read_text()


async def test_a_client_that_stores_blobs_itself_is_told_why_not(desk: Desk) -> None:
    """The TypeScript SDK's manual mode sends a blob id instead of the ciphertext."""
    async with httpx.AsyncClient(base_url=desk.relayer.url, auth=desk.signer()) as raw:
        answer = await raw.post("/api/remember/manual", json={"blob_id": "x", "vector": [1.0]})
    assert (answer.status_code, answer.json()["code"]) == (400, "manual.blob_id")
    assert "encrypted_data" in answer.json()["error"]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"encrypted_data": "not base64!"}, 400),
        ({"encrypted_data": "A" * 1_500_000}, 400),
        ({"vector": []}, 400),
        ({"vector": [0.0, 0.0]}, 400),
        ({"vector": [1.0] * 4_001}, 400),
        ({"vector": ["1"]}, 400),
        ({"vector": [1e308, 1e308]}, 200),
        ({"vector": [5e-324, 0.0]}, 200),
        ({"vector": [1e-160, 1e-160]}, 200),
        ({"vector": [1e39, 1e-39]}, 200),
        ({"encrypted_data": ""}, 400),
    ],
    ids=str,
)
async def test_manual_uploads_at_the_edges(
    desk: Desk, changes: dict[str, Any], status: int
) -> None:
    body = {"encrypted_data": "AAAA", "vector": [1.0, 0.0], "namespace": str(uuid.uuid4())}
    async with httpx.AsyncClient(base_url=desk.relayer.url, auth=desk.signer()) as raw:
        answer = await raw.post("/api/remember/manual", json=body | changes)
        assert answer.status_code == status
        query = {"vector": (body | changes)["vector"], "namespace": body["namespace"]}
        if status == 200:
            found = (await raw.post("/api/recall/manual", json=query)).json()["results"]
            assert [h["blob_id"] for h in found] == [answer.json()["blob_id"]]
            assert abs(found[0]["distance"]) < 0.01


async def test_the_url_of_the_stand_in_is_the_one_clients_use(desk: Desk) -> None:
    async with httpx.AsyncClient(base_url=desk.relayer.url) as raw:
        config = (await raw.get("/config", headers={"host": "memory.example:8443"})).json()
        forged = (await raw.get("/config", headers={"x-forwarded-host": "evil.example"})).json()
    assert config["suiRpcUrl"] == "http://memory.example:8443/sui"
    assert config["network"] == "local"
    assert len(config["packageId"]) == 66
    assert forged["suiRpcUrl"] == desk.relayer.url + "/sui"


async def test_nothing_of_a_session_is_logged(desk: Desk) -> None:
    async with desk.client() as client:
        await client.recall(RecallParams(query="a canary called Tweety"))
        header = await client._build_seal_session()
    log = desk.relayer.log.read_text()
    assert "/api/recall" in log
    for secret in ("suiprivkey", header[:40], "Tweety", desk.private_key):
        assert secret not in log
