"""`memrelay mcp` as a process: who reaches its port, how it starts, and how it ends."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import httpx
import pytest

from memrelay.cli import EXIT_FAILED, EXIT_USAGE
from memrelay.errors import ConfigError
from memrelay.mcp.serve import own_token
from tests.client.mcp_scene import HELLO, home, http_server, served, token_of
from tests.optional import unwrap

__all__ = ["home", "served"]  # fixtures


def asked(ready, **headers):
    given = {
        "accept": "application/json, text/event-stream",
        "authorization": f"Bearer {token_of(ready)}",
    }
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    wanted = {name: value for name, value in (given | named).items() if value is not None}
    return httpx.post(ready["url"], json=HELLO, headers=wanted, trust_env=False)


def test_with_its_token_and_names_it_answers(served):
    assert asked(served).status_code == 200
    port = served["url"].split(":")[2].split("/")[0]
    assert asked(served, host=f"localhost:{port}").status_code == 200


@pytest.mark.parametrize("token", [None, "", "Bearer", "Bearer x", "Basic x", "bearer \xff"])
def test_without_the_token_nothing_is_told(served, token):
    answer = asked(served, authorization=token and token.encode("latin-1"))
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "memrelay" not in answer.text + str(answer.headers)
    for method in ("GET", "DELETE", "OPTIONS"):
        assert httpx.request(method, served["url"], trust_env=False).status_code == 401
    root = served["url"].removesuffix("/mcp")
    assert httpx.get(f"{root}/.well-known/anything", trust_env=False).status_code == 401


@pytest.mark.parametrize("scheme", ["bearer", "BEARER"])
def test_the_scheme_may_be_spelt_in_any_case(served, scheme):
    assert asked(served, authorization=f"{scheme} {token_of(served)}").status_code == 200


def test_a_token_that_only_begins_right_is_wrong(served):
    token = token_of(served)
    for wrong in (token[:-1], token + "x", token.swapcase()):
        assert asked(served, authorization=f"Bearer {wrong}").status_code == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "localhost:1"])
def test_another_host_is_refused(served, host):
    assert asked(served, host=host).status_code == 421


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost:3000", "null"])
def test_a_web_page_is_refused(served, origin, version):
    answer = asked(served, origin=origin, mcp_protocol_version=version)
    assert answer.status_code == 403


def test_sessions_are_bounded(home):
    with http_server(home.profile) as (ready, _):
        codes = [asked(ready).status_code for _ in range(66)]
    assert codes == [200] * 64 + [503] * 2


def test_only_this_machine_reaches_it(served):
    port = int(served["url"].split(":")[2].split("/")[0])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port))


def test_the_token_is_private_and_kept(home, served):
    path = Path(served["token_file"])
    assert path == home.profile.with_name("profile.mcp-token")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_text()
    with http_server(home.profile) as (ready, process):
        assert ready["token_file"] == str(path)
        assert ready["url"] != served["url"]
        assert asked(ready).status_code == 200
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        assert errors == ""
    assert path.read_text() == before
    with http_server(home.profile, "--agent", "coder") as (ready, _):
        assert token_of(ready) != before.strip()


def command(*arguments, **environment):
    process = subprocess.run(
        [sys.executable, "-W", "error", "-m", "memrelay", "mcp", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.stdout == ""
    return process.returncode, process.stderr


def test_without_the_extra_it_says_what_to_install(home, tmp_path):
    # A package of this name without what version 2 has, as version 1 is.
    (tmp_path / "mcp").mkdir()
    (tmp_path / "mcp" / "__init__.py").touch()
    code, errors = command("--profile", str(home.profile), PYTHONPATH=str(tmp_path))
    assert code == EXIT_USAGE
    wanted = 'MCP needs an extra; in a checkout: pip install "./client[mcp]"'
    assert errors == f"memrelay: {wanted}\n"


def test_a_broken_import_of_our_own_is_not_taken_for_a_missing_extra(home, tmp_path):
    """The stand-in for `mcp` imports a module of ours that does not exist."""
    package = tmp_path / "mcp" / "server" / "mcpserver"
    package.mkdir(parents=True)
    for folder in (package.parent.parent, package.parent):
        (folder / "__init__.py").touch()
    (package / "__init__.py").write_text("import memrelay.nowhere\n")
    code, errors = command("--profile", str(home.profile), PYTHONPATH=str(tmp_path))
    assert code == EXIT_FAILED
    assert "No module named 'memrelay.nowhere'" in errors
    assert "pip install" not in errors


def asking(number, name, **arguments):
    params = {"name": name, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return f"{json.dumps(message)}\n"


def test_half_a_character_is_answered_like_any_wrong_argument(home):
    """JSON may have it, as an escape; the texts of no relayer do."""
    begun = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    lines = [
        f"{json.dumps(HELLO)}\n{json.dumps(begun)}\n",
        asking(2, "memory_recall", query="heron \ud800"),
        asking(3, "memory_recall", **{"\udfff": "heron", "query": "heron"}),
        asking(4, "memory_\ud800"),
        asking(5, "memory_namespaces"),
    ]
    command = [sys.executable, "-W", "error", "-m", "memrelay", "mcp"]
    process = subprocess.Popen(
        [*command, "--profile", str(home.profile)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    given_up = threading.Timer(60, process.kill)  # with what is never answered, this would hang
    given_up.start()
    with process:
        asked, told = unwrap(process.stdin), map(json.loads, unwrap(process.stdout))
        asked.write("".join(lines))
        asked.flush()
        answers = {answer["id"]: answer for answer in islice(told, 5)}
        given_up.cancel()
        asked.close()
    assert answers.keys() == {1, 2, 3, 4, 5}
    assert answers[2]["result"]["isError"]
    assert answers[2]["result"]["content"][0]["text"].startswith("query:")
    assert answers[3]["result"]["isError"]
    assert "error" in answers[4] or answers[4]["result"]["isError"]
    assert not answers[5]["result"]["isError"]


def heard(process, number):
    """The next answers, of which one that never came would be waited for in vain."""
    process.stdin.flush()
    given_up = threading.Timer(60, process.kill)
    given_up.start()
    answers = [json.loads(answer) for answer in islice(process.stdout, number)]
    given_up.cancel()
    return answers


@pytest.fixture(scope="module")
def talking(home):
    """One process that answered a hello: whatever it refuses, it is there for the next."""
    with greeted(home) as process:
        assert [answer["id"] for answer in heard(process, 1)] == [1]
        yield process
        process.stdin.close()
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}', -32600),
        ('{"jsonrpc": "2.0", "id": 2, "method": "\\ud800"}', -32600),
        ('[{"jsonrpc": "2.0", "id": 2, "method": "ping"}]', -32600),
        ('{"jsonrpc": "2.0", "id": 2, "method": 5}', -32600),
        ('{"jsonrpc": "1", "id": 2, "method": "ping"}', -32600),
        ('{"jsonrpc": "", "id": 2, "method": "ping"}', -32600),
        ('{"jsonrpc": "2.0", "id": 2, "method": "ping", "params": "no"}', -32600),
        (json.dumps({"jsonrpc": '{"jsonrpc": "2.0", "id": 2, "method": "ping"}'}), -32600),
        ('""', -32600),
        ("{no", -32700),
        ("[" * 100_000, -32700),
        (f'{{"jsonrpc": "2.0", "id": 2, "method": "a", "params": {{"b": {"9" * 6_000}}}}}', -32700),
    ],
    ids=str.split("id method batch kind version none text inside empty json depth digits"),
)
def test_a_line_that_is_no_message_is_refused_and_ends_nothing(talking, line, code):
    ping = json.dumps({"jsonrpc": "2.0", "id": 9, "method": "ping"})
    talking.stdin.write(f"\n{line}\n{ping}\n")
    answers = heard(talking, 2)
    refusal = next(answer for answer in answers if "error" in answer)
    assert (refusal["id"], refusal["error"]["code"]) == (None, code)
    assert {answer["id"] for answer in answers} == {None, 9}


@pytest.mark.parametrize(
    "arguments", [["--port", "1"], ["--http", "--port", "65536"], ["--agent", "nobody"]]
)
def test_a_server_that_cannot_start_says_why(home, arguments):
    code, errors = command("--profile", str(home.profile), *arguments)
    assert code == EXIT_USAGE
    assert errors.count("\n") == 1


def test_without_settings_it_does_not_start():
    code, errors = command()
    assert code == EXIT_USAGE
    assert "There is no memory yet" in errors


def test_a_port_that_is_taken_is_named(home):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, errors = command("--profile", str(home.profile), "--http", "--port", str(port))
    assert code == EXIT_USAGE
    assert str(port) in errors


@pytest.mark.parametrize(
    ("content", "mode"), [("short\n", 0o600), ("\xff" * 40, 0o600), ("x" * 43, 0o644)]
)
def test_a_token_that_is_none_or_nobodys_secret_is_refused(tmp_path, content, mode):
    token = tmp_path / "profile.mcp-token"
    token.write_bytes(content.encode("latin-1"))
    token.chmod(mode)
    with pytest.raises(ConfigError, match=r"holds no token|Others may read"):
        own_token(token)


@contextmanager
def greeted(home, **streams):
    """A process that was told hello, over plain pipes."""
    command = [sys.executable, "-m", "memrelay", "mcp", "--profile", str(home.profile)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes | streams) as process:
        asked = unwrap(process.stdin)
        asked.write(json.dumps(HELLO) + "\n")
        asked.flush()
        yield process


def test_an_interrupt_ends_it(home):
    with greeted(home) as process:
        assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == -signal.SIGINT
        assert process.stderr.read() == ""


def test_the_end_of_input_ends_it(home):
    with greeted(home) as process:
        answer, errors = process.communicate(timeout=30)
    assert json.loads(answer)["result"]["serverInfo"]["name"] == "memrelay"
    assert (process.returncode, errors) == (0, "")


def test_it_looks_for_no_cycles_while_and_in_what_it_loads(home):
    """Going through it each time that it had grown took a fifth of a start."""
    tell = """
import atexit, gc, sys
from memrelay.cli import main

def look(phase, info):
    spec = getattr(sys.modules.get("mcp"), "__spec__", None)
    loading.append(spec is not None and spec._initializing)

def show():
    members = vars(sys.modules["mcp"])
    kept = not any(found is members for found in gc.get_objects())
    print(any(loading), kept, gc.isenabled(), file=sys.stderr)

loading = []
gc.callbacks.append(look)
atexit.register(show)
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", tell, "mcp", "--profile", home.profile],
        input="",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.split() == ["False", "True", "True"]


def test_a_client_that_does_not_wait_ends_it(home):
    reader, writer = os.pipe()
    os.close(reader)
    with greeted(home, stdout=writer) as process:
        os.close(writer)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
