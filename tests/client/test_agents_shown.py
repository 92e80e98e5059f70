"""What is shown of agents: the list, their memories, configurations, profiles that are none.

Not here: what a command changes (`test_agents.py`).
"""

import json
import shlex
from pathlib import Path

import pytest

from memrelay.cli import EXIT_FAILED, EXIT_USAGE, build_parser, main
from memrelay.commands.new_keys import default_label
from memrelay.config import Settings
from memrelay.sealed.keys import mask_key
from tests.client.agents_scene import KEY, machine

__all__ = ["machine"]  # fixtures


@pytest.fixture
def strange(machine):
    """A machine with profiles beside its agents that are none of them."""
    machine.provision("coder")
    good = json.loads((machine.folder / "coder.json").read_text())
    contents = {
        "foreign": json.dumps(good | {"account_id": "0x" + "ab" * 32}),
        "torn": '{"private_key": "' + "07" * 32,
        "empty": "{}",
        "wrong": json.dumps(good | {"account_id": 5}),
        "owner": machine.profile.read_text(),
        "shown": json.dumps(good),
    }
    for name, text in contents.items():
        path = machine.folder / f"{name}.json"
        path.write_text(text)
        path.chmod(0o644 if name == "shown" else 0o600)
    return machine


def test_strange_profiles_are_left_out_of_the_list_with_one_warning(strange):
    found = strange.json("agents", "list")["agents"]
    assert [agent["name"] for agent in found] == ["coder"]
    assert found[0]["state"] == "active"
    assert strange.err.count("\n") == 1
    for name in ("foreign", "torn", "empty", "wrong", "shown"):
        assert str(strange.folder / f"{name}.json") in strange.err
    assert "owner holds the whole account" in strange.err
    assert not KEY.search(strange.err)
    assert strange.settings("coder").private_key not in strange.err


def test_strange_profiles_are_in_nobody_elses_way(strange):
    assert strange.provision("coder", "--shared", "team")["state"] == "extended"
    assert strange.provision("researcher")["state"] == "created"
    strange.json("agents", "rotate", "coder")
    strange.json("agents", "revoke", "coder")


@pytest.mark.parametrize("name", ["foreign", "torn", "empty", "wrong", "shown"])
def test_a_strange_profile_is_not_used_and_not_touched(strange, name):
    before = (strange.folder / f"{name}.json").read_bytes()
    for command in ("provision", "rotate", "revoke"):
        strange.run("agents", command, name, code=EXIT_USAGE)
        assert f"{name}.json" in strange.err
    assert (strange.folder / f"{name}.json").read_bytes() == before
    assert strange.live(name) == []


def test_messages_name_commands_that_reach_the_same_agents(machine):
    out = str(machine.profile.with_name("else where"))
    where = ["--out", out, "--profile", str(machine.profile)]
    machine.run("agents", "provision", "coder", "--shared", "team", *where)

    def told(*argv: str) -> list[str]:
        machine.run("agents", *argv, *where, code=EXIT_FAILED)
        return shlex.split(machine.err.split("`")[1])

    rotate = ["memrelay", "agents", "rotate", "coder", *where]
    assert told("provision", "coder", "--shared", "news") == rotate
    Path(out, "coder.json").unlink()
    lost = ["memrelay", "agents", "rotate", "coder", "--lost", *where]
    assert told("provision", "coder") == told("rotate", "coder") == lost
    assert main(lost[1:], machine.environ) == 0
    machine.run("keys", "add", "--namespace", "coder", "--label", "coder")
    Path(out, "coder.json").unlink()
    assert told("rotate", "coder") == ["memrelay", "agents", "revoke", "coder", *where]
    assert told("rotate", "coder")
    machine.run("recall", "x", "--agent", "x", "--profile", where[3], code=EXIT_USAGE)
    command = ["memrelay", "agents", "provision", "x", "--profile", where[3]]
    assert shlex.split(machine.err.split("`")[1]) == command


def test_counting_again_counts_the_same(machine):
    machine.run("agents", "provision", "coder")
    machine.run("remember", "a", "--agent", "coder")
    for _ in range(2):
        (agent,) = machine.json("agents", "list", "--count")["agents"]
        assert agent["written"] == 1


def test_the_list_says_who_holds_what_and_wrote_how_much(machine):
    machine.run("agents", "provision", "researcher", "--shared", "team", "--shared-role", "reader")
    machine.run("agents", "provision", "coder", "--expires", "2100-01-01T00:00:00Z")
    doomed = machine.json("remember", "a", "--agent", "coder")["id"]
    for text in ("b", "c"):
        machine.run("remember", text, "--agent", "coder")
    machine.run("forget", doomed, "--agent", "coder")
    machine.run("remember", "owner's own", "--namespace", "coder")
    gone = machine.provision("gone")
    machine.run("agents", "revoke", "gone")
    found = {agent["name"]: agent for agent in machine.json("agents", "list", "--count")["agents"]}
    assert {name: agent["written"] for name, agent in found.items()} == {
        "researcher": 0,
        "coder": 2,
        "gone": 0,
    }
    assert found["gone"] == gone | {
        "state": "revoked",
        "grants": [],
        "profile": None,
        "written": 0,
    }
    shown = machine.run("agents", "list")
    lines = dict(line.split("\t", 1) for line in shown.splitlines())
    assert "writer of researcher; reader of team" in lines["researcher"]
    assert "writer of coder until 2100-01-01 00:00Z" in lines["coder"]
    assert "revoked" in lines["gone"]
    (machine.folder / "coder.json").unlink()
    assert "no profile here" in machine.run("agents", "list")


def test_whoever_may_read_sees_which_key_wrote_which_memory(machine):
    agents = {name: machine.provision(name, "--shared", "team") for name in ("a1", "b2")}
    for name in agents:
        machine.run("remember", f"by {name}", "--agent", name, "--namespace", "team")
    machine.run("remember", "by me", "--namespace", "team")
    page = machine.json("list", "--namespace", "team")["memories"]
    assert {m["text"]: m.get("writer_label") for m in page} == {
        "by a1": "a1",
        "by b2": "b2",
        "by me": default_label(),
    }
    [first] = [m for m in page if m.get("writer_label") == "a1"]
    assert first["writer"] == agents["a1"]["public_key"]
    lines = machine.run("list", "--namespace", "team").splitlines()
    shown = {(line.split("\t")[1], line.split("\t")[4]) for line in lines}
    assert {("by a1", "a1"), ("by b2", "b2")} < shown
    theirs = machine.json("list", "--namespace", "team", "--agent", "b2")["memories"]
    assert {m["text"]: m.get("writer_label") for m in theirs} == {
        "by a1": "a1",
        "by b2": "b2",
        "by me": default_label(),
    }
    lines = machine.run("list", "--namespace", "team", "--agent", "b2").splitlines()
    assert ("by a1", "a1") in {(line.split("\t")[1], line.split("\t")[4]) for line in lines}


def test_search_and_status_of_one_agent(machine):
    """capability 0.44: search takes --limit and --agent; status tells health, key and toggles."""
    agent = machine.provision("coder")
    for text in ("tea is green", "tea is black"):
        machine.run("remember", text, "--agent", "coder")
    assert len(machine.json("recall", "tea", "--agent", "coder")["results"]) == 2
    assert len(machine.json("recall", "tea", "--agent", "coder", "--limit", "1")["results"]) == 1
    assert machine.json("recall", "tea")["results"] == []
    value = machine.json("status", "--agent", "coder")
    assert value["health"]["status"]
    assert value["version"]["relayerVersion"]
    assert value["public_key"] == agent["public_key"]
    assert value["namespace"] == "coder"
    assert value["gateway"] == {"auto_recall": True, "auto_capture": True}
    machine.profile.with_name("gateway.toml").write_text("auto_capture = false\n")
    shown = machine.run("status", "--agent", "coder")
    key = agent["public_key"]
    assert f"{key[:4]}…{key[-4:]} in the namespace coder" in shown
    assert "recall on, capture off" in shown


def test_an_agents_name_wins_over_the_environment(machine):
    machine.run("agents", "provision", "coder", "researcher")
    machine.environ["MEMRELAY_PRIVATE_KEY"] = machine.settings("researcher").private_key
    machine.environ["MEMRELAY_NAMESPACE"] = "researcher"
    assert machine.json("status", "--agent", "coder")["namespace"] == "coder"


def test_keys_are_shown_masked(machine):
    """capability 0.41: people are shown the ends of public keys, and no private one."""
    agent = machine.provision("coder", "--shared", "team")
    secret = machine.settings("coder").private_key
    shown = [
        machine.run("agents", "provision", "coder", "researcher"),
        machine.run("agents", "list", "--count"),
        machine.run("keys", "list"),
        machine.run("status", "--agent", "coder"),
        machine.run("list", "--agent", "coder"),
        machine.run("agents", "rotate", "coder"),
        machine.run("agents", "revoke", "coder"),
    ]
    key = agent["public_key"]
    assert f"{key[:4]}…{key[-4:]}" in shown[0]
    assert not any(KEY.search(text) for text in shown)
    values = [machine.json("agents", *argv) for argv in (["list"], ["provision", "coder"])]
    assert secret not in json.dumps(values)
    assert "private" not in json.dumps(values)


def test_keys_are_shown_with_the_hour_in_which_they_last_asked(machine):
    out = machine.run("agents", "provision", "coder", "researcher", "--json")
    coder, researcher = json.loads(out)["agents"]
    machine.run("remember", "Anna prefers tea.", "--agent", "coder")
    listed = machine.json("keys", "list")["keys"]
    used = {key["public_key"]: key["last_used_at"] for key in listed}
    assert used[coder["public_key"]].endswith(":00:00.000Z")
    assert used[researcher["public_key"]] is None
    shown = {row[0]: row for row in map(str.split, machine.run("keys", "list").splitlines())}
    assert "-" in shown[mask_key(researcher["public_key"])]
    assert "-" not in shown[mask_key(coder["public_key"])]
    agents = {agent["name"]: agent for agent in machine.json("agents", "list")["agents"]}
    assert agents["coder"]["last_used_at"] == used[coder["public_key"]]
    assert "last_used_at" not in agents["researcher"]
    rows = [line.split("\t") for line in machine.run("agents", "list").splitlines()]
    hours = {row[0]: row[5] for row in rows}
    assert hours["coder"].endswith(":00Z")
    assert hours["researcher"] == "-"


@pytest.mark.parametrize("target", ["openclaw", "hermes", "mcp", "json", None])
def test_a_gateways_configuration_holds_no_key(machine, target):
    """capability 0.40: configuration names a profile; the private key is never part of it."""
    chosen = [] if target is None else ["--for", target]
    shown = machine.run("agents", "provision", "coder", "researcher", *chosen) + machine.err
    value = machine.run("agents", "provision", "coder", "researcher", *chosen, "--json")
    for name in ("coder", "researcher"):
        assert name in shown
        assert machine.settings(name).private_key not in shown + value + machine.err
    assert "private" not in shown + value


def test_configuration_for_mcp(machine):
    value = json.loads(machine.run("agents", "provision", "coder", "--for", "mcp"))
    owner = str(machine.profile)
    command = {"command": "memrelay", "args": ["mcp", "--agent", "coder", "--profile", owner]}
    assert value == {"mcpServers": {"memrelay": command}}
    value = json.loads(machine.run("agents", "provision", "coder", "researcher", "--for", "mcp"))
    assert list(value["mcpServers"]) == ["memrelay-coder", "memrelay-researcher"]
    out = machine.profile.with_name("elsewhere")
    shown = machine.run("agents", "provision", "far", "--out", str(out), "--for", "mcp")
    args = ["mcp", "--profile", str(out / "far.json")]
    assert json.loads(shown)["mcpServers"]["memrelay"]["args"] == args
    assert not (machine.folder / "far.json").exists()
    assert machine.rotate("far", "--out", str(out))["profile"] == args[2]


def test_configuration_for_gateways_is_commands_that_exist(machine):
    for target in ("openclaw", "hermes"):
        shown = machine.run("agents", "provision", "coder", "--for", target)
        commands = [line for line in shown.splitlines() if not line.startswith("#")]
        assert commands
        for line in commands:
            program, *argv = shlex.split(line)
            assert program == "memrelay"
            assert build_parser().parse_args(argv).profile == str(machine.profile)
    shown = machine.run("agents", "provision", "coder", "--for", "mcp")
    server = json.loads(shown)["mcpServers"]["memrelay"]
    assert server["command"] == "memrelay"
    assert build_parser().parse_args(server["args"]).agent == "coder"


def test_configuration_for_an_environment(machine, tmp_path):
    shown = machine.run("agents", "provision", "coder", "--for", "env")
    assert "private key" in machine.err
    assignments = [shlex.split(line) for line in shown.splitlines()]
    assert all(words[0] == "export" and len(words) == 2 for words in assignments)
    environ = dict(words[1].split("=", 1) for words in assignments)
    settings = Settings.load(environ=environ | {"XDG_CONFIG_HOME": str(tmp_path / "none")})
    assert settings.private_key == machine.settings("coder").private_key
    assert (settings.namespace, settings.url) == ("coder", machine.url)
    assert settings.relayer_key == machine.settings("coder").relayer_key


def test_private_keys_come_as_json_only_when_asked(machine):
    shown = machine.run("agents", "provision", "coder", "--for", "json", "--show-keys")
    (agent,) = json.loads(shown)["agents"]
    assert agent["private_key"] == machine.settings("coder").private_key


def test_that_there_are_no_agents_is_said(machine):
    assert machine.run("agents", "list") == ""
    assert "No agents yet: `memrelay agents provision NAME` makes one." in machine.err
    assert machine.run("agents", "list", "c*") == ""
    assert "No agent fits." in machine.err
    assert machine.json("agents", "list") == {"agents": []}
    assert machine.err == ""
