"""Commands on many agents: names, patterns, files; killed and taken up again; who sees what.

Not here: what a command does to one agent (`test_agents.py`), 1,000 of them (`bench/agents.py`).
"""

import json
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memrelay.agents.account import AgentAccount
from memrelay.cli import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, main
from memrelay.errors import MemrelayError
from tests.client.agents_scene import grants, machine
from tests.client.breakpoints import breakpoint_at, killed_at

__all__ = ["machine"]  # fixtures

NAMES = [f"w{number}" for number in range(6)]


def agents(machine, *argv: str) -> dict[str, dict[str, Any]]:
    return {agent["name"]: agent for agent in machine.json("agents", *argv)["agents"]}


def reads(machine, name: str, namespace: str) -> bool:
    """Whether an agent can list a namespace, by the command."""
    return main(["list", "--agent", name, "--namespace", namespace], machine.environ) == 0


@pytest.fixture
def named(machine, tmp_path):
    """A file with the names of some agents."""
    file = tmp_path / "names.txt"
    lines = "\n".join(NAMES[:3])
    file.write_text(f"# workers\n{lines}  # the first half\n\n{' '.join(NAMES[3:])}\n")
    return str(file)


@pytest.fixture
def kill(machine):
    """Run a command and kill it at one of its requests; that passage stays: profiles name it."""
    with ExitStack() as passages:

        def kill(path: str, *argv: str, after: bool, passed: int = 0) -> None:
            point = passages.enter_context(
                breakpoint_at(machine.url, path, after=after, passed=passed)
            )
            machine.environ["MEMRELAY_URL"] = point.url
            killed_at(machine, point, "agents", *argv)
            machine.environ.pop("MEMRELAY_URL")

        yield kill


def test_many_agents_killed_and_taken_up_again_see_their_own_and_shared(machine, named, kill):
    provision = ("provision", "--names", named, "--shared", "team")
    kill("/v1/grants", *provision, after=True, passed=3)
    assert len(machine.keys()) == 1 + 4
    made = agents(machine, *provision)
    assert [made[name]["state"] for name in NAMES] == ["kept"] * 3 + ["created"] * 3
    kill("/v1/revocations", "rotate", "--names", named, after=False, passed=2)
    half = {name: machine.settings(name).public_key for name in NAMES}
    rotated = agents(machine, "rotate", "w*")
    assert {agent["state"] for agent in rotated.values()} == {"rotated"}
    # Those that the killed run had given a new key have it still: nobody was rotated twice.
    assert [half[n] == rotated[n]["public_key"] for n in NAMES] == [True] * 3 + [False] * 3
    assert all(rotated[name]["public_key"] != made[name]["public_key"] for name in NAMES)
    assert all(len(grants(machine, rotated[name]["public_key"])) == 1 for name in NAMES)
    assert len(machine.keys()) == 1 + 2 * len(NAMES)
    assert not list(machine.folder.glob("*.begun"))
    kill("/v1/revocations", "revoke", "w4", "w5", after=True)
    ended = agents(machine, "revoke", "w4", "w5")
    assert {agent["state"] for agent in ended.values()} == {"revoked"}
    assert [len(machine.live(name)) for name in NAMES] == [1, 1, 1, 1, 0, 0]
    names = NAMES[:4]
    seen = {
        (one, place) for one in names for place in [*NAMES, "team"] if reads(machine, one, place)
    }
    assert seen == {(name, place) for name in names for place in (name, "team")}
    assert agents(machine, "rotate", "w0", "w1")["w0"]["public_key"] != half["w0"]


def test_a_pattern_names_the_agents_that_there_are(machine):
    machine.run("agents", "provision", "team-a", "team-b", "coder")
    extended = agents(machine, "provision", "team-*", "--shared", "plans")
    assert {name: agent["state"] for name, agent in extended.items()} == {
        "team-a": "extended",
        "team-b": "extended",
    }
    assert set(agents(machine, "list", "TEAM-[ab]")) == {"team-a", "team-b"}
    assert set(agents(machine, "list", "coder", "team-a")) == {"coder", "team-a"}
    assert set(agents(machine, "revoke", "team-*")) == {"team-a", "team-b"}
    for command in ("revoke", "rotate", "provision"):
        machine.run("agents", command, "team-*", code=EXIT_NOT_FOUND)
        assert "No agent is called like team-*" in machine.err
    assert len(machine.live("coder")) == 1


def test_all_agents_of_a_group_are_given_one_more_namespace(machine):
    machine.run("agents", "provision", "review-a", "--shared", "team")
    machine.run("agents", "provision", "review-b", "--role", "reader", "--also", "reviews=writer")
    for _ in range(2):  # nothing twice
        found = agents(machine, "provision", "review-*", "--also", "reviews=reader")
    held = {
        name: {space: share["role"] for share in agent["grants"] for space in share["namespaces"]}
        for name, agent in found.items()
    }
    assert held == {
        "review-a": {"review-a": "writer", "team": "writer", "reviews": "reader"},
        "review-b": {"review-b": "reader", "reviews": "writer"},
    }
    assert [len(grants(machine, agent["public_key"])) for agent in found.values()] == [2, 2]
    rotated = agents(machine, "rotate", "review-a", "--shared", "team")["review-a"]
    assert {space for share in rotated["grants"] for space in share["namespaces"]} == {
        "review-a",
        "team",
    }
    machine.run("agents", "provision", "plans", "--also", "plans", code=EXIT_USAGE)
    assert "Choose another name" in machine.err


@pytest.mark.parametrize("command", ["provision", "rotate", "revoke"])
def test_of_several_agents_none_is_changed_when_one_is_refused(machine, command):
    before = machine.provision("coder", "--shared", "team")
    wrong = {"provision": ["--role", "reader"], "rotate": [], "revoke": []}[command]
    names = ["newcomer", "coder"] if command == "provision" else ["coder", "nobody"]
    code = EXIT_FAILED if command == "provision" else EXIT_NOT_FOUND
    machine.run("agents", command, *names, *wrong, code=code)
    assert machine.live("coder") == [before["public_key"]]
    assert machine.live("newcomer") == []


def test_a_dry_run_tells_and_changes_nothing(machine, tmp_path):
    tried = agents(machine, "provision", "coder", "--shared", "team", "--dry-run")
    assert (tried["coder"]["state"], tried["coder"]["public_key"]) == ("created", None)
    assert not machine.folder.exists()
    before = machine.provision("coder")
    files = {path.name: path.read_bytes() for path in machine.folder.iterdir()}
    for command, options in (
        ("provision", ["--shared", "team"]),
        ("rotate", []),
        ("revoke", []),
    ):
        shown = machine.run("agents", command, "coder", *options, "--dry-run")
        state = {"provision": "extended", "rotate": "rotated", "revoke": "revoked"}[command]
        assert f"would be {state}" in shown
        assert machine.json("agents", command, "coder", *options, "--dry-run")["dry_run"] is True
    assert machine.live("coder") == [before["public_key"]]
    assert len(grants(machine, before["public_key"])) == 1
    assert {path.name: path.read_bytes() for path in machine.folder.iterdir()} == files


def test_of_several_those_that_live_elsewhere_are_rotated_later(machine):
    before = {name: machine.provision(name) for name in ("coder", "writer")}
    (machine.folder / "writer.json").unlink()
    assert main(["agents", "rotate", "coder", "writer", "--json"], machine.environ) == EXIT_FAILED
    out, err = machine._capsys.readouterr()
    states = {agent["name"]: agent["state"] for agent in json.loads(out)["agents"]}
    assert states == {"coder": "rotated", "writer": "elsewhere"}
    assert "memrelay agents enrol REQUEST --replace" in err
    assert machine.live("writer") == [before["writer"]["public_key"]]  # it was not cut off
    assert machine.live("coder") != [before["coder"]["public_key"]]


def test_an_interrupted_rotation_of_yesterday_does_not_count(machine, kill):
    """Whoever rotates a day later means new keys for all."""
    machine.run("agents", "provision", "w0", "w1")
    kill("/v1/revocations", "rotate", "w0", "w1", after=False, passed=1)
    half = machine.settings("w0").public_key
    begun = machine.folder / "rotation.begun"
    values = json.loads(begun.read_text())
    yesterday = datetime.now(UTC) - timedelta(days=1, seconds=1)
    begun.write_text(json.dumps(values | {"began": int(yesterday.timestamp())}))
    assert agents(machine, "rotate", "w0", "w1")["w0"]["public_key"] != half


def test_what_is_no_file_of_names_is_refused(machine, tmp_path):
    cases = {
        "": "names no agent",
        "# nobody\n": "names no agent",
        "x" * (2**20 + 1): "is too long",
        "../x": "An agent's name is",
    }
    for text, said in cases.items():
        (tmp_path / "names").write_text(text)
        machine.run("agents", "provision", "--names", str(tmp_path / "names"), code=EXIT_USAGE)
        assert said in machine.err
    (tmp_path / "names").write_bytes(b"\xff\xfe\x00")
    machine.run("agents", "revoke", "--names", str(tmp_path / "names"), code=EXIT_USAGE)
    machine.run("agents", "revoke", "--names", str(tmp_path / "none"), code=EXIT_USAGE)
    assert "cannot be read" in machine.err
    for command in ("provision", "rotate", "revoke"):
        machine.run("agents", command, code=EXIT_USAGE)
        assert "Name the agents" in machine.err


def test_how_many_are_done_is_said_when_others_fail(machine, monkeypatch):
    granted = AgentAccount.grant

    def fail(self, name, settings, share):
        if name == "w1":
            raise MemrelayError("The relayer is away.")
        granted(self, name, settings, share)

    monkeypatch.setattr(AgentAccount, "grant", fail)
    assert main(["agents", "provision", "w0", "w1", "w2"], machine.environ) == EXIT_FAILED
    assert "1 of 3 agents are provisioned; the same command goes on." in (
        machine._capsys.readouterr().err
    )
