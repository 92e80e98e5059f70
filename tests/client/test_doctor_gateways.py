"""`memrelay doctor` on what remembers for agents here: gateway, spool, OpenClaw and Hermes."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memrelay import SyncMemoryClient, __version__
from memrelay.cli import EXIT_OK
from memrelay.config import Settings
from memrelay.doctor import OK, PROBLEM, SKIPPED, WARNING, Finding
from memrelay.gateway.endpoint import endpoint_path
from memrelay.gateway.spool import SpoolKey
from memrelay.sealed.keys import Identity
from memrelay.secure_files import write_private, write_private_text
from tests.client.doctor_scene import HOUR_S, Machine, listening, machine, states, the_problem, user
from tests.client.spool_scene import spool_in
from tests.optional import unwrap

__all__ = ["machine", "user"]  # fixtures

# Gateways


@pytest.mark.parametrize("agent", [None, "coder"])
def test_commands_on_what_serves_all_name_the_profile_and_no_agent(user: Machine, agent) -> None:
    user.add_key("coder", "coder")
    path = user.profile.rename(user.folder / "my profile.json")
    options = {"profile": str(path)} | ({"agent": agent} if agent else {})
    found = user.examine(**options)
    told = f"agents that need one have `memrelay gateway --profile '{path}'`"
    assert found["gateway"].detail.endswith(told)
    openclaw(user, "{}")
    told = f"`memrelay openclaw install --profile '{path}'` sets it up"
    assert user.examine(**options)["openclaw"].detail.endswith(told)
    openclaw(user, '{"plugins": {"slots": {"memory": "memrelay"}}}')
    spooled(user, HOUR_S, Settings.load(path, environ={}).identity)
    found = user.examine(**options)
    assert states(found, PROBLEM) == ["openclaw", "gateway"]
    assert found["openclaw"].command == f"memrelay openclaw install --profile '{path}'"
    assert found["gateway"].command == f"memrelay gateway --profile '{path}'"
    assert found["spool"].command == f"memrelay gateway --profile '{path}'"


@contextmanager
def running_gateway(machine: Machine) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "memrelay", "gateway", "--port", "0"],
        env=machine.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    output = unwrap(process.stdout)
    try:
        assert "ready" in output.readline()
        yield process
    finally:
        process.terminate()
        process.wait()
        output.close()


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b"auto_capture = maybe\n", "cannot be read as TOML"),
        (b"\xff", "cannot be read as TOML"),
        (b"a = " + b"[" * 5_000, "cannot be read as TOML"),
        (b"auto_captures = true\n", "There is no setting auto_captures"),
    ],
)
def test_settings_that_no_gateway_starts_with(user: Machine, content, detail) -> None:
    path = user.folder / "gateway.toml"
    path.write_bytes(content)
    path.chmod(0o644)  # they are no secret
    found = user.examine()["gateway"]
    assert (found.state, found.command) == (PROBLEM, f"${{EDITOR:-vi}} {path}")
    assert detail in found.detail
    assert str(path) in found.detail


def test_a_folder_in_place_of_the_settings_is_got_out_of_the_way(user: Machine) -> None:
    path = user.folder / "gateway.toml"
    path.mkdir()
    found = user.examine()["gateway"]
    assert (found.state, found.command) == (PROBLEM, f"mv {path} {path}.old")
    assert f"{path} cannot be read: Is a directory" in found.detail
    subprocess.run(["sh", "-c", found.command], check=True)
    assert user.examine()["gateway"].state == SKIPPED


@pytest.mark.parametrize(("mode", "command"), [(0o644, "chmod 600"), (0o600, "rm")])
def test_what_a_gateway_left_is_mended_by_its_name(user: Machine, mode, command) -> None:
    path = endpoint_path(user.profile, user.environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    path.chmod(mode)
    found = user.examine()["gateway"]
    assert (found.state, found.command) == (PROBLEM, f"{command} {path}")


def test_what_is_no_file_or_has_no_end_is_got_out_of_the_way(user: Machine) -> None:
    path = endpoint_path(user.profile, user.environ)
    write_private_text(path, "[" * 60_000)
    assert user.examine()["gateway"].command == f"rm {path}"
    path.unlink()
    path.mkdir()
    found = user.examine()["gateway"]
    assert (found.state, found.command) == (PROBLEM, f"mv {path} {path}.old")
    subprocess.run(["sh", "-c", found.command], check=True)
    assert user.examine()["gateway"].state == SKIPPED


def test_a_running_gateway(user: Machine) -> None:
    """capability 0.44: health, version, masked key, namespace and switches are told."""
    (user.folder / "gateway.toml").write_text("auto_capture = false\n")
    key = Settings.load(user.profile, environ={}).masked_key
    with running_gateway(user) as process:
        found = user.examine()
    assert states(found, PROBLEM) == []
    expected = f"process {process.pid} holds {key}; recall is on, capture off"
    assert found["gateway"].detail == expected
    assert found["relayer"].detail.endswith("answers: ok")
    assert found["version"].detail.startswith(f"relayer {__version__}, protocol 1.")
    assert f"key {key} of account 0x" in found["profile"].detail
    assert found["namespace"].detail == "default is held"


def test_a_gateway_that_does_not_reach_its_relayer(user: Machine) -> None:
    with listening() as url:
        pass
    user.write(url=url)
    with running_gateway(user):
        found = user.examine()
    assert (found["gateway"].state, found["gateway"].command) == (
        WARNING,
        "memrelay gateway status",
    )


def test_a_gateway_with_a_key_that_was_revoked(user: Machine, capsys) -> None:
    """An owner who looks after all agents is told, not only who examines that one."""
    agent = Settings.load(user.add_key("coder", "coder"), environ={})
    with running_gateway(user):
        assert user.examine()["gateway"].state == OK
        with SyncMemoryClient.from_settings(Settings.load(user.profile, environ={})) as owner:
            owner.revoke_key(agent.public_key)
        found = user.examine()
        capsys.readouterr()
        user.run("gateway", "status")
        shown = capsys.readouterr().out.splitlines()
    assert found["gateway"].state == PROBLEM
    assert agent.masked_key in found["gateway"].detail
    told = {line.rpartition("  ")[2] for line in shown[1:]}
    assert told == {"answers", "refuses this key"}


def test_a_gateway_that_was_killed(user: Machine) -> None:
    with running_gateway(user) as process:
        process.kill()
        process.wait()
        found = the_problem(user.examine(), "gateway")
    assert "does not answer" in found.detail
    assert found.command == "memrelay gateway"


def test_another_program_at_the_gateways_place(user: Machine) -> None:
    with running_gateway(user):
        path = user.folder / "gateway.json"
        write_private(path, {**json.loads(path.read_text()), "token": "00"})
        found = the_problem(user.examine(), "gateway")
    assert "Another gateway answers" in found.detail
    assert found.command == f"rm {path}"


def test_an_endpoint_that_others_may_read(user: Machine) -> None:
    path = user.folder / "gateway.json"
    path.touch(mode=0o644)
    path.chmod(0o644)
    assert "Others may read" in the_problem(user.examine(), "gateway").detail


def spooled(machine: Machine, age_s: int, identity: Identity | None = None) -> Path:
    """The file of a turn that a gateway kept so long ago, with the profile's key or another."""
    identity = identity or Settings.load(machine.profile, environ={}).identity
    folder, then_ns = machine.folder / "spool", time.time_ns() - age_s * 1_000_000_000
    before = set(folder.glob("*"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: then_ns)
        spool = spool_in(folder)
        spool.put(SpoolKey.of(identity), b"a turn")
    [path] = set(folder.iterdir()) - before
    return path


def test_turns_that_wait(user: Machine) -> None:
    spooled(user, 5)
    found = user.examine()["spool"]
    assert (found.state, found.detail[:20]) == (OK, "1 captured turn not ")
    spooled(user, HOUR_S)
    found = user.examine()["spool"]
    assert (found.state, found.command) == (WARNING, "memrelay gateway")
    assert found.detail.startswith(
        "2 captured turns not delivered to the relayer yet, the oldest for 360"
    )


def test_turns_that_wait_for_a_key_that_is_gone(user: Machine) -> None:
    """An agent's that was revoked, say: no gateway can deliver them."""
    kept, gone = spooled(user, HOUR_S), Identity.generate()
    orphans = [spooled(user, age_s, gone) for age_s in (5, HOUR_S)]
    found = user.examine()["spool"]
    assert found.state == WARNING
    assert found.detail.startswith("2 captured turns sealed for a key that is not here any more: ")
    user.typed(found)
    assert [kept.exists(), *(path.exists() for path in orphans)] == [True, False, False]
    assert user.examine()["spool"].command == "memrelay gateway"


@pytest.mark.parametrize("place", ["agents/coder.json.pending", "profile.json.old", "other.toml"])
def test_turns_that_wait_for_a_key_in_any_file_here_do_wait(user: Machine, place: str) -> None:
    seed = bytes(range(32))
    path = user.folder / place
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_private(path, {"replaced": seed.hex()})
    spooled(user, HOUR_S, Identity(seed))
    assert user.examine()["spool"].command == "memrelay gateway"


def test_turns_that_are_damaged(user: Machine) -> None:
    path = spooled(user, 5)
    path = path.rename(path.with_suffix(".damaged"))
    found = user.examine()["spool"]
    assert (found.state, found.detail) == (WARNING, "1 captured turn set aside as damaged.")
    user.typed(found)
    assert not path.exists()
    assert user.examine()["spool"].state == OK


def openclaw(machine: Machine, text: str) -> Path:
    path = machine.home / ".openclaw" / "openclaw.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_an_openclaw_that_does_not_use_memrelay(user: Machine) -> None:
    openclaw(user, '{"plugins": {"slots": {"memory": "memory-core"}}}')
    found = user.examine()
    assert (found["openclaw"].state, found["gateway"].state) == (SKIPPED, SKIPPED)


def test_an_openclaw_that_is_set_up_in_part(user: Machine) -> None:
    path = openclaw(user, "{}")
    user.environ["PATH"] = ""  # no OpenClaw of this machine
    assert user.run("openclaw", "install", "--yes") == EXIT_OK
    found = the_problem(user.examine(), "gateway")
    assert found.detail == "No gateway runs, and OpenClaw needs one."
    with running_gateway(user):
        assert states(user.examine(), PROBLEM) == []
        values = json.loads(path.read_text())
        values["plugins"]["slots"]["memory"] = "memory-core"
        values["plugins"]["entries"]["memrelay"]["hooks"]["allowConversationAccess"] = False
        path.write_text(json.dumps(values))
        found = the_problem(user.examine(), "openclaw")
    assert "plugins.slots.memory, plugins.entries.memrelay" in found.detail
    assert found.command == "memrelay openclaw install"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('// mine\n{"plugins": {"slots": {"memory": "memrelay"}}}', "not plain JSON"),
        pytest.param('{"memrelay": ' + "[" * 60_000, "not plain JSON", id="deep"),
        ('{"plugins": {"enabled": false, "allow": ["memrelay"]}}', "plugins are off"),
        ('{"plugins": {"deny": ["memrelay"]}}', "plugins.deny"),
    ],
)
def test_an_openclaw_that_cannot_use_memrelay(user: Machine, text: str, named: str) -> None:
    openclaw(user, text)
    found = user.examine()
    assert states(found, PROBLEM) == ["openclaw", "gateway"]
    assert named in found["openclaw"].detail


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"recallResultsMax": 21}, "recall_results_max is from 1 to 20"),
        ({"relevanceMin": -0.1}, "relevance_min is from 0 to 1"),
        ({"recallDeadlineS": 0}, "recall_deadline_s is from 0.05 to 15"),
        ({"autoRecall": "yes"}, "auto_recall has a value of the wrong type"),
        ({"captureScope": "all"}, "capture_scope is window or turn"),
        ({"profile": "fast"}, "profile is one of"),
        ({"colour": "red"}, "no setting colour"),
    ],
)
def test_an_openclaw_whose_plugin_has_a_wrong_setting(
    user: Machine, settings: dict[str, object], named: str
) -> None:
    """The gateway refuses the plugin's connection then, and OpenClaw goes on without memories."""
    path = openclaw(user, "{}")
    user.environ["PATH"] = ""
    assert user.run("openclaw", "install", "--yes") == EXIT_OK
    assert user.examine()["openclaw"].state == OK
    values = json.loads(path.read_text())
    values["plugins"]["entries"]["memrelay"]["config"] |= settings
    path.write_text(json.dumps(values))
    found = user.examine()["openclaw"]
    assert (found.state, found.command) == (PROBLEM, f"${{EDITOR:-vi}} {path}")
    assert found.detail.startswith("plugins.entries.memrelay.config: ")
    assert named in found.detail


# Hermes


@pytest.fixture
def hermes(user: Machine) -> Machine:
    """A machine with a Hermes whose Python has memrelay, and that is set up."""
    (user.home / ".hermes").mkdir()
    user.environ["PATH"] = str(user.home / "bin")
    user_python(user, "echo True")
    assert user.run("hermes", "install", "--yes") == EXIT_OK
    assert user.examine()["hermes"] == Finding(
        check="hermes", state=OK, detail=str(user.home / ".hermes")
    )
    return user


def user_python(machine: Machine, script: str) -> Path:
    """The command hermes, and what stands in for the Python beside it."""
    folder = machine.home / "bin"
    folder.mkdir(exist_ok=True)
    for name, text in (
        ("hermes", "#!/usr/bin/env python3\n"),
        ("python", f"#!/bin/sh\n{script}\n"),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder / "python"


def test_a_hermes_that_does_not_use_memrelay(user: Machine) -> None:
    (user.home / ".hermes").mkdir()
    (user.home / ".hermes" / "config.yaml").write_text("memory:\n  provider: mem0\n")
    found = user.examine()["hermes"]
    assert (found.state, found.command) == (SKIPPED, None)
    assert found.detail.endswith("`memrelay hermes install` sets it up")


def test_a_hermes_that_has_chosen_another_provider(hermes: Machine) -> None:
    (hermes.home / ".hermes" / "config.yaml").write_text("memory:\n  provider: mem0\n")
    found = the_problem(hermes.examine(), "hermes")
    assert "has not chosen it" in found.detail
    assert found.command == "memrelay hermes install"
    path = hermes.profile.rename(hermes.folder / "my profile.json")
    found = hermes.examine(profile=str(path))["hermes"]
    assert found.command == f"memrelay hermes install --profile '{path}'"


def test_a_hermes_whose_provider_is_of_another_version(hermes: Machine) -> None:
    (hermes.home / ".hermes" / "plugins" / "memrelay" / "plugin.yaml").write_text("name: x\n")
    assert "or another version's" in the_problem(hermes.examine(), "hermes").detail
    assert hermes.run("hermes", "install", "--yes") == EXIT_OK
    assert hermes.examine()["hermes"].state == OK


def test_a_hermes_whose_configuration_is_not_plain(hermes: Machine) -> None:
    path = hermes.home / ".hermes" / "config.yaml"
    path.write_text("memory: {provider: memrelay}\n")
    found = hermes.examine()["hermes"]
    assert (found.state, found.command) == (WARNING, f"${{EDITOR:-vi}} {path}")


def test_a_hermes_with_wrong_settings(hermes: Machine) -> None:
    path = hermes.home / ".hermes" / "memrelay.json"
    path.write_text('{"colour": "red"}')
    found = the_problem(hermes.examine(), "hermes")
    assert "colour" in found.detail
    assert found.command == f"${{EDITOR:-vi}} {path}"


def test_a_hermes_whose_profile_is_gone(hermes: Machine) -> None:
    path = hermes.home / ".hermes" / "memrelay.json"
    path.write_text(json.dumps({"profile": str(hermes.home / "gone.json")}))
    found = the_problem(hermes.examine(), "hermes")
    assert found.detail.endswith("gone.json, which is not there.")
    assert hermes.run("hermes", "install", "--yes") == EXIT_OK
    assert hermes.examine()["hermes"].state == OK


def test_a_hermes_whose_python_lacks_memrelay(hermes: Machine) -> None:
    python = user_python(hermes, "echo True; exit 1")
    found = the_problem(hermes.examine(), "hermes")
    assert found.command == f"{python} -m pip install ./client"
    user_python(hermes, "echo False; exit 1")
    found = the_problem(hermes.examine(), "hermes")
    assert found.command == f"uv pip install --python {python} ./client"


def test_a_hermes_whose_python_is_not_found_or_does_not_run(hermes: Machine) -> None:
    user_python(hermes, "").write_bytes(b"\x7fELF no program")
    found = hermes.examine()["hermes"]
    assert (found.state, "did not run" in found.detail) == (WARNING, True)
    (hermes.home / "bin" / "hermes").unlink()
    found = hermes.examine()["hermes"]
    assert (found.state, "not on the PATH" in found.detail) == (WARNING, True)
