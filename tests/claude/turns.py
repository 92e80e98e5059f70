"""Sessions of a real Claude Code with the hooks: remembered, framed, and never broken.

`make test-claude` runs this file; `make test`, which needs no Node, does not. The tests run in the
order of the file: the last ones stop the relayer.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.anthropic_server import (
    API_KEY,
    AnthropicServer,
    Block,
    anthropic_server,
    call,
    text,
    words_of,
)
from tests.coding_scene import CodingScene, coding_scene, programs_of

FACT = "I prefer window seats on long flights."
QUESTION = "Which seat do I prefer on long flights?"
BLOCK = "<memwal-memories>"


@dataclass
class Turn:
    """One run of `claude -p`: what it printed, and what its model was asked."""

    out: str
    requests: list[dict[str, Any]]
    seconds: float

    @property
    def asked(self) -> str:
        """All that the model was asked with the first request that is the user's."""
        first = next(one for one in self.requests if one.get("tools"))
        return said_in(first)

    @property
    def tools(self) -> set[str]:
        """The tools that the model was offered."""
        return {tool["name"] for one in self.requests for tool in one.get("tools", ())}


@dataclass
class Claude:
    """A machine with Claude Code and its model."""

    scene: CodingScene
    model: AnthropicServer

    def turn(self, prompt: str, *arguments: str, **environ: str) -> Turn:
        self.model.take()
        began = time.monotonic()
        done = self.scene.run(["claude", "-p", prompt, *arguments], code=0, **environ)
        return Turn(done.stdout, self.model.take(), time.monotonic() - began)


@pytest.fixture(scope="module")
def claude(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[Claude]:
    """A machine with Claude Code on it; its table of results is printed at the end."""
    folder = tmp_path_factory.mktemp("claude")
    with (
        anthropic_server() as model,
        coding_scene(
            folder,
            model_dir,
            "claude",
            "claude-code",
            programs_of("CLAUDE_PROGRAMS"),
            ANTHROPIC_BASE_URL=model.url,
            ANTHROPIC_API_KEY=API_KEY,
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            DISABLE_AUTOUPDATER="1",
        ) as scene,
    ):
        yield Claude(scene, model)
        assert model.faults == []
    version = "Claude Code"
    print(f"\n\n| a real {version} | seen | the turn took |\n|---|---|---|")
    for row in scene.table:
        print(f"| {' | '.join(row)} |")


def said_in(request: Mapping[str, Any]) -> str:
    """All that a request of the model holds of a conversation."""
    return "\n".join(words_of(message["content"]) for message in request["messages"])


Note = Callable[[str, str, float], None]


@pytest.fixture
def note(claude: Claude) -> Note:
    """Adds a row to the table."""
    return lambda what, seen, seconds: claude.scene.table.append((what, seen, f"{seconds:.1f} s"))


def test_a_fact_is_there_in_the_next_session(claude: Claude, note: Note) -> None:
    scene = claude.scene
    before = claude.turn("Say hello, please.")
    note("a turn without memrelay", "the time of the program itself", before.seconds)
    done = scene.memrelay("claude", "install")
    assert done.returncode == 0, done.stderr
    first = claude.turn(FACT)
    assert BLOCK not in first.asked
    scene.wait_for("window seats")
    note("session 1 states a fact", "captured", first.seconds)
    second = claude.turn(QUESTION)
    assert "window seats on long flights" in second.asked.partition(BLOCK)[2]
    note("session 2 asks for it", "given with the prompt", second.seconds)


def test_the_skill_is_offered(claude: Claude) -> None:
    turn = claude.turn("Say hello, please.")
    assert "memrelay" in turn.asked or any(
        "memrelay" in json.dumps(one.get("system", "")) for one in turn.requests
    )


def test_what_is_recalled_stands_in_the_session_file(claude: Claude) -> None:
    """SECURITY.md says so; an import leaves those lines out."""
    files = list(claude.scene.session_files())
    assert any("perhaps outdated" in path.read_text() for path in files)
    for path in files:
        done = claude.scene.memrelay("import", str(path), "--dry-run", "--verbose")
        assert done.returncode == 0, done.stderr
        assert "perhaps outdated" not in done.stdout


def test_the_model_calls_a_tool(claude: Claude, note: Note) -> None:
    """Claude Code offers tools of servers by name only, until the model searches for them."""
    fact = "The offsite of Team Heron is in Lisbon on 2027-03-14."
    name = "mcp__memrelay__memory_remember"

    def answer(request: Mapping[str, Any]) -> list[Block]:
        messages = request["messages"]
        if "look after the offsite" not in said_in(request) or not request.get("tools"):
            return [text("Noted.")]
        asked = json.dumps(messages)
        if fact in asked:
            return [text("It is stored.")]
        if "tool_reference" in asked or asked.count("ToolSearch") > 20:
            return [call(name, {"text": fact}, "toolu_store")]
        return [call("ToolSearch", {"query": f"select:{name}"}, f"toolu_{len(messages)}")]

    claude.model.answer = answer
    turn = claude.turn("Please look after the offsite.", "--allowedTools", f"ToolSearch,{name}")
    claude.model.answer = lambda request: [text("Noted.")]
    assert "It is stored." in turn.out
    claude.scene.wait_for("Lisbon")
    note("the model calls memory_remember", "stored", turn.seconds)


def test_a_sub_agent_that_ends_is_not_the_user(claude: Claude, note: Note) -> None:
    told, of_notice = "I prefer the aisle, says the sub-agent.", "I prefer the middle, says nobody."

    def answer(request: Mapping[str, Any]) -> list[Block]:
        said = said_in(request)
        if "Find out about seats." in words_of(request["messages"][0]["content"]):
            return [text(told)]
        if "<task-notification>" in said:
            return [text(of_notice)]
        agent = "Agent" in {tool["name"] for tool in request.get("tools", ())}
        if "look into the seats" in said and agent and "tool_result" not in json.dumps(request):
            arguments = {
                "description": "Look into seats",
                "prompt": "Find out about seats.",
                "subagent_type": "general-purpose",
            }
            return [call("Agent", arguments)]
        return [text("Noted.")]

    claude.model.answer = answer
    turn = claude.turn("I decided to fly to Graz in May 2027. Please look into the seats.")
    claude.model.answer = lambda request: [text("Noted.")]
    claude.scene.wait_for("Graz")
    assert any("<task-notification>" in said_in(request) for request in turn.requests)
    kept = claude.scene.texts()
    assert not [one for one in kept if "aisle" in one or "middle" in one]
    note("a sub-agent ends in the turn", "only the user's words are kept", turn.seconds)


def test_a_compaction_loses_nothing(claude: Claude, note: Note) -> None:
    first = claude.turn("My dentist is Dr. Aoki in Graz.", "--output-format", "json")
    session = json.loads(first.out)["session_id"]
    done = claude.turn("/compact", "--resume", session)
    claude.scene.wait_for("Aoki")
    turn = claude.turn("Who is my dentist?", "--resume", session)
    assert "Aoki" in turn.asked.partition(BLOCK)[2]
    note("a session is compacted and goes on", "what was said before is recalled", done.seconds)


def test_a_relayer_that_is_away_stops_nothing(claude: Claude, note: Note) -> None:
    claude.scene.relayer.process.terminate()
    claude.scene.relayer.process.wait(timeout=60)
    turns = [claude.turn(f"My locker has the number {n}17.") for n in range(2)]
    assert all("Noted." in turn.out for turn in turns)
    assert all(BLOCK not in turn.asked for turn in turns)
    waiting = list((claude.scene.profiles / "spool").glob("*.turn"))
    assert len(waiting) == 2
    for n, turn in enumerate(turns, 1):
        note(f"the relayer is away, turn {n}", "answered without memory", turn.seconds)


def test_everything_is_put_back(claude: Claude) -> None:
    home = claude.scene.home
    assert claude.scene.memrelay("claude", "uninstall").returncode == 0
    settings = home / ".claude" / "settings.json"
    assert not settings.exists() or "memrelay" not in settings.read_text()
    assert not (home / ".claude" / "skills" / "memrelay").exists()
    assert "mcpServers" not in (home / ".claude.json").read_text() or "memory_recall" not in str(
        claude.turn("Say hello, please.").tools
    )
