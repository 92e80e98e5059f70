"""The gateway process over its real socket: who may speak, what it answers, how it ends."""

import json
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from memrelay import Settings, TransportError, __version__
from memrelay.gateway.endpoint import LINE_BYTES_MAX
from memrelay.gateway.serve import CONNECTIONS_MAX, TOOL_CALLS_MAX
from tests.client.gateway_process import (
    Line,
    Machine,
    RunningGateway,
    greeted,
    machine_of,
    running_gateway,
    stranger,
    wait_for,
)
from tests.client.gateway_scene import TEA, conversation, write_profile
from tests.processes import RunningRelayer

ASKED = {"prompt": "Do I prefer green tea or coffee in the morning?"}


def context(agent: str, session: str = "first") -> dict[str, str]:
    return {"agentId": agent, "sessionKey": f"agent:{agent}:main", "sessionId": session}


@pytest.fixture(scope="module")
def machine(
    shared_relayer: RunningRelayer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    with machine_of(tmp_path_factory.mktemp("machine"), shared_relayer) as machine:
        yield machine


@pytest.fixture(scope="module")
def gateway(machine: Machine) -> Iterator[RunningGateway]:
    with running_gateway(machine) as process:
        yield process


@pytest.fixture
def own_machine(shared_relayer: RunningRelayer, tmp_path: Path) -> Iterator[Machine]:
    with machine_of(tmp_path, shared_relayer) as machine:
        yield machine


@contextmanager
def silent_relayer(machine: Machine) -> Iterator[None]:
    """What the agents' profiles name takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        for path in (machine.profiles / "agents").glob("*.json"):
            write_profile(path, replace(Settings.load(path, environ={}), url=url))
        yield


class TestHooks:
    def test_no_hook_stands_behind_slow_tools(self, own_machine: Machine) -> None:
        """They would all be late then, and the plugin would give the connection up."""
        search = {"name": "memory_search", "arguments": {"query": "tea"}, "ctx": context("anna")}
        calls = [("call_tool", search)] * (TOOL_CALLS_MAX + 2)
        calls += [("before_prompt_build", {"event": ASKED, "ctx": context("anna")})]
        with (
            silent_relayer(own_machine),
            running_gateway(own_machine) as gateway,
            greeted(gateway, recallDeadlineS=0.5) as line,
        ):
            for number, (method, params) in enumerate(calls):
                call = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                line.send(json.dumps(call).encode() + b"\n")
            first = [line.read() for _ in range(3)]
        assert [answer["id"] for answer in first] == [
            TOOL_CALLS_MAX,
            TOOL_CALLS_MAX + 1,
            len(calls) - 1,
        ]
        assert ["Too many" in str(answer) for answer in first] == [True, True, False]

    def test_a_turn_is_captured_and_recalled_for_its_agent_only(
        self, gateway: RunningGateway
    ) -> None:
        """capability 2.8: each call names its agent, and reaches that agent's memory only.
        capability 0.3: the tools run in the gateway's process when a model calls them.
        """
        with greeted(gateway) as line:
            line.result("agent_end", event=conversation(TEA, "Noted."), ctx=context("anna"))
            wait_for(gateway.machine, "anna", TEA)
            given = line.result("before_prompt_build", event=ASKED, ctx=context("anna", "next"))
            others = line.result("before_prompt_build", event=ASKED, ctx=context("bob"))
            found = [
                line.result("call_tool", name="memory_search", arguments={"query": "green tea"},
                            ctx=context(agent))
                for agent in ("anna", "bob")
            ]  # fmt: skip
        assert "green tea" in given["prependContext"]
        assert set(others) == {"appendSystemContext"}
        assert [answer["details"]["count"] for answer in found] == [1, 0]
        assert not [answer for answer in found if answer["is_error"]]

    def test_recall_and_capture_are_switched_off_one_by_one(self, own_machine: Machine) -> None:
        """capability 1.3: the plugin's configuration switches recall and capture separately.
        capability 2.25: autoRecall and autoCapture are settings of the plugin.
        """
        with running_gateway(own_machine) as gateway:
            with greeted(gateway, autoCapture=False) as line:
                event = conversation("I prefer window seats on long flights.", "Noted.")
                line.result("agent_end", event=event, ctx=context("anna"))
            with greeted(gateway, autoRecall=False) as line:
                line.result("agent_end", event=conversation(TEA, "Noted."), ctx=context("anna"))
                wait_for(own_machine, "anna", TEA)
                assert line.result("before_prompt_build", event=ASKED, ctx=context("anna")) == {}
            with greeted(gateway, autoCapture=False) as line:
                given = line.result("before_prompt_build", event=ASKED, ctx=context("anna"))
        assert "green tea" in given["prependContext"]
        assert own_machine.texts("anna") == [TEA]

    def test_a_session_that_starts_anew_gets_its_beginning_again(
        self, gateway: RunningGateway
    ) -> None:
        """capability 2.6: session_start makes the next turn a first one."""
        asked = {"prompt": "Please tell me a story about lighthouses."}
        with greeted(gateway, coldStart=True) as line:

            def beginning() -> bool:
                answer = line.result("before_prompt_build", event=asked, ctx=context("bob", "s"))
                return "prependContext" in answer

            line.result("call_tool", name="memory_store", ctx=context("bob"),
                        arguments={"text": "I use Fedora on my laptop."})  # fmt: skip
            seen = [beginning(), beginning()]
            line.result("session_start", event={}, ctx=context("bob", "s"))
            seen += [beginning()]
        assert seen == [True, False, True]

    def test_the_tools_can_be_asked_for(self, gateway: RunningGateway) -> None:
        with greeted(gateway) as line:
            tools = line.result("tools")
        assert {tool["name"] for tool in tools} >= {"memory_search", "memory_store"}
        assert all(tool["parameters"]["type"] == "object" for tool in tools)


class TestWhoMaySpeak:
    def test_only_this_user_can_read_where_it_listens(self, gateway: RunningGateway) -> None:
        file = gateway.machine.profiles / "gateway.json"
        assert gateway.endpoint.socket is not None
        folder = Path(gateway.endpoint.socket).parent
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert folder == gateway.machine.runtime / "memrelay"

    @pytest.mark.parametrize(
        "said",
        [
            {"method": "hello", "params": {"token": "0" * 64}},
            {"method": "hello", "params": {"token": ""}},
            {"method": "hello", "params": {"token": None}},
            {"method": "hello", "params": {}},
            {"method": "hello"},
            {"method": "status", "params": {}},
            {"method": "before_prompt_build", "params": {"event": ASKED}},
            ["hello"],
            7,
        ],
        ids=str,
    )
    def test_without_the_token_nothing_is_answered(
        self, gateway: RunningGateway, said: object
    ) -> None:
        with stranger(gateway) as line:
            line.send(json.dumps(said).encode() + b"\n")
            answer = line.read()
            assert "result" not in answer
            assert line.read() is None

    def test_the_right_token_for_another_method_is_not_enough(
        self, gateway: RunningGateway
    ) -> None:
        with stranger(gateway) as line:
            assert "error" in line.call("status", {"token": gateway.endpoint.token})
            assert line.read() is None

    @pytest.mark.parametrize(
        "said",
        [
            b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
            b"\n",
            b"\xff\xfe\n",
            b"[" * 100_000 + b"\n",
            b"{}\n",
        ],
        ids=["http", "empty", "bytes", "deep", "object"],
    )
    def test_what_is_no_hello_ends_the_connection(
        self, gateway: RunningGateway, said: bytes
    ) -> None:
        with stranger(gateway) as line:
            line.send(said)
            assert "error" in line.read()
            assert line.read() is None

    def test_a_caller_tells_nothing_to_what_is_no_gateway(self, gateway: RunningGateway) -> None:
        """The gateway proves that it wrote the endpoint file: after a kill, its port is free."""
        assert gateway.endpoint.ask("tools")
        other = replace(gateway.endpoint, proof="0" * 64)
        with pytest.raises(TransportError, match="Something else listens"):
            other.ask("tools")

    def test_there_are_only_so_many_connections(self, own_machine: Machine) -> None:
        with running_gateway(own_machine) as gateway:
            lines = [Line(gateway.endpoint) for _ in range(CONNECTIONS_MAX)]
            one_more = Line(gateway.endpoint)
            assert one_more.read() is None
            assert gateway.logged("a connection was refused")
            lines.pop().close()
            assert lines[0].call("hello", {"token": gateway.endpoint.token})["result"]
            for line in (*lines, one_more):
                line.close()


class TestCalls:
    @pytest.mark.parametrize(
        ("said", "code"),
        [
            (b"no json\n", -32700),
            (b"[]\n", -32600),
            (b'{"method": 5, "params": {}}\n', -32600),
            (b'{"id": 1, "method": "status"}\n', -32600),
            (b'{"id": 1, "method": "status", "params": []}\n', -32600),
            (b'{"id": {"x": [1]}, "method": "status"}\n', -32600),
            (b'{"id": 1, "method": "shutdown", "params": {}}\n', -32601),
            (b'{"id": 1, "method": "__init__", "params": {}}\n', -32601),
            (b'{"id": 1, "method": "call_tool", "params": {}}\n', -32602),
            (b'{"id": 1, "method": "call_tool", "params": {"name": "x"}}\n', -32602),
        ],
        ids=str,
    )
    def test_a_wrong_call_gets_an_error_and_the_next_one_an_answer(
        self, gateway: RunningGateway, said: bytes, code: int
    ) -> None:
        with greeted(gateway) as line:
            line.send(said)
            assert line.read()["error"]["code"] == code
            assert line.result("tools")

    @pytest.mark.parametrize("event", [None, [], "x", {"messages": 5}, {"prompt": {}}], ids=str)
    def test_strange_events_are_answered_with_nothing(
        self, gateway: RunningGateway, event: object
    ) -> None:
        with greeted(gateway) as line:
            assert line.result("before_prompt_build", event=event, ctx=event) == {}
            assert line.result("agent_end", event=event, ctx=event) is None

    def test_an_unknown_tool_is_an_answer_of_the_tool(self, gateway: RunningGateway) -> None:
        with greeted(gateway) as line:
            answer = line.result("call_tool", name="exec", arguments={}, ctx=context("anna"))
        assert answer["is_error"] is True

    def test_a_line_without_end_is_not_read_for_ever(self, gateway: RunningGateway) -> None:
        with greeted(gateway) as line, pytest.raises(OSError, match=r"Broken pipe|reset"):
            line.send(b"x" * (8 * LINE_BYTES_MAX))
        assert gateway.logged("a line is longer than")

    def test_a_caller_that_does_not_read_is_let_go(self, gateway: RunningGateway) -> None:
        calls = 200_000 * b'{"id": 1, "method": "tools", "params": {}}\n'
        with greeted(gateway) as line, pytest.raises(OSError, match=r"Broken pipe|reset"):
            line.send(calls)

    def test_nothing_of_what_was_said_is_logged(self, gateway: RunningGateway) -> None:
        with greeted(gateway) as line:
            event = conversation("I prefer zqmarked tea over coffee.", "Noted zqmarked.")
            line.result("agent_end", event=event, ctx=context("anna", "zqmarked"))
            line.result("before_prompt_build", event={"prompt": "What about zqmarked tea?"},
                        ctx=context("anna"))  # fmt: skip
            line.result("call_tool", name="memory_search", arguments={"query": "zqmarked"},
                        ctx=context("anna"))  # fmt: skip
        log = gateway.log.read_text()
        for secret in ("zqmarked", gateway.endpoint.token, gateway.machine.owner.private_key):
            assert secret not in log


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "named"),
        [
            ({"recallResultsMax": 21}, "recall_results_max"),
            ({"relevanceMin": "high"}, "relevance_min"),
            ({"privateKey": "00"}, "private_key"),
            ({"profile": "other"}, "profile"),
            ([1], "object"),
        ],
        ids=str,
    )
    def test_a_wrong_setting_is_named(
        self, gateway: RunningGateway, settings: object, named: str
    ) -> None:
        """capability 0.45: what the plugin was configured with is checked when it connects."""
        with stranger(gateway) as line:
            hello = {"token": gateway.endpoint.token, "settings": settings}
            assert named in line.call("hello", hello)["error"]["message"]
            assert line.read() is None

    def test_the_plugin_is_told_how_long_to_wait(self, gateway: RunningGateway) -> None:
        endpoint = gateway.endpoint
        waits = []
        for settings in ({}, {"recallDeadlineS": 3}, {"debounceS": 5}):
            with stranger(gateway) as line:
                waits.append(line.result("hello", token=endpoint.token, settings=settings))
        assert [wait["hook_deadline_ms"] for wait in waits] == [1500, 3500, 1500]
        assert [wait["debounce"] for wait in waits] == [False, False, True]

    @pytest.mark.parametrize("version", ["0.0.1", 5])
    def test_a_plugin_of_another_version_is_told_in_the_log(
        self, own_machine: Machine, version: object
    ) -> None:
        with running_gateway(own_machine) as gateway:
            for plugin in (__version__, version):
                assert "another version" not in gateway.log.read_text()
                with stranger(gateway) as line:
                    assert line.result("hello", token=gateway.endpoint.token, plugin=plugin)
            assert gateway.logged("another version")

    def test_the_file_is_the_base_that_the_plugin_overrides(self, own_machine: Machine) -> None:
        (own_machine.profiles / "gateway.toml").write_text(
            'profile = "memsearch"\nrecall_deadline_s = 2.0\n'
        )
        with running_gateway(own_machine) as gateway:
            base = gateway.endpoint.ask("status")["settings"]
            with stranger(gateway) as line:
                told = line.result("hello", token=gateway.endpoint.token,
                                   settings={"recallDeadlineS": 4, "debounceS": 0})  # fmt: skip
        assert (base["capture_scope"], base["recall_deadline_s"]) == ("turn", 2.0)
        assert (told["hook_deadline_ms"], told["debounce"]) == (4500, False)

    @pytest.mark.parametrize(
        ("file", "text", "said"),
        [
            ("gateway.toml", "recall_results_max = 0", "recall_results_max"),
            ("gateway.toml", "no toml", "TOML"),
            ("profile.json", '{"private_key": "zq"}', "Set MEMRELAY_URL"),
        ],
        ids=str,
    )
    def test_a_start_with_wrong_files_says_which(
        self, own_machine: Machine, file: str, text: str, said: str
    ) -> None:
        """capability 0.45: profiles and settings are checked at start, and the wrong one named."""
        (own_machine.profiles / file).write_text(text)
        done = own_machine.memrelay("gateway")
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
        assert not (own_machine.profiles / "gateway.json").exists()

    def test_a_wrong_profile_of_one_agent_is_named_and_costs_that_agent_only(
        self, own_machine: Machine
    ) -> None:
        (own_machine.profiles / "agents/anna.json").write_text('{"url": "http://a.example"}')
        with running_gateway(own_machine) as gateway, greeted(gateway) as line:
            assert gateway.logged("anna.json cannot be used")
            assert gateway.logged("Set MEMRELAY_ACCOUNT_ID")
            given = [
                line.result("before_prompt_build", event=ASKED, ctx=context(agent))
                for agent in ("anna", "bob")
            ]
        assert given[0] == {}
        assert "appendSystemContext" in given[1]

    def test_a_missing_settings_file_is_an_error(self, own_machine: Machine) -> None:
        done = own_machine.memrelay("gateway", "--settings", str(own_machine.folder / "none.toml"))
        assert done.returncode == 2
        assert "none.toml" in done.stderr

    def test_the_relayers_health_is_logged(self, own_machine: Machine) -> None:
        """capability 0.45: a health check at start says whether the relayer answers."""
        bob = own_machine.profiles / "agents/bob.json"
        bob.write_text(json.dumps({**json.loads(bob.read_text()), "url": "http://127.0.0.1:1"}))
        with running_gateway(own_machine) as gateway:
            assert gateway.logged("the relayer answers")
            assert gateway.logged("the relayer does not answer")
            keys = gateway.endpoint.ask("status", timeout_s=20)["keys"]
        assert {key["url"] == "http://127.0.0.1:1": key["healthy"] for key in keys} == {
            True: False,
            False: True,
        }
        assert own_machine.owner.private_key not in json.dumps(keys)


class TestLife:
    def test_a_second_gateway_does_not_start(self, gateway: RunningGateway) -> None:
        done = gateway.machine.memrelay("gateway")
        assert done.returncode == 2
        assert "running already" in done.stderr
        assert gateway.endpoint.answers()

    def test_two_gateways_never_have_one_profile(self, own_machine: Machine) -> None:
        """Also when the first one cannot be asked: each would remove what the other wrote."""
        with running_gateway(own_machine) as gateway:
            (own_machine.profiles / "gateway.json").unlink()
            done = own_machine.memrelay("gateway", "--port", "0")
            assert gateway.process.poll() is None
        assert done.returncode == 2
        assert "running already" in done.stderr

    @pytest.mark.parametrize("port", ["65536", "-1"])
    def test_a_port_that_is_none_is_refused(self, own_machine: Machine, port: str) -> None:
        done = own_machine.memrelay("gateway", f"--port={port}")
        assert done.returncode == 2
        assert "from 0 to 65535" in done.stderr
        assert done.stderr.count("\n") == 1

    def test_a_foreign_socket_is_not_taken_over(self, own_machine: Machine) -> None:
        folder = own_machine.folder / "mine"
        folder.mkdir(mode=0o700)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(folder / "x.sock"))
            other.listen()
            done = own_machine.memrelay("gateway", "--socket", str(folder / "x.sock"))
        assert done.returncode == 2
        assert "Another process listens" in done.stderr

    def test_a_socket_in_a_folder_of_everybody_is_refused(self, own_machine: Machine) -> None:
        folder = own_machine.folder / "open"
        folder.mkdir(mode=0o755)
        done = own_machine.memrelay("gateway", "--socket", str(folder / "x.sock"))
        assert done.returncode == 2
        assert "Others may enter" in done.stderr
        assert not (folder / "x.sock").exists()

    def test_what_a_killed_gateway_left_is_replaced(self, own_machine: Machine) -> None:
        with running_gateway(own_machine) as gateway:
            left = gateway.endpoint
            gateway.process.kill()
            gateway.process.wait()
        assert left.socket is not None
        assert Path(left.socket).exists()
        assert own_machine.memrelay("gateway", "status").returncode == 1
        with running_gateway(own_machine) as gateway:
            assert gateway.endpoint.ask("tools")
            assert gateway.endpoint.token != left.token

    def test_it_ends_in_order_and_keeps_what_it_could_not_deliver(
        self, own_machine: Machine
    ) -> None:
        anna = own_machine.profiles / "agents/anna.json"
        good = anna.read_text()
        anna.write_text(json.dumps({**json.loads(good), "url": "http://127.0.0.1:1"}))
        with running_gateway(own_machine) as gateway, greeted(gateway) as line:
            line.result("agent_end", event=conversation(TEA, "Noted."), ctx=context("anna"))
            assert gateway.stop() == 0
            assert line.read() is None
        assert not (own_machine.profiles / "gateway.json").exists()
        assert list((own_machine.runtime / "memrelay").iterdir()) == []
        anna.write_text(good)
        with running_gateway(own_machine):
            wait_for(own_machine, "anna", TEA)

    def test_on_a_port_it_listens_on_this_machine_only(self, own_machine: Machine) -> None:
        with running_gateway(own_machine, "--port", "0", "--json") as gateway:
            rest = gateway.process.stdout
            assert rest is not None
            place = json.loads(gateway.ready + "".join(rest.readline() for _ in range(3)))
            assert place == {"socket": None, "port": gateway.endpoint.port}
            shown = own_machine.memrelay("gateway", "status")
            told = json.loads(own_machine.memrelay("gateway", "status", "--json").stdout)
        assert shown.returncode == 0
        assert own_machine.owner.url in shown.stdout
        assert told["pid"] == gateway.process.pid
        assert own_machine.owner.private_key not in json.dumps(told)

    def test_without_one_running_status_says_what_to_type(self, own_machine: Machine) -> None:
        done = own_machine.memrelay("gateway", "status")
        assert done.returncode == 1
        assert "memrelay gateway" in done.stderr
