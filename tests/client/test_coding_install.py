"""The commands that install hooks: what they write, what they leave alone, and the way back."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from memrelay.cli import main
from memrelay.coding.codex_trust import find_trust
from memrelay.coding.hosts import HOSTS
from memrelay.coding.skill import SKILL
from memrelay.config import agents_folder
from memrelay.errors import MemrelayError
from memrelay.mcp.tools import tools_of
from tests.client.shell_scene import Machine

FILES = {
    "claude": (".claude/settings.json", ".claude.json", ".claude/skills/memrelay/SKILL.md"),
    "codex": (".codex/hooks.json", ".codex/config.toml", ".codex/skills/memrelay/SKILL.md"),
    "gemini": (
        ".gemini/settings.json",
        ".gemini/settings.json",
        ".gemini/skills/memrelay/SKILL.md",
    ),
}
AGENT = {"claude": "claude-code", "codex": "codex", "gemini": "gemini"}


class Home:
    """A user's home folder, in which commands run."""

    def __init__(self, folder: Path, machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.machine = machine
        self._capsys = capsys

    def __call__(self, *argv: str, code: int = 0) -> Any:
        environ = {"HOME": str(self.folder)}
        given = [*argv, "--profile", str(self.machine.profile), "--json"]
        assert main(given, environ) == code, self._capsys.readouterr().err
        out, self.err = self._capsys.readouterr()
        return json.loads(out) if out else None

    def states(self, *argv: str) -> list[str]:
        return [one["state"] for one in self(*argv)["changes"]]

    def files(self) -> dict[str, bytes]:
        """All files in the home folder, by their paths in it."""
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}


@pytest.fixture
def home(
    run: Machine,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Home:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Home(folder, run, capsys)


@pytest.mark.parametrize("host", ["claude", "codex", "gemini"])
def test_everything_is_there_once_and_goes_again(home: Home, host: str) -> None:
    hooks, tools, skill = FILES[host]
    assert set(home.states(host, "install", "--dry-run")) == {"would be changed"}
    assert home.files() == {}
    assert set(home.states(host, "install")) == {"installed"}
    first = home.files()
    assert set(first) == {hooks, tools, skill} | {f for f in first if "before-memrelay" in f}
    assert set(home.states(host, "install")) == {"kept"}
    assert home.files() == first
    state = home(host, "status")
    assert [len(found) for found in state["hooks"].values()] == [1] * len(HOSTS[host].events)
    assert state["skill"]
    assert state["mcp"]
    profile = agents_folder(home.machine.profile, {}) / f"{AGENT[host]}.json"
    assert state["profile"] == str(profile)
    owner = json.loads(home.machine.profile.read_text())["private_key"]
    own = json.loads(profile.read_text())["private_key"]
    written = b"".join(first.values()).decode()
    assert owner not in written
    assert own not in written
    home(host, "uninstall")
    assert home.files() == {}


@pytest.mark.parametrize("host", ["claude", "codex", "gemini"])
def test_what_the_user_has_there_stays_and_comes_back(home: Home, host: str) -> None:
    hooks, tools, _ = FILES[host]
    stop = HOSTS[host].events["stop"].name
    own = {"hooks": [{"type": "command", "command": "say done"}]}
    path = home.folder / hooks
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"model": "x", "hooks": {stop: [own]}}, indent=4) + "\n")
    path.chmod(0o640)
    if tools.endswith(".toml"):
        (home.folder / tools).write_text('# mine\nmodel = "x"\n')
    before = home.files()
    home(host, "install")
    groups = json.loads(path.read_text())["hooks"][stop]
    assert groups[0] == own
    assert len(groups) == 2
    assert path.stat().st_mode & 0o777 == 0o640
    home(host, "uninstall")
    assert home.files() == before


def test_what_was_changed_since_stays(home: Home) -> None:
    home("claude", "install")
    path = home.folder / ".claude/settings.json"
    values = json.loads(path.read_text())
    values["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "mine"}]})
    path.write_text(json.dumps(values | {"model": "y"}))
    home("claude", "uninstall")
    left = json.loads(path.read_text())
    assert left["model"] == "y"
    assert left["hooks"] == {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}


def test_a_damaged_file_is_left_alone(home: Home) -> None:
    path = home.folder / ".claude/settings.json"
    path.parent.mkdir()
    path.write_text("{ not json")
    home("claude", "install", code=2)
    assert "settings.json" in home.err
    assert path.read_text() == "{ not json"
    assert not agents_folder(home.machine.profile, {}).exists()  # no key for nothing


def test_a_skill_that_the_user_changed_is_not_removed(home: Home) -> None:
    home("claude", "install")
    skill = home.folder / FILES["claude"][2]
    skill.write_text(f"{SKILL}\nMine.\n")
    home("claude", "uninstall")
    assert "Mine." in skill.read_text()


def test_commands_and_timeouts_are_those_of_the_first_release(home: Home) -> None:
    """Codex asks its user for new trust when one of them changes."""
    home("codex", "install")
    hooks = json.loads((home.folder / ".codex/hooks.json").read_text())["hooks"]
    seen = []
    for name, (group,) in hooks.items():
        (handler,) = group["hooks"]
        program, *words = shlex.split(handler["command"])
        words = words[2:] if words[:1] == ["-m"] else words
        assert Path(program).is_absolute()
        profile = ["--profile", str(home.machine.profile)]
        assert words[-2:] == profile
        seen.append((name, words[:-2], handler["timeout"], set(handler), set(group)))
    told = ["--host", "codex", "--agent", "codex"]
    keys = {"type", "command", "timeout"}
    assert seen == [
        ("SessionStart", ["hook", "session-start", *told], 5, keys, {"hooks"}),
        ("UserPromptSubmit", ["hook", "prompt", *told], 5, keys, {"hooks"}),
        ("Stop", ["hook", "stop", *told], 10, keys, {"hooks"}),
        ("PreCompact", ["hook", "compact", *told], 5, keys, {"hooks"}),
        ("SessionEnd", ["hook", "session-end", *told], 3, keys, {"hooks"}),
    ]


def test_gemini_counts_in_milliseconds_and_gets_one_process(home: Home) -> None:
    home("gemini", "install")
    hooks = json.loads((home.folder / ".gemini/settings.json").read_text())["hooks"]
    assert set(hooks) == {"SessionStart", "BeforeAgent", "AfterAgent", "SessionEnd"}
    handlers = [group["hooks"][0] for (group,) in hooks.values()]
    assert all(handler["timeout"] >= 1000 for handler in handlers)
    assert all(handler["command"].startswith("exec ") for handler in handlers)


def test_a_project_gets_a_namespace_and_no_second_hook(home: Home) -> None:
    project = home.folder / "shop"
    (project / ".git").mkdir(parents=True)
    (project / ".git/config").write_text('[remote "origin"]\n\turl = https://example.org/a/shop\n')
    home("claude", "install")
    report = home("claude", "install", "--project", str(project))["changes"]
    assert [one["what"] for one in report] == ["mcp", "skill", "project"]
    assert not (project / ".claude").exists()
    held = home("agents", "list")["agents"][0]["grants"]
    names = {name for grant in held for name in grant["namespaces"]}
    assert names == {"claude-code", "project:example.org/a/shop"}
    assert home("claude", "status")["projects"] == ["project:example.org/a/shop"]
    home("claude", "uninstall", "--project", str(project))
    assert home("claude", "status")["projects"] == []
    assert home("claude", "status")["mcp"]


def test_hooks_can_stand_in_a_project_alone(home: Home) -> None:
    project = home.folder / "shop"
    project.mkdir()
    home("claude", "install", "--project", str(project))
    assert (project / ".claude/settings.local.json").exists()
    assert not (home.folder / ".claude/settings.json").exists()
    home("claude", "uninstall", "--project", str(project))
    assert not (project / ".claude/settings.local.json").exists()


@pytest.mark.parametrize("host", ["claude", "codex", "gemini"])
def test_hooks_of_all_folders_take_the_place_of_a_projects(home: Home, host: str) -> None:
    project = home.folder / "shop"
    project.mkdir()
    home(host, "install", "--project", str(project))
    assert list(project.rglob("*.json"))
    home(host, "install")
    assert not list(project.rglob("*.json"))
    assert len(home(host, "status")["projects"]) == 1  # its namespace stays


@pytest.mark.parametrize("host", ["claude", "codex", "gemini"])
def test_hooks_from_elsewhere_are_replaced_and_run_once(home: Home, host: str) -> None:
    """They come with a file from another machine, or stay behind when an environment moves."""
    path = home.folder / FILES[host][0]
    stop = HOSTS[host].events["stop"].name
    home(host, "install")
    text = path.read_text().replace(find_words(path, stop)[0], "/gone/memrelay")
    (home.machine.profile.parent / "installed.json").unlink()
    groups = json.loads(text)
    # One of the user's stands in the same group, as a person may arrange them.
    say = {"type": "command", "command": "say done"}
    groups["hooks"][stop][0]["hooks"].append(say)
    path.write_text(json.dumps(groups, indent=2))
    assert home(host, "install", "--dry-run")["changes"][0]["state"] == "would be changed"
    assert "installed" in home.states(host, "install")
    state = home(host, "status")
    assert [len(found) for found in state["hooks"].values()] == [1] * len(HOSTS[host].events)
    assert "/gone/" not in path.read_text()
    assert json.loads(path.read_text())["hooks"][stop][0] == {"hooks": [say]}
    assert "installed" not in home.states(host, "install")
    home(host, "uninstall")
    assert json.loads(path.read_text())["hooks"] == {stop: [{"hooks": [say]}]}


def test_hooks_without_a_record_can_be_taken_back_after_an_install(home: Home) -> None:
    path = home.folder / FILES["claude"][0]
    home("claude", "install")
    (home.machine.profile.parent / "installed.json").unlink()
    home("claude", "install")
    home("claude", "uninstall")
    assert "hook" not in path.read_text()


def test_no_project_gets_hooks_beside_those_of_all_folders(home: Home) -> None:
    home("claude", "install")
    (home.machine.profile.parent / "installed.json").unlink()
    project = home.folder / "shop"
    project.mkdir()
    home("claude", "install", "--project", str(project))
    assert not list(project.rglob("*.json"))


def test_status_names_a_program_that_is_gone(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home("claude", "install")
    path = home.folder / FILES["claude"][0]
    path.write_text(path.read_text().replace(find_words(path, "Stop")[0], "/gone/memrelay"))
    argv = ["claude", "status", "--profile", str(home.machine.profile)]
    assert main(argv, {"HOME": str(home.folder)}) == 0
    told = capsys.readouterr().out
    assert "/gone/memrelay is gone" in told
    assert "`memrelay claude install`" in told


def test_status_says_whose_key_the_hooks_use(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home("claude", "install", "--agent", "other")
    argv = ["claude", "status", "--profile", str(home.machine.profile)]
    assert main(argv, {"HOME": str(home.folder)}) == 0
    assert "`memrelay claude status --agent other`" in capsys.readouterr().out


def test_tools_that_cannot_start_are_told(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    for argv in (["claude", "install"], ["claude", "status"], ["mcp", "install", "cursor"]):
        told = [*argv, "--profile", str(home.machine.profile)]
        assert main(told, {"HOME": str(home.folder)}) == 0
        assert 'pip install "./client[mcp]"' in "".join(capsys.readouterr())


def find_words(path: Path, event: str) -> list[str]:
    """The words of our command for an event in a file."""
    [group] = json.loads(path.read_text())["hooks"][event]
    return [word for word in shlex.split(group["hooks"][0]["command"]) if word != "exec"]


def test_homes_that_were_moved_are_found(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    moved = {
        "claude": ("CLAUDE_CONFIG_DIR", "settings.json"),
        "codex": ("CODEX_HOME", "hooks.json"),
        "gemini": ("GEMINI_CLI_HOME", ".gemini/settings.json"),
    }
    for host, (variable, name) in moved.items():
        folder = home.folder / f"moved-{host}"
        environ = {"HOME": str(home.folder), variable: str(folder)}
        argv = [host, "install", "--profile", str(home.machine.profile)]
        assert main(argv, environ) == 0
        assert (folder / name).exists()
    capsys.readouterr()


def test_codex_says_what_a_person_has_to_do(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["codex", "install", "--profile", str(home.machine.profile)]
    assert main(argv, {"HOME": str(home.folder)}) == 0
    told = capsys.readouterr().err
    assert "start `codex` once" in told
    assert "plain text" in told


@pytest.mark.parametrize(
    "answer", ["", "not json", '{"id": 2, "error": {}}', '{"id": 2, "result": 5}']
)
def test_a_codex_that_tells_nothing_is_no_failure(tmp_path: Path, answer: str) -> None:
    program = tmp_path / "codex"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.stdin.readline()\nprint({answer!r})\n")
    program.chmod(0o700)
    with pytest.raises(MemrelayError, match="did not tell"):
        find_trust(str(program), tmp_path, {})


def test_the_skill_names_tools_that_there_are() -> None:
    names = {tool.name for tool in tools_of(None)}  # type: ignore[arg-type]  # none is called
    named = {word.strip("`,") for word in SKILL.split() if word.startswith("`memory_")}
    assert named
    assert named <= names
