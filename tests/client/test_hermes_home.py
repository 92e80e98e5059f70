"""What `memrelay hermes` writes into a Hermes home and takes back; no Hermes, no relayer."""

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memrelay.cli import main
from memrelay.errors import ConfigError
from memrelay.gateway import Context
from memrelay.gateway.guards import agent_of, namespace_of
from memrelay.hermes.choice import Choice, NotEditable
from memrelay.hermes.home import HermesSettings, home_path, save_settings
from memrelay.secure_files import write_private

PROFILE = {"url": "http://127.0.0.1:9", "account_id": "0x" + "ab" * 32, "private_key": "07" * 32}
CONFIG = "# mine\nmodel:\n  default: x  # the fast one\n\nmemory:\n  memory_enabled: true\n"


@dataclass
class Machine:
    folder: Path
    environ: dict[str, str]

    @property
    def home(self) -> Path:
        return self.folder / ".hermes"

    @property
    def config(self) -> Path:
        return self.home / "config.yaml"

    @property
    def profile(self) -> Path:
        return self.folder / "config" / "memrelay" / "profile.json"

    @property
    def settings(self) -> Any:
        return json.loads((self.home / "memrelay.json").read_text())

    def run(self, *arguments: str) -> int:
        return main(["hermes", *arguments], self.environ)

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A user with a profile and a Hermes home, but no command hermes."""
    environ = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PATH": str(tmp_path / "bin"),
    }
    machine = Machine(tmp_path, environ)
    machine.home.mkdir()
    machine.config.write_text(CONFIG)
    write_private(machine.profile, PROFILE)
    return machine


def program(machine: Machine, first_line: str, python: str) -> None:
    """Put a command hermes on the path, and an interpreter beside it that does as told."""
    folder = machine.folder / "bin"
    folder.mkdir()
    for name, text in (("hermes", f"{first_line}\n"), ("python", f"#!/bin/sh\n{python}\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def test_installed_twice_it_is_as_once_and_uninstalled_as_before(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    before = machine.files()
    machine.config.chmod(0o640)
    assert machine.run("install", "--yes") == 0
    assert "memory.provider memrelay" in capsys.readouterr().out
    installed = machine.files()
    assert machine.config.read_text() == CONFIG.replace(
        "memory:\n", "memory:\n  provider: memrelay\n"
    )
    assert stat.S_IMODE(machine.config.stat().st_mode) == 0o640
    assert machine.settings == {"profile": str(machine.profile)}
    assert "register_memory_provider" in (machine.home / "plugins/memrelay/__init__.py").read_text()
    assert not any(b"07" * 32 in data for name, data in installed.items() if "hermes" in name)
    assert machine.run("install", "--yes") == 0
    assert "nothing to change" in capsys.readouterr().out
    assert machine.files() == installed
    assert machine.run("uninstall", "--yes") == 0
    assert machine.files() == before
    assert machine.run("uninstall", "--yes") == 0
    assert machine.files() == before


def test_json_tells_what_would_change_and_writes_only_when_told(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    before = machine.files()
    assert machine.run("install", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (len(told["changes"]), told["written"], told["usable"]) == (3, False, None)
    assert machine.files() == before
    assert machine.run("install", "--json", "--yes") == 0
    assert json.loads(capsys.readouterr().out)["written"] is True
    assert machine.run("uninstall", "--json") == 0
    assert json.loads(capsys.readouterr().out)["written"] is False
    assert machine.files() != before


def test_without_a_yes_nothing_is_written(machine: Machine) -> None:
    before = machine.files()
    assert machine.run("install") == 2
    assert machine.files() == before


def test_the_provider_before_comes_back_beside_what_changed_since(machine: Machine) -> None:
    machine.config.write_text("memory:\n  provider: mem0  # paid until May\n")
    machine.run("install", "--yes")
    machine.config.write_text(machine.config.read_text() + "model:\n  default: y\n")
    assert machine.run("uninstall", "--yes") == 0
    expected = "memory:\n  provider: mem0  # paid until May\nmodel:\n  default: y\n"
    assert machine.config.read_text() == expected


def test_a_provider_that_was_chosen_since_stays(machine: Machine) -> None:
    machine.run("install", "--yes")
    machine.config.write_text("memory:\n  provider: mem0\n")
    assert machine.run("uninstall", "--yes") == 0
    assert machine.config.read_text() == "memory:\n  provider: mem0\n"
    assert not (machine.home / "plugins" / "memrelay").exists()


def test_what_the_user_tuned_stays(machine: Machine) -> None:
    machine.run("install", "--yes")
    save_settings(machine.home, {"settings": {"autoCapture": False}})
    machine.run("install", "--yes", "--profile", str(machine.profile))
    assert machine.settings["settings"] == {"autoCapture": False}
    machine.run("uninstall", "--yes")
    assert machine.settings["settings"] == {"autoCapture": False}


def test_a_configuration_that_is_not_plain_is_left_alone(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.config.write_text("memory: {provider: mem0}\n")
    assert machine.run("install", "--yes") == 2
    told = capsys.readouterr()
    assert told.out == "memory:\n  provider: memrelay\n"
    assert "config.yaml: line 1" in told.err
    assert machine.config.read_text() == "memory: {provider: mem0}\n"
    assert machine.run("uninstall", "--yes") == 2


def test_a_configuration_behind_a_link_is_edited_in_its_place(machine: Machine) -> None:
    real = machine.folder / "dotfiles.yaml"
    machine.config.rename(real)
    machine.config.symlink_to(real)
    machine.run("install", "--yes")
    assert machine.config.is_symlink()
    assert "provider: memrelay" in real.read_text()


def test_an_agent_needs_a_profile_of_its_own(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    before = machine.files()
    assert machine.run("install", "--yes", "--agent", "coder") == 2
    assert "agents provision coder" in capsys.readouterr().err
    assert machine.files() == before
    own = machine.profile.parent / "agents" / "coder.json"
    write_private(own, PROFILE | {"namespace": "coder"})
    assert machine.run("install", "--yes", "--agent", "Coder") == 0
    assert machine.settings == {"profile": str(machine.profile), "agent": "coder"}
    assert machine.run("install", "--yes") == 0  # for everybody again
    assert machine.settings == {"profile": str(machine.profile)}
    assert machine.run("install", "--yes", "--profile", str(own)) == 0
    assert machine.settings == {"profile": str(own), "agent": "main"}


def test_a_key_in_the_environment_is_not_written_anywhere(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.profile.unlink()
    assert machine.run("install", "--yes") == 2
    for name, value in PROFILE.items():
        machine.environ[f"MEMRELAY_{name.upper()}"] = value
    assert machine.run("install", "--yes") == 0
    assert "Hermes needs the same variables" in capsys.readouterr().err
    assert not any(b"07" * 32 in data for data in machine.files().values())


@pytest.mark.parametrize(
    ("first_line", "python", "said", "usable"),
    [
        ("#!/bin/sh", "echo True", "", True),
        ("#!/usr/bin/env python3", "echo True", "", True),
        ("#!/bin/sh", "echo True; exit 1", "bin/python -m pip install ./client`", False),
        ("#!/bin/sh", "echo False; exit 1", "uv pip install --python", False),
    ],
)
def test_the_python_of_hermes_is_asked(
    machine: Machine, capsys: pytest.CaptureFixture[str], first_line: str, python: str,
    said: str, usable: bool,
) -> None:  # fmt: skip
    program(machine, first_line, python)
    assert machine.run("install", "--yes", "--json") == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["usable"] is usable
    assert said in told.err
    assert bool(said) == bool(told.err)


def test_the_home_is_the_one_that_hermes_itself_would_use(machine: Machine) -> None:
    profiles = machine.home / "profiles"
    for name in ("coder", "writer"):
        (profiles / name).mkdir(parents=True)
    environ = dict(machine.environ)
    assert home_path(None, environ) == machine.home
    (machine.home / "active_profile").write_text("coder\n")
    assert home_path(None, environ) == profiles / "coder"
    environ["HERMES_HOME"] = str(profiles / "writer")
    assert home_path(None, environ) == profiles / "writer"
    assert home_path(str(machine.home), environ) == machine.home
    (machine.home / "active_profile").write_text("gone")
    with pytest.raises(ConfigError, match="hermes setup"):
        home_path(None, machine.environ)


def test_whose_memory_it_is() -> None:
    settings = HermesSettings()
    assert [settings.agent_in(name) for name in (None, "", "default", "custom")] == [None] * 4
    assert settings.agent_in("coder") == "coder"
    assert HermesSettings(agent="anna").agent_in("coder") == "anna"
    assert HermesSettings(agent="main").agent_in("coder") == "main"


@pytest.mark.parametrize("name", ["main", "Main"])
def test_a_profile_called_main_does_not_share_the_memory_of_the_one_without_a_name(
    name: str,
) -> None:
    agents = [HermesSettings().agent_in(identity) for identity in (None, name)]
    contexts = [Context(agent_id=agent) for agent in agents]
    assert len({agent_of(context) for context in contexts}) == 2
    assert len({namespace_of(context) for context in contexts}) == 2


@pytest.mark.parametrize(
    "values",
    [
        {"key": "07" * 32},
        {"profile": 1},
        {"agent": ["coder"]},
        {"agent": "../coder"},
        {"settings": []},
        {"settings": {"recallResultsMax": 0}},
    ],
)
def test_malformed_settings_are_not_saved(tmp_path: Path, values: dict[str, Any]) -> None:
    save_settings(tmp_path, {"agent": "anna"})
    with pytest.raises(ConfigError) as caught:
        save_settings(tmp_path, values)
    assert "07" * 32 not in str(caught.value)
    assert json.loads((tmp_path / "memrelay.json").read_text()) == {"agent": "anna"}
    assert os.listdir(tmp_path) == ["memrelay.json"]


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("", "memory:\n  provider: memrelay\n"),
        ("a: 1", "a: 1\nmemory:\n  provider: memrelay\n"),
        ("a:\n- 1\n", "a:\n- 1\nmemory:\n  provider: memrelay\n"),
        ("memory:\n", "memory:\n  provider: memrelay\n"),
        ("memory:  # ours\nb: 1\n", "memory:  # ours\n  provider: memrelay\nb: 1\n"),
        ("memory:\n    k: 1\n", "memory:\n    provider: memrelay\n    k: 1\n"),
        ("memory:\n  provider: ''\n", "memory:\n  provider: memrelay\n"),
        ('memory:\n  provider: "mem0" # x\n', "memory:\n  provider: memrelay # x\n"),
        ("memory:\n  provider:\n  k: 1\n", "memory:\n  provider: memrelay\n  k: 1\n"),
        ("memory:\r\n  provider: a\r\n", "memory:\r\n  provider: memrelay\r\n"),
        ("a: 1\r\n", "a: 1\r\nmemory:\r\n  provider: memrelay\r\n"),
        (
            "x: |\n  memory:\n    provider: z\nmemory:\n  k:\n  - 1\n",
            "x: |\n  memory:\n    provider: z\nmemory:\n  provider: memrelay\n  k:\n  - 1\n",
        ),
        (
            "memory:\n  k: >\n    provider: z\n",
            "memory:\n  provider: memrelay\n  k: >\n    provider: z\n",
        ),
    ],
)
def test_one_line_is_set_and_all_others_stay(text: str, changed: str) -> None:
    assert Choice(text).replace_value("memrelay") == changed
    assert Choice(changed).replace_value("memrelay") == changed
    assert Choice(changed).value == "memrelay"


@pytest.mark.parametrize(
    "text",
    [
        "memory: {provider: x}\n",
        "{memory: {provider: x}}\n",
        "memory: null\n",
        "memory: &a\n  provider: x\n",
        "memory: *a\n",
        "'memory':\n  provider: x\n",
        "memory:\n- a\n",
        "memory:\n  - a\n",
        "memory:\n  {provider: x}\n",
        "memory:\n\tprovider: x\n",
        "memory:\n  provider: >\n    x\n",
        "memory:\n  provider:\n    x\n",
        "memory:\n  provider: !!str x\n",
        "memory:\n  provider: x y\n",
        "memory:\n  'provider': x\n",
        "memory:\n  provider: x\n  provider: y\n",
        "memory:\n    k: 1\n  provider: x\n",
        "memory:\n  k: 1\nmemory:\n  k: 2\n",
        "memory:\n  k: 1\n---\nb: 1\n",
        "a: 1\n...\n",
        "  a: 1\n",
        "# c\n\n ---\n",
        "---\n  memory:\n    provider: x\n",
        "  memory:\n    provider: x\na: 1\n",
        "<<: *defaults\n",
        "? memory\n: 1\n",
    ],
)
def test_what_is_not_plain_is_refused(text: str) -> None:
    with pytest.raises(NotEditable):
        Choice(text)
