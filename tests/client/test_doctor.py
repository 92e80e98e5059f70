"""`memrelay doctor` on this machine: all is well, the profile, the environment, what was seen.

Not here: the relayer (`test_doctor_relayer.py`), the key and what it may do (`test_doctor_key.py`),
what remembers for agents (`test_doctor_gateways.py`). Every cause is made for real.
"""

import json

import pytest

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from memrelay.config import Settings
from memrelay.doctor import OK, PROBLEM, SKIPPED, WARNING, Case, examine
from memrelay.sealed.keys import Identity, account_id_of, account_text
from memrelay.secure_files import write_private
from tests.client.doctor_scene import DEPENDENT, Machine, machine, states, the_problem, user
from tests.optional import unwrap

__all__ = ["machine", "user"]  # fixtures

# All is well


def test_a_healthy_machine(user: Machine, capsys) -> None:
    """capability 0.45: the profile and the relayer's health are examined, and well."""
    found = user.examine()
    assert (states(found, PROBLEM), states(found, WARNING)) == ([], ["facts"])
    assert found["facts"].command == "relayer serve --llm-model NAME"
    assert found["agents"].detail == "0 other keys, none of which ends within 7 days"
    assert states(found, SKIPPED) == ["hermes", "openclaw", "gateway"]
    assert "probe" not in found
    capsys.readouterr()
    assert user.run("doctor") == EXIT_OK
    out, err = capsys.readouterr()
    assert err == ""
    told = [line.split()[1] for line in out.splitlines() if "  type:  " not in line]
    assert told == list(found)


def test_json_is_one_value_with_every_finding(user: Machine, capsys) -> None:
    capsys.readouterr()
    assert user.run("doctor", "--json") == EXIT_OK
    value = json.loads(capsys.readouterr().out)
    assert value["ok"] is True
    assert {tuple(finding) for finding in value["findings"]} == {
        ("check", "state", "detail", "command")
    }


def test_a_probe_leaves_nothing_behind(user: Machine) -> None:
    found = user.examine(probe=True)
    assert found["probe"].detail == "a memory was stored, found and forgotten"
    with SyncMemoryClient.from_settings(Settings.load(user.profile, environ={})) as client:
        assert client.list().memories == ()
        assert client.stats().memory_count == 0


def test_a_reader_is_not_probed(user: Machine) -> None:
    user.add_key("coder", "coder", role="reader")
    found = user.examine(agent="coder", probe=True)
    assert found["grants"].detail == "reader of coder"
    assert (found["probe"].state, states(found, PROBLEM)) == (SKIPPED, [])


# The profile


def test_without_a_profile(machine: Machine, capsys) -> None:
    found = machine.examine()
    assert the_problem(found, "profile").command == "memrelay init --local"
    assert [name for name in DEPENDENT if found[name].state != SKIPPED] == []
    assert machine.run("doctor") == EXIT_FAILED
    out, err = capsys.readouterr()
    assert "PROBLEM  profile" in out
    assert "type:  memrelay init --local" in out
    assert err == "memrelay: One thing is wrong.\n"


def test_a_profile_that_others_may_read(user: Machine) -> None:
    """capability 0.45: a profile that is not private is refused, with what mends it."""
    user.profile.chmod(0o644)
    found = the_problem(user.examine(), "profile")
    assert "Others may read" in found.detail
    user.typed(found)
    assert user.examine()["profile"].state == OK


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"private_key": "abc"}, "private key"),
        ({"url": "ftp://example.org"}, "URL"),
        ({"url": "http://example.org"}, "https"),
        ({"account_id": "0x12"}, "account id"),
        ({"custody": "none"}, "Custody"),
        ({"relayer_key": "12"}, "public key"),
        ({"colour": "red"}, "unknown members: colour"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_profile_with_a_wrong_value(machine: Machine, values, named: str) -> None:
    """capability 0.45: key, URL and the other settings are validated."""
    identity = Identity.generate()
    right = {
        "url": "http://127.0.0.1:9",
        "account_id": account_text(account_id_of(identity.public_key)),
        "private_key": identity.seed_hex(),
    }
    write_private(machine.profile, {**right, **values})
    case = Case(environ=machine.environ)
    found = next(examine(case))
    assert (found.state, found.command) == (PROBLEM, f"${{EDITOR:-vi}} {machine.profile}")
    assert named.lower() in found.detail.lower()
    assert identity.seed_hex() not in found.detail


def test_a_malformed_profile_is_not_quoted(machine: Machine) -> None:
    machine.folder.mkdir(parents=True)
    machine.profile.touch(mode=0o600)
    machine.profile.write_text('{"private_key": "' + "5e" * 32)
    found = next(examine(Case(environ=machine.environ)))
    assert found.state == PROBLEM
    assert "malformed" in found.detail
    assert "5e5e" not in found.detail


def test_an_agent_without_a_profile(user: Machine) -> None:
    found = the_problem(user.examine(agent="ghost"), "profile")
    assert found.command == "memrelay agents provision ghost"


def test_commands_name_the_profile_that_was_given(user: Machine) -> None:
    path = user.profile.rename(user.folder / "my profile.json")
    found = user.examine(profile=str(path), agent="ghost")
    expected = f"memrelay agents provision ghost --profile '{path}'"
    assert the_problem(found, "profile").command == expected
    user.write(path, relayer_key=Identity.generate().public_key.hex())
    found = user.examine(profile=str(path))
    assert the_problem(found, "identity").command == f"memrelay trust KEY --profile '{path}'"
    found = user.examine(profile=str(path.with_name("none.json")))
    command = unwrap(the_problem(found, "profile").command)
    assert command.startswith("memrelay init --local --profile ")


@pytest.mark.parametrize("option", [("--agent", "../x"), ("--namespace", "x" * 200)])
def test_a_malformed_name_is_a_wrong_argument(user: Machine, option) -> None:
    assert user.run("doctor", *option) == EXIT_USAGE


# The environment


def test_a_variable_that_wins_over_the_profile(user: Machine) -> None:
    user.environ |= {"MEMRELAY_NAMESPACE": "elsewhere", "MEMRELAY_URL": ""}
    found = user.examine()
    assert found["environment"].state == WARNING
    assert "MEMRELAY_NAMESPACE" in found["environment"].detail
    assert found["environment"].command == "unset MEMRELAY_NAMESPACE"
    assert (states(found, PROBLEM), user.run("doctor")) == ([], EXIT_OK)


def test_a_variable_that_says_the_same_does_not(user: Machine) -> None:
    user.environ["MEMRELAY_NAMESPACE"] = "default"
    assert user.examine()["environment"].state == OK


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MEMRELAY_CUSTODY", "none"),
        ("MEMRELAY_PRIVATE_KEY", "5e5e"),
        ("MEMRELAY_NAMESPACE", "x" * 200),
        ("MEMRELAY_URL", "ftp://example.org"),
        ("MEMRELAY_RELAYER_KEY", "12"),
        ("MEMRELAY_ACCOUNT_ID", "0x12"),
        ("MEMRELAY_ALLOW_INSECURE", "perhaps"),
    ],
)
def test_a_variable_that_spoils_a_profile(user: Machine, variable: str, value: str) -> None:
    user.environ |= {"MEMRELAY_CUSTODY": "auto", variable: value}
    found = the_problem(user.examine(), "profile")
    assert found.detail.endswith(f" The profile is well: {variable} is wrong.")
    assert value not in found.detail
    assert found.command == f"unset {variable}"
    del user.environ[variable]
    assert user.examine()["profile"].state == OK


def test_variables_that_spoil_a_profile_are_all_named(user: Machine) -> None:
    user.environ |= {"MEMRELAY_URL": "x", "MEMRELAY_CUSTODY": "x", "MEMRELAY_NAMESPACE": "x"}
    found = the_problem(user.examine(), "profile")
    assert found.command == "unset MEMRELAY_URL MEMRELAY_CUSTODY"


def test_a_wrong_profile_is_not_blamed_on_a_variable(user: Machine) -> None:
    user.write(custody="none")
    user.environ["MEMRELAY_NAMESPACE"] = "x" * 200
    found = the_problem(user.examine(), "profile")
    assert found.command == f"${{EDITOR:-vi}} {user.profile}"


def test_the_environment_alone_is_enough(user: Machine) -> None:
    values = json.loads(user.profile.read_text())
    user.profile.unlink()
    for name in ("url", "account_id", "private_key"):
        user.environ[f"MEMRELAY_{name.upper()}"] = values[name]
    found = user.examine()
    assert states(found, PROBLEM) == []
    assert found["profile"].detail.startswith("the environment: ")


# What was seen


def test_a_damaged_history(user: Machine) -> None:
    seen = user.history()
    seen.write_text("{")
    found = user.examine()
    assert "damaged" in the_problem(found, "history").detail
    assert found["key"].state == SKIPPED
    user.typed(found["history"])
    assert states(user.examine(), PROBLEM) == []


def test_a_history_that_others_may_read(user: Machine) -> None:
    user.history().chmod(0o640)
    found = the_problem(user.examine(), "history")
    user.typed(found)
    assert states(user.examine(), PROBLEM) == []


def test_how_far_the_history_was_followed(user: Machine) -> None:
    user.add_key("coder", "work")
    assert user.run("remember", "Ben likes rain.", "--agent", "coder") == EXIT_OK
    with SyncMemoryClient.from_settings(Settings.load(user.profile, environ={})) as client:
        newest = client.receipts()[-1].seq
    assert user.examine()["history"].detail.endswith(f"receipts up to {newest}")
