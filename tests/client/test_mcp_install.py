"""`memrelay mcp install`: clients that start the server by themselves, each with its own key."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from memrelay.config import agent_name
from memrelay.errors import ConfigError
from memrelay.installing.documents import Document
from memrelay.installing.mcp_clients import (
    ALL,
    CLIENTS,
    MANUAL,
    McpClient,
    render_manual_table,
    render_table,
)
from memrelay.installing.program import find_program
from tests.client.agents_scene import KEY, Machine, machine

__all__ = ["machine"]  # a fixture

COMMAND = ["/opt/my tools/memrelay", "mcp", "--profile", "/home/zoë/agents/x.json"]
CURSOR = b'{\r\n\t// mine\r\n\t"mcpServers": {\r\n\t\t"x": {"command": "y"},\r\n\t},\r\n}\r\n'


@pytest.fixture
def home(machine, tmp_path):
    """A home with the files of some clients in it."""
    home = tmp_path / "home"
    machine.environ |= {"HOME": str(home), "PATH": os.environ["PATH"]}
    for name, data in {
        ".cursor/mcp.json": CURSOR,
        ".codex/config.toml": b'model = "x" # mine\n',
        ".gemini/settings.json": b"{}",
    }.items():
        (home / name).parent.mkdir(parents=True)
        (home / name).write_bytes(data)
    return home


def states(machine: Machine, *argv: str) -> dict[str, str]:
    found = machine.json("mcp", "install", "--list", *argv)["clients"]
    return {one["client"]: one["state"] for one in found}


# The table of clients


def test_more_than_25_clients_are_known_and_each_fact_has_a_source():
    assert len(CLIENTS) >= 25
    assert len(ALL) == len(CLIENTS) + len(MANUAL)
    for client in CLIENTS:
        assert agent_name(client.name) == client.name
        assert client.source
        assert client.checked
        assert all(text[0] in "~{" for text in (*client.linux, *client.macos))


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_finds_the_command_that_was_written_for_it(client):
    document = Document("", client.form)
    change = client.change(document, COMMAND)
    if change.is_element:
        changed = document.with_element(change.path, change.value)
    else:
        changed = document.with_value(change.path, change.value)
    assert client.find_command(Document(changed.text, client.form)) == COMMAND
    assert client.find_command(document) is None


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_the_paths_are_those_of_the_system(platform):
    paths = {c.name: str(c.path({"HOME": "/h"}, platform)) for c in CLIENTS}
    settings = "/h/Library/Application Support" if platform == "darwin" else "/h/.config"
    assert paths["vscode"] == f"{settings}/Code/User/mcp.json"
    assert paths["zed"] == "/h/.config/zed/settings.json"
    assert paths["cursor"] == "/h/.cursor/mcp.json"
    assert not [path for path in paths.values() if "{" in path or "~" in path]


def test_variables_that_move_a_clients_folder_are_followed():
    environ = {
        "HOME": "/h",
        "XDG_CONFIG_HOME": "/c",
        "CODEX_HOME": "/x",
        "CLAUDE_CONFIG_DIR": "/y",
        "GEMINI_CLI_HOME": "/z",
    }
    paths = {c.name: str(c.path(environ, "linux")) for c in CLIENTS}
    assert paths["codex"] == "/x/config.toml"
    assert paths["claude-code"] == "/y/.claude.json"
    assert paths["gemini"] == "/z/.gemini/settings.json"
    assert paths["goose"] == "/c/goose/config.yaml"


def test_of_two_names_of_a_file_the_one_that_is_there_counts(tmp_path):
    client = ALL["opencode"]
    assert isinstance(client, McpClient)
    environ = {"HOME": str(tmp_path)}
    assert client.path(environ, "linux").name == "opencode.json"
    (tmp_path / ".config/opencode").mkdir(parents=True)
    (tmp_path / ".config/opencode/opencode.jsonc").touch()
    assert client.path(environ, "linux").name == "opencode.jsonc"


def test_opencode_keeps_the_form_that_its_file_has():
    client = ALL["opencode"]
    assert isinstance(client, McpClient)
    assert client.change(Document("", "json"), COMMAND).path == ("mcp", "memrelay")
    nested = Document('{"mcp": {"servers": {}}}', "json")
    assert client.change(nested, COMMAND).path == ("mcp", "servers", "memrelay")


def test_the_page_lists_the_clients_from_the_table():
    page = (Path(__file__).parents[2] / "client/docs/mcp-clients.md").read_text()
    assert render_table() in page
    assert render_manual_table() in page


# The commands


async def test_a_client_gets_a_key_of_its_own_and_starts_the_server(machine, home):
    path = home / ".cursor/mcp.json"
    done = machine.json("mcp", "install", "cursor")
    [one] = done["clients"]
    assert (one["client"], one["state"], one["file"]) == ("cursor", "installed", str(path))
    assert Path(one["backup"]).read_bytes() == CURSOR
    assert not KEY.search(path.read_text())
    server = Document(path.read_text(), "json").get(("mcpServers", "memrelay"))
    assert Path(server["command"]).is_absolute()
    assert machine.settings("cursor").public_key in machine.live("cursor")
    parameters = StdioServerParameters(command=server["command"], args=server["args"], env={})
    async with Client(stdio_client(parameters)) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert "memory_remember" in tools
        assert "memory_forget_many" not in tools
        result = await client.call_tool("memory_recall", {"query": "x"})
        assert not result.is_error


def test_all_found_clients_are_set_up_once_and_put_back_byte_for_byte(machine, home):
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    first = machine.json("mcp", "install", "--all", "--shared", "team")["clients"]
    assert [one["client"] for one in first] == ["cursor", "gemini", "codex"]
    assert {one["state"] for one in first} == {"installed"}
    assert {
        share
        for a in machine.json("agents", "list")["agents"]
        for g in a["grants"]
        for share in g["namespaces"]
    } == {"cursor", "gemini", "codex", "team"}
    after = {path: path.read_bytes() for path in before}
    again = machine.json("mcp", "install", "--all")["clients"]
    assert {one["state"] for one in again} == {"kept"}
    assert {path: path.read_bytes() for path in before} == after
    assert machine.json("mcp", "uninstall", "--all", "--dry-run")["clients"][0]["state"] == (
        "would be put back"
    )
    gone = machine.json("mcp", "uninstall", "--all", "--revoke")["clients"]
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
    assert [one["client"] for one in gone if one["state"] == "key revoked"] == [
        "codex",
        "cursor",
        "gemini",
    ]
    assert machine.live("cursor") == []


def test_all_tools_are_offered_where_they_are_asked_for(machine, home):
    [one] = machine.json("mcp", "install", "cursor", "--tools", "all")["clients"]
    assert "--tools" not in one["command"]
    [one] = machine.json("mcp", "install", "cursor", "--tools", "read")["clients"]
    assert one["command"][-2:] == ["--tools", "read"]


@pytest.mark.parametrize("project", [False, True])
def test_what_hooks_need_is_taken_out_with_them_alone(machine, home, tmp_path, project):
    folder = tmp_path / "work"
    folder.mkdir()
    machine.run("codex", "install", *(["--project", str(folder)] if project else []))
    machine.run("mcp", "install", "cursor")
    before = (home / ".codex/config.toml").read_bytes()
    gone = machine.json("mcp", "uninstall", "--all", "--revoke")["clients"]
    assert {one["client"] for one in gone} == {"cursor"}
    assert "`memrelay codex uninstall` takes both out" in machine.err
    assert (home / ".codex/config.toml").read_bytes() == before
    assert len(machine.live("codex")) == 1


def test_a_key_that_another_file_still_names_is_not_revoked(machine, home, tmp_path):
    machine.run("mcp", "install", "cursor")
    machine.run("mcp", "install", "cursor", "--project", str(tmp_path))
    assert "out of version control" in machine.err
    machine.run("mcp", "uninstall", "cursor", "--revoke")
    assert machine.live("cursor") != []
    machine.run("mcp", "uninstall", "--all", "--revoke")
    assert machine.live("cursor") == []
    assert not (tmp_path / ".cursor/mcp.json").exists()


def test_the_list_says_what_each_client_has(machine, home):
    found = states(machine)
    assert len(found) == len(CLIENTS)
    assert found["zed"] == "not found here"
    assert found["cursor"] == "not installed"
    machine.run("mcp", "install", "cursor", "codex", "gemini")
    assert states(machine)["cursor"] == "installed"
    path = home / ".cursor/mcp.json"
    path.write_text(path.read_text().replace('"command": "/', '"command": "/older/'))
    (machine.folder / "codex.json").unlink()
    (home / ".gemini/settings.json").write_text("{")
    found = states(machine)
    assert found["cursor"].startswith("another command: /older/")
    assert found["codex"] == f"its key is gone: {machine.folder / 'codex.json'}"
    assert found["gemini"].startswith("unreadable: ")


def test_an_older_command_is_replaced(machine, home):
    machine.run("mcp", "install", "cursor")
    path = home / ".cursor/mcp.json"
    path.write_text(path.read_text().replace('"command": "/', '"command": "/older/'))
    [one] = machine.json("mcp", "install", "cursor")["clients"]
    assert one["state"] == "installed"
    assert states(machine)["cursor"] == "installed"
    machine.run("mcp", "uninstall", "cursor")
    assert path.read_text().split() == CURSOR.decode().split()


def test_a_file_that_does_not_parse_is_left_alone_and_the_others_are_not(machine, home):
    broken = home / ".gemini/settings.json"
    broken.write_text("{ mcpServers")
    done = machine_fails(machine, "mcp", "install", "cursor", "gemini")
    assert [one["client"] for one in done["clients"]] == ["cursor"]
    assert [one["client"] for one in done["failed"]] == ["gemini"]
    assert "Add this to it yourself: mcpServers.memrelay: {" in machine.err
    assert broken.read_text() == "{ mcpServers"


def machine_fails(machine: Machine, *argv: str):
    """Run a command that shows its value and then fails."""
    from memrelay.cli import main

    machine._capsys.readouterr()
    assert main([*argv, "--json"], machine.environ) == 1
    out, machine.err = machine._capsys.readouterr()
    return json.loads(out)


def test_a_dry_run_changes_nothing_and_asks_nobody(machine, home):
    machine.environ["MEMRELAY_URL"] = "http://127.0.0.1:1"
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    text = machine.run("mcp", "install", "--all", "--dry-run")
    assert "mcpServers.memrelay: {" in text
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
    assert not machine.folder.exists()


def test_another_agents_key_can_be_used(machine, home):
    machine.run("agents", "provision", "coder")
    machine.run("mcp", "install", "cursor", "--agent", "coder")
    assert str(machine.folder / "coder.json") in (home / ".cursor/mcp.json").read_text()
    assert machine.live("cursor") == []


def test_a_client_without_a_file_is_set_up_by_hand(machine, home):
    [one] = machine.json("mcp", "install", "cherry-studio")["by_hand"]
    assert one["paste"]["mcpServers"]["memrelay"]["args"][0] == "mcp"
    assert machine.live("cherry-studio") != []
    machine.run("mcp", "uninstall", "cherry-studio", code=2)
    assert "memrelay agents revoke cherry-studio" in machine.err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["install"], "--all or --list"),
        (["install", "curser"], "did you mean cursor?"),
        (["install", "windsurf", "--project"], "no file in a project"),
        (["uninstall"], "or say --all"),
        (["uninstall", "--all"], "Nothing is installed"),
    ],
)
def test_what_makes_no_sense_is_refused(machine, home, argv, words):
    machine.run("mcp", *argv, code=2)
    assert words in machine.err


def test_what_somebody_else_wrote_is_not_taken_out(machine, home):
    path = home / ".gemini/settings.json"
    path.write_text('{"mcpServers": {"memrelay": {"command": "/mine"}}}')
    machine_fails(machine, "mcp", "uninstall", "gemini")
    assert "was not put there by this command" in machine.err
    assert "/mine" in path.read_text()


def test_goose_gets_lines_of_its_yaml(machine, home):
    path = home / ".config/goose/config.yaml"
    machine.environ["XDG_CONFIG_HOME"] = str(home / ".config")
    machine.environ["MEMRELAY_PROFILE"] = str(machine.profile)
    path.parent.mkdir(parents=True)
    path.write_text("GOOSE_MODEL: x # mine\nextensions:\n    developer:\n        enabled: true\n")
    before = path.read_bytes()
    machine.run("mcp", "install", "goose")
    value = yaml.safe_load(path.read_text())["extensions"]["memrelay"]
    assert (value["type"], value["args"][0]) == ("stdio", "mcp")
    machine.run("mcp", "uninstall", "goose")
    assert path.read_bytes() == before


# Where the command is


def test_the_command_is_a_path_that_outlives_an_upgrade(tmp_path, monkeypatch):
    """As `uv tool` lays it: a link on the PATH to a script in an environment."""
    inner = tmp_path / "tools/memrelay/bin/memrelay"
    inner.parent.mkdir(parents=True)
    shutil.copy(sys.executable, inner)
    link = tmp_path / "bin/memrelay"
    link.parent.mkdir()
    link.symlink_to(inner)
    monkeypatch.setattr(sys, "argv", [str(inner)])
    assert find_program({"PATH": str(link.parent)}) == [str(link)]
    assert find_program({"PATH": "/nowhere"}) == [str(inner)]
    other = tmp_path / "other/memrelay"
    other.parent.mkdir()
    shutil.copy(sys.executable, other)
    assert find_program({"PATH": str(other.parent)}) == [str(inner)]


def test_a_command_in_a_cache_is_refused(tmp_path, monkeypatch):
    """As `uvx` starts it."""
    script = tmp_path / ".cache/uv/archive-v0/abc/bin/memrelay"
    script.parent.mkdir(parents=True)
    script.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(script)])
    with pytest.raises(ConfigError, match="emptied by itself"):
        find_program({"PATH": ""})


def test_without_a_script_python_starts_the_module(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["pytest"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert find_program({"PATH": ""}) == [str(tmp_path / "python"), "-m", "memrelay"]
