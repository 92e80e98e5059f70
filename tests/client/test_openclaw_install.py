"""Install and uninstall on real configuration files: exact, repeatable, and taken back."""

import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from memrelay import ConfigError, Settings
from memrelay.cli import main
from memrelay.gateway.endpoint import Endpoint
from memrelay.openclaw import Configuration, config_path
from memrelay.sealed.keys import Identity, account_id_of, account_text
from tests.client.gateway_scene import write_profile

SEED = "3f" * 32
STARTS: dict[str, Any] = {
    "nothing": {},
    "empty parts": {"plugins": {"load": {}, "entries": {}}, "tools": {}},
    "another memory": {
        "plugins": {
            "slots": {"memory": "memory-lancedb", "contextEngine": "legacy"},
            "entries": {"memory-lancedb": {"enabled": True}},
        }
    },
    "a list of tools": {"tools": {"allow": ["read", "write"], "deny": ["exec"]}},
    "a profile of tools": {"tools": {"profile": "coding", "alsoAllow": ["message"]}},
    "all tools": {"tools": {"allow": ["*"]}},
    "a list of plugins": {
        "plugins": {"allow": ["telegram"], "load": {"paths": ["/opt/other"]}},
    },
    "an entry of its own": {
        "plugins": {
            "entries": {
                "memrelay": {
                    "enabled": False,
                    "hooks": {"timeoutMs": 9000},
                    "config": {"dreaming": {"enabled": True}, "relevanceMin": 0.5},
                }
            }
        }
    },
    "strange letters": {"agents": {"entries": {"zoë": {"name": "Zoë 🦞"}}}, "z": None},
}


@dataclass
class Home:
    """A user's home with OpenClaw's configuration and a profile in it."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.folder / ".openclaw/openclaw.json"

    @property
    def profiles(self) -> Path:
        return self.folder / ".config/memrelay"

    def write(self, text: str, mode: int = 0o600) -> None:
        self.config.parent.mkdir(exist_ok=True)
        self.config.write_text(text, newline="")
        self.config.chmod(mode)

    def values(self) -> Any:
        return json.loads(self.config.read_text())

    def run(self, action: str, *arguments: str) -> int:
        return main(["openclaw", action, *arguments], self.environ)

    def install(self) -> Any:
        """Install, and return the configuration."""
        assert self.run("install", "--yes") == 0
        return self.values()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / ".config")}
    founder = Identity.from_hex(SEED)
    account_id = account_text(account_id_of(founder.public_key))
    settings = Settings(url="http://127.0.0.1:1", account_id=account_id, private_key=SEED)
    write_profile(home.profiles / "profile.json", settings)
    home.write(json.dumps({"gateway": {"port": 18789}}, indent=2))
    return home


def program(folder: Path, says: str) -> str:
    """A folder for PATH, with a command `openclaw` that tells a version."""
    folder.mkdir()
    (folder / "openclaw").write_text(f"#!/bin/sh\necho '{says}'\n")
    (folder / "openclaw").chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


class TestInstall:
    def test_everything_that_openclaw_needs_is_there(self, home: Home) -> None:
        """capability 0.6: the hooks get their access, and the tools stand in the allow-list."""
        values = home.install()
        plugin = home.profiles / "openclaw-plugin"
        assert values == {
            "gateway": {"port": 18789},
            "plugins": {
                "load": {"paths": [str(plugin)]},
                "slots": {"memory": "memrelay"},
                "entries": {
                    "memrelay": {
                        "enabled": True,
                        "hooks": {"allowConversationAccess": True},
                        "config": {
                            "dreaming": {"enabled": False},
                            "endpoint": str(home.profiles / "gateway.json"),
                        },
                    }
                },
            },
            "tools": {"alsoAllow": ["memrelay"]},
        }
        assert json.loads((plugin / "openclaw.plugin.json").read_text())["id"] == "memrelay"
        assert (plugin / "skills/memrelay/SKILL.md").exists()
        # OpenClaw refuses files that have another name elsewhere.
        assert {f.stat().st_nlink for f in plugin.rglob("*") if f.is_file()} == {1}

    def test_what_the_user_has_stays(self, home: Home) -> None:
        home.write(json.dumps(STARTS["an entry of its own"]))
        entry = home.install()["plugins"]["entries"]["memrelay"]
        assert entry["hooks"] == {"timeoutMs": 9000, "allowConversationAccess": True}
        assert entry["config"]["dreaming"] == {"enabled": True}
        assert entry["config"]["relevanceMin"] == 0.5

    @pytest.mark.parametrize(
        ("start", "path", "expected"),
        [
            ("a list of tools", ("tools", "allow"), ["read", "write", "memrelay"]),
            ("a profile of tools", ("tools", "alsoAllow"), ["message", "memrelay"]),
            ("all tools", ("tools", "allow"), ["*"]),
            ("a list of plugins", ("plugins", "allow"), ["telegram", "memrelay"]),
        ],
    )
    def test_lists_are_added_to(
        self, home: Home, start: str, path: tuple[str, str], expected: list[str]
    ) -> None:
        home.write(json.dumps(STARTS[start]))
        values = home.install()
        assert values[path[0]][path[1]] == expected
        # OpenClaw refuses a scope that has both lists.
        assert not {"allow", "alsoAllow"} <= set(values.get("tools", ()))

    def test_no_key_gets_anywhere_near(
        self, home: Home, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """capability 0.40: no private key is written into openclaw.json, nor shown."""
        home.install()
        shown = capsys.readouterr()
        written = [
            file.read_text()
            for folder in (home.config.parent, home.profiles)
            for file in folder.rglob("*")
            if file.is_file() and file.name != "profile.json"
        ]
        assert len(written) > 5
        assert not [text for text in (*written, shown.out, shown.err) if SEED in text]

    def test_a_second_time_nothing_changes(
        self, home: Home, capsys: pytest.CaptureFixture[str]
    ) -> None:
        home.install()
        before = home.config.read_bytes()
        capsys.readouterr()
        assert home.run("install", "--yes", "--json") == 0
        assert json.loads(capsys.readouterr().out)["changes"] == []
        assert home.config.read_bytes() == before

    def test_a_newer_plugin_replaces_the_older_one(self, home: Home) -> None:
        home.install()
        plugin = home.profiles / "openclaw-plugin"
        (plugin / "index.js").write_text("old")
        (plugin / "gone.js").write_text("old")
        home.install()
        assert "register(api)" in (plugin / "index.js").read_text()
        assert not (plugin / "gone.js").exists()

    @pytest.mark.parametrize("mode", [0o600, 0o640])
    def test_mode_and_a_backup_are_kept(self, home: Home, mode: int) -> None:
        home.write('{"a": 1}\n', mode)
        home.install()
        backup = home.config.with_name("openclaw.json.before-memrelay")
        assert stat.S_IMODE(home.config.stat().st_mode) == mode
        assert backup.read_text() == '{"a": 1}\n'
        assert stat.S_IMODE(backup.stat().st_mode) == 0o600

    def test_it_is_shown_before_it_is_written(
        self, home: Home, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = home.config.read_bytes()
        assert home.run("install") == 2
        shown = capsys.readouterr()
        assert 'plugins.slots.memory: "memrelay"' in shown.out
        assert "--yes" in shown.err
        assert home.run("install", "--json") == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["written"], len(told["changes"])) == (False, 4)
        assert home.config.read_bytes() == before
        assert sorted(path.name for path in home.profiles.iterdir()) == ["profile.json"]

    def test_memory_files_stay_as_they_are(self, home: Home) -> None:
        """capability 0.7: MEMORY.md and its like are left alone, as is their search."""
        workspace = home.folder / ".openclaw/workspace"
        (workspace / "memory").mkdir(parents=True)
        (workspace / "MEMORY.md").write_text("- tea")
        (workspace / "memory/2026-11-21.md").write_text("- coffee")
        home.write('{"agents": {"defaults": {"memorySearch": {"enabled": true}}}}')
        assert home.install()["agents"] == {"defaults": {"memorySearch": {"enabled": True}}}
        found = {path.name: path.read_text() for path in workspace.rglob("*.md")}
        assert found == {"MEMORY.md": "- tea", "2026-11-21.md": "- coffee"}


class TestUninstall:
    @pytest.mark.parametrize("start", STARTS)
    @pytest.mark.parametrize(
        "written",
        [
            lambda values: json.dumps(values, indent=2, ensure_ascii=False) + "\n",
            lambda values: json.dumps(values, indent="\t", ensure_ascii=False),
            lambda values: json.dumps(values, indent=4, ensure_ascii=False).replace("\n", "\r\n"),
        ],
        ids=["spaces", "tabs", "windows"],
    )
    def test_the_file_is_what_it_was(
        self, home: Home, start: str, written: Callable[[Any], str]
    ) -> None:
        home.write(written(STARTS[start]))
        before = home.config.read_bytes()
        home.install()
        assert home.config.read_bytes() != before
        assert home.run("uninstall", "--yes") == 0
        assert home.config.read_bytes() == before
        assert sorted(path.name for path in home.profiles.iterdir()) == ["profile.json"]

    def test_the_memory_before_gets_its_slot_back(self, home: Home) -> None:
        home.write(json.dumps(STARTS["another memory"]))
        assert home.install()["plugins"]["slots"]["memory"] == "memrelay"
        home.install()  # a second time does not take our own slot for what was there before
        assert home.run("uninstall", "--yes") == 0
        assert home.values()["plugins"]["slots"]["memory"] == "memory-lancedb"

    def test_what_the_user_changed_since_stays(self, home: Home) -> None:
        values = home.install()
        values["plugins"]["slots"]["memory"] = "memory-core"
        values["plugins"]["load"]["paths"].insert(0, "/opt/other")
        values["plugins"]["entries"]["memrelay"]["config"]["autoRecall"] = False
        values["tools"]["alsoAllow"].append("message")
        values["new"] = True
        home.write(json.dumps(values))
        assert home.run("uninstall", "--yes") == 0
        assert home.values() == {
            "gateway": {"port": 18789},
            "plugins": {"load": {"paths": ["/opt/other"]}, "slots": {"memory": "memory-core"}},
            "tools": {"alsoAllow": ["message"]},
            "new": True,
        }

    def test_what_was_removed_by_hand_is_no_obstacle(self, home: Home) -> None:
        home.install()
        home.write('{"plugins": {"load": 5}}')
        assert home.run("uninstall", "--yes") == 0
        assert home.values() == {"plugins": {"load": 5}}

    def test_what_cannot_be_edited_any_more_is_left_and_the_lines_are_shown(
        self, home: Home, capsys: pytest.CaptureFixture[str]
    ) -> None:
        home.install()
        text = "// mine\n" + home.config.read_text()
        home.write(text)
        capsys.readouterr()
        assert home.run("uninstall", "--yes") == 2
        shown = capsys.readouterr()
        assert 'plugins.slots.memory: "memrelay"' in shown.out
        assert "yourself" in shown.err
        assert home.config.read_text() == text

    @pytest.mark.parametrize(
        "record",
        [
            "{",
            "[1]",
            "7",
            pytest.param("[" * 20_000, id="deep"),
            '{"CONFIG": 5}',
            '{"CONFIG": [5]}',
            '{"CONFIG": [{"value": 1}]}',
            '{"CONFIG": [{"path": ["a"], "value": 1, "later": 2}]}',
        ],
    )
    def test_a_damaged_record_is_told(
        self, home: Home, capsys: pytest.CaptureFixture[str], record: str
    ) -> None:
        home.install()
        before = home.config.read_bytes()
        path = home.profiles / "openclaw-install.json"
        path.write_text(record.replace("CONFIG", str(home.config.resolve())))
        capsys.readouterr()
        assert home.run("uninstall", "--yes") == 2
        assert capsys.readouterr().err == f"memrelay: {path} is damaged; remove it.\n"
        assert home.config.read_bytes() == before

    def test_without_an_install_nothing_happens(self, home: Home) -> None:
        before = home.config.read_bytes()
        assert home.run("uninstall", "--yes") == 0
        assert home.config.read_bytes() == before

    def test_it_is_shown_before_it_is_written(self, home: Home) -> None:
        home.install()
        before = home.config.read_bytes()
        assert home.run("uninstall") == 2
        assert home.config.read_bytes() == before


class TestPrerequisites:
    @pytest.mark.parametrize(
        "text",
        [
            '{\n  // my gateway\n  "gateway": {}\n}',
            "{gateway: {}}",
            '{"a": 1,}',
            '{"a": 1, "a": 2}',
            "[]",
            '{"$include": "./base.json"}',
            '{"plugins": {"$include": "./plugins.json"}}',
            '{"name": "\\ud83c"}',
            '{"plugins": null}',
            '{"plugins": {"load": {"paths": "/opt"}}}',
            '{"plugins": {"slots": []}}',
            '{"plugins": {"entries": null}}',
            '{"plugins": {"deny": null}}',
            '{"tools": {"alsoAllow": null}}',
            "",
            pytest.param("[" * 60_000, id="too deep to be read"),
            pytest.param(f'{{"a": {"[" * 600}{"]" * 600}}}', id="too deep to be written"),
        ],
    )
    def test_what_cannot_be_edited_is_left_and_the_lines_are_shown(
        self, home: Home, capsys: pytest.CaptureFixture[str], text: str
    ) -> None:
        home.write(text)
        assert home.run("install", "--yes") == 2
        shown = capsys.readouterr()
        assert json.loads(shown.out)["plugins"]["slots"] == {"memory": "memrelay"}
        assert "Merge the lines" in shown.err
        assert home.config.read_text() == text
        assert (home.profiles / "openclaw-plugin/index.js").exists()

    def test_a_missing_profile_is_told(
        self, home: Home, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """capability 2.26: what is missing is said before anything is written, and what to type."""
        (home.profiles / "profile.json").unlink()
        before = home.config.read_bytes()
        assert home.run("install", "--yes") == 2
        assert "memrelay init" in capsys.readouterr().err
        assert home.config.read_bytes() == before

    def test_a_missing_configuration_is_told(
        self, home: Home, capsys: pytest.CaptureFixture[str]
    ) -> None:
        home.config.unlink()
        assert home.run("install", "--yes") == 2
        assert "openclaw onboard" in capsys.readouterr().err
        assert not home.config.exists()

    @pytest.mark.parametrize("says", ["OpenClaw 2026.8.31 (0badc0d)", "OpenClaw 2025.12.1"])
    def test_an_old_openclaw_is_refused(
        self, home: Home, capsys: pytest.CaptureFixture[str], says: str
    ) -> None:
        """capability 2.26: a version that cannot load the plugin is refused."""
        home.environ["PATH"] = program(home.folder / "bin", says)
        before = home.config.read_bytes()
        assert home.run("install", "--yes") == 2
        assert "openclaw update" in capsys.readouterr().err
        assert home.config.read_bytes() == before

    @pytest.mark.parametrize(
        ("says", "warned"), [("OpenClaw 2026.10.1 (0badc0d)", False), ("no version", True)]
    )
    def test_a_new_or_silent_openclaw_is_not(
        self, home: Home, capsys: pytest.CaptureFixture[str], says: str, warned: bool
    ) -> None:
        home.environ["PATH"] = program(home.folder / "bin", says)
        assert home.run("install", "--yes") == 0
        assert ("did not tell its version" in capsys.readouterr().err) is warned

    def test_a_gateway_that_does_not_run_is_told(
        self, home: Home, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """capability 2.26: install says when the gateway is not running, and how to start it."""
        home.install()
        assert "start it with `memrelay gateway`" in capsys.readouterr().err
        Endpoint(token="0", proof="0", socket="/nowhere").write(home.profiles / "gateway.json")
        home.install()
        assert "start it with `memrelay gateway`" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("plugins", "said"),
        [({"enabled": False}, "plugins.enabled"), ({"deny": ["memrelay"]}, "plugins.deny")],
    )
    def test_what_the_user_forbade_is_not_undone(
        self, home: Home, capsys: pytest.CaptureFixture[str], plugins: Any, said: str
    ) -> None:
        home.write(json.dumps({"plugins": plugins}))
        assert home.run("install", "--yes") == 2
        assert said in capsys.readouterr().err
        assert home.values() == {"plugins": plugins}


class TestWhere:
    @pytest.mark.parametrize(
        ("environ", "expected"),
        [
            ({}, "/home/a/.openclaw/openclaw.json"),
            ({"OPENCLAW_HOME": "/srv"}, "/srv/.openclaw/openclaw.json"),
            ({"OPENCLAW_STATE_DIR": "/var/oc"}, "/var/oc/openclaw.json"),
            ({"OPENCLAW_STATE_DIR": " ~/oc "}, "/home/a/oc/openclaw.json"),
            ({"OPENCLAW_CONFIG_PATH": "~/x.json", "OPENCLAW_STATE_DIR": "/v"}, "/home/a/x.json"),
            ({"OPENCLAW_CONFIG_PATH": "", "OPENCLAW_STATE_DIR": ""},
             "/home/a/.openclaw/openclaw.json"),
        ],
        ids=str,
    )  # fmt: skip
    def test_the_configuration_is_the_one_that_openclaw_reads(
        self, environ: dict[str, str], expected: str
    ) -> None:
        assert config_path({"HOME": "/home/a", **environ}) == Path(expected)

    def test_a_named_file_is_used(self, home: Home) -> None:
        other = home.folder / "other.json"
        other.write_text("{}")
        assert home.run("install", "--yes", "--config", str(other)) == 0
        assert "memrelay" in other.read_text()
        assert "memrelay" not in home.config.read_text()

    def test_the_plugin_stays_while_another_openclaw_uses_it(self, home: Home) -> None:
        other = home.folder / "other.json"
        other.write_text("{}")
        for path in (other, home.config):
            assert home.run("install", "--yes", "--config", str(path)) == 0
        plugin = home.profiles / "openclaw-plugin"
        assert home.run("uninstall", "--yes") == 0
        assert plugin.exists()
        assert home.run("uninstall", "--yes", "--config", str(other)) == 0
        assert not plugin.exists()

    def test_a_link_is_followed_and_stays_one(self, home: Home) -> None:
        real = home.folder / "real.json"
        os.rename(home.config, real)
        home.config.symlink_to(real)
        home.install()
        assert home.config.is_symlink()
        assert home.run("uninstall", "--yes") == 0
        assert json.loads(real.read_text()) == {"gateway": {"port": 18789}}


def test_what_somebody_else_wrote_meanwhile_stays(home: Home) -> None:
    config = Configuration(home.config)
    home.write('{"written": "by OpenClaw"}')
    with pytest.raises(ConfigError, match="changed meanwhile"):
        config.replace("{}")
    assert home.values() == {"written": "by OpenClaw"}


def test_what_is_missing_can_be_looked_up(home: Home) -> None:
    plugin, endpoint = home.profiles / "openclaw-plugin", home.profiles / "gateway.json"
    values = home.install()
    assert Configuration(home.config).find_missing(plugin=plugin, endpoint=endpoint) == []
    del values["plugins"]["entries"]["memrelay"]["hooks"]
    home.write(json.dumps(values))
    [change] = Configuration(home.config).find_missing(plugin=plugin, endpoint=endpoint)
    assert "allowConversationAccess" in str(change)
