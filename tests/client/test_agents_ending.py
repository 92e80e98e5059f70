"""Agents' keys that end: rotated, revoked, expired; what was remembered stays."""

import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from memrelay import SyncMemoryClient
from memrelay.agents.access import Wish
from memrelay.agents.provision import Agents
from memrelay.cli import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_USAGE
from memrelay.errors import NotAuthenticated
from memrelay.gateway.host_events import Context
from memrelay.gateway.roster import Roster
from memrelay.gateway.spool import SpoolKey
from memrelay.secure_files import write_private
from tests.client.agents_scene import Machine, machine
from tests.client.spool_scene import spool_in
from tests.optional import unwrap

__all__ = ["machine"]  # fixtures


def test_a_rotated_agent_keeps_its_memories_and_loses_its_old_key(machine):
    """capability 2.23: a new key finds the same namespace by the agent's name."""
    before = machine.provision("coder", "--shared", "team", "--expires", "30d")
    machine.run("remember", "tabs, not spaces", "--agent", "coder")
    old = machine.settings("coder")
    after = machine.rotate("coder")
    assert after["state"] == "rotated"
    assert after["grants"] == before["grants"]
    assert after["public_key"] == machine.settings("coder").public_key != before["public_key"]
    results = machine.json("recall", "tabs or spaces", "--agent", "coder")["results"]
    assert [result["text"] for result in results] == ["tabs, not spaces"]
    with SyncMemoryClient.from_settings(old) as client, pytest.raises(NotAuthenticated):
        client.recall("tabs")
    renewed = machine.rotate("coder", "--expires", "2100-01-01T00:00:00Z")
    assert renewed["grants"][0]["expires_at"] == "2100-01-01T00:00:00.000Z"
    assert renewed["grants"][0]["namespaces"] == ["coder", "team"]
    assert not list(machine.folder.glob("*.pending"))


def test_a_rotated_agent_keeps_its_own_aliases(machine):
    """Also one whose key ended; without a profile, the owner's are as good as any."""
    mains = {"aliases": {"k8s": ["kubernetes"]}}
    write_private(machine.profile, json.loads(machine.profile.read_text()) | mains)
    machine.provision("coder")
    assert machine.settings("coder").aliases == mains["aliases"]
    own = {"aliases": {"db": ["database"]}}
    path = machine.folder / "coder.json"
    write_private(path, json.loads(path.read_text()) | own)
    machine.rotate("coder")
    assert machine.settings("coder").aliases == own["aliases"]
    machine.run("keys", "revoke", machine.settings("coder").public_key)
    assert machine.provision("coder")["state"] == "created"
    assert machine.settings("coder").aliases == own["aliases"]
    path.unlink()
    machine.rotate("coder", "--lost")
    assert machine.settings("coder").aliases == mains["aliases"]


def test_a_revoked_agent_is_out(machine):
    agent = machine.provision("coder")
    shown = machine.run("agents", "revoke", "coder")
    assert "coder" in shown
    assert "revoked" in shown
    assert machine.live("coder") == []
    mark = machine.folder / "coder.json.revoked"
    assert json.loads(mark.read_text()) == {"public_key": agent["public_key"]}
    assert not (machine.folder / "coder.json").exists()
    machine.run("recall", "x", "--agent", "coder", code=EXIT_USAGE)
    assert "memrelay agents provision coder" in machine.err
    assert machine.json("agents", "revoke", "coder")["agents"][0]["state"] == "revoked", (
        "twice is no error"
    )
    machine.run("agents", "rotate", "coder", code=EXIT_NOT_FOUND)
    again = machine.provision("coder")
    assert again["state"] == "created"
    assert again["public_key"] != agent["public_key"]
    assert not mark.exists()


async def test_a_gateway_gives_a_revoked_agent_no_memory(shared_relayer, tmp_path, capsys):
    machine = Machine(tmp_path, shared_relayer.url, capsys)
    machine.run("init", shared_relayer.url)
    machine.run("agents", "provision", "coder")
    context = Context(agent_id="coder")
    roster = Roster.load(environ=machine.environ)
    assert roster.bind(context) is not None
    machine.run("agents", "revoke", "coder")
    assert roster.bind(context) is None, "nor that of the owner"
    await roster.close()


def test_a_key_revoked_elsewhere_is_never_granted_again(machine):
    agent = machine.provision("coder")
    machine.run("keys", "revoke", agent["public_key"])
    machine.run("agents", "rotate", "coder", code=EXIT_FAILED)
    assert "memrelay agents provision coder" in machine.err
    again = machine.provision("coder")
    assert again["state"] == "created"
    assert machine.live("coder") == [again["public_key"]] != [agent["public_key"]]


def test_unknown_agents(machine):
    machine.run("agents", "revoke", "nobody", code=EXIT_NOT_FOUND)
    machine.run("agents", "rotate", "nobody", code=EXIT_NOT_FOUND)
    assert not list(machine.folder.glob("nobody*"))


def test_the_founder_is_no_agent_whatever_its_label(shared_relayer, tmp_path, capsys):
    machine = Machine(tmp_path, shared_relayer.url, capsys)
    machine.run("init", shared_relayer.url, "--label", "coder")
    machine.run("agents", "revoke", "coder", code=EXIT_NOT_FOUND)
    machine.run("agents", "rotate", "coder", code=EXIT_NOT_FOUND)
    assert machine.provision("coder")["state"] == "created"
    assert [agent["name"] for agent in machine.json("agents", "list")["agents"]] == ["coder"]
    machine.folder.joinpath("main.json").write_bytes(machine.profile.read_bytes())
    machine.folder.joinpath("main.json").chmod(0o600)
    for command in ("provision", "rotate", "revoke"):
        machine.run("agents", command, "main", code=EXIT_FAILED)
        assert "whole account" in machine.err
    machine.run("agents", "revoke", "coder")


def test_expired_grants_are_given_anew(machine):
    key = expired(machine, "coder")
    (listed,) = machine.json("agents", "list")["agents"]
    assert (listed["state"], listed["grants"]) == ("expired", [])
    machine.run("agents", "rotate", "coder", code=EXIT_FAILED)
    assert "memrelay agents provision coder" in machine.err
    again = machine.provision("coder")
    assert again["state"] == "extended"
    assert again["public_key"] == key
    machine.run("remember", "alive again", "--agent", "coder")


def expired(machine: Machine, name: str) -> str:
    """Provision an agent whose grant has ended."""
    end = datetime.now(UTC) + timedelta(seconds=5)
    with machine.client() as owner:
        (agent,) = Agents(owner, machine.folder).provision([name], Wish(expires_at=end))
    while datetime.now(UTC) <= end:
        time.sleep(0.1)
    return unwrap(agent.public_key)


def test_what_this_clock_calls_expired_is_revoked_all_the_same(machine):
    key = expired(machine, "coder")
    assert machine.live("coder") == [key]
    machine.run("agents", "revoke", "coder")
    assert machine.live("coder") == []


def test_a_rotation_revokes_an_old_key_that_this_clock_calls_expired(machine):
    old = expired(machine, "coder")
    settings = machine.settings("coder").profile()
    machine.run("agents", "rotate", "coder", "--expires", "30d", code=EXIT_FAILED)
    # A rotation that began before the end and was interrupted before it reached the relayer.
    profile = settings | {"private_key": "07" * 32}
    share = {"role": "writer", "namespaces": ["coder"], "expires_at": None}
    plan = {"profile": profile, "grants": [share], "replaces": old}
    write_private(machine.folder / "coder.json.pending", plan)
    agent = machine.rotate("coder")
    assert agent["state"] == "rotated"
    assert machine.live("coder") == [agent["public_key"]] != [old]


def test_turns_that_wait_for_an_old_key_wait_for_the_new_one(machine):
    machine.run("agents", "provision", "coder", "researcher")
    folder = machine.profile.with_name("spool")
    spool = spool_in(folder, turns_max=9)
    for _ in range(3):
        spool.put(SpoolKey.of(machine.settings("coder").identity), b"a secret plan")
    machine.run("agents", "rotate", "researcher")
    assert machine.err == ""
    machine.run("agents", "rotate", "coder")
    assert machine.err.count("3 captured turns") == machine.err.count("\n") == 1
    key = SpoolKey.of(machine.settings("coder").identity)
    assert [spool.get(key, name) for name in spool.names(key)] == [b"a secret plan"] * 3
    assert len(list(folder.iterdir())) == 3
