"""Agents' own keys: given by one command, each for its own namespace, and never more than asked.

Not here: keys that end (`test_agents_ending.py`), what is shown of agents
(`test_agents_shown.py`), commands that are killed (`test_agents_killed.py`).
"""

import json
import stat
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest
from nacl import bindings
from nacl.exceptions import CryptoError

from memrelay import SyncMemoryClient
from memrelay.agents.access import Wish
from memrelay.agents.provision import Agents
from memrelay.cli import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, main
from memrelay.errors import Invalid, NotAllowed, NotFound, NotGranted
from memrelay.sealed.envelope import _HEADER, MEMORY, Address, open_envelope
from memrelay.sealed.keys import account_bytes
from memrelay.secure_files import write_private
from tests.client.agents_scene import Machine, grants, keys_of, machine

__all__ = ["machine"]  # fixtures


def test_one_command_gives_each_agent_its_own_key(machine):
    """capability 2.9: agents are isolated without configuration: main, work, custom."""
    found = machine.json("agents", "provision", "main", "work", "Custom", "work")["agents"]
    assert [agent["name"] for agent in found] == ["main", "work", "custom"]
    assert {agent["state"] for agent in found} == {"created"}
    assert len({agent["public_key"] for agent in found}) == 3
    for agent, namespace in zip(found, ["default", "work", "custom"], strict=True):
        settings = machine.settings(agent["name"])
        assert settings.namespace == namespace
        assert settings.public_key == agent["public_key"]
        assert settings.relayer_key
        share = {"role": "writer", "namespaces": [namespace], "expires_at": None}
        assert agent["grants"] == [share]
        path = Path(agent["profile"])
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        machine.run("remember", f"{agent['name']} likes tea", "--agent", agent["name"])
    assert stat.S_IMODE(machine.folder.stat().st_mode) == 0o700
    for name in ("main", "work", "custom"):
        results = machine.json("recall", "who likes tea", "--agent", name)["results"]
        assert [result["text"] for result in results] == [f"{name} likes tea"]


def test_another_agents_namespace_is_out_of_reach(machine):
    """capability 0.33: an agent reads and writes its own namespaces only, by client and relayer."""
    machine.run("agents", "provision", "researcher", "coder", "--shared", "team")
    secret = machine.json("remember", "the launch is in May", "--agent", "researcher")["id"]
    with machine.client("coder") as coder:
        for attempt in (
            lambda: coder.recall("launch", namespace="researcher"),
            lambda: coder.list(namespace="researcher"),
            lambda: coder.remember("poison", namespace="researcher"),
            lambda: coder.analyze("I prefer poison.", namespace="researcher"),
            lambda: coder.get(secret, namespace="researcher"),
        ):
            with pytest.raises(NotGranted):
                attempt()
        with pytest.raises(NotFound):
            coder.get(secret)
        with pytest.raises(NotFound):
            coder.forget(secret)
        coder.remember("we meet on Monday", namespace="team")
    shared = machine.json(
        "recall", "when do we meet", "--agent", "researcher", "--namespace", "team"
    )
    assert [result["text"] for result in shared["results"]] == ["we meet on Monday"]
    assert machine.json("get", secret, "--agent", "researcher")["text"] == "the launch is in May"


def test_the_relayer_itself_refuses_another_agents_namespace(shared_relayer, tmp_path, capsys):
    """capability 0.33: on a managed account, where no key is lent, the relayer refuses it."""
    machine = Machine(tmp_path, shared_relayer.url, capsys)
    machine.run("init", shared_relayer.url, "--custody", "managed")
    machine.run("agents", "provision", "researcher", "coder")
    secret = machine.json("remember", "the launch is in May", "--agent", "researcher")["id"]
    with machine.client("coder") as coder:
        for attempt in (
            lambda: coder.recall("launch", namespace="researcher"),
            lambda: coder.list(namespace="researcher"),
            lambda: coder.remember("poison", namespace="researcher"),
        ):
            with pytest.raises(NotAllowed):
                attempt()
        with pytest.raises(NotFound):
            coder.get(secret)
        with pytest.raises(NotFound):
            coder.forget(secret)


async def test_another_agents_key_opens_no_blob(shared_relayer, tmp_path, capsys):
    """capability 0.35: with the sealed bytes in hand, another agent's keys do not open them."""
    machine = Machine(tmp_path, shared_relayer.url, capsys)
    machine.run("init", shared_relayer.url)
    machine.run("agents", "provision", "researcher", "coder", "--shared", "team")
    kept = machine.json("remember", "the launch is in May", "--agent", "researcher")
    memory = machine.json("get", kept["id"], "--agent", "researcher")
    account = account_bytes(machine.settings("coder").account_id)
    connection = await asyncpg.connect(shared_relayer.environment["RELAYER_DATABASE_URL"])
    rows = await connection.fetch(
        "SELECT bytes FROM blobs JOIN accounts USING (account_id) WHERE whole_id = $1", account
    )
    await connection.close()
    address = Address(
        account=account, type=MEMORY, memory=UUID(kept["id"]), revision=memory["revision"]
    )
    blobs = [row["bytes"] for row in rows if UUID(kept["id"]).bytes in row["bytes"]]
    (envelope,) = blobs
    researcher, coder = (keys_of(machine, name) for name in ("researcher", "coder"))
    assert b"the launch is in May" in open_envelope(address, researcher["researcher"], envelope)
    assert set(coder) == {"coder", "team"}
    header, sealed = envelope[: _HEADER.size], envelope[_HEADER.size :]
    for key in coder.values():
        with pytest.raises(Invalid, match="key_id"):
            open_envelope(address, key, envelope)
        # Also not without the check of the key's id, which an attacker would leave out.
        with pytest.raises(CryptoError):
            bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
                sealed, header, header[-24:], key.subkey("seal")
            )


def test_a_second_run_changes_nothing(machine):
    argv = ("agents", "provision", "researcher", "coder", "--shared", "team", "--expires", "90d")
    first = machine.json(*argv)["agents"]
    files = {path.name: path.read_bytes() for path in machine.folder.iterdir()}
    second = machine.json(*argv)["agents"]
    assert [agent["state"] for agent in second] == ["kept", "kept"]
    assert [agent | {"state": "created"} for agent in second] == first
    assert {path.name: path.read_bytes() for path in machine.folder.iterdir()} == files
    assert len(machine.keys()) == 3
    assert [len(grants(machine, agent["public_key"])) for agent in first] == [1, 1]
    assert machine.provision("coder")["state"] == "kept", "and what is not said stays"


def test_more_is_granted_to_the_same_key(machine):
    before = machine.provision("coder", "--role", "reader", "--expires", "30d")
    after = machine.provision("coder", "--shared", "team", "--shared-role", "writer")
    assert after["state"] == "extended"
    assert after["public_key"] == before["public_key"]
    end = before["grants"][0]["expires_at"]
    assert after["grants"] == [
        {"role": "reader", "namespaces": ["coder"], "expires_at": end},
        {"role": "writer", "namespaces": ["team"], "expires_at": end},
    ]
    assert machine.provision("coder", "--role", "writer")["state"] == "extended"
    machine.run("remember", "works now", "--agent", "coder")
    machine.run("remember", "works there", "--agent", "coder", "--namespace", "team")
    assert len(machine.keys("coder")) == 1
    assert len(grants(machine, before["public_key"])) == 3


def test_a_later_end_is_granted_and_the_one_that_holds_is_told(machine):
    before = machine.provision("coder", "--expires", "2100-01-01T00:00:00Z")
    for almost in ("2100-01-01T00:00:00Z", "2100-01-02T00:00:00Z"):
        kept = machine.provision("coder", "--expires", almost)
        assert (kept["state"], kept["grants"]) == ("kept", before["grants"])
    assert len(grants(machine, before["public_key"])) == 1
    shown = machine.run("agents", "provision", "coder", "--expires", "2100-01-03T00:00:00Z")
    assert "extended" in shown
    assert "until 2100-01-03 00:00Z" in shown
    (listed,) = machine.json("agents", "list")["agents"]
    assert listed["grants"][0]["expires_at"] == "2100-01-03T00:00:00.000Z"
    assert listed["public_key"] == before["public_key"]
    assert machine.provision("coder")["state"] == "kept", "and without options it stays"


def test_a_stronger_role_is_told_as_it_is(machine):
    machine.provision("coder", "--role", "reader")
    assert machine.provision("coder", "--role", "writer")["grants"][0]["role"] == "writer"


@pytest.mark.parametrize(
    ("argv", "namespace"),
    [
        (["coder", "researcher", "--shared", "researcher"], "default"),
        (["coder", "--shared", "coder"], "default"),
        (["researcher", "coder"], "coder"),
    ],
)
def test_an_agent_does_not_share_its_own_namespace_unasked(machine, argv, namespace):
    machine.environ["MEMRELAY_NAMESPACE"] = namespace
    machine.run("agents", "provision", *argv, code=EXIT_USAGE)
    assert "Choose another name" in machine.err
    assert len(machine.keys()) == 1
    assert not machine.folder.exists()


def test_a_new_agent_is_not_called_like_what_others_share(machine):
    machine.provision("coder", "--shared", "team", "--shared", "default")
    machine.run("agents", "provision", "team", code=EXIT_USAGE)
    assert "Choose another name" in machine.err
    assert not list(machine.folder.glob("team*"))
    assert machine.provision("main")["state"] == "created", "which is the default namespace's"
    machine.provision("researcher")
    assert (
        machine.provision(
            "coder", "--shared", "team", "--shared", "default", "--shared", "researcher"
        )["state"]
        == "extended"
    ), "as it is asked for"
    machine.run("agents", "revoke", "researcher")
    assert machine.provision("researcher")["state"] == "created", "it was there before"


@pytest.mark.parametrize(
    "options",
    [
        ["--shared", "news"],
        ["--role", "reader"],
        ["--shared", "team", "--shared-role", "reader"],
        ["--shared", "team", "--expires", "1d"],
    ],
)
def test_less_needs_a_new_key(machine, options):
    before = machine.provision("coder", "--shared", "team")
    machine.run("agents", "provision", "coder", *options, code=EXIT_FAILED)
    assert "memrelay agents rotate coder" in machine.err
    assert len(grants(machine, before["public_key"])) == 1
    after = machine.rotate("coder", *options)
    assert after["state"] == "rotated"
    assert machine.provision("coder", *options)["state"] == "kept"
    assert machine.live("coder") == [after["public_key"]]


def test_a_reader_does_not_write(machine):
    machine.run("agents", "provision", "coder", "--role", "reader", "--shared", "team")
    for namespace in ("coder", "team"):
        machine.run(
            "remember", "no", "--agent", "coder", "--namespace", namespace, code=EXIT_FAILED
        )
    assert machine.json("recall", "no", "--agent", "coder")["total"] == 0


def test_a_lost_profile_is_said_and_rotated(machine):
    lost = machine.provision("coder", "--shared", "team")
    (machine.folder / "coder.json").unlink()
    machine.run("agents", "provision", "coder", code=EXIT_FAILED)
    assert "memrelay agents rotate coder --lost" in machine.err
    assert not list(machine.folder.glob("coder.json*"))
    machine.run("agents", "rotate", "coder", code=EXIT_FAILED)
    assert "runs on another machine" in machine.err
    assert machine.live("coder") == [lost["public_key"]]  # it was not cut off
    found = machine.rotate("coder", "--lost")
    assert found["grants"] == lost["grants"]
    assert machine.live("coder") == [found["public_key"]] != [lost["public_key"]]
    machine.run("remember", "back again", "--agent", "coder")


def test_two_keys_of_one_name_are_not_guessed(machine):
    for _ in range(2):
        machine.run("keys", "add", "--namespace", "coder", "--label", "coder")
    machine.run("agents", "rotate", "coder", code=EXIT_FAILED)
    assert "memrelay agents revoke coder" in machine.err
    machine.run("agents", "revoke", "coder")
    assert machine.live("coder") == []


def test_a_label_gives_no_other_agents_namespace(machine):
    machine.run("keys", "add", "--namespace", "researcher", "--label", "coder")
    machine.run("agents", "rotate", "coder", code=EXIT_FAILED)
    assert not list(machine.folder.glob("coder*"))
    assert len(machine.live("coder")) == 1


@pytest.mark.parametrize(
    "argv",
    [
        ["provision", "../coder"],
        ["provision", "coder", "default"],
        ["provision", "coder", "--shared", "\u202ex"],
        ["provision", "coder", "researcher", "--for", "env"],
        ["provision", "coder", "--for", "openclaw", "--out", "elsewhere"],
        ["provision", "coder", "--show-keys"],
        ["rotate", "a/b"],
        ["revoke", ".."],
    ],
)
def test_wrong_arguments_do_nothing(machine, argv):
    machine.run("agents", *argv, code=EXIT_USAGE)
    assert len(machine.keys()) == 1
    assert not machine.folder.exists()


@pytest.mark.parametrize(
    "when", ["90", "d", "-1d", "0d", "2020-01-01T00:00:00Z", "yesterday", "1 moon"]
)
def test_wrong_ends_are_usage_errors(when, capsys):
    with pytest.raises(SystemExit) as done:
        main(["agents", "provision", "coder", f"--expires={when}"], {})
    assert done.value.code == EXIT_USAGE


def test_only_an_owner_administers_agents(machine):
    machine.run("agents", "provision", "coder")
    path = str(machine.folder / "coder.json")
    for argv in (["provision", "x"], ["list"], ["rotate", "coder"], ["revoke", "coder"]):
        machine.run("agents", *argv, "--profile", path, code=EXIT_FAILED)
        assert "owner" in machine.err
    assert len(machine.live("coder")) == 1
    assert [path.name for path in machine.folder.glob("*") if path.is_dir()] == []


def test_a_profile_of_another_account_is_left_alone(machine):
    machine.run("agents", "provision", "coder")
    path = machine.folder / "coder.json"
    values = json.loads(path.read_text()) | {"account_id": "0x" + "ab" * 32}
    write_private(path, values)
    for command in ("provision", "rotate", "revoke"):
        machine.run("agents", command, "coder", code=EXIT_USAGE)
    assert json.loads(path.read_text()) == values


def test_a_damaged_pending_file_is_named_without_its_content(machine):
    machine.folder.mkdir(mode=0o700)
    path = machine.folder / "coder.json.pending"
    path.write_text('{"profile": {"private_key": "' + "07" * 32)
    path.chmod(0o600)
    machine.run("agents", "provision", "coder", code=EXIT_USAGE)
    assert str(path) in machine.err
    assert "0707" not in machine.err


def test_an_agents_profile_pins_the_relayer_also_if_the_owners_does_not(machine):
    values = json.loads(machine.profile.read_text())
    pinned = values.pop("relayer_key")
    write_private(machine.profile, values)
    machine.run("agents", "provision", "coder")
    assert machine.settings("coder").relayer_key == pinned


def test_from_python(machine):
    with machine.client() as owner:
        (agent,) = Agents(owner, machine.folder).provision(["Coder"], Wish(shared=("team",)))
    assert agent.name == "coder"
    assert machine.settings("coder").public_key == agent.public_key


def told(monkeypatch, tell):
    """What a hostile relayer says of keys in place of the truth."""
    truth = SyncMemoryClient.keys
    monkeypatch.setattr(SyncMemoryClient, "keys", lambda client: tuple(map(tell, truth(client))))


@pytest.mark.parametrize("lie", [{"revoked": True}, {"namespaces": ()}, {"label": "team"}])
def test_whose_a_namespace_is_follows_from_grants(machine, monkeypatch, lie):
    """A relayer that hides who holds one gets no agent to share all that it remembers."""
    machine.provision("coder", "--shared", "team")
    machine.provision("gone", "--shared", "team")
    machine.run("agents", "revoke", "gone")
    hidden = {"coder"} if "label" not in lie else {"gone"}
    told(monkeypatch, lambda key: replace(key, **lie) if key.label in hidden else key)
    machine.run("agents", "provision", "team", code=EXIT_USAGE)
    assert "Choose another name" in machine.err
    assert not list(machine.folder.glob("team*"))


def test_a_label_ends_no_other_agents_key(machine, monkeypatch):
    agents = {name: machine.provision(name)["public_key"] for name in ("coder", "tester", "guest")}
    (machine.folder / "guest.json").unlink()
    told(monkeypatch, lambda key: replace(key, label="coder") if key.label else key)
    machine.run("agents", "revoke", "coder")
    told(monkeypatch, lambda key: replace(key, label="lost"))
    machine.run("agents", "revoke", "lost", code=EXIT_NOT_FOUND)
    monkeypatch.undo()
    assert machine.live("coder") == []
    assert [*machine.live("tester"), *machine.live("guest")] == [agents["tester"], agents["guest"]]
