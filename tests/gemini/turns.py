"""Sessions of a real Gemini CLI with the hooks: remembered, framed, and never broken.

`make test-gemini` runs this file; `make test`, which needs no Node, does not. The tests run in the
order of the file: the last ones stop the relayer.
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
BLOCK = "&lt;memwal-memories&gt;"  # Gemini CLI escapes what a hook gives
API_KEY = "zq-gemini-key"
MINE = {"security": {"auth": {"selectedType": "gemini-api-key"}}}


def respond(path: str, headers: Mapping[str, str], body: Any) -> Reply:
    """Answer as the Gemini API does; what is no stream chooses a model, as JSON."""
    if headers.get("x-goog-api-key") != API_KEY:
        return Reply(fault="no key")
    if ":streamGenerateContent" not in path and ":generateContent" not in path:
        return Reply(fault=f"no such route: {path}")
    if not isinstance(body, dict) or not body.get("contents"):
        return Reply(fault="no contents")
    is_stream = ":streamGenerateContent" in path
    text = "Noted." if is_stream else '{"reasoning": "simple", "model_choice": "flash"}'
    answer = {
        "candidates": [
            {
                "content": {"role": "model", "parts": [{"text": text}]},
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11},
    }
    return Reply(events=(answer,)) if is_stream else Reply(value=answer)


@dataclass
class Gemini:
    """A machine with Gemini CLI and its model."""

    scene: CodingScene
    model: LoopbackModel

    def turn(self, prompt: str) -> tuple[str, float]:
        """Return all that the model was asked in a session, and how long that took."""
        self.model.take()
        began = time.monotonic()
        done = self.scene.run(["gemini", "-p", prompt])
        assert "Noted." in done.stdout
        return json.dumps(self.model.take()), time.monotonic() - began


@pytest.fixture(scope="module")
def gemini(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[Gemini]:
    """A machine with Gemini CLI on it; its table of results is printed at the end."""
    folder = tmp_path_factory.mktemp("gemini")
    with (
        loopback_model(respond) as model,
        coding_scene(
            folder,
            model_dir,
            "gemini",
            "gemini",
            programs_of("GEMINI_PROGRAMS"),
            GOOGLE_GEMINI_BASE_URL=model.url,
            GEMINI_API_KEY=API_KEY,
            GEMINI_CLI_TRUST_WORKSPACE="true",
        ) as scene,
    ):
        settings = scene.home / ".gemini" / "settings.json"
        settings.parent.mkdir()
        settings.write_text(json.dumps(MINE))
        yield Gemini(scene, model)
        assert model.faults == []
    print("\n\n| a real Gemini CLI | seen | the turn took |\n|---|---|---|")
    for row in scene.table:
        print(f"| {' | '.join(row)} |")


Note = Callable[[str, str, float], None]


@pytest.fixture
def note(gemini: Gemini) -> Note:
    """Adds a row to the table."""
    return lambda what, seen, seconds: gemini.scene.table.append((what, seen, f"{seconds:.1f} s"))


def test_a_fact_is_there_in_the_next_session(gemini: Gemini, note: Note) -> None:
    _, seconds = gemini.turn("Say hello, please.")
    note("a turn without memrelay", "the time of the program itself", seconds)
    done = gemini.scene.memrelay("gemini", "install")
    assert done.returncode == 0, done.stderr
    asked, seconds = gemini.turn(FACT)
    assert BLOCK not in asked
    gemini.scene.wait_for("window seats")
    note("session 1 states a fact", "captured", seconds)
    asked, seconds = gemini.turn(QUESTION)
    assert "window seats on long flights" in asked.partition(BLOCK)[2]
    assert "memory_recall" in asked
    note("session 2 asks for it", "given with the prompt", seconds)


def test_what_is_recalled_is_not_imported(gemini: Gemini) -> None:
    files = list(gemini.scene.session_files())
    assert any("perhaps outdated" in path.read_text() for path in files)
    for path in files:
        done = gemini.scene.memrelay("import", str(path), "--dry-run", "--verbose")
        assert done.returncode == 0, done.stderr
        assert "perhaps outdated" not in done.stdout


def test_a_relayer_that_is_away_stops_nothing(gemini: Gemini, note: Note) -> None:
    gemini.scene.relayer.process.terminate()
    gemini.scene.relayer.process.wait(timeout=60)
    for number in range(2):
        asked, seconds = gemini.turn(f"My locker has the number {number}17.")
        assert BLOCK not in asked
        note(f"the relayer is away, turn {number + 1}", "answered without memory", seconds)
    assert len(list((gemini.scene.profiles / "spool").glob("*.turn"))) == 2


def test_everything_is_put_back(gemini: Gemini) -> None:
    assert gemini.scene.memrelay("gemini", "uninstall").returncode == 0
    settings = gemini.scene.home / ".gemini" / "settings.json"
    assert "memrelay" not in settings.read_text()
    assert not (gemini.scene.home / ".gemini" / "skills" / "memrelay").exists()
