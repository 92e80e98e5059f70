"""The plugin in a process that lives long: gateways that go away, hang, refuse, and come back.

`make test-openclaw` runs this file with the Node that it installs; OpenClaw itself is not needed.
"""

import json
import os
import signal
import socketserver
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from memrelay import Settings, SyncMemoryClient
from memrelay.gateway.endpoint import Endpoint
from tests.client.conftest import shared_relayer  # noqa: F401 - a fixture
from tests.client.gateway_process import Machine, machine_of, running_gateway, wait_for
from tests.client.gateway_scene import TEA
from tests.processes import RunningRelayer

HOST = Path(__file__).parent / "host.mjs"
AWAY = "turns go on without memory"
ANNA = {"agentId": "anna", "sessionKey": "agent:anna:main", "sessionId": "s", "runId": "r"}
ASKED = {"prompt": "…", "currentUserMessage": "Do I prefer green tea or coffee in the morning?"}
RECALL = {"hook": "before_prompt_build", "event": ASKED, "ctx": ANNA}
ENDED: dict[str, Any] = {"success": True, "messages": [{"role": "user", "content": TEA}]}
END = {"hook": "agent_end", "event": ENDED, "ctx": ANNA}


class Host:
    """The plugin, called as OpenClaw calls it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.logged: list[str] = []

    def call(self, **call: Any) -> Any:
        return self._made(call)

    def at_once(self, *calls: dict[str, Any]) -> Any:
        return self._made(calls)

    def _made(self, calls: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(calls) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        self.logged += answer["logged"]
        return answer["result"]

    def recall(self) -> Any:
        return self.call(**RECALL)

    def search(self) -> str:
        answer = self.call(tool="memory_search", event={"query": "green tea"}, ctx=ANNA)
        return str(answer["content"][0]["text"])

    def until_it_is_back(self) -> None:
        """Ask until the gateway is tried again and answers."""
        for _ in range(400):
            if self.recall() is not None:
                return
            time.sleep(0.1)
        pytest.fail("the plugin does not come back")


@contextmanager
def hosted(machine: Machine, **config: Any) -> Iterator[Host]:
    plugin = str(resources.files("memrelay.openclaw_plugin").joinpath("index.js"))
    endpoint = str(machine.profiles / "gateway.json")
    values = {"endpoint": endpoint, "recallDeadlineS": 5, "dreaming": {"enabled": False}, **config}
    path = f"{os.environ['OPENCLAW_PROGRAMS']}:{os.environ['PATH']}"
    with subprocess.Popen(
        ["node", str(HOST), plugin, json.dumps(values)],
        env={**os.environ, "PATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Host(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=30) == 0  # an open connection keeps nobody from ending


@pytest.fixture
def machine(shared_relayer: RunningRelayer, tmp_path: Path) -> Iterator[Machine]:  # noqa: F811
    with machine_of(tmp_path, shared_relayer) as machine:
        yield machine


def test_hooks_and_tools_reach_the_gateway(machine: Machine) -> None:
    said = [
        {"role": "user", "content": [{"type": "text", "text": TEA}, {"type": "image"}]},
        {"role": "toolResult", "content": "I prefer what a tool says."},
        {"role": "assistant", "content": "Good choice \ud83c."},
    ]
    with running_gateway(machine), hosted(machine) as host:
        host.call(hook="agent_end", event={"success": True, "messages": said}, ctx=ANNA)
        wait_for(machine, "anna", TEA)
        assert "green tea" in host.recall()["prependContext"]
        assert "green tea" in host.search()
        bob = {**ANNA, "agentId": "bob", "sessionKey": "agent:bob:main"}
        others = host.call(tool="memory_search", event={"query": "green tea"}, ctx=bob)
        assert "No memory was found" in others["content"][0]["text"]
    assert machine.texts("anna") == [TEA]
    assert host.logged == []


def test_what_another_session_sent_is_known_after_a_restart(machine: Machine) -> None:
    sent = [
        {
            "role": "user",
            "content": "The crawler decided.",
            "provenance": {"kind": "inter_session"},
        },
        {"role": "assistant", "content": "I prefer the shop of the crawler."},
    ]
    said = [*sent, *ENDED["messages"]]
    with running_gateway(machine), hosted(machine) as host:
        for provenance in ("none", {"kind": 5}, None):
            odd = {"role": "assistant", "content": "Noted.", "provenance": provenance}
            event = {"success": True, "messages": [*said, odd]}
            host.call(hook="agent_end", event=event, ctx=ANNA)
        wait_for(machine, "anna", TEA)
    assert machine.texts("anna") == [TEA]
    assert host.logged == []


@pytest.mark.parametrize("long", ["x" * 600_000, "\u0001" * 600_000, "€" * 600_000])
def test_a_long_answer_costs_neither_its_turn_nor_the_connection(
    machine: Machine, long: str
) -> None:
    said = [{"role": "user", "content": TEA}, {"role": "assistant", "content": long}]
    many = [{"role": "assistant", "content": "y"}] * 100_000
    with running_gateway(machine), hosted(machine) as host:
        host.call(hook="agent_end", event={"success": True, "messages": many + said}, ctx=ANNA)
        wait_for(machine, "anna", TEA)
        event = {"prompt": long, "currentUserMessage": long}
        answer = host.call(hook="before_prompt_build", event=event, ctx={**ANNA, "goal": long})
        assert answer is not None
    assert host.logged == []


def test_a_call_that_is_too_long_is_left_out(machine: Machine) -> None:
    with running_gateway(machine), hosted(machine) as host:
        stored = host.call(tool="memory_store", event={"text": "z" * 3_000_000}, ctx=ANNA)
        assert "out of reach" in stored["content"][0]["text"]
        assert "No memory was found" in host.search()
    assert len(host.logged) == 1
    assert "longer than the gateway reads" in host.logged[0]


def test_a_goal_in_the_context_is_a_second_query(machine: Machine) -> None:
    """OpenClaw 2026.9 says none; what is no text, or blank, is no goal."""
    event = {"prompt": "Please go on with what you were about to do."}
    fact = "I prefer to pay the invoice of Contoso by bank transfer."
    profile = machine.profiles / "agents" / "anna.json"
    with SyncMemoryClient.from_settings(Settings.load(profile, environ={})) as client:
        client.remember(fact)
    with running_gateway(machine), hosted(machine) as host:
        for goal in (None, 5, {"text": "invoice"}, " "):
            answer = host.call(hook="before_prompt_build", event=event, ctx={**ANNA, "goal": goal})
            assert "prependContext" not in answer
        ctx = {**ANNA, "goal": "pay the invoice of Contoso \ud83c" + "x" * 20_000}
        answer = host.call(hook="before_prompt_build", event=event, ctx=ctx)
        assert "Contoso" in answer["prependContext"]
    assert host.logged == []


def test_an_outage_is_told_once_and_ends(machine: Machine) -> None:
    with hosted(machine) as host:
        assert [host.recall(), host.recall()] == [None, None]
        assert "out of reach" in host.search()
        with running_gateway(machine):
            host.until_it_is_back()
            assert "No memory was found" in host.search()
        assert host.recall() is None
        with running_gateway(machine):
            host.until_it_is_back()
    levels = [line.partition(":")[0] for line in host.logged]
    assert levels == ["warn", "info", "warn", "info"]
    assert AWAY in host.logged[0]


def test_an_outage_is_tried_again_now_and_then_and_told_once(machine: Machine) -> None:
    tried = []

    class Closing(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            tried.append(self.request.recv(1))

    with socketserver.TCPServer(("127.0.0.1", 0), Closing) as server:
        port = server.server_address[1]
        Endpoint(token="t", proof="p", port=port).write(machine.profiles / "gateway.json")
        with ThreadPoolExecutor() as threads, hosted(machine) as host:
            threads.submit(server.serve_forever)
            calls = 0
            while len(tried) < 3 and calls < 400:
                assert host.recall() is None
                calls += 1
                time.sleep(0.05)
            server.shutdown()
    assert 2 < len(tried) < calls  # most calls do not try at all
    assert [AWAY in line for line in host.logged] == [True]


def test_a_gateway_that_hangs_is_left_alone(machine: Machine) -> None:
    with running_gateway(machine) as gateway, hosted(machine, recallDeadlineS=0.5) as host:
        host.until_it_is_back()
        gateway.process.send_signal(signal.SIGSTOP)
        try:
            assert [host.recall() for _ in range(3)] == [None] * 3
        finally:
            gateway.process.send_signal(signal.SIGCONT)
        host.until_it_is_back()
    warnings = [line for line in host.logged if AWAY in line]
    assert len(warnings) == 1
    assert "no answer in time" in warnings[0]


def test_settings_that_the_gateway_refuses_are_named(machine: Machine) -> None:
    with running_gateway(machine), hosted(machine, recallResultsMax=99) as host:
        assert host.recall() is None
    assert "recall_results_max" in host.logged[0]


def test_turns_that_end_meanwhile_are_handed_over_later(machine: Machine) -> None:
    said = [f"I prefer the number {number} for my shirt." for number in range(10, 32)]
    with hosted(machine) as host:
        for text in said:
            event = {"success": True, "messages": [{"role": "user", "content": text}]}
            host.call(hook="agent_end", event=event, ctx=ANNA)
        with running_gateway(machine):
            host.until_it_is_back()
            wait_for(machine, "anna", said[-1])
            assert host.recall()
    assert sorted(str(text) for text in machine.texts("anna")) == said[2:]  # the last twenty
    assert [line for line in host.logged if "lost" in line] == [lost(1), lost(1)]


def test_turns_that_still_wait_at_the_end_are_told(machine: Machine) -> None:
    with hosted(machine) as host:
        for _ in range(3):
            host.call(**END)
        for _ in range(2):
            host.call(hook="gateway_stop", event={}, ctx={})
    assert [line for line in host.logged if "lost" in line] == [lost(3)]


def lost(turns: int) -> str:
    return f"warn: memrelay: turns that had to wait are lost: {turns}"


@contextmanager
def answering(
    machine: Machine, *answers: Any, deadline_ms: int = 300
) -> Iterator[list[dict[str, Any]]]:
    """Something in a gateway's place with these answers to calls, in turn; None is silence."""
    asked = []

    class Answering(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            hello = {"result": {"proof": "p", "hook_deadline_ms": deadline_ms}}
            for answer in (hello, *answers):
                asked.append(json.loads(self.rfile.readline()))
                if answer is not None:
                    said = {"id": asked[-1]["id"], **answer}
                    self.wfile.write(json.dumps(said).encode() + b"\n")
            self.rfile.read()  # until the plugin closes the connection

    with (
        socketserver.TCPServer(("127.0.0.1", 0), Answering) as server,
        ThreadPoolExecutor() as pool,
    ):
        port = server.server_address[1]
        Endpoint(token="t", proof="p", port=port).write(machine.profiles / "gateway.json")
        handled = pool.submit(server.handle_request)  # one connection, no other
        yield asked
        handled.result()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "no answer in time"),
        ({"error": {"code": -32603, "message": "The call failed."}}, "The call failed."),
    ],
)
def test_one_call_that_fails_leaves_the_connection_to_the_others(
    machine: Machine, answer: Any, why: str
) -> None:
    found = {"result": {"prependContext": "found"}}
    with answering(machine, found, answer, found, answer, found) as asked, hosted(machine) as host:
        answers = [host.recall() for _ in range(5)]
    assert [bool(answer) for answer in answers] == [True, False, True, False, True]
    assert [one["method"] for one in asked] == ["hello", *["before_prompt_build"] * 5]
    assert host.logged == [f"warn: memrelay: a call was without memory ({why})"] * 2


def test_calls_at_once_that_are_late_are_no_gateway_that_hangs(machine: Machine) -> None:
    found = {"result": {"prependContext": "found"}}
    late = [None] * 3
    with answering(machine, *late, found, *late, None) as asked, hosted(machine) as host:
        assert host.at_once(*[RECALL] * 3) == late
        assert host.recall() is not None
        assert host.at_once(*[RECALL] * 3) == late
        assert AWAY not in "".join(host.logged)
        assert host.recall() is None  # the second deadline in a row
    assert [one["method"] for one in asked] == ["hello", *["before_prompt_build"] * 8]
    assert [AWAY in line for line in host.logged] == [False] * 6 + [True]


@pytest.mark.parametrize("after_ms", [0, 50], ids=["begun", "sent"])
def test_turns_under_way_at_the_end_are_told(machine: Machine, after_ms: int) -> None:
    stop = {"hook": "gateway_stop", "event": {}, "after_ms": after_ms}
    found = {"result": {"prependContext": "found"}}
    unanswered = [None] * 2 if after_ms else []
    with answering(machine, found, *unanswered, deadline_ms=9000), hosted(machine) as host:
        host.recall()
        began = time.monotonic()
        host.at_once(END, END, stop)
        assert time.monotonic() - began < 5  # nothing waits for a deadline
    assert [line for line in host.logged if "lost" in line] == [lost(2)]


def test_a_turn_that_the_gateway_refuses_is_not_handed_over_for_ever(machine: Machine) -> None:
    refusal = {"error": {"code": -32603, "message": "The call failed."}}
    nothing = {"result": None}
    with answering(machine, refusal, nothing, nothing) as asked, hosted(machine) as host:
        for _ in range(3):
            host.call(**END)
    assert [one["method"] for one in asked] == ["hello", *["agent_end"] * 3]


def test_a_gateway_that_restarts_between_calls_is_not_missed(machine: Machine) -> None:
    with hosted(machine) as host:
        for _ in range(2):
            with running_gateway(machine):
                assert host.recall() is not None
    assert host.logged == []


@pytest.mark.parametrize("message", [None, 5, {"role": "user"}, {"role": "user", "content": {}},
                                     {"role": "user", "content": [None, {"type": "text"}]}],
                         ids=str)  # fmt: skip
def test_strange_messages_are_left_out(machine: Machine, message: Any) -> None:
    event = {"success": True, "messages": [message, {"role": "user", "content": TEA}]}
    with running_gateway(machine), hosted(machine) as host:
        host.call(hook="agent_end", event=event, ctx=ANNA)
        wait_for(machine, "anna", TEA)


def test_what_another_session_sends_is_left_alone(machine: Machine) -> None:
    provenance = {"kind": "inter_session", "sourceSessionKey": "agent:bob:main"}
    said = "I prefer window seats on long flights."
    with running_gateway(machine), hosted(machine) as host:
        for text, ctx in ((said, {**ANNA, "inputProvenance": provenance}), (TEA, ANNA)):
            event = {"success": True, "messages": [{"role": "user", "content": text}]}
            host.call(hook="agent_end", event=event, ctx=ctx)
        wait_for(machine, "anna", TEA)
    assert machine.texts("anna") == [TEA]


@pytest.mark.parametrize("text", ["zqtoken", '{"token": "zqtoken', "null", '{"token": "zqtoken"}'])
def test_a_damaged_endpoint_file_does_no_harm(machine: Machine, text: str) -> None:
    (machine.profiles / "gateway.json").write_text(text)
    with hosted(machine) as host:
        assert host.recall() is None
    assert AWAY in host.logged[0]
    assert "zqtoken" not in host.logged[0]


@pytest.mark.parametrize(
    "answer",
    ["null", "[]", "5", "HTTP/1.1 400", '{"id": 1, "result": null}', '{"id": 1, "result": {}}',
     '{"id": 1, "result": {"proof": "zq", "hook_deadline_ms": 9000}}', '{"id": 1, "error": 5}'],
)  # fmt: skip
def test_what_listens_in_the_gateways_place_gets_nothing(machine: Machine, answer: str) -> None:
    """After a gateway was killed, its port is anybody's."""
    said = []

    class Squatter(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            said.append(self.rfile.readline())
            self.wfile.write(answer.encode() + b"\n")
            said.extend(self.rfile)

    with socketserver.TCPServer(("127.0.0.1", 0), Squatter) as server:
        port = server.server_address[1]
        Endpoint(token="t", proof="p", port=port).write(machine.profiles / "gateway.json")
        with ThreadPoolExecutor() as threads, hosted(machine) as host:
            handled = threads.submit(server.handle_request)
            assert host.recall() is None
            handled.result()
    assert [json.loads(line)["method"] for line in said] == ["hello"]
    assert AWAY in host.logged[0]


def test_only_what_was_said_is_handed_over(machine: Machine) -> None:
    lines = []

    class Recorder(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for result in ({"proof": "p", "hook_deadline_ms": 9000}, None):
                lines.append(json.loads(self.rfile.readline()))
                answer = {"id": lines[-1]["id"], "result": result}
                self.wfile.write(json.dumps(answer).encode() + b"\n")

    said = [
        {"role": "system", "content": "zq"},
        {"role": "user", "content": [{"type": "text", "text": TEA}, {"type": "zq", "text": "zq"}]},
        {"role": "toolResult", "content": [{"type": "text", "text": "zq"}]},
    ]
    with socketserver.TCPServer(("127.0.0.1", 0), Recorder) as server:
        port = server.server_address[1]
        Endpoint(token="t", proof="p", port=port).write(machine.profiles / "gateway.json")
        with ThreadPoolExecutor() as threads, hosted(machine) as host:
            handled = threads.submit(server.handle_request)
            event = {"success": True, "messages": said, "zq": "zq"}
            began = time.time()
            host.call(hook="agent_end", event=event, ctx={**ANNA, "zq": "zq"})
            handled.result()
    assert [line["method"] for line in lines] == ["hello", "agent_end"]
    ended = lines[1]["params"]["event"]
    assert ended["messages"] == [{"role": "user", "content": TEA}]
    assert 1000 * began - 1 < ended["endedAt"] < 1000 * time.time() + 1  # if it is handed over late
    assert "zq" not in json.dumps(lines)


def test_with_a_debounce_silence_captures(machine: Machine) -> None:
    """Only then are the events of each model call handed over."""
    with running_gateway(machine), hosted(machine, debounceS=0.1) as host:
        host.recall()
        host.call(hook="llm_input", event={"prompt": TEA}, ctx=ANNA)
        host.call(hook="llm_output", event={"assistantTexts": ["Good choice."]}, ctx=ANNA)
        wait_for(machine, "anna", TEA)
    with running_gateway(machine), hosted(machine) as host:
        host.recall()
        event = {"prompt": "I prefer window seats on long flights."}
        assert host.call(hook="llm_input", event=event, ctx=ANNA) is None
        assert host.call(hook="llm_output", event={"assistantTexts": ["So."]}, ctx=ANNA) is None
    assert machine.texts("anna") == [TEA]
