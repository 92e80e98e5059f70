"""Every program of `client/examples`, run as its user runs it, against a real relayer."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from memrelay import SyncMemoryClient
from tests.client.openai_scene import FACT, QUESTION, profile
from tests.openai_chat import completion
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, Step, ToolCall
from tests.thinking import server

__all__ = ["profile", "server"]  # fixtures

EXAMPLES = Path(__file__).parents[2] / "client" / "examples"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(profile: Path, server: OpenAIServer) -> Run:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MEMRELAY_", "OPENAI_"))
    } | {
        "MEMRELAY_PROFILE": str(profile),
        "OPENAI_BASE_URL": server.base_url,
        "OPENAI_API_KEY": API_KEY,
        "OPENAI_MODEL": CHAT_MODEL,
    }

    def run(
        name: str, *arguments: str, said: str = "", **more: str
    ) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
        return subprocess.run(
            command,
            env=environment | more,
            input=said,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def output(done: "subprocess.CompletedProcess[str]") -> str:
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def memories(profile: Path) -> list[str]:
    with SyncMemoryClient.from_profile(profile) as memory:
        return [str(one.text) for one in memory.list().memories]


def test_quickstart_finds_by_meaning(run: Run) -> None:
    assert output(run("quickstart.py")) == "Anna prefers green tea over coffee.\n"


def test_standup_keeps_notes_newest_first(run: Run) -> None:
    output(run("standup.py", "Moved", "staging."))
    lines = output(run("standup.py", "Fixed the login.")).splitlines()
    assert [line.split("  ")[1] for line in lines] == ["Fixed the login.", "Moved staging."]
    assert output(run("standup.py")).splitlines() == lines


def test_standup_tells_what_is_wrong_in_one_line(run: Run, tmp_path: Path) -> None:
    done = run("standup.py", "A secret.", MEMRELAY_PROFILE=str(tmp_path / "none.json"))
    assert done.returncode == 1
    assert done.stderr.startswith("standup: There is no profile")
    assert len(done.stderr.splitlines()) == 1
    assert "secret" not in done.stderr


def test_two_agents_share_one_namespace_only(run: Run, profile: Path) -> None:
    known, refused = output(run("two_agents.py")).splitlines()
    assert known == "The coder knows: The report is due on Friday."
    assert refused.startswith("The coder may not: ")
    assert "214" not in refused
    with SyncMemoryClient.from_profile(profile) as owner:
        labelled = [key for key in owner.keys() if key.label]  # noqa: SIM118 - no mapping
    assert [key.revoked for key in labelled] == [True, True]


def test_chat_remembers_in_the_next_chat(run: Run, server: OpenAIServer, profile: Path) -> None:
    server.script(Step(content="Noted, with thanks."), Step(content="Green tea."))
    assert output(run("chat.py", said=f"{FACT}\n")) == "Noted, with thanks.\n"
    assert memories(profile) == [FACT]
    assert output(run("chat.py", said=f"{QUESTION}\n")) == "Green tea.\n"
    first, second = (request.json["messages"] for request in server.received)
    assert first[-1]["content"] == FACT
    assert FACT in second[-1]["content"]


def test_chat_goes_on_without_a_relayer(run: Run, server: OpenAIServer, profile: Path) -> None:
    server.script(Step(content="Green tea."))
    done = run("chat.py", said=f"{QUESTION}\n", MEMRELAY_URL="http://127.0.0.1:9")
    assert (done.returncode, done.stdout) == (0, "Green tea.\n")
    assert QUESTION not in done.stderr


def test_agent_loop_recalls_calls_tools_and_captures(
    run: Run, server: OpenAIServer, profile: Path
) -> None:
    search = ToolCall("memory_search", {"query": "tea in the morning"})
    server.script(
        Step(content="Noted, with thanks."), Step(calls=(search,)), Step(content="Green tea.")
    )
    assert output(run("agent_loop.py", said=f"{FACT}\n")) == "Noted, with thanks.\n"
    assert memories(profile) == [FACT]
    assert output(run("agent_loop.py", said=f"{QUESTION}\n")) == "Green tea.\n"
    asked, answered = (request.json["messages"] for request in server.received[1:])
    assert FACT in asked[-1]["content"]
    assert "memory" in asked[0]["content"]
    assert answered[-1]["role"] == "tool"
    assert FACT in answered[-1]["content"]


@pytest.mark.parametrize("arguments", ["", '{"query": "tea', "[1]", "null", '"tea"'])
def test_agent_loop_survives_malformed_calls(
    run: Run, server: OpenAIServer, arguments: str
) -> None:
    step = completion(CHAT_MODEL, Step(calls=(ToolCall("memory_search"),)))
    step["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = arguments
    server.script(Step(body=json.dumps(step).encode()), Step(content="Green tea."))
    assert output(run("agent_loop.py", said=f"{QUESTION}\n")) == "Green tea.\n"
    assert "query" in server.received[-1].json["messages"][-1]["content"]


def test_agent_loop_ends_when_the_model_does_not(run: Run, server: OpenAIServer) -> None:
    search = ToolCall("memory_search", {"query": "tea"})
    server.script(*[Step(calls=(search,))] * 50)
    assert "stopped" in output(run("agent_loop.py", said=f"{QUESTION}\n"))


def test_the_programs_of_the_first_page_run_without_a_model(profile: Path) -> None:
    page = (EXAMPLES.parent / "README.md").read_text()
    said = []
    for program in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            env={"MEMRELAY_PROFILE": str(profile), "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        said.append(output(done))
    assert said == ["Anna prefers green tea.\n", "The release is on Friday.\n"]


def test_each_example_is_listed_and_short() -> None:
    listed = re.findall(r"^\| \[(\w+\.py)\]\(\1\)", (EXAMPLES / "README.md").read_text(), re.M)
    programs = sorted(EXAMPLES.glob("*.py"))
    assert sorted(listed) == [program.name for program in programs]
    assert all(len(program.read_text().splitlines()) <= 60 for program in programs)
