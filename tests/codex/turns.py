"""Sessions of a real Codex with the hooks: none without trust, and with it all that hooks promise.

`make test-codex` runs this file; `make test`, which needs no Node, does not. The tests run in the
order of the file: the last ones stop the relayer. Trust is a person's, so that the runs pass over
it by Codex' own switch for automation.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.coding_scene import CodingScene, coding_scene, programs_of
from tests.loopback_model import LoopbackModel, Reply, loopback_model

FACT = "I prefer window seats on long flights."
QUESTION = "Which seat do I prefer on long flights?"
BLOCK = "<memwal-memories>"
API_KEY = "zq-codex-key"


def respond(path: str, headers: Mapping[str, str], body: Any) -> Reply:
    """Answer as the Responses API does."""
    if not path.startswith("/v1/responses"):
        return Reply(value={"models": [], "data": []})
    if headers.get("authorization") != f"Bearer {API_KEY}":
        return Reply(fault="no key")
    if not isinstance(body, dict) or not isinstance(body.get("input"), list):
        return Reply(fault="no input")
    said = json.dumps(body["input"])
    waits = "wait for the tools" in said and said.count("function_call_output") < 4
    item = (
        _make_call(said)
        if waits and "mcp__memrelay" not in json.dumps(body)
        else {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Noted.", "annotations": []}],
        }
    )
    usage = {
        "input_tokens": 10,
        "input_tokens_details": None,
        "output_tokens": 2,
        "output_tokens_details": None,
        "total_tokens": 12,
    }
    return Reply(
        events=(
            {"type": "response.created", "response": {"id": "resp_1"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}},
        )
    )


def _make_call(said: str) -> dict[str, Any]:
    """Return a call of the shell that takes a while: servers of tools start in the background."""
    arguments = json.dumps({"cmd": "sleep 4"})
    return {
        "type": "function_call",
        "name": "exec_command",
        "arguments": arguments,
        "call_id": f"call_{len(said)}",
    }


@dataclass
class Codex:
    """A machine with Codex and its model."""

    scene: CodingScene
    model: LoopbackModel

    def turn(self, prompt: str, *, trusts: bool = True) -> tuple[str, float]:
        """Return all that the model was asked in a session, and how long that took."""
        self.model.take()
        began = time.monotonic()
        trust = ["--dangerously-bypass-hook-trust"] if trusts else []
        done = self.scene.run(["codex", "exec", "--skip-git-repo-check", *trust, prompt])
        assert "Noted." in done.stdout
        return json.dumps(self.model.take()), time.monotonic() - began


@pytest.fixture(scope="module")
def codex(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[Codex]:
    """A machine with Codex on it; its table of results is printed at the end."""
    folder = tmp_path_factory.mktemp("codex")
    programs = programs_of("CODEX_PROGRAMS")
    with (
        loopback_model(respond) as model,
        coding_scene(folder, model_dir, "codex", "codex", programs, LOOP_KEY=API_KEY) as scene,
    ):
        home = scene.home / ".codex"
        home.mkdir()
        (home / "config.toml").write_text(
            '# mine\nmodel = "loop"\nmodel_provider = "loop"\n\n[model_providers.loop]\n'
            f'name = "loop"\nbase_url = "{model.url}/v1"\nenv_key = "LOOP_KEY"\n'
        )
        yield Codex(scene, model)
        assert model.faults == []
    print("\n\n| a real Codex | seen | the turn took |\n|---|---|---|")
    for row in scene.table:
        print(f"| {' | '.join(row)} |")


Note = Callable[[str, str, float], None]


@pytest.fixture
def note(codex: Codex) -> Note:
    """Adds a row to the table."""
    return lambda what, seen, seconds: codex.scene.table.append((what, seen, f"{seconds:.1f} s"))


def test_without_trust_no_hook_runs_and_status_says_so(codex: Codex, note: Note) -> None:
    done = codex.scene.memrelay("codex", "install")
    assert "start `codex` once" in done.stderr
    _, seconds = codex.turn("My gym is in Graz.", trusts=False)
    assert list((codex.scene.profiles / "hooks").glob("prompts/*")) == []
    status = json.loads(codex.scene.memrelay("codex", "status", "--json").stdout)
    ours = [command for found in status["hooks"].values() for command in found]
    assert [status["trust"][command] for command in ours] == ["untrusted"] * 5
    assert "5 of 5 hooks are not trusted" in codex.scene.memrelay("codex", "status").stdout
    note("the hooks are not trusted", "none runs, `codex status` says so", seconds)


def test_a_fact_is_there_in_the_next_session(codex: Codex, note: Note) -> None:
    asked, seconds = codex.turn(FACT)
    assert BLOCK not in asked
    codex.scene.wait_for("window seats")
    note("session 1 states a fact", "captured", seconds)
    asked, seconds = codex.turn(QUESTION)
    assert "window seats on long flights" in asked.partition(BLOCK)[2]
    note("session 2 asks for it", "given with the prompt", seconds)
    assert not [text for text in codex.scene.texts() if "gym" in text]


def test_the_skill_is_offered(codex: Codex) -> None:
    asked, _ = codex.turn("Say hello, please.")
    assert "Long-term memory across sessions" in asked


def test_the_tools_are_offered(codex: Codex, note: Note) -> None:
    asked, seconds = codex.turn("Please wait for the tools.")
    assert "mcp__memrelay" in asked
    assert "memory_recall" in asked
    note("tools of the MCP server", "offered once the server has started", seconds)


def test_what_is_recalled_stands_in_the_session_file_and_is_not_imported(codex: Codex) -> None:
    files = list(codex.scene.session_files())
    assert any("perhaps outdated" in path.read_text() for path in files)
    for path in files:
        done = codex.scene.memrelay("import", str(path), "--dry-run", "--verbose")
        assert done.returncode == 0, done.stderr
        assert "perhaps outdated" not in done.stdout


def test_a_relayer_that_is_away_stops_nothing(codex: Codex, note: Note) -> None:
    codex.scene.relayer.process.terminate()
    codex.scene.relayer.process.wait(timeout=60)
    for number in range(2):
        asked, seconds = codex.turn(f"My locker has the number {number}17.")
        assert BLOCK not in asked
        note(f"the relayer is away, turn {number + 1}", "answered without memory", seconds)
    assert len(list((codex.scene.profiles / "spool").glob("*.turn"))) == 2


def test_everything_is_put_back(codex: Codex) -> None:
    assert codex.scene.memrelay("codex", "uninstall").returncode == 0
    home = codex.scene.home / ".codex"
    assert "memrelay" not in (home / "config.toml").read_text()
    assert not (home / "hooks.json").exists()
    assert not (home / "skills" / "memrelay").exists()
