"""Agents' own keys through the command line and a real relayer, crashes included."""

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from uuid import UUID

import asyncpg
import httpx
import pytest
import pytest_asyncio
from nacl import bindings
from nacl.exceptions import CryptoError

from memrelay import SyncMemoryClient
from memrelay.agents.provision import Agents
from memrelay.agents.shares import Wish
from memrelay.cli import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, build_parser, main
from memrelay.config import Settings
from memrelay.errors import Invalid, NotAllowed, NotAuthenticated, NotFound, NotGranted
from memrelay.gateway.events import Context
from memrelay.gateway.roster import Roster
from memrelay.gateway.spool import Spool, SpoolKey
from memrelay.private import write_private
from memrelay.sealed.envelope import _HEADER, MEMORY, Place, open_envelope
from memrelay.sealed.keys import account_bytes
from tests.conftest import database_copy
from tests.processes import running_relayer

KEY = re.compile(r"(?<![0-9a-fx])[0-9a-f]{64}(?![0-9a-f])")  # of an account id, an x stands before
COMMAND_S_MAX = 60


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(postgres, template, model_dir, tmp_path_factory):
    """One relayer for this file, with the arguments to reach its database."""
    async with database_copy(postgres, template) as database:
        folder = tmp_path_factory.mktemp("relayer")
        with running_relayer(folder, model_dir, database_url=database.url) as process:
            process.connect_args = database.connect_args
            yield process


class Machine:
    """An owner's machine: a home with a profile, and the command line."""

    def __init__(self, home: Path, url: str, capsys) -> None:
        self.environ = {"XDG_CONFIG_HOME": str(home)}
        self.folder = home / "memrelay" / "agents"
        self.profile = home / "memrelay" / "profile.json"
        self.url = url
        self._capsys = capsys
        self.err = ""

    def run(self, *argv: str, code: int = 0) -> str:
        """What a command prints; it must end with this exit code."""
        self._capsys.readouterr()
        ended = main(list(argv), self.environ)
        out, self.err = self._capsys.readouterr()
        assert ended == code, self.err
        assert code == 0 or (out == "" and self.err.count("\n") == 1)
        return out

    def json(self, *argv: str):
        return json.loads(self.run(*argv, "--json"))

    def provision(self, *argv: str):
        (agent,) = self.json("agents", "provision", *argv)["agents"]
        return agent

    def keys(self, label: str | None = None):
        return [k for k in self.json("keys", "list")["keys"] if label in (None, k["label"])]

    def live(self, label: str):
        return [key["public_key"] for key in self.keys(label) if not key["revoked"]]

    def settings(self, name: str) -> Settings:
        return Settings.load(self.folder / f"{name}.json", environ={})

    def client(self, name: str | None = None) -> SyncMemoryClient:
        path = self.profile if name is None else self.folder / f"{name}.json"
        return SyncMemoryClient.from_settings(Settings.load(path, environ={}))

    def process(self, *argv: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-m", "memrelay", *argv],
            env={**os.environ, **self.environ},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


@pytest.fixture
def machine(server, tmp_path, capsys):
    machine = Machine(tmp_path, server.url, capsys)
    machine.run("init", server.url)
    return machine


def grants(machine: Machine, public_key: str):
    with machine.client() as owner:
        return [g for g, _ in owner.grants()._grants if g.recipient.hex() == public_key]


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


def test_another_agents_namespace_is_out_of_reach(machine, server):
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


def test_the_relayer_itself_refuses_another_agents_namespace(server, tmp_path, capsys):
    """capability 0.33: on a managed account, where no key is lent, the relayer refuses it."""
    machine = Machine(tmp_path, server.url, capsys)
    machine.run("init", server.url, "--custody", "managed")
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


async def test_another_agents_key_opens_no_blob(server, tmp_path, capsys):
    """capability 0.35: with the sealed bytes in hand, another agent's keys do not open them."""
    machine = Machine(tmp_path, server.url, capsys)
    machine.run("init", server.url)
    machine.run("agents", "provision", "researcher", "coder", "--shared", "team")
    kept = machine.json("remember", "the launch is in May", "--agent", "researcher")
    memory = machine.json("get", kept["id"], "--agent", "researcher")
    account = account_bytes(machine.settings("coder").account_id)
    connection = await asyncpg.connect(**server.connect_args)
    rows = await connection.fetch("SELECT bytes FROM blobs WHERE account_id = $1", account)
    await connection.close()
    place = Place(
        account=account, type=MEMORY, memory=UUID(kept["id"]), revision=memory["revision"]
    )
    blobs = [row["bytes"] for row in rows if UUID(kept["id"]).bytes in row["bytes"]]
    (envelope,) = blobs
    researcher, coder = (keys_of(machine, name) for name in ("researcher", "coder"))
    assert b"the launch is in May" in open_envelope(place, researcher["researcher"], envelope)
    assert set(coder) == {"coder", "team"}
    header, sealed = envelope[: _HEADER.size], envelope[_HEADER.size :]
    for key in coder.values():
        with pytest.raises(Invalid, match="key_id"):
            open_envelope(place, key, envelope)
        # Also not without the check of the key's id, which an attacker would leave out.
        with pytest.raises(CryptoError):
            bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
                sealed, header, header[-24:], key.subkey("seal")
            )


def keys_of(machine: Machine, name: str):
    """All namespace keys that an agent holds."""
    with machine.client(name) as client:
        keyring = client._run(client._session.keyring())
        return {held: keyring.namespace_keys(held)[0] for held in keyring.names}


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
    assert "until 2100-01-03T00:00:00.000Z" in shown
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
    after = machine.json("agents", "rotate", "coder", *options)
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
    assert "memrelay agents rotate coder" in machine.err
    assert not list(machine.folder.glob("coder.json*"))
    found = machine.json("agents", "rotate", "coder")
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


def test_a_rotated_agent_keeps_its_memories_and_loses_its_old_key(machine):
    """capability 2.23: a new key finds the same namespace by the agent's name."""
    before = machine.provision("coder", "--shared", "team", "--expires", "30d")
    machine.run("remember", "tabs, not spaces", "--agent", "coder")
    old = machine.settings("coder")
    after = machine.json("agents", "rotate", "coder")
    assert after["state"] == "rotated"
    assert after["grants"] == before["grants"]
    assert after["public_key"] == machine.settings("coder").public_key != before["public_key"]
    results = machine.json("recall", "tabs or spaces", "--agent", "coder")["results"]
    assert [result["text"] for result in results] == ["tabs, not spaces"]
    with SyncMemoryClient.from_settings(old) as client, pytest.raises(NotAuthenticated):
        client.recall("tabs")
    renewed = machine.json("agents", "rotate", "coder", "--expires", "2100-01-01T00:00:00Z")
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
    machine.json("agents", "rotate", "coder")
    assert machine.settings("coder").aliases == own["aliases"]
    machine.run("keys", "revoke", machine.settings("coder").public_key)
    assert machine.provision("coder")["state"] == "created"
    assert machine.settings("coder").aliases == own["aliases"]
    path.unlink()
    machine.json("agents", "rotate", "coder")
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
    assert machine.json("agents", "revoke", "coder")["state"] == "revoked", "twice is no error"
    machine.run("agents", "rotate", "coder", code=EXIT_NOT_FOUND)
    again = machine.provision("coder")
    assert again["state"] == "created"
    assert again["public_key"] != agent["public_key"]
    assert not mark.exists()


async def test_a_gateway_gives_a_revoked_agent_no_memory(server, tmp_path, capsys):
    machine = Machine(tmp_path, server.url, capsys)
    machine.run("init", server.url)
    machine.run("agents", "provision", "coder")
    context = Context(agent_id="coder")
    roster = Roster.load(environ=machine.environ)
    assert roster.seat(context) is not None
    machine.run("agents", "revoke", "coder")
    assert roster.seat(context) is None, "nor that of the owner"
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


def test_the_founder_is_no_agent_whatever_its_label(server, tmp_path, capsys):
    machine = Machine(tmp_path, server.url, capsys)
    machine.run("init", server.url, "--label", "coder")
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
    "when", ["90", "d", "-1d", "0d", "2020-01-01T00:00:00Z", "2100-01-01", "1y"]
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


def test_expired_grants_are_given_anew(machine):
    past = datetime(2026, 1, 1, tzinfo=UTC)
    with machine.client() as owner:
        (agent,) = Agents(owner, machine.folder).provision(["coder"], Wish(expires_at=past))
    (listed,) = machine.json("agents", "list")["agents"]
    assert (listed["state"], listed["grants"]) == ("expired", [])
    machine.run("agents", "rotate", "coder", code=EXIT_FAILED)
    assert "memrelay agents provision coder" in machine.err
    again = machine.provision("coder")
    assert again["state"] == "extended"
    assert again["public_key"] == agent.public_key
    machine.run("remember", "alive again", "--agent", "coder")


def expired(machine: Machine, name: str) -> str:
    """Provision an agent whose grant has ended by this clock, whatever the relayer's says."""
    with machine.client() as owner:
        past = datetime(2026, 1, 1, tzinfo=UTC)
        (agent,) = Agents(owner, machine.folder).provision([name], Wish(expires_at=past))
    return agent.public_key


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
    agent = machine.json("agents", "rotate", "coder")
    assert agent["state"] == "rotated"
    assert machine.live("coder") == [agent["public_key"]] != [old]


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
    assert told("provision", "coder") == rotate
    assert main(rotate[1:], machine.environ) == 0
    machine.run("keys", "add", "--namespace", "coder", "--label", "coder")
    Path(out, "coder.json").unlink()
    assert told("rotate", "coder") == ["memrelay", "agents", "revoke", "coder", *where]
    assert told("rotate", "coder")
    machine.run("recall", "x", "--agent", "x", "--profile", where[3], code=EXIT_USAGE)
    command = ["memrelay", "agents", "provision", "x", "--profile", where[3]]
    assert shlex.split(machine.err.split("`")[1]) == command


def test_an_agents_profile_pins_the_relayer_also_if_the_owners_does_not(machine):
    values = json.loads(machine.profile.read_text())
    pinned = values.pop("relayer_key")
    write_private(machine.profile, values)
    machine.run("agents", "provision", "coder")
    assert machine.settings("coder").relayer_key == pinned


def test_counting_again_counts_the_same(machine):
    machine.run("agents", "provision", "coder")
    machine.run("remember", "a", "--agent", "coder")
    for _ in range(2):
        (agent,) = machine.json("agents", "list", "--count")["agents"]
        assert agent["written"] == 1


def test_turns_that_wait_for_an_old_key_wait_for_the_new_one(machine):
    machine.run("agents", "provision", "coder", "researcher")
    folder = machine.profile.with_name("spool")
    spool = Spool(folder, bytes_max=1 << 20, turns_max=9)
    for _ in range(3):
        spool.put(SpoolKey.of(machine.settings("coder").identity), b"a secret plan")
    machine.run("agents", "rotate", "researcher")
    assert machine.err == ""
    machine.run("agents", "rotate", "coder")
    assert machine.err.count("3 captured turns") == machine.err.count("\n") == 1
    key = SpoolKey.of(machine.settings("coder").identity)
    assert [spool.get(key, name) for name in spool.names(key)] == [b"a secret plan"] * 3
    assert len(list(folder.iterdir())) == 3


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
    lines = dict(line.split("  ", 1) for line in shown.splitlines())
    assert "writer of researcher; reader of team" in lines["researcher"]
    assert "writer of coder until 2100-01-01T00:00:00.000Z" in lines["coder"]
    assert "revoked" in lines["gone"]
    (machine.folder / "coder.json").unlink()
    assert "no profile here" in machine.run("agents", "list")


def test_the_owner_sees_which_key_wrote_which_memory(machine):
    agents = {name: machine.provision(name, "--shared", "team") for name in ("a1", "b2")}
    for name in agents:
        machine.run("remember", f"by {name}", "--agent", name, "--namespace", "team")
    machine.run("remember", "by me", "--namespace", "team")
    page = machine.json("list", "--namespace", "team")["memories"]
    assert {m["text"]: m.get("writer_label") for m in page} == {
        "by a1": "a1",
        "by b2": "b2",
        "by me": None,
    }
    [first] = [m for m in page if m.get("writer_label") == "a1"]
    assert first["writer"] == agents["a1"]["public_key"]
    lines = machine.run("list", "--namespace", "team").splitlines()
    assert {("a1", "by a1"), ("b2", "by b2")} < {tuple(re.split(" {2,}", n)[-2:]) for n in lines}
    theirs = machine.json("list", "--namespace", "team", "--agent", "b2")["memories"]
    assert {m["text"]: m.get("writer_label") for m in theirs} == {
        "by a1": None,
        "by b2": "b2",
        "by me": None,
    }
    key = agents["a1"]["public_key"]
    assert f"{key[:4]}…{key[-4:]}  by a1" in machine.run(
        "list", "--namespace", "team", "--agent", "b2"
    )


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
    assert machine.json("agents", "rotate", "far", "--out", str(out))["profile"] == args[2]


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


class Breakpoint(ThreadingHTTPServer):
    """Stands before a relayer and stops at one request, before or after it is carried out."""

    daemon_threads = True

    def __init__(self, upstream: str, path: str, *, after: bool, method: str) -> None:
        super().__init__(("127.0.0.1", 0), Passage)
        self.upstream, self.path, self.after, self.method = upstream, path, after, method
        self.reached, self.released = Event(), Event()
        self.requests: SimpleQueue[tuple[str, str]] = SimpleQueue()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def stop(self) -> None:
        self.reached.set()
        self.released.wait(COMMAND_S_MAX)


class Passage(BaseHTTPRequestHandler):
    """Passes a request on, unless it is the one to stop at."""

    server: Breakpoint

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        point = self.server
        point.requests.put((self.command, self.path))
        here = (self.command, self.path) == (point.method, point.path)
        stops = here and not point.reached.is_set()
        if stops and not point.after:
            return point.stop()
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        answer = httpx.request(
            self.command, point.upstream + self.path, content=body, headers=headers
        )
        if stops:
            return point.stop()
        self.send_response(answer.status_code)
        for name in ("content-type", "date"):
            self.send_header(name, answer.headers[name])
        self.send_header("content-length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    do_GET = do_POST = _pass

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def breakpoint_at(
    upstream: str, path: str, *, after: bool, method: str = "POST"
) -> Iterator[Breakpoint]:
    with Breakpoint(upstream, path, after=after, method=method) as point:
        thread = Thread(target=point.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield point
        finally:
            point.released.set()
            point.shutdown()
            thread.join()


def killed_at(machine: Machine, point: Breakpoint, *argv: str) -> None:
    """Run a command and kill it when the breakpoint is reached."""
    with machine.process(*argv) as process:
        try:
            assert point.reached.wait(COMMAND_S_MAX)
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_provisioning_killed_at_the_grant_is_finished_by_the_next(machine, after):
    with breakpoint_at(machine.url, "/v1/grants", after=after) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        killed_at(machine, point, "agents", "provision", "coder", "--shared", "team")
        (pending,) = machine.folder.glob("coder*")
        assert stat.S_IMODE(pending.stat().st_mode) == 0o600
        planned = json.loads(pending.read_text())["profile"]["private_key"]
        assert len(machine.keys("coder")) == after
        agent = machine.provision("coder", "--shared", "team")
        assert agent["state"] == "created"
        assert machine.settings("coder").private_key == planned
        assert machine.live("coder") == [agent["public_key"]]
        assert len(grants(machine, agent["public_key"])) == 1
        assert not pending.exists()
        machine.run("remember", "alive", "--agent", "coder")


@pytest.mark.parametrize(
    ("path", "after", "next_command"),
    [
        ("/v1/grants", False, "rotate"),
        ("/v1/grants", True, "provision"),
        ("/v1/revocations", False, "provision"),
        ("/v1/revocations", True, "rotate"),
    ],
)
def test_a_rotation_killed_anywhere_is_finished_by_the_next(machine, path, after, next_command):
    old = machine.provision("coder", "--shared", "team")
    with breakpoint_at(machine.url, path, after=after) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        killed_at(machine, point, "agents", "rotate", "coder")
        with machine.client("coder") as client:
            client.remember("there is always a key that works")
        if next_command == "rotate":
            agent = machine.json("agents", "rotate", "coder")
        else:
            agent = machine.provision("coder")
        assert agent["state"] == "rotated"
        assert agent["grants"] == old["grants"]
        assert machine.live("coder") == [agent["public_key"]] != [old["public_key"]]
        assert len(machine.keys("coder")) == 2
        assert len(grants(machine, agent["public_key"])) == 1
        assert not list(machine.folder.glob("*.pending"))
        machine.run("remember", "alive", "--agent", "coder")


def test_two_at_once_make_one_key(machine):
    with breakpoint_at(machine.url, "/v1/keys", after=True, method="GET") as point:
        machine.environ["MEMRELAY_URL"] = point.url
        argv = ("agents", "provision", "coder", "--shared", "team")
        with machine.process(*argv) as one:
            # It has seen that there is no plan, and has not made its own.
            assert point.reached.wait(COMMAND_S_MAX)
            while not point.requests.empty():
                point.requests.get()
            with machine.process(*argv) as other:
                point.requests.get(timeout=COMMAND_S_MAX)
                point.released.set()
        assert (one.returncode, other.returncode) == (0, 0)
        assert machine.live("coder") == [machine.settings("coder").public_key]
        assert len(machine.keys("coder")) == 1
        assert len(grants(machine, machine.settings("coder").public_key)) == 1


def test_what_is_there_is_looked_up_once_for_all(machine):
    names = ("a1", "b2", "c3")
    machine.run("agents", "provision", *names)
    with breakpoint_at(machine.url, "", after=False) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        asked = []
        for chosen in (names[:1], names):
            machine.run("agents", "provision", *chosen)
            asked.append([point.requests.get() for _ in range(point.requests.qsize())])
    assert asked[0] == asked[1]
    assert ("GET", "/v1/grants") in asked[0]


def test_a_plan_whose_key_was_revoked_is_dropped(machine):
    with breakpoint_at(machine.url, "/v1/grants", after=True) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        killed_at(machine, point, "agents", "provision", "coder")
    machine.environ.pop("MEMRELAY_URL")
    (planned,) = machine.live("coder")
    machine.run("keys", "revoke", planned)
    agent = machine.provision("coder")
    assert machine.live("coder") == [agent["public_key"]] != [planned]
    assert len(grants(machine, planned)) == 1
    assert not list(machine.folder.glob("*.pending"))


def test_revoking_ends_what_a_killed_rotation_left_under_another_label(machine):
    path = machine.folder / "coder.json"
    machine.run("keys", "add", "--namespace", "coder", "--label", "laptop", "--out", str(path))
    (old,) = machine.live("laptop")
    with breakpoint_at(machine.url, "/v1/revocations", after=False) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        killed_at(machine, point, "agents", "rotate", "coder")
        assert machine.live("laptop") == [old]
        machine.run("agents", "revoke", "coder")
        assert machine.live("laptop") == machine.live("coder") == []


def test_revoking_ends_what_a_killed_rotation_left(machine):
    machine.run("agents", "provision", "coder")
    with breakpoint_at(machine.url, "/v1/revocations", after=False) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        killed_at(machine, point, "agents", "rotate", "coder")
        assert len(machine.live("coder")) == 2
        machine.run("agents", "revoke", "coder")
        assert machine.live("coder") == []
        assert [path.name for path in machine.folder.glob("coder.json*")] == ["coder.json.revoked"]


def test_from_python(machine):
    with machine.client() as owner:
        (agent,) = Agents(owner, machine.folder).provision(["Coder"], Wish(shared=("team",)))
    assert agent.name == "coder"
    assert machine.settings("coder").public_key == agent.public_key
