"""What fails is an answer with a code, and says nothing of keys, of others or of the relayer."""

import asyncio
import json
import socket
import sys
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from memrelay import MemoryClient
from memrelay.cli import main
from memrelay.config import Settings
from memrelay.gateway.profiles import LiveProfile
from memrelay.mcp.server import build
from tests.client.mcp_scene import (
    MARKED,
    POISONED,
    TEA,
    UNKNOWN,
    done,
    founded,
    home,
    http_server,
    in_process,
    over_http,
    over_stdio,
    refused,
    served,
    text_of,
)

__all__ = ["home", "served"]  # fixtures


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("memory_unknown", {}, "arguments"),
        ("memory_recall", {}, "arguments"),
        ("memory_recall", {"query": ""}, "arguments"),
        ("memory_recall", {"query": "x" * 4001}, "arguments"),
        ("memory_recall", {"query": "tea", "limit": 0}, "arguments"),
        ("memory_recall", {"query": "tea", "limit": 21}, "arguments"),
        ("memory_recall", {"query": "tea", "limit": "many"}, "arguments"),
        ("memory_recall", {"query": "tea", "kinds": ["thought"]}, "arguments"),
        ("memory_recall", {"query": "tea", "after": "2026-01-01T00:00:00"}, "arguments"),
        ("memory_recall", {"query": "tea", "relevance_min": 2}, "arguments"),
        ("memory_recall", {"query": "tea", "goal": "x" * 1001}, "arguments"),
        ("memory_recall", {"query": "tea", "namespace": "a\u0000b"}, "namespace"),
        ("memory_remember", {"text": TEA, "name_space": "work"}, "arguments"),
        ("memory_remember", {"text": "no"}, "arguments"),
        ("memory_remember", {"text": TEA, "tags": ["x"] * 33}, "arguments"),
        ("memory_remember", {"text": POISONED}, "looks_injected"),
        ("memory_remember", {"text": TEA, "tags": [POISONED]}, "looks_injected"),
        ("memory_remember", {"text": TEA, "namespace": POISONED}, "looks_injected"),
        ("memory_analyze", {"text": POISONED}, "looks_injected"),
        ("memory_analyze", {"text": TEA, "namespace": POISONED}, "looks_injected"),
        ("memory_get", {"memory_id": UNKNOWN}, "not_found"),
        ("memory_get", {"memory_id": "../keys"}, "arguments"),
        ("memory_forget", {"memory_id": UNKNOWN}, "not_found"),
        ("memory_forget", {}, "arguments"),
        ("memory_list", {"limit": 51}, "arguments"),
        ("memory_list", {"state": "gone"}, "arguments"),
        ("memory_list", {"cursor": "first"}, "request.invalid"),
        ("memory_history", {"memory_id": UNKNOWN}, "not_found"),
        ("memory_edit", {"memory_id": UNKNOWN, "text": TEA}, "not_found"),
        ("memory_edit", {"memory_id": UNKNOWN, "text": POISONED}, "looks_injected"),
        ("memory_edit", {"memory_id": UNKNOWN, "tags": [POISONED]}, "looks_injected"),
        ("memory_edit", {"memory_id": UNKNOWN, "revision": 0, "text": TEA}, "arguments"),
        ("memory_pin", {"memory_id": UNKNOWN}, "not_found"),
        ("memory_pin", {"memory_id": UNKNOWN, "pinned": "no way"}, "arguments"),
        ("memory_decide", {"memory_id": UNKNOWN, "decision": "rejected"}, "not_found"),
        ("memory_decide", {"memory_id": UNKNOWN}, "arguments"),
        ("memory_decide", {"memory_id": UNKNOWN, "decision": "erased"}, "arguments"),
        ("memory_forget_many", {}, "arguments"),
        ("memory_forget_many", {"memory_ids": [UNKNOWN], "namespace": "work"}, "arguments"),
        ("memory_forget_many", {"namespace": "garden", "dry_run": False}, "arguments"),
        ("memory_forget_many", {"memory_ids": [], "dry_run": False}, "arguments"),
        ("memory_forget_many", {"tags": [], "dry_run": False}, "arguments"),
        ("memory_forget_many", {"memory_ids": [UNKNOWN], "kind": "fact"}, "arguments"),
        ("memory_forget_many", {"memory_ids": ["../keys"]}, "arguments"),
        ("memory_forget_many", {"memory_ids": [UNKNOWN] * 101}, "arguments"),
        ("memory_restore", {"limit": 0}, "arguments"),
    ],
)
async def test_what_cannot_be_done_is_an_answer_with_a_code(served, name, arguments, code):
    async with over_http(served) as client:
        assert await refused(client, name, **arguments) == code


async def test_a_wrong_argument_is_named_and_not_repeated(served):
    async with over_http(served) as client:
        result = await client.call_tool("memory_recall", {"query": "tea", "limit": "Zanzibar"})
    assert "limit" in text_of(result)
    assert "Zanzibar" not in text_of(result)


LATE, EARLY = "2026-02-01T00:00:00Z", "2026-01-01T00:00:00Z"
NO_YEAR = "9999-12-31T23:59:59-14:00"


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("memory_edit", {"memory_id": UNKNOWN}, "text, kind, tags:"),
        ("memory_edit", {"memory_id": UNKNOWN, "text": " \n "}, "text:"),
        ("memory_remember", {"text": " \t "}, "text:"),
        ("memory_analyze", {"text": "\n\n\n"}, "text:"),
        ("memory_recall", {"query": "  "}, "query:"),
        ("memory_recall", {"query": "tea", "after": LATE, "before": EARLY}, "after, before:"),
        ("memory_recall", {"query": "tea", "after": LATE, "before": LATE}, "after, before:"),
        ("memory_list", {"after": LATE, "before": EARLY}, "after, before:"),
        ("memory_remember", {"text": TEA, "event_time": NO_YEAR}, "event_time"),
        ("memory_analyze", {"text": TEA, "occurred_at": NO_YEAR}, "occurred_at"),
        ("memory_recall", {"query": "tea", "after": "0001-01-01T00:00:00+14:00"}, "after"),
        ("memory_forget_many", {"memory_ids": [UNKNOWN], "namespace": "work"}, "namespace:"),
        ("memory_recall", {"query": "tea\ud800"}, "query:"),
        ("memory_recall", {"query": "tea", "quer\ud800": "tea"}, "quer"),
    ],
)
async def test_what_is_wrong_with_an_argument_is_told_by_its_name(home, name, arguments, named):
    async with in_process(home.profile) as client:
        result = await client.call_tool(name, arguments)
    assert result.is_error
    assert text_of(result).startswith(named)
    assert text_of(result).endswith("(arguments)")


async def test_a_server_whose_key_was_replaced_says_what_to_do(home, tmp_path):
    agent = tmp_path / "baker.json"
    owner = ["--profile", str(home.profile)]
    assert main(["keys", "add", "--namespace", "bakery", "--out", str(agent), *owner], {}) == 0
    async with in_process(agent) as client:
        await done(client, "memory_remember", text=TEA)
        key = Settings.load(agent, environ={}).public_key
        assert main(["keys", "revoke", key, *owner], {}) == 0
        result = await client.call_tool("memory_recall", {"query": "tea"})
    assert "`memrelay doctor` says" in text_of(result)
    assert text_of(result).endswith("(auth.rejected)")


async def test_a_key_that_is_replaced_in_the_profile_is_taken_up(home, tmp_path):
    """As by the gateway: whoever rotates an agent's key need not start its servers anew."""
    agent, fresh = tmp_path / "smith.json", tmp_path / "fresh.json"
    owner = ["--profile", str(home.profile)]
    adding = ["keys", "add", "--namespace", "forge", *owner]
    assert main([*adding, "--out", str(agent)], {}) == 0
    with http_server(agent) as (ready, _):
        async with over_http(ready) as client:
            await done(client, "memory_remember", text=TEA)
            key = Settings.load(agent, environ={}).public_key
            assert main([*adding, "--out", str(fresh)], {}) == 0
            fresh.replace(agent)
            assert main(["keys", "revoke", key, *owner], {}) == 0
            assert TEA in text_of(await client.call_tool("memory_recall", {"query": "tea"}))
            agent.write_text("{")  # what is broken later costs nothing
            result = await client.read_resource("memory://recent")
            assert TEA in result.contents[0].text


async def test_the_private_key_is_in_no_message_and_no_text_in_the_log(home, tmp_path):
    recorded, answered, log = tmp_path / "in", tmp_path / "out", tmp_path / "log"
    script = 'tee "$1" | "$2" -W error -m memrelay mcp --profile "$3" | tee "$4"'
    parameters = StdioServerParameters(
        command="sh",
        args=["-c", script, "sh", str(recorded), sys.executable, str(home.profile), str(answered)],
    )
    with log.open("w") as stderr:
        async with Client(stdio_client(parameters, errlog=stderr)) as client:
            shown, _ = await done(client, "memory_recall", query="Where nests the heron?")
            assert MARKED in shown
            assert await refused(client, "memory_get", memory_id=UNKNOWN) == "not_found"
            wrong = {"query": "heron", "limit": "Zanzibar-4711"}
            assert await refused(client, "memory_recall", **wrong) == "arguments"
            await done(client, "memory_namespaces")
            with pytest.raises(MCPError):
                await client.read_resource("memory://memory/Zanzibar_4711")
    messages = [json.loads(line) for line in answered.read_text().splitlines()]
    assert all(message["jsonrpc"] == "2.0" for message in messages)
    spoken = recorded.read_text() + answered.read_text()
    assert MARKED in spoken
    assert home.private_key not in spoken.lower()
    logged = log.read_text()
    assert logged.splitlines() == [
        "memrelay: A tool failed: not_found.",
        "memrelay: A tool failed: arguments.",
        "memrelay: A resource failed: arguments.",
    ]


async def test_a_relayer_that_is_gone_costs_an_answer_and_not_the_server(relayer, tmp_path):
    profile = founded(relayer.url, tmp_path / "home")
    async with over_stdio(profile) as client:
        await done(client, "memory_remember", text=TEA)
        relayer.kill()
        assert await refused(client, "memory_recall", query="tea") == "unreachable"
        assert await refused(client, "memory_remember", text=MARKED) == "unreachable"
        with pytest.raises(MCPError, match="unreachable"):
            await client.read_resource("memory://recent")
        with pytest.raises(MCPError, match="unreachable"):
            await client.get_prompt("recall_context", {"topic": "tea"})
        assert (await client.list_tools()).tools


@contextmanager
def silent_relayer():
    """A port that accepts connections and never says a word; yields the socket and a client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield (
            listener,
            MemoryClient(
                url=f"http://127.0.0.1:{listener.getsockname()[1]}",
                account_id="0x" + "ab" * 32,
                private_key="07" * 32,
            ),
        )


async def test_a_relayer_that_says_nothing_is_given_up():
    with silent_relayer() as (_, memory):
        async with Client(
            build(LiveProfile(memory), deadline_s=0.2, slow_deadline_s=0.3)
        ) as client:
            assert await refused(client, "memory_recall", query="tea") == "timed_out"
            assert await refused(client, "memory_analyze", text=TEA) == "timed_out"
            for tool, harmless in (("memory_remember", True), ("memory_analyze", False)):
                answer = text_of(await client.call_tool(tool, {"text": TEA}))
                assert ("does no harm" in answer) is harmless
                assert ("see memory_list before" in answer) is not harmless
            with pytest.raises(MCPError, match="timed_out"):
                await client.read_resource("memory://recent")
            assert (await client.list_tools()).tools


@contextmanager
def refusing_relayer(**body):
    """The client of a relayer that answers everything with an error, in these words."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            data = json.dumps(body).encode()
            self.send_response(403)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

        def log_message(self, *arguments):
            """Nothing on the console."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield MemoryClient(
                url=f"http://127.0.0.1:{server.server_address[1]}",
                account_id="0x" + "ab" * 32,
                private_key="07" * 32,
            )
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("code", "told"),
    [("key.scope", "key.scope"), (POISONED, "unknown"), ("a\nb", "unknown"), ("x" * 65, "unknown")],
)
async def test_what_a_relayer_says_reaches_neither_a_model_nor_the_log(caplog, code, told):
    with refusing_relayer(code=code, message=f"<b>{POISONED}</b>", request_id=POISONED) as memory:
        async with Client(build(LiveProfile(memory))) as client:
            result = await client.call_tool("memory_recall", {"query": "tea"})
            assert result.is_error
            with pytest.raises(MCPError) as refusal:
                await client.get_prompt("recall_context", {"topic": "tea"})
    expected = f"Your key is not allowed to do that there. ({told})"
    assert (text_of(result), refusal.value.error.message) == (expected, expected)
    logged = [
        record.getMessage() for record in caplog.records if record.name.startswith("memrelay")
    ]
    assert logged == [f"A tool failed: {told}.", f"A prompt failed: {told}."]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_cancelled_call_stops(mode):
    loop = asyncio.get_running_loop()
    with silent_relayer() as (listener, memory):
        async with Client(build(LiveProfile(memory), deadline_s=600), mode=mode) as client:
            call = asyncio.create_task(client.call_tool("memory_recall", {"query": "tea"}))
            connection, _ = await loop.sock_accept(listener)
            with connection:
                assert await loop.sock_recv(connection, 4) == b"GET "
                call.cancel()
                with suppress(asyncio.CancelledError):
                    await call
                async with asyncio.timeout(60):
                    while await loop.sock_recv(connection, 65_536):
                        pass  # the rest of the request; then the end, long before the deadline
            assert (await client.list_tools()).tools
