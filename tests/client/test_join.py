"""`memrelay join` and `keys admit`: a key that is let in and never travels."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from memrelay.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, main
from memrelay.config import Settings
from memrelay.sealed.join_request import make_fingerprint, read_requests
from memrelay.sealed.keys import Identity, mask_key
from tests.client.agents_scene import Machine, machine

__all__ = ["machine"]  # fixtures


class Elsewhere:
    """Another machine: a home of its own, and commands that are processes."""

    def __init__(self, home: Path, url: str) -> None:
        self.url = url
        self.profile = home / "memrelay" / "profile.json"
        self.waiting = home / "memrelay" / "profile.json.joining"
        self._environ = {**os.environ, "XDG_CONFIG_HOME": str(home)}

    def run(self, *argv: str, code: int = EXIT_OK) -> str:
        """What a command prints; it must end with this exit code."""
        ended = subprocess.run(
            [sys.executable, "-m", "memrelay", *argv],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        self.err = ended.stderr
        assert ended.returncode == code, ended.stderr
        return ended.stdout

    def json(self, *argv: str, code: int = EXIT_OK):
        return json.loads(self.run(*argv, "--json", code=code))

    def join(self, *argv: str):
        return self.json("join", self.url, *argv)


@pytest.fixture
def elsewhere(machine, tmp_path):
    return Elsewhere(tmp_path / "elsewhere", machine.url)


def refuse(machine: Machine, *argv: str, code: int) -> str:
    """What is said beside a refusal and before it."""
    assert main([*argv], machine.environ) == code
    return machine._capsys.readouterr().err


def made_fingerprint(request: str) -> str:
    return make_fingerprint(read_requests(request)[0].recipient)


def admit(machine: Machine, *argv: str):
    return machine.json("keys", "admit", "--yes", *argv)


def test_a_key_is_let_in_that_never_leaves_its_machine(machine, elsewhere):
    made = elsewhere.join("--label", "anna")
    assert stat.S_IMODE(elsewhere.waiting.stat().st_mode) == 0o600
    private_key = json.loads(elsewhere.waiting.read_text())["private_key"]
    assert private_key not in json.dumps(made)
    done = admit(machine, made["request"], "--namespace", "team", "--expires", "90d")
    assert machine.err.count(made["fingerprint"]) == 1
    assert "by anna at" in machine.err
    assert "writer of team until" in machine.err
    elsewhere.run("join", "--finish", "--account", done["account_id"])
    assert not elsewhere.waiting.exists()
    assert stat.S_IMODE(elsewhere.profile.stat().st_mode) == 0o600
    settings = Settings.load(elsewhere.profile, environ={})
    assert settings.private_key == private_key
    assert settings.namespace == "team"
    assert settings.relayer_key == made["relayer_key"]
    elsewhere.run("remember", "Anna reviews on Fridays")
    found = machine.json("recall", "who reviews?", "--namespace", "team")["results"]
    assert [result["text"] for result in found] == ["Anna reviews on Fridays"]
    elsewhere.run("list", "--namespace", "default", code=EXIT_FAILED)
    (key,) = machine.keys("anna")
    assert key["expires_at"] is not None


def test_the_same_request_twice_grants_nothing_twice(machine, elsewhere):
    request = elsewhere.join()["request"]
    wish = (request, "--namespace", "team", "--expires", "90d")
    first, second = admit(machine, *wish), admit(machine, *wish)
    assert [key["state"] for key in first["keys"] + second["keys"]] == ["admitted", "kept"]
    assert len(machine.json("keys", "list")["keys"]) == 2
    more = admit(machine, request, "--namespace", "team", "--namespace", "ideas")
    assert [key["state"] for key in more["keys"]] == ["admitted"]
    assert "ideas" in more["keys"][0]["holds"]


def test_nothing_is_granted_unasked(machine, elsewhere):
    request = elsewhere.join()["request"]
    err = refuse(machine, "keys", "admit", request, "--namespace", "team", code=EXIT_USAGE)
    assert made_fingerprint(request) in err
    assert "Nobody is there to ask" in err
    assert len(machine.json("keys", "list")["keys"]) == 1


def test_who_was_not_let_in_yet_is_told_so(machine, elsewhere):
    made = elsewhere.join()
    elsewhere.run("join", "--finish", "--yes", code=EXIT_FAILED)
    assert f"Nobody has let the key {made['fingerprint']} in yet" in elsewhere.err
    assert elsewhere.json("join")["public_key"] == made["public_key"]


def test_another_account_that_lets_the_key_in_is_noticed(machine, elsewhere, tmp_path, capsys):
    """The relayer's operator, or who reads the chat, founds one and admits the key there."""
    made = elsewhere.join()
    stranger = Machine(tmp_path / "stranger", machine.url, capsys)
    stranger.run("init", machine.url)
    admit(stranger, made["request"], "--namespace", "team")
    own = machine.json("status")["account"]["account_id"]
    elsewhere.run("join", "--finish", code=EXIT_USAGE)
    assert "Give the account that its owner named" in elsewhere.err
    elsewhere.run("join", "--finish", "--account", own, code=EXIT_FAILED)
    assert "Do not use that key" in elsewhere.err
    assert not elsewhere.profile.exists()


def test_a_request_for_one_account_is_of_no_use_to_another(machine, elsewhere, tmp_path, capsys):
    own = machine.json("status")["account"]["account_id"]
    made = elsewhere.join("--account", own)
    stranger = Machine(tmp_path / "stranger", machine.url, capsys)
    stranger.run("init", machine.url)
    refusal = ("keys", "admit", made["request"], "--yes", "--namespace", "team")
    stranger.run(*refusal, code=EXIT_USAGE)
    assert "for another account" in stranger.err
    admit(machine, made["request"], "--namespace", "team")
    elsewhere.run("join", "--finish")  # nothing to compare: it agreed to no other
    assert Settings.load(elsewhere.profile, environ={}).account_id == own


def test_a_stale_request_is_refused_and_the_same_key_asks_again(machine, elsewhere):
    made = elsewhere.join("--days", "0.00000001")
    machine.run("keys", "admit", made["request"], "--yes", "--namespace", "team", code=EXIT_USAGE)
    assert "is stale" in machine.err
    again = elsewhere.join()
    assert again["public_key"] == made["public_key"]
    admit(machine, again["request"], "--namespace", "team")


def test_a_revoked_key_is_not_let_in_again(machine, elsewhere):
    made = elsewhere.join()
    admit(machine, made["request"], "--namespace", "team")
    machine.run("keys", "revoke", made["public_key"])
    refusal = ("keys", "admit", made["request"], "--yes", "--namespace", "team")
    machine.run(*refusal, code=EXIT_FAILED)
    assert "was revoked" in machine.err
    other = elsewhere.join("--force")
    assert other["public_key"] != made["public_key"]
    old = json.loads(elsewhere.waiting.with_name("profile.json.joining.old").read_text())
    assert Identity.from_hex(old["private_key"]).public_key.hex() == made["public_key"]


def test_a_profile_that_is_there_is_kept(machine, elsewhere):
    made = elsewhere.join()
    account = admit(machine, made["request"], "--whole-account")["account_id"]
    waiting = elsewhere.waiting.read_bytes()
    elsewhere.run("join", "--finish", "--account", account)
    elsewhere.run("join", elsewhere.url, code=EXIT_USAGE)
    assert "exists: there is a memory already. --profile FILE keeps another" in elsewhere.err
    # Killed between the profile and the end of what waited:
    elsewhere.waiting.write_bytes(waiting)
    elsewhere.waiting.chmod(0o600)
    elsewhere.run("join", "--finish", "--account", account)
    assert not elsewhere.waiting.exists()
    assert Settings.load(elsewhere.profile, environ={}).namespace == "default"


def test_only_owners_let_others_in(machine, elsewhere):
    machine.run("agents", "provision", "coder")
    request = elsewhere.join()["request"]
    arguments = ("keys", "admit", request, "--yes", "--namespace", "coder")
    machine.run(*arguments, "--agent", "coder", code=EXIT_FAILED)
    assert "Only an owner's key" in machine.err


def test_agents_of_other_machines_are_enrolled_from_a_file(machine, tmp_path):
    machines = {name: Elsewhere(tmp_path / name, machine.url) for name in ("coder", "writer")}
    file = tmp_path / "requests.txt"
    made = {name: there.join("--label", name) for name, there in machines.items()}
    file.write_text("".join(f"{entry['request']}\n" for entry in made.values()))
    wish = (str(file), "--shared", "team", "--yes")
    done = machine.json("agents", "enrol", *wish)
    assert [(a["name"], a["state"]) for a in done["agents"]] == (
        [("coder", "enrolled"), ("writer", "enrolled")]
    )
    again = machine.json("agents", "enrol", *wish)["agents"]
    assert {agent["state"] for agent in again} == {"kept"}
    assert list(machine.folder.glob("*.json")) == []  # no key of theirs is here
    for name, there in machines.items():
        there.run("join", "--finish", "--account", done["account_id"])
        assert Settings.load(there.profile, environ={}).namespace == name
        there.run("remember", f"{name} works at night")
        there.run("recall", "who works?", "--namespace", "team")
    machines["coder"].run("list", "--namespace", "writer", code=EXIT_FAILED)
    listed = machine.json("agents", "list")["agents"]
    assert {a["name"]: a["state"] for a in listed} == {"coder": "active", "writer": "active"}
    machine.run("agents", "rotate", "coder", code=EXIT_FAILED)  # its new key would be here
    assert "runs on another machine" in machine.err
    machines["coder"].run("list")
    machine.run("agents", "revoke", "coder")
    machines["coder"].run("list", code=EXIT_FAILED)
    machines["writer"].run("list")


def test_an_agents_name_goes_to_one_key(machine, tmp_path):
    machine.run("agents", "provision", "coder")
    there = Elsewhere(tmp_path / "there", machine.url)
    request = there.join("--label", "coder")["request"]
    machine.run("agents", "enrol", request, "--yes", code=EXIT_FAILED)
    assert "coder has a key already" in machine.err
    other = Elsewhere(tmp_path / "other", machine.url).join("--label", "newcomer")["request"]
    machine.run("agents", "enrol", other, request, "--yes", code=EXIT_FAILED)
    assert machine.live("newcomer") == []  # of several, all or none
    request = there.join("--label", "Anna Smith")["request"]
    machine.run("agents", "enrol", request, "--yes", code=EXIT_USAGE)
    assert "is called Anna Smith" in machine.err
    machine.run("agents", "enrol", request, "--yes", "--name", "anna")


def test_an_enrolled_agent_is_given_a_new_key_in_place(machine, elsewhere):
    made = elsewhere.join("--label", "coder")
    done = machine.json("agents", "enrol", made["request"], "--yes", "--shared", "team")
    elsewhere.run("join", "--finish", "--account", done["account_id"])
    before = Settings.load(elsewhere.profile, environ={})
    elsewhere.run("remember", "tabs, not spaces")
    again = elsewhere.json("join", "--replace")
    assert again["label"] == "coder"
    elsewhere.run("list")  # the old key works until the new one is admitted
    machine.run("agents", "enrol", again["request"], "--yes", code=EXIT_FAILED)
    assert "--replace ends it" in machine.err
    tried = machine.json("agents", "enrol", again["request"], "--replace", "--dry-run")
    assert tried["agents"][0]["replaces"] == [before.public_key]
    assert machine.live("coder") == [before.public_key]
    (agent,) = machine.json("agents", "enrol", again["request"], "--replace", "--yes")["agents"]
    assert f"its key {mask_key(before.public_key)} would end" in machine.err
    assert (agent["state"], agent["public_key"]) == ("rotated", again["public_key"])
    assert machine.live("coder") == [again["public_key"]]
    elsewhere.run("list", code=EXIT_FAILED)
    elsewhere.run("join", "--finish")  # the account is that of the profile
    after = Settings.load(elsewhere.profile, environ={})
    assert after.public_key == again["public_key"] != before.public_key
    assert "tabs, not spaces" in elsewhere.run("list")
    elsewhere.run("list", "--namespace", "team")  # it holds what the old one held
    (kept,) = machine.json("agents", "enrol", again["request"], "--replace", "--yes")["agents"]
    assert kept["state"] == "kept"


def test_an_agent_of_this_machine_moves_to_another(machine, elsewhere):
    old = machine.provision("coder", "--shared", "team")
    made = elsewhere.join("--label", "coder")
    done = machine.json("agents", "enrol", made["request"], "--replace", "--yes")
    assert done["agents"][0]["grants"] == old["grants"]
    assert machine.live("coder") == [made["public_key"]]
    assert [path.name for path in machine.folder.glob("coder*")] == ["coder.json.revoked"]


def test_a_profile_that_is_not_there_is_not_replaced(elsewhere):
    elsewhere.run("join", "--replace", code=EXIT_USAGE)
    assert "There is no profile at" in elsewhere.err
    elsewhere.run("join", elsewhere.url)
    elsewhere.run("join", "--replace", code=EXIT_USAGE)
    assert "replaces none" in elsewhere.err


@pytest.mark.parametrize("options", [["--qr"], ["--out", "request.SVG"]])
def test_a_code_without_its_library_is_refused_before_there_is_a_key(
    machine, tmp_path, monkeypatch, options
):
    monkeypatch.setitem(sys.modules, "segno", None)
    machine.environ["XDG_CONFIG_HOME"] = str(tmp_path / "there")
    machine.run("join", machine.url, *options, code=EXIT_USAGE)
    assert "client[qr]" in machine.err
    assert not list(tmp_path.glob("there/**/*.joining"))


def test_people_are_shown_the_request_alone_on_standard_output(elsewhere):
    out = elsewhere.run("join", elsewhere.url)
    assert re.fullmatch(r"memrelay-join:[a-z2-7]+\n", out)
    assert "fingerprint" in elsewhere.err
