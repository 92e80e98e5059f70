"""Nothing readable at rest: marked strings through the whole product, then searched everywhere.

Not here: how they are searched (`marks.py`), file modes (`test_private_files.py`), what keys show
of themselves (`test_hidden_keys.py`).
"""

import asyncio
import base64
import http.server
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import asyncpg
import httpx
import pytest

from memrelay import MemrelayError, SyncMemoryClient
from memrelay.archive_writer import export_archive
from memrelay.gateway.spool import Spool, SpoolKey
from memrelay.sealed.keys import Identity
from memrelay.secure_files import write_private
from relayer.logs import JsonFormatter
from relayer.postgres.embedded import EmbeddedPostgres
from tests.life import until
from tests.marks import Search, marked
from tests.openai_server import CHAT_MODEL, Step, openai_server
from tests.processes import RunningRelayer, client, create_account, postgres_of, running_relayer
from tests.signing import signed_headers

Secrets = dict[str, str]
NAMES = """text query goal alias tag source name value turn pending question key edited session
unlock path token bearer agent""".split()


class _Hook(http.server.BaseHTTPRequestHandler):
    """Keeps what it is told: the other end of a webhook."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert isinstance(self.server, _HookServer)
        self.server.told.append(f"{self.headers}\n".encode() + body)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


class _HookServer(http.server.ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Hook)
        self.told: list[bytes] = []


@contextmanager
def hook() -> Iterator[tuple[str, list[bytes]]]:
    """A web server on loopback: its URL, and what came."""
    server = _HookServer()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", server.told
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.long
@pytest.mark.parametrize("custody", ["managed", "sealed"])
def test_no_marked_string_is_found_anywhere(
    tmp_path_factory: pytest.TempPathFactory, model_dir: Path, custody: str
) -> None:
    """capability 0.41: every route and job, a bug, the database's end, a crash; then every file.

    Files are the database with its log ahead, the blob store, logs at level debug with Python's own
    debug switched on, temporary files, an archive and the client's files.
    """
    secrets = {name: marked(name) for name in NAMES} | {"api key": marked("api")}
    tmp_path = tmp_path_factory.mktemp("s")  # the database's socket has to fit into its name
    data, temporary = tmp_path / "data", tmp_path / "tmp"
    temporary.mkdir()
    before = set(Path.cwd().glob("core*"))
    with (
        openai_server(api_key=secrets["api key"]) as model,
        hook() as (hook_url, posts),
    ):
        environment = {
            "TMPDIR": str(temporary),
            "PYTHONASYNCIODEBUG": "1",
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": secrets["api key"],
            "RELAYER_LLM_MODEL": CHAT_MODEL,
            "RELAYER_LLM_TIMEOUT_S": "2",
            "RELAYER_LOG_LEVEL": "debug",
            "RELAYER_WEBHOOK_REACH": "private",
        }
        if custody == "sealed":
            environment["RELAYER_BLOB_STORE"] = f"file:{tmp_path / 'blobs'}"
        with running_relayer(data, model_dir, **environment) as relayer:
            account = create_account(relayer, custody)
            with client(account, relayer.url) as memory:
                use_everything(memory, model, secrets, f"{hook_url}/{secrets['path']}")
                left = leave_to_sweeps(memory, tmp_path / "blobs", secrets)
        assert bool(left) == (custody == "sealed")
        for path, erased in left.items():
            path.write_bytes(erased)  # as a store that was set back has it again
        keys: dict[str, str | bytes] = {}
        if custody == "sealed":  # a managed account's founder's key is nowhere either
            keys = {"seed": bytes.fromhex(account["private_key"])}
        search = Search(secrets | keys)
        # What is done once a minute is done at once by a relayer that starts.
        with running_relayer(data, model_dir, **environment) as relayer:
            with client(account, relayer.url) as memory:
                wait_for_sweeps(memory, posts, left)
                heard = [repr(event) for event in memory.events(after=0, follow=False)]
                export_archive(memory, tmp_path / "all.archive", lambda *_: None)
            keep_on_this_machine(tmp_path / "client", account, relayer.url, secrets)
            ask_everything(relayer, account, secrets, search)
            speak_nonsense(relayer, secrets, search)
            metrics = httpx.get(f"{relayer.url}/metrics").text
            assert len(heard) > 3
            assert posts
            elsewhere = "\n".join([metrics, *heard]).encode() + b"".join(posts)
            assert not search.told(elsewhere.replace(f"/{secrets['path']}".encode(), b""))
            assert account["account_id"][2:] not in metrics
            profile = tmp_path / "client" / "profile.json"
            assert not search.leaks(tmp_path, [profile]), "while it runs"
            break_everything(relayer, account, secrets, search)
    assert set(Path.cwd().glob("core*")) == before
    assert not list(tmp_path.rglob("core*"))
    assert not search.leaks(tmp_path, [profile]), "after it crashed"
    logs = "".join(p.read_text() for p in data.glob("stderr-*.log"))
    assert "http.bug" in logs, "there was a bug to be silent about"
    control = tmp_path / "control"
    control.write_text(base64.b64encode(f"ab {secrets['text']} cd".encode()).decode())
    assert search.leaks(tmp_path, [profile]) == ["text in control"], "the search itself finds"


def use_everything(memory: SyncMemoryClient, model: Any, s: Secrets, url: str) -> None:
    """What an account can do, with a secret wherever there is room for words."""
    hooked = memory.put_webhook(url)
    memory.try_webhook(hooked.id)
    kept = memory.remember(
        f"The password hint is {s['text']}.",
        tags=[s["tag"]],
        source=s["source"],
        metadata={s["name"]: s["value"]},
        event_time=datetime(2026, 3, 1, tzinfo=UTC),
        expires_at=datetime.now(UTC) + timedelta(days=30),
        idempotency_key=s["key"],
    )
    memory.wait([kept.id], timeout_s=240.0)
    assert memory.recall(f"hint {s['text']} {s['query']}").results[0].id == kept.id
    assert memory.recall(s["text"], tags=[s["tag"]], source=s["source"], explain=True).results
    aliases = {s["query"]: [s["alias"], "hint"]}
    goal = f"give {s['goal']} a hint"
    assert memory.recall(s["query"], aliases=aliases, goal=goal, max_tokens=100).results
    memory.change_settings(keep_turns=True)
    facts = {"facts": [{"text": f"Their code word is {s['turn']}.", "kind": "fact"}]}
    model.script(Step(content=json.dumps(facts)))
    memory.analyze(f"user: my code word is {s['turn']}")
    [turn] = memory.episodes().episodes[:1]
    assert s["turn"] in (memory.episode(turn.id).text or "")
    model.script(*[Step(status=500)] * 3)
    memory.analyze(f"user: and then {s['pending']} happened")
    model.script(Step(content="I do not know."))
    memory.ask(f"What about {s['question']}?")
    memory.edit(kept.id, text=f"The hint is {s['edited']}.", idempotency_key=s["key"] + "2")
    assert memory.history(kept.id).revisions[-1].text == f"The password hint is {s['text']}."
    memory.pin(kept.id)
    memory.list(limit=10, tags=[s["tag"]], source=s["source"])
    memory.review()
    twins = [f"Anna's hint for {s['text']} is {what} tea." for what in ("green", "the green")]
    memory.wait([memory.remember(text).id for text in twins], timeout_s=240.0)
    run = memory.consolidate()
    under_way = {"queued", "running"}
    until(lambda: memory.consolidation(run.id).state not in under_way, "the run has no end")
    memory.restore()
    doomed = memory.remember(f"Forget {s['text']} soon.")
    memory.supersede(doomed.id, by=kept.id)
    memory.forget(doomed.id)
    memory.forget_matching(tags=[s["tag"]], source=s["goal"])
    memory.undo_consolidation(run.id)
    memory.rotate(reseal="all")


def leave_to_sweeps(memory: SyncMemoryClient, blobs: Path, s: Secrets) -> dict[Path, bytes]:
    """What is done in the background only: a memory that expires, and objects that were erased.

    The objects are gone from the blob store, if it has files; they are returned by their paths.
    """
    soon = datetime.now(UTC) + timedelta(seconds=1)
    memory.remember(f"Until then, {s['text']}.", tags=[s["tag"]], expires_at=soon)
    left = memory.remember(f"Forget that {s['text']} was there.")
    memory.wait([left.id], timeout_s=240.0)
    name = str(memory.get(left.id).blob_id)
    until(lambda: not blobs.is_dir() or any(blobs.rglob(name)), "nothing is published")
    stored = {path: path.read_bytes() for path in blobs.rglob(name)}
    memory.forget(left.id)
    until(lambda: not any(path.exists() for path in stored), "what is erased stays")
    return stored


def wait_for_sweeps(
    memory: SyncMemoryClient, posts: list[bytes], left: Mapping[Path, bytes]
) -> None:
    """Return when time ended a memory, its owner was told, and what nothing refers to is gone."""
    until(lambda: any(b"memory.expired" in post for post in list(posts)), "nothing expired")
    assert any(event.type == "memory.expired" for event in memory.events(after=0, follow=False))
    until(lambda: not any(path.exists() for path in left), "what is erased stays")


def keep_on_this_machine(folder: Path, account: dict[str, Any], url: str, s: Secrets) -> None:
    """The client's own files: a profile, which holds the key, and a spool, which holds turns."""
    folder.mkdir(mode=0o700)
    members = ("account_id", "private_key", "relayer_key")
    write_private(folder / "profile.json", {"url": url} | {m: account[m] for m in members})
    spool = Spool(folder / "spool", bytes_max=2**20, turns_max=9)
    key = SpoolKey.of(Identity.from_hex(account["private_key"]))
    spool.put(key, json.dumps({"text": s["turn"], "key": s["key"]}).encode())
    assert len(spool.names(key)) == 1
    spool.close()


def ask_everything(
    relayer: RunningRelayer, account: dict[str, Any], s: Secrets, search: Search
) -> None:
    """Every route of the document, with a secret in every parameter, member and header.

    Errors must not quote what they refuse, whether they refuse the signature or what was signed.
    """
    document = httpx.get(f"{relayer.url}/schema/openapi.json").json()
    identity = Identity(bytes.fromhex(account["private_key"]))
    statuses = set()
    with httpx.Client(base_url=relayer.url, timeout=30) as http:
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                target, body = filled(document, path, operation, account, s)
                request = (method.upper(), target)
                signed = signed_headers(identity, *request, body, account=account["account_id"])
                signed |= secret_headers(s)
                session = base64.b64encode(s["session"].encode()).decode()
                for extra in ({}, {"x-seal-session": session}, {"x-nonce": s["key"]}):
                    answer = http.request(*request, content=body, headers=signed | extra)
                    statuses.add(answer.status_code)
                    refused = answer.status_code >= 400
                    said = f"{answer.headers} {answer.text if refused else ''}"
                    assert not search.told(said), (request, answer.status_code)
    assert statuses >= {200, 400, 401, 404}


def filled(
    document: Any, path: str, operation: Any, account: dict[str, Any], s: Secrets
) -> tuple[str, bytes]:
    """A route's target and body, all of it secret, but for what is public: names of namespaces."""
    public = {"namespace": "x", "name": "x", "relayer": account["relayer_key"], "follow": "false"}
    query = []
    for parameter in operation.get("parameters", []):
        value = quote(public.get(parameter["name"], s["query"]))
        if parameter["in"] == "path":
            path = path.replace("{" + parameter["name"] + "}", value)
        else:
            query.append(f"{parameter['name']}={value}")
    members: dict[str, Any] = {}
    for described in operation.get("requestBody", {}).get("content", {}).values():
        name = described["schema"].get("$ref", "").rpartition("/")[2]
        schema = document["components"]["schemas"].get(name, {})
        members = {m: public.get(m, s["text"]) for m in schema.get("properties", {})}
        members.pop("label", None)  # what people call keys by; stored as it is
    target = path + ("?" + "&".join(query) if query else "")
    return target, json.dumps(members).encode() if members else b""


def secret_headers(s: Secrets) -> dict[str, str]:
    """What a request may carry, and must not leave behind."""
    return {
        "x-memrelay-unlock": base64.urlsafe_b64encode(s["unlock"].encode()).decode().rstrip("="),
        "authorization": f"Bearer {s['bearer']}",
        "user-agent": s["agent"],
        "last-event-id": s["key"],
        "idempotency-key": s["key"],
        "cookie": f"a={s['token']}",
        "content-type": "application/json",
    }


def speak_nonsense(relayer: RunningRelayer, s: Secrets, search: Search) -> None:
    """What no route gets to see: unknown paths and methods, and what is not HTTP."""
    for method in ("GET", "PUT", "OPTIONS", "PROPFIND", "TRACE"):
        for path in (f"/{s['path']}", f"/v1/memories/{s['path']}/{s['text']}?{s['query']}=1"):
            answer = httpx.request(method, relayer.url + path, headers=secret_headers(s))
            assert answer.status_code >= 400
            assert not search.told(f"{answer.headers} {answer.text}")
    where = urlsplit(relayer.url)
    assert where.port is not None
    for raw in (f"GET /{s['path']} HTTP/9.9\r\n\r\n", f"{s['text']}\r\n\r\n", f"GET /{s['path']}"):
        with socket.create_connection((str(where.hostname), where.port), timeout=30) as plain:
            plain.sendall(raw.encode())
            plain.shutdown(socket.SHUT_WR)
            said = b"".join(iter(lambda: plain.recv(4096), b""))
        assert not search.told(said)


def break_everything(
    relayer: RunningRelayer, account: dict[str, Any], s: Secrets, search: Search
) -> None:
    """A bug inside a handler, then no database, then a crash: with requests under way."""
    run(hide_memories(relayer.data_dir))
    assert recall(relayer, account, s, search).json()["code"] == "internal"
    pid = postgres_of(relayer.data_dir)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    for _ in range(3):
        assert recall(relayer, account, s, search).status_code in (500, 503)
    limits = Path(f"/proc/{relayer.process.pid}/limits").read_text().splitlines()
    core = next(line for line in limits if line.startswith("Max core file size"))
    assert core.split()[4:6] == ["0", "0"]
    relayer.process.send_signal(signal.SIGABRT)
    assert relayer.process.wait(timeout=30) == -signal.SIGABRT


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run in a loop of its own: the test run's must stay the current one."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(work)


async def hide_memories(data_dir: Path) -> None:
    """Leave the relayer without a table that it believes to have."""
    async with EmbeddedPostgres(data_dir=data_dir) as server:
        connection = await asyncpg.connect(**server.connect_args)
        await connection.execute("ALTER TABLE memories RENAME TO hidden")
        await connection.close()


def recall(
    relayer: RunningRelayer, account: dict[str, Any], s: Secrets, search: Search
) -> httpx.Response:
    """A well signed query with secrets in it; its answer has none."""
    target = f"/v1/memories?tag={s['tag']}&source={s['source']}"
    if account["custody"] == "sealed":
        target = "/v1/inventory"  # without a key of a namespace
    identity = Identity(bytes.fromhex(account["private_key"]))
    headers = signed_headers(identity, "GET", target, account=account["account_id"])
    answer = httpx.get(
        relayer.url + target,
        headers=headers | {"user-agent": s["agent"], "x-memrelay-unlock": s["unlock"]},
        timeout=60,
    )
    assert not search.told(f"{answer.headers} {answer.text}")
    return answer


def test_a_line_of_a_library_holds_no_value() -> None:
    """asyncio puts an exception's words, and a callback's arguments, into its message itself."""
    secret = marked("lost")
    lines = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(JsonFormatter().format(record))

    async def lose() -> None:
        async def fail() -> None:
            raise ValueError(secret)

        asyncio.get_running_loop().call_soon(lambda _: 1 / 0, secret)
        task = asyncio.create_task(fail())
        await asyncio.wait([task])

    handler = Kept()
    logging.getLogger("asyncio").addHandler(handler)
    run(lose())
    logging.getLogger("asyncio").removeHandler(handler)
    said = [json.loads(line)["message"] for line in lines]
    assert any(message.startswith("Exception in callback") for message in said)
    assert any(message.startswith("Task exception was never retrieved") for message in said)
    assert not Search({"lost": secret}).told("\n".join(lines))


def test_refusals_hold_no_secret(relayer: RunningRelayer) -> None:
    account = create_account(relayer, "sealed")
    with client(account, relayer.url) as memory, pytest.raises(MemrelayError) as refused:
        memory.remember("  ")
    assert account["private_key"] not in repr(refused.value)
